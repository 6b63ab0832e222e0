// SPDX-License-Identifier: Apache-2.0
/*
 * set.c - memsets; all of them become 2D memsets.
 *
 * Synchronous memsets run in the legacy stream. The host waits for them only if they write host
 * memory, as cuda.h documents.
 */
#include "arch/sim/sim.h"

#define SIZE_LIMIT (SIZE_MAX / 16)

CUresult sim_set_check(const CUDA_MEMSET_NODE_PARAMS *p)
{
	size_t row, extent;

	if (!p || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
		return CUDA_ERROR_INVALID_VALUE;
	if (!p->width || !p->height)
		return CUDA_SUCCESS;
	if (p->width > SIZE_LIMIT || p->dst % p->elementSize ||
	    (p->height > 1 && p->pitch % p->elementSize))
		return CUDA_ERROR_INVALID_VALUE;
	row = p->width * p->elementSize;
	extent = row;
	if (p->height > 1) {
		if (p->pitch < row || p->height > SIZE_LIMIT / p->pitch)
			return CUDA_ERROR_INVALID_VALUE;
		extent += (p->height - 1) * p->pitch;
	}
	return sim_range_ok(p->dst, extent, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_async(CUDA_MEMSET_NODE_PARAMS p, CUstream stream)
{
	struct sim_op op = { .kind = SIM_OP_MEMSET, .set = p };
	struct sim_stream *s;

	SIM_TRY(sim_stream_find(stream, &s));
	SIM_TRY(sim_set_check(&p));
	if (!p.width || !p.height)
		return CUDA_SUCCESS;
	return sim_stream_submit(s, &op, NULL);
}

static CUresult set_sync(CUDA_MEMSET_NODE_PARAMS p)
{
	const struct sim_range *r;
	struct sim_ctx *ctx;
	bool host;

	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	r = sim_range_find(p.dst);
	host = r && (sim_range_host(r) || r->kind == SIM_MEM_MANAGED);
	SIM_TRY(set_async(p, CU_STREAM_LEGACY));
	return host ? sim_stream_wait(ctx->legacy) : CUDA_SUCCESS;
}

/* Each width in four forms; cuda.h names the element's type. */
#define SET(bits, type) \
	CUresult cuMemsetD##bits##_v2(CUdeviceptr dst, type value, size_t n) \
	{ \
		SIM_ENTER(cuMemsetD##bits##_v2); \
		return set_sync((CUDA_MEMSET_NODE_PARAMS){ dst, 0, value, bits / 8, n, 1 }); \
	} \
	CUresult cuMemsetD##bits##Async(CUdeviceptr dst, type value, size_t n, CUstream stream) \
	{ \
		SIM_ENTER(cuMemsetD##bits##Async); \
		return set_async((CUDA_MEMSET_NODE_PARAMS){ dst, 0, value, bits / 8, n, 1 }, \
				 stream); \
	} \
	CUresult cuMemsetD2D##bits##_v2(CUdeviceptr dst, size_t pitch, type value, size_t width, \
					size_t height) \
	{ \
		SIM_ENTER(cuMemsetD2D##bits##_v2); \
		return set_sync( \
			(CUDA_MEMSET_NODE_PARAMS){ dst, pitch, value, bits / 8, width, height }); \
	} \
	CUresult cuMemsetD2D##bits##Async(CUdeviceptr dst, size_t pitch, type value, size_t width, \
					  size_t height, CUstream stream) \
	{ \
		SIM_ENTER(cuMemsetD2D##bits##Async); \
		return set_async( \
			(CUDA_MEMSET_NODE_PARAMS){ dst, pitch, value, bits / 8, width, height }, \
			stream); \
	}

SET(8, unsigned char)
SET(16, unsigned short)
SET(32, unsigned int)
