// SPDX-License-Identifier: Apache-2.0
/*
 * work.c - makes operations from the parameters of nodes.
 *
 * Each kind has one function, which serves the kind's own functions, cuGraphAddNode, and changes of
 * executable graphs.
 */
#include "arch/sim/graph.h"

#include <string.h>

static CUresult kernel_ctx(const CUDA_KERNEL_NODE_PARAMS *p, struct sim_ctx **ret)
{
	struct sim_func *f = p->func ? sim_find(p->func, SIM_FUNC) : NULL;

	if (!f)
		return sim_ctx_find(p->func ? NULL : p->ctx, ret);
	*ret = f->ctx;
	return CUDA_SUCCESS;
}

CUresult sim_kernel_make(const CUDA_KERNEL_NODE_PARAMS *p, const struct sim_launch *attrs,
			 struct sim_op *ret)
{
	struct sim_launch_args args = {
		.func = p->func ? p->func : (CUfunction)p->kern,
		.grid = { p->gridDimX, p->gridDimY, p->gridDimZ },
		.block = { p->blockDimX, p->blockDimY, p->blockDimZ },
		.shared = p->sharedMemBytes,
		.params = p->kernelParams,
		.extra = p->extra,
	};
	struct sim_ctx *ctx;
	CUresult res;

	if (p->kernelParams && p->extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (attrs) {
		args.attrs = attrs->attrs;
		args.nattrs = attrs->nattrs;
	}
	SIM_TRY(kernel_ctx(p, &ctx));
	res = sim_launch_make(ctx, &args, ret);
	return res == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES ? CUDA_ERROR_INVALID_VALUE : res;
}

CUresult sim_kernel_check(const struct sim_launch *l, struct sim_op *ret)
{
	size_t size = l->args_size;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, l->args, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &size, CU_LAUNCH_PARAM_END };
	struct sim_launch_args args = {
		.func = SIM_HANDLE(CUfunction, l->func),
		.grid = { l->grid[0], l->grid[1], l->grid[2] },
		.block = { l->block[0], l->block[1], l->block[2] },
		.shared = l->shared,
		.attrs = l->attrs,
		.nattrs = l->nattrs,
		.extra = size || l->packed ? extra : NULL,
	};

	if (!l->func->module)
		return CUDA_ERROR_INVALID_HANDLE;
	if (l->kern)
		args.func = (CUfunction)l->kern;
	SIM_TRY(sim_launch_make(l->func->ctx, &args, ret));
	ret->launch.packed = l->packed;
	return CUDA_SUCCESS;
}

CUresult sim_memcpy_make(const CUDA_MEMCPY3D *p, CUcontext ctx, struct sim_op *ret)
{
	struct sim_ctx *c;

	SIM_TRY(sim_ctx_find(ctx, &c));
	SIM_TRY(sim_copy_check(p));
	*ret = (struct sim_op){ .kind = SIM_OP_MEMCPY,
				.copy = { .p = *p, .ctx = (CUcontext)(uintptr_t)c->handle } };
	return CUDA_SUCCESS;
}

CUresult sim_memset_make(const CUDA_MEMSET_NODE_PARAMS *p, struct sim_op *ret)
{
	SIM_TRY(sim_set_check(p));
	*ret = (struct sim_op){ .kind = SIM_OP_MEMSET, .set = *p };
	return CUDA_SUCCESS;
}

CUresult sim_host_make(const CUDA_HOST_NODE_PARAMS *p, struct sim_op *ret)
{
	if (!p->fn)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (struct sim_op){ .kind = SIM_OP_HOST, .host = *p };
	return CUDA_SUCCESS;
}

CUresult sim_event_make(CUevent event, enum sim_op_kind kind, struct sim_op *ret)
{
	struct sim_event *ev = sim_find(event, SIM_EVENT);

	if (!ev)
		return CUDA_ERROR_INVALID_VALUE;
	sim_obj_get(&ev->obj);
	memset(ret, 0, sizeof(*ret));
	ret->kind = kind;
	ret->event.event = ev;
	return CUDA_SUCCESS;
}

/* The wide memset parameters without their context. */
static CUDA_MEMSET_NODE_PARAMS memset_narrow(const CUDA_MEMSET_NODE_PARAMS_v2 *p)
{
	return (CUDA_MEMSET_NODE_PARAMS){ p->dst,	  p->pitch, p->value,
					  p->elementSize, p->width, p->height };
}

static CUDA_KERNEL_NODE_PARAMS kernel_narrow(const CUDA_KERNEL_NODE_PARAMS_v3 *p)
{
	return (CUDA_KERNEL_NODE_PARAMS){ p->func,	p->gridDimX,	   p->gridDimY,
					  p->gridDimZ,	p->blockDimX,	   p->blockDimY,
					  p->blockDimZ, p->sharedMemBytes, p->kernelParams,
					  p->extra,	p->kern,	   p->ctx };
}

CUresult sim_params_make(const CUgraphNodeParams *p, const struct sim_launch *attrs,
			 struct sim_op *ret)
{
	CUDA_KERNEL_NODE_PARAMS kernel = kernel_narrow(&p->kernel);
	CUDA_MEMSET_NODE_PARAMS set = memset_narrow(&p->memset);
	CUDA_HOST_NODE_PARAMS host = { p->host.fn, p->host.userData };
	CUDA_BATCH_MEM_OP_NODE_PARAMS memops = { p->memOp.ctx, p->memOp.count,
						 p->memOp.paramArray, p->memOp.flags };

	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return sim_kernel_make(&kernel, attrs, ret);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		if (p->memcpy.flags || p->memcpy.reserved)
			return CUDA_ERROR_INVALID_VALUE;
		return sim_memcpy_make(&p->memcpy.copyParams, p->memcpy.copyCtx, ret);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return sim_memset_make(&set, ret);
	case CU_GRAPH_NODE_TYPE_HOST:
		return sim_host_make(&host, ret);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return sim_event_make(p->eventRecord.event, SIM_OP_EVENT_RECORD, ret);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return sim_event_make(p->eventWait.event, SIM_OP_EVENT_WAIT, ret);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return sim_memops_make(&memops, ret);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
		return sim_semas_make(SIM_OP_SEMAS_SIGNAL, p->extSemSignal.extSemArray,
				      p->extSemSignal.paramsArray, p->extSemSignal.numExtSems, ret);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return sim_semas_make(SIM_OP_SEMAS_WAIT, p->extSemWait.extSemArray,
				      p->extSemWait.paramsArray, p->extSemWait.numExtSems, ret);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

bool sim_params_clean(const CUgraphNodeParams *p)
{
	return p && !p->reserved0[0] && !p->reserved0[1] && !p->reserved0[2] && !p->reserved2;
}
