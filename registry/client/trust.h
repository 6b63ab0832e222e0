/* SPDX-License-Identifier: Apache-2.0 */
/* trust.h - applies a policy to what a pull has found, and signs what a push has sent. */
#ifndef FDRY_REGISTRY_TRUST_H
#define FDRY_REGISTRY_TRUST_H

#include "registry/client/http.h"
#include "registry/client/manifest.h"
#include "registry/client/key.h"

/* The tags at which signatures lie: cosign's own, and that of registries without a list of
 * referrers. */
#define FDRY_TRUST_TAG_SIZE (sizeof("sha256-.sig") + FDRY_OID_HEX_SIZE)
void fdry_trust_tags(const struct fdry_oid *id, char cosign[FDRY_TRUST_TAG_SIZE],
		     char referrers[FDRY_TRUST_TAG_SIZE]);

/* Whether the policy (a path; NULL: none) accepts the manifest or index @id under the session's
 * name. FDRY_E_UNSIGNED with one sentence that names the keys; FDRY_E_ENV; errors of requests. */
int fdry_trust_check(struct fdry_http *h, const char *policy, const struct fdry_oid *id)
	__must_check;

/* Sign the document @subject for the session's name. A signature of this key that is there already
 * is not repeated; those of other keys stay. */
int fdry_trust_sign(struct fdry_http *h, EVP_PKEY *key, const struct fdry_descriptor *subject)
	__must_check;

#endif
