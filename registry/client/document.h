/* SPDX-License-Identifier: Apache-2.0 */
/* document.h - the requests for manifests and indexes, and messages about content that is wrong. */
#ifndef FDRY_REGISTRY_DOCUMENT_H
#define FDRY_REGISTRY_DOCUMENT_H

#include "registry/client/http.h"
#include "registry/client/manifest.h"

#define FDRY_DOCUMENT_ACCEPT "Accept: " FDRY_MEDIA_MANIFEST ", " FDRY_MEDIA_INDEX
#define FDRY_DOCUMENT_REF_SIZE (sizeof("sha256:") - 1 + FDRY_OID_HEX_SIZE)

/* Write "sha256:" and the digits to @ret, and return it. */
char *fdry_document_ref(const struct fdry_oid *id, char ret[FDRY_DOCUMENT_REF_SIZE]);

/* Append the bytes of a manifest or index. @ref: a tag, or "sha256:" and digits; @want: its digest,
 * NULL: it is not known. FDRY_E_NOENT, FDRY_E_CORRUPT, FDRY_E_BADIMAGE. */
int fdry_document_fetch(struct fdry_http *h, const char *ref, const struct fdry_oid *want,
			struct fdry_buf *ret, struct fdry_oid *id) __must_check;

struct fdry_document_sent {
	struct fdry_oid id;
	bool has_subject; /* the registry lists it among the referrers of its subject */
};
/* @ref: a tag, or NULL for the digest. FDRY_E_NOENT: the registry lacks what the document names. */
int fdry_document_send(struct fdry_http *h, const char *media, struct fdry_span bytes,
		       const char *ref, struct fdry_document_sent *ret) __must_check;

/* FDRY_E_BADIMAGE: the image is damaged; @what says how. */
int fdry_document_damaged(const struct fdry_http *h, const char *what);
/* FDRY_E_CORRUPT: the registry sent other bytes than those of @id. */
int fdry_document_mismatch(const struct fdry_http *h, const struct fdry_oid *id);

#endif
