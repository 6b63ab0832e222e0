/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - places in host memory, as graph objects and manifests name them.
 *
 * Host memory has other addresses in every process. The image has a host segment for each range
 * that copies read or write. A place is a segment and an offset in it, in 64 bits. Its highest bit
 * is set, so no device address looks like a place. The next bit is clear: it is set in places in
 * CUDA arrays (cuarray.h).
 */
#ifndef FDRY_GRAPH_HOST_H
#define FDRY_GRAPH_HOST_H

#include <stdbool.h>
#include <stdint.h>

#define FDRY_HOST_PLACE (1ull << 63)
#define FDRY_HOST_SHIFT 40                  /* bits of the offset; the bits above are the segment */
#define FDRY_HOST_SIZE_MAX (1ull << FDRY_HOST_SHIFT) /* bytes of one segment */
#define FDRY_HOST_SEGMENTS_MAX (1u << 20)
#define FDRY_HOST_ALIGN \
	16u /* an address is a multiple of this exactly if it was one when captured */

/* A host segment in this process. */
struct fdry_host_segment {
	uint64_t addr;
	uint64_t size; /* bytes */
};

/* @segment and @offset are below their limits. */
static inline uint64_t fdry_host_place(uint32_t segment, uint64_t offset)
{
	return FDRY_HOST_PLACE | (uint64_t)segment << FDRY_HOST_SHIFT | offset;
}

/* Whether it is a device address, and no place. */
static inline bool fdry_place_is_device(uint64_t place)
{
	return !(place & FDRY_HOST_PLACE);
}

/* Whether it is a place in host memory. */
static inline bool fdry_host_is(uint64_t place)
{
	return place >> 62 == FDRY_HOST_PLACE >> 62;
}

/* Any number below 2^22 if the place is unchecked. */
static inline uint32_t fdry_host_segment(uint64_t place)
{
	return (uint32_t)((place & ~FDRY_HOST_PLACE) >> FDRY_HOST_SHIFT);
}

static inline uint64_t fdry_host_offset(uint64_t place)
{
	return place & (FDRY_HOST_SIZE_MAX - 1);
}

/* Whether @bytes bytes at @place lie in one of @count segments. */
static inline bool fdry_host_holds(const struct fdry_host_segment *segments, uint32_t count,
				   uint64_t place, uint64_t bytes)
{
	uint32_t i = fdry_host_segment(place);

	return i < count && fdry_host_offset(place) <= segments[i].size &&
	       bytes <= segments[i].size - fdry_host_offset(place);
}

#endif
