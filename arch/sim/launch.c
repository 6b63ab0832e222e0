// SPDX-License-Identifier: Apache-2.0
/*
 * launch.c - launches: checks them, copies their arguments, submits them.
 */
#include <stdlib.h>
#include <string.h>

#include "arch/sim/code.h"

/* Find an attribute of the launch, or NULL. */
static const CUlaunchAttributeValue *attr_find(const struct sim_launch_args *a,
					       CUlaunchAttributeID id)
{
	unsigned int i;

	for (i = a->nattrs; i > 0; i--)
		if (a->attrs[i - 1].id == id)
			return &a->attrs[i - 1].value;
	return NULL;
}

static size_t threads_of(const struct sim_launch_args *a)
{
	return (size_t)a->block[0] * a->block[1] * a->block[2];
}

static bool shape_ok(const struct sim_launch_args *a)
{
	static const unsigned int grid_max[3] = { SIM_GRID_X_MAX, SIM_GRID_Y_MAX, SIM_GRID_Z_MAX };
	static const unsigned int block_max[3] = { SIM_BLOCK_X_MAX, SIM_BLOCK_Y_MAX,
						   SIM_BLOCK_Z_MAX };
	int i;

	for (i = 0; i < 3; i++)
		if (!a->grid[i] || a->grid[i] > grid_max[i] || !a->block[i] ||
		    a->block[i] > block_max[i])
			return false;
	return threads_of(a) <= SIM_THREADS_MAX;
}

