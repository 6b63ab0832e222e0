// SPDX-License-Identifier: Apache-2.0
/*
 * memop.c - memory operations, in streams and as nodes of graphs.
 *
 * A node takes writes, waits and barriers, and does not check addresses, as seen on driver 580:
 * neither writes without a barrier nor flushes. A stream takes writes only, unless it captures;
 * anything else is CUDA_ERROR_NOT_SUPPORTED there.
 */
#include <stdlib.h>

#include "arch/sim/graph.h"

#define OPS_MAX 256u

static bool is_wide(unsigned int operation)
{
	return operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ||
	       operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static CUresult stream_write_check(const CUstreamBatchMemOpParams *op)
{
	const unsigned int known = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
	size_t size = is_wide(op->operation) ? 8 : 4;

	if (op->operation != CU_STREAM_MEM_OP_WRITE_VALUE_32 &&
	    op->operation != CU_STREAM_MEM_OP_WRITE_VALUE_64)
		return CUDA_ERROR_NOT_SUPPORTED;
	return op->writeValue.flags & ~known || op->writeValue.address % size ||
			       !sim_range_ok(op->writeValue.address, size, true)
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

static CUresult node_check(const CUstreamBatchMemOpParams *op)
{
	unsigned int most = 0;

	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		if (op->waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH)
			return CUDA_ERROR_NOT_SUPPORTED;
		most = CU_STREAM_WAIT_VALUE_NOR;
		break;
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		break;
	case CU_STREAM_MEM_OP_BARRIER:
		return op->memoryBarrier.flags > CU_STREAM_MEMORY_BARRIER_TYPE_GPU
			       ? CUDA_ERROR_INVALID_VALUE
			       : CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	/* Both kinds of values have their members at the same places. */
	return op->writeValue.flags > most ||
			       op->writeValue.address % (is_wide(op->operation) ? 8 : 4)
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

static CUresult memops_make(const CUstreamBatchMemOpParams *ops, unsigned int count, bool node,
			    struct sim_op *ret)
{
	CUresult res = CUDA_SUCCESS;
	unsigned int i;

	for (i = 0; i < count && !res; i++)
		res = node ? node_check(&ops[i]) : stream_write_check(&ops[i]);
	SIM_TRY(res);
	*ret = (struct sim_op){ .kind = SIM_OP_MEMOPS, .memops = { .count = count } };
	ret->memops.list = calloc(count + 1, sizeof(*ops));
	if (!ret->memops.list)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (i = 0; i < count; i++)
		ret->memops.list[i] = ops[i];
	return CUDA_SUCCESS;
}

CUresult sim_memops_make(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct sim_op *ret)
{
	struct sim_ctx *ctx;

	if (p->flags || p->count > OPS_MAX || (p->count && !p->paramArray))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_find(p->ctx, &ctx));
	SIM_TRY(memops_make(p->paramArray, p->count, true, ret));
	ret->memops.ctx = p->ctx;
	return CUDA_SUCCESS;
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,
			       unsigned int flags)
{
	struct sim_stream *s;
	struct sim_op op;

	SIM_ENTER(cuStreamBatchMemOp_v2);
	if (!ops || !count || count > OPS_MAX || flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_find(stream, &s));
	SIM_TRY(memops_make(ops, count, s->capture != NULL, &op));
	op.memops.ctx = (CUcontext)(uintptr_t)s->ctx->handle;
	return sim_stream_submit(s, &op, NULL);
}
