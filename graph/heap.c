// SPDX-License-Identifier: Apache-2.0
/*
 * heap.c - runs the kernel that finds the device's heap; see heap.h.
 *
 * Driver 580 reports no bounds for an address of the heap: it does not know such addresses. Then
 * the heap lies at most its size before and behind any block of it. The driver rounds sizes up to
 * 64 KiB; the bounds are rounded to more.
 */
#include "graph/heap.h"

#include "arch/stream.h"
#include "graph/embed.h"
#include "graph/module.h"
#include "graph/ptx.h"

#define KERNEL "fdry_heap_probe"
#define BLOCK "fdry_heap_block"
#define ROUND ((uint64_t)2 << 20)

FDRY_EMBED(fdry_heap_ptx, "graph/heap/compute_75.ptx");

bool fdry_kernel_set_allocates(const struct fdry_kernel_set *set)
{
	uint32_t i, n = fdry_kernel_set_count(set);

	for (i = 0; i < n; i++)
		if (fdry_kernel_set_get(set, i)->allocates)
			return true;
	return false;
}

/* The size can be set only before a kernel that calls malloc() or free() is launched (the driver
 * API's documentation of cuCtxSetLimit()). Driver 580 refuses the present value, too. */
int fdry_heap_used(const struct fdry_driver *drv, bool *ret)
{
	size_t limit;
	CUresult res = fdry_call_raw(drv, cuCtxGetLimit, &limit, CU_LIMIT_MALLOC_HEAP_SIZE);

	if (!res)
		res = fdry_call_raw(drv, cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, limit);
	*ret = res == CUDA_ERROR_INVALID_VALUE;
	if (*ret || res == CUDA_ERROR_UNSUPPORTED_LIMIT)
		return 0;
	return fdry_driver_result(drv, FDRY_DRV_cuCtxSetLimit, res);
}

/* Allocate a block, free it, and return its address. */
static int block_run(const struct fdry_driver *drv, CUmodule module, CUstream stream, uint64_t *ret)
{
	CUfunction kernel;
	CUdeviceptr block;
	size_t size;
	int waited, err = fdry_call(drv, cuModuleGetFunction, &kernel, module, KERNEL) ?:
		  fdry_call(drv, cuModuleGetGlobal_v2, &block, &size, module, BLOCK);

	if (err)
		return err;
	err = fdry_call(drv, cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL) ?:
	      fdry_call(drv, cuMemcpyDtoHAsync_v2, ret, block, sizeof(*ret), stream);
	waited = fdry_stream_wait(drv, stream); /* the caller unloads the module */
	return err ?: waited;
}

static int block_find(const struct fdry_driver *drv, CUstream stream, uint64_t *ret)
{
	struct fdry_span ptx = fdry_embedded(fdry_heap_ptx, fdry_heap_ptx_end);
	struct fdry_buf cubin = { 0 };
	CUmodule module;
	CUresult res;
	int err = fdry_ptx_compile(drv, ptx, KERNEL, &cubin);

	if (err)
		goto out_release;
	err = fdry_module_load(drv, (struct fdry_span){ cubin.data, cubin.len }, &module, &res);
	if (err)
		goto out_release;
	err = block_run(drv, module, stream, ret);
	(void)fdry_call_raw(drv, cuModuleUnload, module);
out_release:
	fdry_buf_release(&cubin);
	return err;
}

static bool bounds_get(const struct fdry_driver *drv, uint64_t block, struct fdry_heap *ret)
{
	CUdeviceptr start = 0;
	size_t size = 0;

	if (fdry_call_raw(drv, cuPointerGetAttribute, &start,
			  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block) ||
	    fdry_call_raw(drv, cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
			  block) ||
	    block - start >= size)
		return false;
	*ret = (struct fdry_heap){ start, start + size, true };
	return true;
}

int fdry_heap_find(const struct fdry_driver *drv, CUstream stream, struct fdry_heap *ret)
{
	uint64_t block = 0, around;
	size_t limit;
	int err = block_find(drv, stream, &block) ?:
		  fdry_call(drv, cuCtxGetLimit, &limit, CU_LIMIT_MALLOC_HEAP_SIZE);

	if (err)
		return err;
	if (!block)
		return fdry_fail(FDRY_E_REFUSED,
				 "the heap is full; free blocks of it before the seal, or raise "
				 "CU_LIMIT_MALLOC_HEAP_SIZE before the first launch");
	if (bounds_get(drv, block, ret))
		return 0;
	around = (limit + 2 * ROUND - 1) / ROUND * ROUND;
	ret->start = block > around ? block - around : 0;
	ret->end = block + around;
	ret->exact = false;
	return 0;
}
