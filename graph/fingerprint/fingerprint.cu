// SPDX-License-Identifier: Apache-2.0
/*
 * fingerprint.cu - the values of fingerprint blocks, computed by a GPU.
 *
 * graph/fingerprint/make.sh compiles it; what it makes is in the tree, so that a build needs no
 * compiler for GPUs. One block of 256 threads computes one value. A thread is a lane
 * (Documentation/format/fingerprint.rst): each row is read by neighbouring threads in 16-byte loads.
 */
#include "lib/fingerprint_mix.h"

/* As struct fdry_fingerprint_part of graph/fingerprint.h. */
struct part {
	uint64_t addr;
	uint64_t len;
};

typedef struct fdry_fingerprint value;

/* 8 bytes, of which @left lie in the block; the others count as zeros. */
static __device__ __forceinline__ uint64_t word_at(const uint8_t *p, int64_t left)
{
	uint64_t word = 0;
	int32_t i;

#pragma unroll 1
	for (i = left < 8 ? (int32_t)left : 8; i > 0; i--)
		word = word << 8 | p[i - 1];
	return word;
}

/* Whole rows at a multiple of 16. */
static __device__ __forceinline__ value rows_aligned(value lane, const uint8_t *p, uint32_t rows)
{
	ulonglong2 unit;

#pragma unroll 4
	for (; rows; rows--, p += FDRY_FINGERPRINT_ROW) {
		unit = __ldcs((const ulonglong2 *)p);
		lane = fdry_fingerprint_step(lane, unit.x, unit.y);
	}
	return lane;
}

/* Rows with @left bytes from @p on, byte by byte. */
static __device__ __forceinline__ value rows_any(value lane, const uint8_t *p, int64_t left,
						 uint32_t rows)
{
	uint64_t x, y;

#pragma unroll 1
	for (; rows; rows--, p += FDRY_FINGERPRINT_ROW, left -= FDRY_FINGERPRINT_ROW) {
		x = word_at(p, left);
		y = word_at(p + 8, left - 8);
		lane = fdry_fingerprint_step(lane, x, y);
	}
	return lane;
}

extern "C" __global__ void __launch_bounds__(FDRY_FINGERPRINT_LANES)
	fdry_fingerprint_blocks(const struct part *parts, value *values)
{
	__shared__ value lanes[FDRY_FINGERPRINT_LANES];
	const struct part part = parts[blockIdx.x];
	const uint64_t len = part.len, from = threadIdx.x * FDRY_FINGERPRINT_UNIT;
	const uint32_t rows = (uint32_t)((len + FDRY_FINGERPRINT_ROW - 1) / FDRY_FINGERPRINT_ROW);
	const uint32_t whole = part.addr % FDRY_FINGERPRINT_UNIT ?
				       0 : (uint32_t)(len / FDRY_FINGERPRINT_ROW);
	const uint64_t done = from + whole * FDRY_FINGERPRINT_ROW;
	value lane = { FDRY_FINGERPRINT_LANE_A, FDRY_FINGERPRINT_LANE_B };
	uint32_t n;

	lane = rows_aligned(lane, (const uint8_t *)part.addr + from, whole);
	lane = rows_any(lane, (const uint8_t *)part.addr + done, (int64_t)(len - done),
			rows - whole);
	lanes[threadIdx.x] = lane;
#pragma unroll 1
	for (n = FDRY_FINGERPRINT_LANES / 2; n; n /= 2) {
		__syncthreads();
		if (threadIdx.x < n)
			lanes[threadIdx.x] = fdry_fingerprint_pair(lanes[threadIdx.x],
								   lanes[threadIdx.x + n]);
	}
	if (!threadIdx.x)
		values[blockIdx.x] = fdry_fingerprint_end(lanes[0], len);
}
