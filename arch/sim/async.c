// SPDX-License-Identifier: Apache-2.0
/*
 * async.c - memory allocated and freed in the order of a stream.
 *
 * An allocation waits for nothing and happens at once; freeing waits for the work before it in the
 * stream. In a stream that captures, both become nodes.
 */
#include "arch/sim/graph.h"

#include <stdlib.h>

static CUresult capture_alloc(struct sim_stream *s, size_t size, CUdeviceptr *ret)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
					     .id = s->ctx->dev } },
		.bytesize = size,
	};
	struct sim_gmem *m;
	CUdeviceptr addr;

	SIM_TRY(sim_gmem_new(&p, &m));
	addr = sim_gmem_addr(m);
	SIM_TRY(sim_capture_memory(s, CU_GRAPH_NODE_TYPE_MEM_ALLOC, m));
	*ret = addr;
	return CUDA_SUCCESS;
}

static CUresult free_run(void *data, struct sim_ctx *ctx)
{
	(void)ctx;
	sim_lock();
	sim_alloc_free(*(const CUdeviceptr *)data);
	sim_unlock();
	return CUDA_SUCCESS;
}

static CUresult free_submit(struct sim_stream *s, CUdeviceptr addr)
{
	struct sim_op op = { .kind = SIM_OP_CALL, .call = { .run = free_run, .release = free } };
	CUdeviceptr *data = malloc(sizeof(*data));

	if (!data)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*data = addr;
	op.call.data = data;
	return sim_stream_submit(s, &op, NULL);
}

static CUresult alloc_async(CUdeviceptr *ret, size_t size, CUmemoryPool pool, CUstream stream)
{
	struct sim_stream *s;

	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_find(stream, &s));
	if (!size) {
		*ret = 0;
		return CUDA_SUCCESS;
	}
	return s->capture ? capture_alloc(s, size, ret) : sim_pool_alloc(s->ctx, pool, size, ret);
}

CUresult cuMemAllocAsync(CUdeviceptr *ret, size_t size, CUstream stream)
{
	SIM_ENTER(cuMemAllocAsync);
	return alloc_async(ret, size, NULL, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ret, size_t size, CUmemoryPool pool, CUstream stream)
{
	SIM_ENTER(cuMemAllocFromPoolAsync);
	return pool ? alloc_async(ret, size, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr addr, CUstream stream)
{
	struct sim_gmem *m;
	struct sim_stream *s;

	SIM_ENTER(cuMemFreeAsync);
	SIM_TRY(sim_stream_find(stream, &s));
	if (!addr)
		return CUDA_SUCCESS;
	if (s->capture) {
		SIM_TRY(sim_gmem_find(addr, &m));
		return sim_capture_memory(s, CU_GRAPH_NODE_TYPE_MEM_FREE, m);
	}
	if (sim_gmem_free(addr))
		return CUDA_SUCCESS;
	return sim_alloc_is(addr) ? free_submit(s, addr) : CUDA_ERROR_INVALID_VALUE;
}
