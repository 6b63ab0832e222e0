/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuarray.h - places in CUDA arrays, as memcpy records name them, and arrays of a process.
 *
 * An array has another handle in every process. Graph objects name it by its number in the image.
 * A place is that number and a byte of the array's rows, in 64 bits. Its two highest bits are set,
 * so neither a device address nor a place in host memory (host.h) looks like it.
 */
#ifndef FDRY_GRAPH_CUARRAY_H
#define FDRY_GRAPH_CUARRAY_H

#include <stdbool.h>
#include <stdint.h>

#define FDRY_CUARRAY_PLACE (3ull << 62)
#define FDRY_CUARRAY_SHIFT 40 /* bits of the byte; the bits above are the number */
#define FDRY_CUARRAY_X_MAX (1ull << FDRY_CUARRAY_SHIFT) /* bytes of a row */
#define FDRY_CUARRAYS_MAX (1u << 16)

struct CUarray_st;

/* An array in this process. */
struct fdry_cuarray {
	struct CUarray_st *handle; /* CUarray */
	uint32_t element;          /* bytes of an element */
	uint32_t rows, slices;     /* of a slice, of the array; at least 1 */
	uint64_t row;              /* bytes of a row */
};

/* Whether it is a place in an array. */
static inline bool fdry_cuarray_is(uint64_t place)
{
	return (place & FDRY_CUARRAY_PLACE) == FDRY_CUARRAY_PLACE;
}

/* @number and @x are below their limits. */
static inline uint64_t fdry_cuarray_place(uint32_t number, uint64_t x)
{
	return FDRY_CUARRAY_PLACE | (uint64_t)number << FDRY_CUARRAY_SHIFT | x;
}

/* Any number below 2^22 if the place is unchecked. */
static inline uint32_t fdry_cuarray_number(uint64_t place)
{
	return (uint32_t)((place & ~FDRY_CUARRAY_PLACE) >> FDRY_CUARRAY_SHIFT);
}

static inline uint64_t fdry_cuarray_x(uint64_t place)
{
	return place & (FDRY_CUARRAY_X_MAX - 1);
}

#endif
