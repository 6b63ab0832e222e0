/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content.h - makes an image that has only content, with the fingerprints that a seal would record.
 * Neither a driver nor a capture is needed.
 */
#ifndef FDRY_TESTS_LIB_CONTENT_H
#define FDRY_TESTS_LIB_CONTENT_H

#include "store/store.h"

/**
 * struct content_image - The contents of the image to make.
 * @ref: its name, or NULL
 * @seed: chunk i has the bytes of content_noise(@seed + i); chunks are 2 MiB apart in memory
 * @n, @len: number and size of the chunks
 * @plain: the manifest records no fingerprints
 * @wrong: the number of chunks, from the first one, with a wrong fingerprint in the manifest
 */
struct content_image {
	const char *ref;
	uint64_t seed;
	size_t n, len;
	bool plain;
	size_t wrong;
};

/* Returns 0, or an error of the library. @oids: NULL, or gets the chunks. @id: of the manifest. */
int content_image_seal(struct fdry_store *s, const struct content_image *c, struct fdry_oid *oids,
		       struct fdry_oid *id) __must_check;
/* Write bytes that do not compress, the same for the same seed. */
void content_noise(uint64_t seed, void *to, size_t len);

#endif
