/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - compares the content of a loaded image with the fingerprints that the seal recorded.
 *
 * A load computes SHA-256 of content once in each boot. Bytes may change after that, in the page
 * cache, on the disk or during a copy. This check detects that: the device computes fingerprints of
 * the content in its memory before the load returns. Images that were sealed without fingerprints
 * are loaded without this check.
 */
#ifndef FDRY_IMAGE_CHECK_H
#define FDRY_IMAGE_CHECK_H

#include "graph/fingerprint.h"
#include "image/image.h"

/* Load the kernel that computes fingerprints, if the image has fingerprints, and if neither it
 * nor another image of the context has loaded it. The image's context must be current. */
int fdry_check_prepare(struct fdry_image *img) __must_check;
/* Release the kernel. The context must still exist. */
void fdry_check_end(struct fdry_image *img);

struct fdry_content_check;

/**
 * fdry_content_check_begin() - Prepare to compare content on the device with its fingerprints.
 * @reader: finds the chunks that differ in the store; it must outlive the check
 * @ret: NULL if the image has no fingerprints; the other functions accept that
 *
 * fdry_content_check_free() must follow. FDRY_E_CORRUPT, FDRY_E_BADIMAGE: the process keeps a part
 * of a chunk, and that chunk is wrong in the store.
 */
int fdry_content_check_begin(struct fdry_image *img, struct fdry_reader *reader,
			     struct fdry_content_check **ret) __must_check;
/* All content up to the end of @chunk was given to the image's stream. Begin to check some of it,
 * so that little is left when the last chunk has arrived. */
int fdry_content_check_sent(struct fdry_content_check *c, uint32_t chunk) __must_check;
/**
 * fdry_content_check_end() - Check the rest, wait, and compare.
 * @ret: the number of compared bytes; 0 if the image has no fingerprints
 *
 * All content was given to the image's stream. Content memory without a chunk must be zero.
 * FDRY_E_CORRUPT names the first chunk that differs. Chunks that are damaged in the store are noted
 * for a repair, and the store's earlier verifications become void. FDRY_E_BADIMAGE: the fingerprint
 * itself is wrong.
 */
int fdry_content_check_end(struct fdry_content_check *c, uint64_t *ret) __must_check;
/* Free the check, also before its end. @c may be NULL. The message of the last failure stays. */
void fdry_content_check_free(struct fdry_content_check *c);

/* The same in one call, for content that the image's stream has or gets before. */
int fdry_content_check(struct fdry_image *img, struct fdry_reader *reader, uint64_t *ret)
	__must_check;

/**
 * fdry_content_find() - Find content that is on the device already, from other images.
 * @whole: whether all content is there, so that none must be copied or checked
 * @ret: the number of compared bytes
 *
 * Marks the chunks in @img->in_place, and zeroes content memory without a chunk that is not zero.
 * All memory of the image must be mapped and readable for the device. @img->in_place stays NULL if
 * the device has no code for fingerprints; then no memory is zeroed.
 */
int fdry_content_find(struct fdry_image *img, bool *whole, uint64_t *ret) __must_check;

/* The same as fdry_content_check() for host chunk @i, whose content is in host memory. */
int fdry_host_chunk_check(struct fdry_image *img, struct fdry_reader *reader, uint32_t i)
	__must_check;

/**
 * fdry_image_fingerprints() - Compute fingerprints of the image's device memory, and wait.
 * @ret: one for each of the @n ranges, which may have the size of a tensor
 *
 * If the device lacks code or memory for that, the memory is copied back and the processor computes
 * the fingerprints. Context: the image's context must be current, and all writes must have ended or
 * be on the image's stream.
 */
int fdry_image_fingerprints(struct fdry_image *img, const struct fdry_fingerprint_range *ranges,
			    size_t n, struct fdry_fingerprint *ret) __must_check;

/* Map and verify a chunk of host memory. bytes->len is its size in the manifest. Adds to @sum the
 * bytes, and those hashed. Damage in the store is noted for a repair. FDRY_E_CORRUPT,
 * FDRY_E_BADIMAGE. */
int fdry_chunk_map(struct fdry_image *img, struct fdry_reader *reader, const struct fdry_oid *oid,
		   struct fdry_content_sum *sum, struct fdry_span *bytes) __must_check;
/* Compare the bytes of a chunk with its fingerprint. FDRY_E_CORRUPT, FDRY_E_BADIMAGE. */
int fdry_chunk_check(struct fdry_image *img, struct fdry_reader *reader,
		     const struct fdry_oid *oid, struct fdry_span bytes,
		     struct fdry_fingerprint want) __must_check;

/* Prefix the sentence of an error about @len bytes of content on the device with their place and
 * their tensors; 0 stays 0. */
int fdry_content_fail(const struct fdry_image *img, int err, uint64_t addr, uint64_t len);

#endif
