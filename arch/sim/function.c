// SPDX-License-Identifier: Apache-2.0
/*
 * function.c - attributes and properties of kernels and functions.
 *
 * A kernel has attributes for each device, a function its own. A launch by CUfunction uses only
 * those of the function. A launch by CUkernel uses the kernel's, unless any were set on the
 * function. So a program that sets only one of the two behaves as on the real driver.
 */
#include "arch/sim/code.h"

#define REGISTERS 32

struct sim_func_attrs sim_func_attrs_initial(const struct sim_kernel_record *record)
{
	struct sim_func_attrs a = { .carveout = -1 };

	if (record->static_shared < SIM_SHARED_DEFAULT)
		a.max_dynamic_shared = (int)(SIM_SHARED_DEFAULT - record->static_shared);
	return a;
}

unsigned int sim_occupancy(const struct sim_kernel_record *record, size_t threads, size_t shared)
{
	size_t by_threads = SIM_THREADS_SM / threads;
	size_t by_shared = SIM_SHARED_SM / (record->static_shared + shared + 1024);
	size_t n = by_threads < by_shared ? by_threads : by_shared;

	return (unsigned int)(n < SIM_BLOCKS_SM ? n : SIM_BLOCKS_SM);
}

static int fixed(CUfunction_attribute attr, const struct sim_kernel_record *record)
{
	switch (attr) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		return SIM_THREADS_MAX;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		return (int)record->static_shared;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		return REGISTERS;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		return sim_device_cc();
	default:
		return 0; /* constant and local memory, caching, cluster size that was compiled in
			   */
	}
}

static CUresult attr_get(CUfunction_attribute attr, const struct sim_kernel_record *record,
			 const struct sim_func_attrs *attrs, int *ret)
{
	if (!ret || (unsigned int)attr >= CU_FUNC_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attr) {
#define X(id, member, least, most)              \
	case CU_FUNC_ATTRIBUTE_##id:            \
		*ret = attrs->member;           \
		return CUDA_SUCCESS;
		SIM_FUNC_ATTRS(X)
#undef X
	default:
		*ret = fixed(attr, record);
		return CUDA_SUCCESS;
	}
}

static CUresult attr_set(CUfunction_attribute attr, int value,
			 const struct sim_kernel_record *record, struct sim_func_attrs *attrs)
{
	if (attr == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
	    value > SIM_SHARED_MAX - (int)record->static_shared)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attr) {
#define X(id, member, least, most)                       \
	case CU_FUNC_ATTRIBUTE_##id:                     \
		if (value < (least) || value > (most))   \
			return CUDA_ERROR_INVALID_VALUE; \
		attrs->member = value;                   \
		break;
		SIM_FUNC_ATTRS(X)
#undef X
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	attrs->set = true;
	return CUDA_SUCCESS;
}

/* A CUkernel, cast, means its function in the current context. */
static CUresult func_find(CUfunction handle, struct sim_func **ret)
{
	struct sim_func *f = sim_find(handle, SIM_FUNC);
	struct sim_ctx *ctx;
	CUkernel kern;

	if (!f) {
		SIM_TRY(sim_ctx_current(&ctx));
		return sim_func_find(handle, ctx, ret, &kern);
	}
	*ret = f;
	return CUDA_SUCCESS;
}

static CUresult kern_find(CUkernel handle, CUdevice dev, struct sim_kern **ret)
{
	struct sim_kern *k = sim_find(handle, SIM_KERNEL);

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*ret = k;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *ret, CUfunction_attribute attr, CUfunction handle)
{
	struct sim_func *f;

	SIM_ENTER(cuFuncGetAttribute);
	SIM_TRY(func_find(handle, &f));
	return attr_get(attr, f->record, &f->attrs, ret);
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attr, int value)
{
	struct sim_func *f;

	SIM_ENTER(cuFuncSetAttribute);
	SIM_TRY(func_find(handle, &f));
	return attr_set(attr, value, f->record, &f->attrs);
}

CUresult cuKernelGetAttribute(int *ret, CUfunction_attribute attr, CUkernel handle, CUdevice dev)
{
	struct sim_kern *k;

	SIM_ENTER(cuKernelGetAttribute);
	SIM_TRY(kern_find(handle, dev, &k));
	return attr_get(attr, k->record, &k->attrs[dev], ret);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attr, int value, CUkernel handle, CUdevice dev)
{
	struct sim_kern *k;

	SIM_ENTER(cuKernelSetAttribute);
	SIM_TRY(kern_find(handle, dev, &k));
	return attr_set(attr, value, k->record, &k->attrs[dev]);
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
	struct sim_func *f;

	SIM_ENTER(cuFuncSetCacheConfig);
	if ((unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	return func_find(handle, &f); /* a hint, which cannot be read */
}

CUresult cuFuncGetName(const char **ret, CUfunction handle)
{
	struct sim_func *f;

	SIM_ENTER(cuFuncGetName);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(func_find(handle, &f));
	*ret = f->record->name;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *ret, CUfunction handle)
{
	struct sim_func *f;

	SIM_ENTER(cuFuncGetModule);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(func_find(handle, &f));
	*ret = SIM_HANDLE(CUmodule, f->module);
	return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
	struct sim_func *f;

	SIM_ENTER(cuFuncIsLoaded);
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(func_find(handle, &f));
	*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle)
{
	struct sim_func *f;

	SIM_ENTER(cuFuncLoad);
	return func_find(handle, &f);
}

CUresult cuKernelGetName(const char **ret, CUkernel handle)
{
	struct sim_kern *k;

	SIM_ENTER(cuKernelGetName);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(kern_find(handle, 0, &k));
	*ret = k->record->name;
	return CUDA_SUCCESS;
}

static CUresult param_info(const struct sim_kernel_record *record, size_t index, size_t *offset,
			   size_t *size)
{
	if (!offset || index >= record->nparams)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = record->params[index].offset;
	if (size)
		*size = record->params[index].size;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
	struct sim_func *f;

	SIM_ENTER(cuFuncGetParamInfo);
	SIM_TRY(func_find(handle, &f));
	return param_info(f->record, index, offset, size);
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *size)
{
	struct sim_kern *k;

	SIM_ENTER(cuKernelGetParamInfo);
	SIM_TRY(kern_find(handle, 0, &k));
	return param_info(k->record, index, offset, size);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *ret, CUfunction handle, int threads,
						     size_t shared)
{
	struct sim_func *f;

	SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
	if (!ret || threads <= 0 || shared > SIM_SHARED_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(func_find(handle, &f));
	*ret = threads > SIM_THREADS_MAX ? 0
					 : (int)sim_occupancy(f->record, (size_t)threads, shared);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *ret, CUfunction handle,
							      int threads, size_t shared,
							      unsigned int flags)
{
	struct sim_func *f;

	SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
	if (!ret || threads <= 0 || shared > SIM_SHARED_MAX ||
	    flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(func_find(handle, &f));
	*ret = threads > SIM_THREADS_MAX ? 0
					 : (int)sim_occupancy(f->record, (size_t)threads, shared);
	return CUDA_SUCCESS;
}
