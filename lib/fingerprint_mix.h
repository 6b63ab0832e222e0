/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint_mix.h - the arithmetic of fingerprints, in C that compilers for processors, for GPUs
 * and for the software driver's kernels all accept.
 *
 * Documentation/format/fingerprint.rst specifies it. Each number here is part of that format.
 */
#ifndef FDRY_LIB_FINGERPRINT_MIX_H
#define FDRY_LIB_FINGERPRINT_MIX_H

#include <stdint.h>

#ifdef __CUDACC__
#define FDRY_FINGERPRINT_FN static __device__ __forceinline__
#else
#define FDRY_FINGERPRINT_FN static inline
#endif

/* A block has up to 16 rows of 256 lanes; a lane reads 16 bytes of each row. */
#define FDRY_FINGERPRINT_LANES 256u
#define FDRY_FINGERPRINT_UNIT 16u
#define FDRY_FINGERPRINT_ROW (FDRY_FINGERPRINT_LANES * FDRY_FINGERPRINT_UNIT)
#define FDRY_FINGERPRINT_ROWS 16u
#define FDRY_FINGERPRINT_BLOCK (FDRY_FINGERPRINT_ROWS * FDRY_FINGERPRINT_ROW)

/* For both factors k, 2^32 k - 1 and 2^31 k - 1 are prime. */
#define FDRY_FINGERPRINT_K1 0xf3a5d617u
#define FDRY_FINGERPRINT_K2 0xed5b6bf3u
#define FDRY_FINGERPRINT_LANE_A 0x6a09e667f3bcc908ull
#define FDRY_FINGERPRINT_LANE_B 0xbb67ae8584caa73bull
#define FDRY_FINGERPRINT_ALL_A 0x3c6ef372fe94f82bull
#define FDRY_FINGERPRINT_ALL_B 0xa54ff53a5f1d36f1ull

/* 128 bits: as bytes, @a and then @b, each with its lowest byte first. */
struct fdry_fingerprint {
	uint64_t a, b;
};

FDRY_FINGERPRINT_FN uint64_t fdry_fingerprint_mul(uint64_t v, uint32_t k)
{
	return (uint64_t)(uint32_t)v * k + (v >> 32);
}

FDRY_FINGERPRINT_FN uint64_t fdry_fingerprint_mix(uint64_t v)
{
	return fdry_fingerprint_mul(fdry_fingerprint_mul(v, FDRY_FINGERPRINT_K1),
				    FDRY_FINGERPRINT_K2);
}

/* A lane reads 16 bytes: @x is the first half. */
FDRY_FINGERPRINT_FN struct fdry_fingerprint fdry_fingerprint_step(struct fdry_fingerprint lane,
								  uint64_t x, uint64_t y)
{
	lane.a = fdry_fingerprint_mix(lane.a ^ x) + y;
	lane.b = fdry_fingerprint_mix(lane.b ^ y) + x;
	return lane;
}

/* The value of two in this order. */
FDRY_FINGERPRINT_FN struct fdry_fingerprint fdry_fingerprint_pair(struct fdry_fingerprint l,
								  struct fdry_fingerprint r)
{
	l.a = fdry_fingerprint_mix(l.a) + l.b;
	l.b = fdry_fingerprint_mix(l.b) + l.a;
	l.a ^= r.a;
	l.b ^= r.b;
	return l;
}

/* The last steps of a block of @len bytes and of a whole value: every bit depends on every bit. */
FDRY_FINGERPRINT_FN struct fdry_fingerprint fdry_fingerprint_end(struct fdry_fingerprint v,
								 uint64_t len)
{
	struct fdry_fingerprint zero = { 0, 0 };

	v.a ^= len;
	return fdry_fingerprint_pair(fdry_fingerprint_pair(v, zero), zero);
}

#endif
