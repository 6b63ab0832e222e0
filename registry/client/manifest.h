/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h - manifests and indexes of artifacts; Documentation/format/registry.rst specifies
 * them.
 *
 * The layers of an artifact are its list and then its objects, in the list's order. They lie in one
 * manifest, or in several that an index names, each with up to FDRY_MANIFEST_LAYERS layers.
 */
#ifndef FDRY_REGISTRY_MANIFEST_H
#define FDRY_REGISTRY_MANIFEST_H

#include "registry/client.h"

#define FDRY_MANIFEST_LAYERS 10000u
#define FDRY_MANIFEST_BYTES (4u << 20) /* what registries accept */
#define FDRY_INDEX_PARTS 4096u

#define FDRY_MEDIA_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define FDRY_MEDIA_INDEX "application/vnd.oci.image.index.v1+json"
#define FDRY_MEDIA_EMPTY "application/vnd.oci.empty.v1+json"
#define FDRY_MEDIA_IMAGE "application/vnd.foundry.image.v1"
#define FDRY_MEDIA_LIST "application/vnd.foundry.list.v1"
#define FDRY_MEDIA_OBJECT "application/vnd.foundry.%s.v1" /* the kind's name */
#define FDRY_MEDIA_MAX 64
#define FDRY_EMPTY_BLOB "{}"

/* The media type of an object: that of the highest of its kinds. */
const char *fdry_media_of(uint32_t kinds, char ret[FDRY_MEDIA_MAX]);

/* One layer of a manifest, or one manifest of an index. */
struct fdry_descriptor {
	char media[FDRY_MEDIA_MAX]; /* "" if it is longer: none of ours */
	struct fdry_oid digest;
	uint64_t size;
};

/* Append the manifest with these layers. */
int fdry_manifest_put(const struct fdry_descriptor *layers, size_t count,
		      struct fdry_buf *ret) __must_check;
int fdry_index_put(const struct fdry_descriptor *parts, size_t count,
		   struct fdry_buf *ret) __must_check;

/* Append the layers of a manifest, or the manifests of an index, which @is_index says; nothing in
 * it is trusted. FDRY_E_BADIMAGE, FDRY_E_LIMIT. */
int fdry_document_read(struct fdry_span text, bool *is_index, struct fdry_buf *ret) __must_check;

#endif
