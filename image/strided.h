/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strided.h - copies between two arrays of one shape whose elements lie in any order.
 *
 * A struct fdry_strided says how to walk both arrays at once. It knows no addresses: those
 * are given with each copy, and are of the element whose indices are all 0. A walk is
 * sorted by the strides of the image's tensor, so that what is next to each other there
 * is copied together.
 *
 * Context: any thread.
 */
#ifndef FDRY_IMAGE_STRIDED_H
#define FDRY_IMAGE_STRIDED_H

#include "foundry.h"
#include "arch/driver.h"

struct fdry_strided {
	uint32_t rank;
	size_t width;              /* bytes of a unit, which lies in one piece in both arrays */
	uint64_t n[FDRY_RANK_MAX]; /* units along each dimension */
	int64_t dst[FDRY_RANK_MAX], src[FDRY_RANK_MAX]; /* distance of neighbours, in bytes */
};

struct fdry_place {
	uint64_t addr;
	bool host;
};

/* Strides of @t that have its elements row by row, without gaps. */
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
/* Join what lies in one piece in both arrays: rank 0 says that the copy is one run of bytes. */
void fdry_strided_fold(struct fdry_strided *s);
/* The walk has its units packed, in its own order, on that side. */
void fdry_strided_pack_dst(struct fdry_strided *s);
void fdry_strided_pack_src(struct fdry_strided *s);
/* Move the dimensions in which the source repeats its elements (stride 0) from @s to @repeats. */
void fdry_strided_split(struct fdry_strided *s, struct fdry_strided *repeats);
/* Make the dimensions of @inner the innermost ones of @s: both have 8 at most together. */
void fdry_strided_join(struct fdry_strided *s, const struct fdry_strided *inner);

/* The processor copies. The arrays do not overlap. */
void fdry_strided_host(const struct fdry_strided *s, void *dst, const void *src);

/**
 * fdry_strided_device() - Let the driver copy, in the order of @stream.
 *
 * At least one side is device memory, and pageable host memory is on neither. Takes as few calls of
 * the driver as the strides allow. Errors: FDRY_E_LIMIT, before anything is copied, if those are
 * more than 65536; those of the driver, after which copies may be under way.
 */
int fdry_strided_device(const struct fdry_driver *drv, const struct fdry_strided *s,
			struct fdry_place dst, struct fdry_place src, CUstream stream) __must_check;

/* @dst and @src: bytes from the beginning of the arrays to those of the piece. */
typedef int (*fdry_strided_fn)(void *arg, const struct fdry_strided *piece, int64_t dst,
			       int64_t src);

/* Cut a walk into pieces of at most @max bytes (16 or more) and call @fn for each, until one fails.
 */
int fdry_strided_pieces(const struct fdry_strided *s, size_t max, fdry_strided_fn fn,
			void *arg) __must_check;

#endif
