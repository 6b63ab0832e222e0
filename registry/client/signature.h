/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signature.h - signatures of images as they lie in a registry; Documentation/format/signature.rst
 * specifies them.
 *
 * A payload is a text that names a manifest's digest and the name under which it may be found. A
 * signature manifest has one layer for each signature: the payload, and the signature of it as an
 * annotation. Nothing in these documents is trusted before a key has verified it.
 */
#ifndef FDRY_REGISTRY_SIGNATURE_H
#define FDRY_REGISTRY_SIGNATURE_H

#include "registry/client/manifest.h"

#define FDRY_MEDIA_SIGNATURE "application/vnd.dev.cosign.artifact.sig.v1+json"
#define FDRY_MEDIA_PAYLOAD "application/vnd.dev.cosign.simplesigning.v1+json"
#define FDRY_SIGNATURE_MAX 128      /* bytes of one */
#define FDRY_SIGNATURES_MAX 64      /* of one manifest, and manifests of one image */
#define FDRY_PAYLOAD_MAX (16u << 10)
#define FDRY_SIGNATURE_REFERENCE_MAX 1024

/* One layer of a signature manifest. */
struct fdry_signature {
	struct fdry_oid payload;
	uint64_t size; /* of the payload */
	size_t len;
	uint8_t bytes[FDRY_SIGNATURE_MAX];
};

struct fdry_payload {
	struct fdry_oid id; /* of the manifest or index */
	char reference[FDRY_SIGNATURE_REFERENCE_MAX]; /* HOST/REPOSITORY, mostly with :TAG */
};

/* Append the payload for a manifest. */
int fdry_payload_put(const struct fdry_payload *p, struct fdry_buf *ret) __must_check;
/* FDRY_E_BADIMAGE unless it is one, with every member that its critical part must have, and no
 * other. */
int fdry_payload_read(struct fdry_span text, struct fdry_payload *ret) __must_check;

/* Append each struct fdry_signature of a signature manifest. Layers of other kinds are left out.
 * FDRY_E_BADIMAGE, FDRY_E_LIMIT. */
int fdry_signatures_read(struct fdry_span text, struct fdry_buf *ret) __must_check;
/* Append the manifest @old (empty: none) with one more signature. @subject: the signed document. */
int fdry_signatures_put(struct fdry_span old, const struct fdry_descriptor *subject,
			const struct fdry_signature *added, struct fdry_buf *ret) __must_check;

/* Append a struct fdry_descriptor for each signature manifest in an index of referrers. */
int fdry_referrers_read(struct fdry_span text, struct fdry_buf *ret) __must_check;
/* Append the index @old (empty: none) with @added in place of @replaced (NULL: none). Other
 * referrers stay as they are. */
int fdry_referrers_put(struct fdry_span old, const struct fdry_descriptor *added,
		       const struct fdry_oid *replaced, struct fdry_buf *ret) __must_check;

#endif
