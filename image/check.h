/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - the content of a loaded image, compared with the fingerprints that the seal recorded.
 *
 * SHA-256 of content is computed once in each boot. Bytes that change after that, in the page
 * cache, on the disk or on their way, are found here: the device computes fingerprints of the
 * content in its memory before the load returns. Images that were sealed without fingerprints load
 * unchecked.
 */
#ifndef FDRY_IMAGE_CHECK_H
#define FDRY_IMAGE_CHECK_H

#include "graph/fingerprint.h"
#include "image/image.h"

/* Load the kernel that computes fingerprints, if the image has some and no other image of the
 * context has loaded it. The image's context is current. */
int fdry_check_prepare(struct fdry_image *img) __must_check;
/* While there is a context. */
void fdry_check_end(struct fdry_image *img);

/**
 * fdry_content_check() - Compare content on the device with its fingerprints.
 * @reader: finds the chunks that differ in the store
 * @ret: how many bytes were compared; 0 if the image has no fingerprints
 *
 * All content has been copied on the image's stream; memory of content without a chunk must be
 * zero. FDRY_E_CORRUPT names the first chunk that differs. Chunks that are damaged in the store are
 * noted, and nothing that was verified there is trusted any more. FDRY_E_BADIMAGE: the fingerprint
 * itself is wrong.
 */
int fdry_content_check(struct fdry_image *img, struct fdry_reader *reader, uint64_t *ret)
	__must_check;

/**
 * fdry_content_find() - Find content that is on the device already, as other images have left it.
 * @whole: whether that is all of it, so that nothing is to be copied or checked
 * @ret: how many bytes were compared
 *
 * Marks the chunks in @img->in_place, and zeroes memory of content that is not zero and has no
 * chunk. All memory of the image is mapped and the device can read it. @img->in_place stays NULL if
 * the device has no code for fingerprints; then nothing was zeroed.
 */
int fdry_content_find(struct fdry_image *img, bool *whole, uint64_t *ret) __must_check;

/* fdry_content_check() for host chunk @i, which lies in host memory. */
int fdry_host_chunk_check(struct fdry_image *img, struct fdry_reader *reader, uint32_t i)
	__must_check;

/**
 * fdry_image_fingerprints() - Compute fingerprints of the image's device memory, and wait.
 * @ret: one for each of the @n ranges, which may be as long as a tensor
 *
 * If the device lacks code or memory for it, the memory is copied back and the processor computes
 * them. Context: the image's must be current; what was to be written has been, or is on the image's
 * stream.
 */
int fdry_image_fingerprints(struct fdry_image *img, const struct fdry_fingerprint_range *ranges,
			    size_t n, struct fdry_fingerprint *ret) __must_check;

/* An object that the load needs is damaged in the store: note it for a repair. Any thread. */
void fdry_damage_note(struct fdry_image *img, const struct fdry_oid *oid);
/* The load of @name has failed with FDRY_E_CORRUPT: bring the ids in @damaged back from packs in
 * the store. Returns 0 if all of them are whole again, else the error of the load. */
int fdry_damage_repair(struct fdry_store *store, const char *name,
		       const struct fdry_buf *damaged) __must_check;

#endif
