// SPDX-License-Identifier: Apache-2.0
/*
 * context.c - primary and other contexts, and each thread's stack of them.
 *
 * A stack holds handles, not objects: a context may be destroyed while it is current to
 * other threads, which then see CONTEXT_IS_DESTROYED. A primary context gets a new
 * handle each time it is created.
 */
#include <stdlib.h>
#include <string.h>

#include "arch/sim/sim.h"

#define STACK_MAX 64

static __thread struct {
	uint64_t ids[STACK_MAX];
	int depth;
} stack;

static struct {
	struct sim_ctx *ctx; /* NULL if it is not active */
	unsigned int flags;
} primaries[SIM_DEVICES_MAX];

static unsigned long long next_nr = 1;

static const size_t limit_defaults[CU_LIMIT_MAX] = {
	[CU_LIMIT_STACK_SIZE] = 1024,
	[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 << 20,
	[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
	[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
	[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
	[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
};

static struct sim_ctx *stack_top(void)
{
	return stack.depth ? sim_obj_find(stack.ids[stack.depth - 1], SIM_CTX) : NULL;
}

CUresult sim_ctx_current(struct sim_ctx **ret)
{
	struct sim_ctx *ctx = stack_top();

	if (!stack.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!ctx)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (ctx->error)
		return ctx->error;
	*ret = ctx;
	return CUDA_SUCCESS;
}

CUresult sim_ctx_find(CUcontext handle, struct sim_ctx **ret)
{
	struct sim_ctx *ctx;

	if (!handle)
		return sim_ctx_current(ret);
	ctx = sim_find(handle, SIM_CTX);
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ctx->error)
		return ctx->error;
	*ret = ctx;
	return CUDA_SUCCESS;
}

void sim_ctx_break(struct sim_ctx *ctx, CUresult error)
{
	if (!ctx->error)
		ctx->error = error;
}

static CUresult stack_push(struct sim_ctx *ctx)
{
	if (stack.depth == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.ids[stack.depth++] = ctx->obj.id;
	return CUDA_SUCCESS;
}

static CUresult ctx_new(CUdevice dev, unsigned int flags, struct sim_ctx **ret)
{
	struct sim_ctx *ctx;
	CUresult res;

	if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx->dev = dev;
	ctx->flags = flags;
	ctx->nr = next_nr++;
	memcpy(ctx->limits, limit_defaults, sizeof(ctx->limits));
	res = sim_obj_open(&ctx->obj, SIM_CTX, NULL);
	if (res)
		goto out_free;
	ctx->handle = ctx->obj.id;
	res = sim_ctx_streams_init(ctx);
	if (res)
		goto out_close;
	*ret = ctx;
	return CUDA_SUCCESS;

out_close:
	sim_obj_close(&ctx->obj);
	return res;
out_free:
	free(ctx);
	return res;
}

/* Destroy everything that belongs to the context, once its work is done. */
static void ctx_destroy(struct sim_ctx *ctx)
{
	sim_obj_get(&ctx->obj);
	sim_obj_close(&ctx->obj);
	sim_capture_ctx_gone(ctx);
	sim_ctx_wait(ctx);
	sim_ctx_streams_release(ctx);
	sim_events_release(ctx);
	sim_modules_release(ctx);
	sim_memory_release(ctx);
	sim_mipmaps_release(ctx);
	sim_arrays_release(ctx);
	sim_obj_put(&ctx->obj);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice dev)
{
	SIM_ENTER(cuDevicePrimaryCtxRetain);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!primaries[dev].ctx) {
		SIM_TRY(ctx_new(dev, primaries[dev].flags, &primaries[dev].ctx));
		primaries[dev].ctx->primary = true;
	}
	primaries[dev].ctx->retained++;
	*ret = SIM_HANDLE(CUcontext, primaries[dev].ctx);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuDevicePrimaryCtxRelease_v2);
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	ctx = primaries[dev].ctx;
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--ctx->retained)
		return CUDA_SUCCESS;
	primaries[dev].ctx = NULL;
	ctx_destroy(ctx);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	struct sim_ctx *old, *new;

	SIM_ENTER(cuDevicePrimaryCtxReset_v2);
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	old = primaries[dev].ctx;
	if (!old)
		return CUDA_SUCCESS;
	SIM_TRY(ctx_new(dev, old->flags, &new));
	new->primary = true;
	new->retained = old->retained;
	primaries[dev].ctx = new;
	ctx_destroy(old);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	SIM_ENTER(cuDevicePrimaryCtxGetState);
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = primaries[dev].flags;
	*active = primaries[dev].ctx != NULL;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	SIM_ENTER(cuDevicePrimaryCtxSetFlags_v2);
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
	primaries[dev].flags = flags;
	if (primaries[dev].ctx)
		primaries[dev].ctx->flags = flags;
	return CUDA_SUCCESS;
}

static CUresult ctx_create(CUcontext *ret, unsigned int flags, CUdevice dev)
{
	struct sim_ctx *ctx;
	CUresult res;

	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	SIM_TRY(ctx_new(dev, flags, &ctx));
	res = stack_push(ctx);
	if (res)
		ctx_destroy(ctx);
	else
		*ret = SIM_HANDLE(CUcontext, ctx);
	return res;
}

CUresult cuCtxCreate_v2(CUcontext *ret, unsigned int flags, CUdevice dev)
{
	SIM_ENTER(cuCtxCreate_v2);
	return ctx_create(ret, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *ret, CUexecAffinityParam *params, int count, unsigned int flags,
			CUdevice dev)
{
	SIM_ENTER(cuCtxCreate_v3);
	if (params || count)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return ctx_create(ret, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *ret, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
	SIM_ENTER(cuCtxCreate_v4);
	if (params && (params->numExecAffinityParams || params->cigParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	return ctx_create(ret, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext handle)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxDestroy_v2);
	ctx = sim_find(handle, SIM_CTX);
	if (!ctx || ctx->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack_top() == ctx)
		stack.depth--;
	ctx_destroy(ctx);
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxPushCurrent_v2);
	ctx = sim_find(handle, SIM_CTX);
	return ctx ? stack_push(ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ret)
{
	struct sim_ctx *ctx = NULL;

	SIM_ENTER(cuCtxPopCurrent_v2);
	if (!stack.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	ctx = stack_top();
	stack.depth--;
	if (ret)
		*ret = ctx ? SIM_HANDLE(CUcontext, ctx) : NULL;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxSetCurrent);
	if (!handle) {
		stack.depth -= stack.depth > 0;
		return CUDA_SUCCESS;
	}
	ctx = sim_find(handle, SIM_CTX);
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.depth -= stack.depth > 0;
	return stack_push(ctx);
}

CUresult cuCtxGetCurrent(CUcontext *ret)
{
	SIM_ENTER(cuCtxGetCurrent);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = stack.depth ? (CUcontext)(uintptr_t)stack.ids[stack.depth - 1] : NULL;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxGetDevice);
	if (!dev)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	*dev = ctx->dev;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *dev, CUcontext handle)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxGetDevice_v2);
	if (!dev)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_find(handle, &ctx));
	*dev = ctx->dev;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxGetFlags);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	*flags = ctx->flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxGetId);
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_find(handle, &ctx));
	*id = ctx->nr;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxGetApiVersion);
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_find(handle, &ctx));
	*version = 3020;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxGetLimit);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if ((unsigned int)limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	SIM_TRY(sim_ctx_current(&ctx));
	*value = ctx->limits[limit];
	return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxSetLimit);
	if ((unsigned int)limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	SIM_TRY(sim_ctx_current(&ctx));
	ctx->limits[limit] = value;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxGetStreamPriorityRange);
	SIM_TRY(sim_ctx_current(&ctx));
	if (least)
		*least = SIM_PRIORITY_LEAST;
	if (greatest)
		*greatest = SIM_PRIORITY_GREATEST;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxSynchronize);
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_sync_ctx(ctx));
	SIM_TRY(sim_unsafe());
	return sim_ctx_wait(ctx);
}

CUresult cuCtxSynchronize_v2(CUcontext handle)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxSynchronize_v2);
	SIM_TRY(sim_ctx_find(handle, &ctx));
	SIM_TRY(sim_capture_sync_ctx(ctx));
	SIM_TRY(sim_unsafe());
	return sim_ctx_wait(ctx);
}