static CUresult cluster_check(const struct sim_launch_args *a, const struct sim_func_attrs *f)
{
	const CUlaunchAttributeValue *v = attr_find(a, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
	unsigned int c[3] = { (unsigned int)f->cluster_width, (unsigned int)f->cluster_height,
			      (unsigned int)f->cluster_depth };
	unsigned int most =
		f->non_portable_cluster ? SIM_CLUSTER_NON_PORTABLE_MAX : SIM_CLUSTER_MAX;
	int i;

	if (v) {
		c[0] = v->clusterDim.x;
		c[1] = v->clusterDim.y;
		c[2] = v->clusterDim.z;
	}
	if (!v && !c[0])
		return CUDA_SUCCESS;
	for (i = 0; i < 3; i++)
		if (!c[i] || c[i] > most || a->grid[i] % c[i])
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return c[0] * c[1] * c[2] <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

static CUresult cooperative_check(const struct sim_launch_args *a,
				  const struct sim_kernel_record *record)
{
	const CUlaunchAttributeValue *v = attr_find(a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
	uint64_t blocks = (uint64_t)a->grid[0] * a->grid[1] * a->grid[2];

	if (!v || !v->cooperative)
		return CUDA_SUCCESS;
	return blocks <= (uint64_t)SIM_SM_COUNT * sim_occupancy(record, threads_of(a), a->shared) ?
		       CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

static bool attrs_ok(const struct sim_launch_args *a)
{
	unsigned int i;

	if (a->nattrs && !a->attrs)
		return false;
	for (i = 0; i < a->nattrs; i++)
		if ((unsigned int)a->attrs[i].id >
		    CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)
			return false;
	return true;
}

/* The function attributes for a launch: those of the kernel if the launch names it and none was set
 * on the function, else those of the function. */
static const struct sim_func_attrs *attrs_of(const struct sim_func *f, CUkernel kern)
{
	const struct sim_kern *k = kern && !f->attrs.set ? sim_find(kern, SIM_KERNEL) : NULL;

	return k ? &k->attrs[f->ctx->dev] : &f->attrs;
}

static CUresult launch_check(const struct sim_launch_args *a, const struct sim_func *f,
			     CUkernel kern)
{
	const struct sim_func_attrs *attrs = attrs_of(f, kern);

	if (!shape_ok(a) || !attrs_ok(a) || a->shared > (unsigned int)attrs->max_dynamic_shared)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(cluster_check(a, attrs));
	return cooperative_check(a, f->record);
}

struct packed {
	const void *data;
	size_t size;
	bool given;
};

static CUresult extra_read(void **extra, struct packed *ret)
{
	*ret = (struct packed){ NULL, 0, false };
	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			ret->data = extra[1];
		else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1])
			ret->size = *(const size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	ret->given = ret->data != NULL;
	return CUDA_SUCCESS;
}

static void *buffer_new(size_t size)
{
	void *p;

	return posix_memalign(&p, 16, size) ? NULL : memset(p, 0, size);
}

static CUresult args_pack(const struct sim_launch_args *a, const struct sim_kernel_record *record,
			  struct sim_launch *ret)
{
	uint32_t i;

	for (i = 0; i < record->nparams; i++)
		if (!a->params || !a->params[i])
			return CUDA_ERROR_INVALID_VALUE;
	ret->args_size = sim_record_bytes(record);
	if (!ret->args_size)
		return CUDA_SUCCESS;
	ret->args = buffer_new(ret->args_size);
	if (!ret->args)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (i = 0; i < record->nparams; i++)
		memcpy((char *)ret->args + record->params[i].offset, a->params[i],
		       record->params[i].size);
	return CUDA_SUCCESS;
}

/* A buffer may be shorter than the parameters, but neither empty nor longer. The error for a longer
 * one is another in a graph: see sim_kernel_make(). */
static CUresult args_take(const struct sim_launch_args *a, const struct sim_kernel_record *record,
			  struct sim_launch *ret)
{
	struct packed p;

	SIM_TRY(extra_read(a->extra, &p));
	if (!p.given)
		return args_pack(a, record, ret);
	if (!p.size && record->nparams)
		return CUDA_ERROR_INVALID_VALUE;
	if (p.size > sim_record_bytes(record))
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	ret->packed = true;
	ret->args_size = p.size;
	ret->args = sim_args_new(record, p.data, p.size);
	return ret->args ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult attrs_take(const struct sim_launch_args *a, struct sim_launch *ret)
{
	if (!a->nattrs)
		return CUDA_SUCCESS;
	ret->attrs = buffer_new(a->nattrs * sizeof(*ret->attrs));
	if (!ret->attrs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(ret->attrs, a->attrs, a->nattrs * sizeof(*ret->attrs));
	ret->nattrs = a->nattrs;
	return CUDA_SUCCESS;
}

CUresult sim_launch_make(struct sim_ctx *ctx, const struct sim_launch_args *a, struct sim_op *ret)
{
	struct sim_op op = { .kind = SIM_OP_KERNEL };
	struct sim_launch *l = &op.launch;
	CUresult res;

	if (a->params && a->extra)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_func_find(a->func, ctx, &l->func, &l->kern));
	SIM_TRY(launch_check(a, l->func, l->kern));
	memcpy(l->grid, a->grid, sizeof(l->grid));
	memcpy(l->block, a->block, sizeof(l->block));
	l->shared = a->shared;
	sim_obj_get(&l->func->obj);
	res = a->extra ? args_take(a, l->func->record, l) : args_pack(a, l->func->record, l);
	if (!res)
		res = attrs_take(a, l);
	if (res)
		sim_op_release(&op);
	else
		*ret = op;
	return res;
}

/*
 * Record the event that a launch attribute names, after the launch. In a capture, edges of the
 * graph replace this.
 */
static CUresult event_after(struct sim_stream *s, const struct sim_launch_args *a)
{
	const CUlaunchAttributeValue *v = attr_find(a, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT);
	struct sim_op op = { .kind = SIM_OP_EVENT_RECORD };
	CUevent event = v ? v->programmaticEvent.event : NULL;

	if (!v) {
		v = attr_find(a, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT);
		event = v ? v->launchCompletionEvent.event : NULL;
	}
	if (!v || s->capture)
		return CUDA_SUCCESS;
	SIM_TRY(sim_event_find(event, &op.event.event));
	sim_obj_get(&op.event.event->obj);
	return sim_stream_submit(s, &op, NULL);
}

/* A launch outside of graphs leaves parameters that were not passed as an earlier launch left them.
 * A node has zeros there. */
#define NOT_PASSED 0xa5

static void not_passed_fill(const struct sim_launch *l)
{
	size_t bytes = sim_record_bytes(l->func->record);

	if (l->args_size < bytes)
		memset((char *)l->args + l->args_size, NOT_PASSED, bytes - l->args_size);
}

static CUresult launch(CUstream stream, const struct sim_launch_args *a)
{
	struct sim_stream *s;
	struct sim_op op;
	CUresult res;

	SIM_TRY(sim_stream_find(stream, &s));
	res = sim_launch_make(s->ctx, a, &op);
	if (res == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES && s->capture)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(res);
	if (!s->capture)
		not_passed_fill(&op.launch);
	SIM_TRY(sim_stream_submit(s, &op, NULL));
	return event_after(s, a);
}

CUresult cuLaunchKernel(CUfunction func, unsigned int gx, unsigned int gy, unsigned int gz,
			unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			CUstream stream, void **params, void **extra)
{
	struct sim_launch_args a = { .func = func, .grid = { gx, gy, gz }, .block = { bx, by, bz },
				     .shared = shared, .params = params, .extra = extra };

	SIM_ENTER(cuLaunchKernel);
	return launch(stream, &a);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction func, void **params, void **extra)
{
	struct sim_launch_args a = { .func = func, .params = params, .extra = extra };

	SIM_ENTER(cuLaunchKernelEx);
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	a.grid[0] = c->gridDimX;
	a.grid[1] = c->gridDimY;
	a.grid[2] = c->gridDimZ;
	a.block[0] = c->blockDimX;
	a.block[1] = c->blockDimY;
	a.block[2] = c->blockDimZ;
	a.shared = c->sharedMemBytes;
	a.attrs = c->attrs;
	a.nattrs = c->numAttrs;
	return launch(c->hStream, &a);
}

CUresult cuLaunchCooperativeKernel(CUfunction func, unsigned int gx, unsigned int gy,
				   unsigned int gz, unsigned int bx, unsigned int by,
				   unsigned int bz, unsigned int shared, CUstream stream,
				   void **params)
{
	CUlaunchAttribute cooperative = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
					  .value = { .cooperative = 1 } };
	struct sim_launch_args a = { .func = func,
				     .grid = { gx, gy, gz },
				     .block = { bx, by, bz },
				     .shared = shared,
				     .params = params,
				     .attrs = &cooperative,
				     .nattrs = 1 };

	SIM_ENTER(cuLaunchCooperativeKernel);
	return launch(stream, &a);
}
