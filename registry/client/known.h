/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known.h - the blobs that a repository has, by the manifests that lie there: a registry stores a
 * manifest only if it has all blobs that the manifest names. So a push asks for few documents in
 * place of thousands of blobs.
 */
#ifndef FDRY_REGISTRY_KNOWN_H
#define FDRY_REGISTRY_KNOWN_H

#include "registry/client/http.h"

struct fdry_known {
	struct fdry_buf ids; /* struct fdry_oid each, sorted */
	bool has_tags;       /* of the repository; true if it was not asked */
};

/* Read the documents of the session's tag, and, for a push of @count blobs that are many, those of
 * a few other tags. Documents of other programs are ignored. FDRY_E_NETWORK. */
int fdry_known_read(struct fdry_http *h, size_t count, struct fdry_known *ret) __must_check;
void fdry_known_release(struct fdry_known *k);
bool fdry_known_has(const struct fdry_known *k, const struct fdry_oid *id);

#endif
