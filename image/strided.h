/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strided.h - copies between two arrays of one shape whose elements lie in any order.
 *
 * A struct fdry_strided describes a walk through both arrays at once. It has no addresses: each
 * copy is called with the addresses of the elements whose indices are all 0. A walk is sorted by
 * the strides of the image's tensor, so that neighbours there are copied together.
 *
 * Context: any thread.
 */
#ifndef FDRY_IMAGE_STRIDED_H
#define FDRY_IMAGE_STRIDED_H

#include "foundry.h"
#include "arch/driver.h"

struct fdry_strided {
	uint32_t rank;
	size_t width;              /* bytes of a unit, which is contiguous in both arrays */
	uint64_t n[FDRY_RANK_MAX]; /* units along each dimension */
	int64_t dst[FDRY_RANK_MAX], src[FDRY_RANK_MAX]; /* bytes from one unit to the next */
};

struct fdry_place {
	uint64_t addr;
	bool host;
};

/* Set the strides of @t so that its elements lie row by row, without gaps. */
void fdry_strided_rows(struct fdry_tensor *t);

/**
 * fdry_strided_make() - Plan a copy between a tensor of an image and another array.
 * @image: valid, with at least one element
 * @other: of the same shape and type; strides may be negative or 0
 * @write: the image's tensor is the destination
 *
 * Errors: FDRY_E_INVAL if @other is larger than the address space.
 */
int fdry_strided_make(const struct fdry_tensor *image, const struct fdry_tensor *other, bool write,
		      struct fdry_strided *ret) __must_check;

uint64_t fdry_strided_bytes(const struct fdry_strided *s);
/* Merge dimensions that are contiguous in both arrays. If the rank becomes 0, the copy is one run
 * of bytes. */
void fdry_strided_fold(struct fdry_strided *s);
/* Change the strides of one side so that its units lie packed, in the order of the walk. */
void fdry_strided_pack_dst(struct fdry_strided *s);
void fdry_strided_pack_src(struct fdry_strided *s);
/* Move the dimensions in which the source repeats its elements (stride 0) from @s to @repeats. */
void fdry_strided_split(struct fdry_strided *s, struct fdry_strided *repeats);
/* Append the dimensions of @inner to @s as the innermost ones. Together they are at most
 * FDRY_RANK_MAX. */
void fdry_strided_join(struct fdry_strided *s, const struct fdry_strided *inner);

/* Copy with the processor. The arrays must not overlap. */
void fdry_strided_host(const struct fdry_strided *s, void *dst, const void *src);

/**
 * fdry_strided_device() - Let the driver copy, in the order of @stream.
 *
 * At least one side must be device memory, and neither pageable host memory. Makes as few calls of
 * the driver as the strides allow. Errors: FDRY_E_LIMIT, before anything is copied, if that takes
 * more than 65536 calls; those of the driver, after which copies may still run.
 */
int fdry_strided_device(const struct fdry_driver *drv, const struct fdry_strided *s,
			struct fdry_place dst, struct fdry_place src, CUstream stream) __must_check;

/* @dst and @src: offsets in bytes from the addresses of the arrays to the piece. */
typedef int (*fdry_strided_fn)(void *arg, const struct fdry_strided *piece, int64_t dst,
			       int64_t src);

/* Cut a walk into pieces of at most @max bytes (16 or more) and call @fn for each, until a call
 * fails.
 */
int fdry_strided_pieces(const struct fdry_strided *s, size_t max, fdry_strided_fn fn,
			void *arg) __must_check;

#endif
