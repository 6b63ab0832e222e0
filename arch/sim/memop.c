// SPDX-License-Identifier: Apache-2.0
/*
 * memop.c - memory operations in streams: writes of values. Waits, barriers and flushes are refused
 * with CUDA_ERROR_NOT_SUPPORTED, as is a stream that captures.
 */
#include <stdlib.h>

#include "arch/sim/sim.h"

#define OPS_MAX 256u

static CUresult write_check(const CUstreamBatchMemOpParams *op, struct sim_write *ret)
{
	const unsigned int known = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;

	if (op->operation != CU_STREAM_MEM_OP_WRITE_VALUE_32 &&
	    op->operation != CU_STREAM_MEM_OP_WRITE_VALUE_64)
		return CUDA_ERROR_NOT_SUPPORTED;
	ret->size = op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ? 4 : 8;
	ret->addr = op->writeValue.address;
	ret->value = ret->size == 4 ? op->writeValue.value : op->writeValue.value64;
	return op->writeValue.flags & ~known || ret->addr % ret->size ||
			       !sim_range_ok(ret->addr, ret->size, true)
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,
			       unsigned int flags)
{
	struct sim_op op = { .kind = SIM_OP_WRITES, .writes = { .count = count } };
	CUresult res = CUDA_SUCCESS;
	struct sim_stream *s;
	unsigned int i;

	SIM_ENTER(cuStreamBatchMemOp_v2);
	if (!ops || !count || count > OPS_MAX || flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_find(stream, &s));
	op.writes.list = calloc(count, sizeof(*op.writes.list));
	if (!op.writes.list)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (i = 0; i < count && !res; i++)
		res = write_check(&ops[i], &op.writes.list[i]);
	if (!res)
		return sim_stream_submit(s, &op, NULL);
	sim_op_release(&op);
	return res;
}
