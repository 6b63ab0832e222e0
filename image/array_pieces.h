/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array_pieces.h - the shapes of CUDA arrays of an image, and the pieces of their content.
 *
 * An array's content is cut into pieces: of as many whole slices as a chunk can hold, or else of as
 * many whole rows of one slice. A piece whose bytes are all zero is not stored.
 */
#ifndef FDRY_IMAGE_ARRAY_PIECES_H
#define FDRY_IMAGE_ARRAY_PIECES_H

#include "arch/driver.h"
#include "image/manifest.h"

/* A part of an array; its bytes lie row by row. */
struct fdry_cuarray_piece {
	uint64_t y, z;         /* its first row and slice */
	uint64_t rows, slices;
	uint64_t bytes;        /* at most FDRY_MF_CHUNK_MAX */
};

/* The shape of @a, without a handle. */
struct fdry_cuarray fdry_cuarray_of(const struct fdry_mf_array *a);
/* Why an image cannot hold an array of this kind, or NULL. */
const char *fdry_cuarray_fault(const struct fdry_mf_array *a);
static inline uint64_t fdry_cuarray_bytes(const struct fdry_cuarray *a)
{
	return a->row * a->rows * a->slices;
}
/* Level @level of a mipmapped array. */
struct fdry_mf_array fdry_mipmap_level_of(const struct fdry_mf_mipmap *m, uint32_t level);
/* The number of levels that a driver makes. */
uint32_t fdry_mipmap_levels(const struct fdry_mf_mipmap *m);
/* The entry of array @array if it is a level of a mipmapped array, or NULL. */
const struct fdry_mf_mipmap_level *fdry_manifest_level(const struct fdry_manifest *m,
						       uint32_t array);
/* The bytes of all arrays of an image, with all levels of its mipmapped arrays. */
uint64_t fdry_manifest_arrays_bytes(const struct fdry_manifest *m);

/* The number of pieces, and piece @i. */
uint64_t fdry_cuarray_pieces(const struct fdry_cuarray *a);
struct fdry_cuarray_piece fdry_cuarray_piece(const struct fdry_cuarray *a, uint64_t i);
/* Copy a piece on @stream: from the array to @to, or from @from, whichever is not NULL. */
int fdry_cuarray_copy(const struct fdry_driver *drv, const struct fdry_cuarray *a,
		      const struct fdry_cuarray_piece *piece, const void *from, void *to,
		      CUstream stream) __must_check;

#endif
