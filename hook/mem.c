// SPDX-License-Identifier: Apache-2.0
/*
 * mem.c - cuMemAlloc, cuMemFree and the functions like them.
 *
 * Calls that concern no region go to the driver unchanged. To the driver, an allocation of a region
 * is a part of one large mapping. So this file answers queries about it, as if the driver had made
 * the allocation.
 */
#include "hook/internal.h"

#include "lib/log.h"

CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t size)
{
	int err;

	if (fdry_bypass_probing())
		return CUDA_ERROR_OUT_OF_MEMORY;
	err = fdry_dispatch_alloc(size, UINT64_MAX, ret);
	if (err == FDRY_FOREIGN)
		return fdry_real(cuMemAlloc_v2)(ret, size);
	return fdry_dispatch_alloc_result(err);
}

CUresult cuMemAlloc(unsigned int *ret, unsigned int size)
{
	CUdeviceptr addr;
	int err = fdry_dispatch_alloc(size, UINT32_MAX, ret ? &addr : NULL);

	if (err == FDRY_FOREIGN)
		return fdry_real(cuMemAlloc)(ret, size);
	if (err)
		return fdry_dispatch_alloc_result(err);
	*ret = (unsigned int)addr;
	return CUDA_SUCCESS;
}

/* Free an allocation of a region; FDRY_FOREIGN if it is not of one. */
static int memory_free(CUdeviceptr addr)
{
	struct fdry_alloc a = { 0 };
	struct fdry_region *r;
	int err = fdry_dispatch_holder(addr, &r);

	if (err)
		return err;
	fdry_region_find(r, addr, &a);
	err = fdry_region_dealloc(r, addr, fdry_capture_alloc_flags());
	if (!err && a.kind == FDRY_KIND_POOL && !a.capturing)
		fdry_mempool_count((CUmemoryPool)(uintptr_t)a.owner, -(int64_t)a.size);
	fdry_dispatch_put(!err);
	return err;
}

int fdry_hook_region_free(CUdeviceptr addr)
{
	int err = fdry_start_forked();

	if (err)
		return err;
	err = memory_free(addr);
	return err == FDRY_FOREIGN ? fdry_fail(FDRY_E_INVAL, "%#llx lies in no region", addr) : err;
}

CUresult cuMemFree_v2(CUdeviceptr addr)
{
	int err = memory_free(addr);

	if (err != FDRY_FOREIGN)
		return fdry_dispatch_free_result(err);
	fdry_import_gone(addr); /* before the driver can return the same addresses again */
	return fdry_real(cuMemFree_v2)(addr);
}

CUresult cuMemFree(unsigned int addr)
{
	int err = memory_free(addr);

	return err == FDRY_FOREIGN ? fdry_real(cuMemFree)(addr) : fdry_dispatch_free_result(err);
}

/* Rows begin at multiples of this, as with the driver, and as textures require. */
#define PITCH 512u

/* Whether the region can make the allocation. @row: @width rounded up; 0 if that overflowed. */
static bool pitch_ok(const CUdeviceptr *ret, const size_t *pitch, size_t row, size_t height,
		     unsigned int element)
{
	return ret && pitch && row && height && height <= SIZE_MAX / 2 / row &&
	       (element == 4 || element == 8 || element == 16);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *ret, size_t *pitch, size_t width, size_t height,
			    unsigned int element)
{
	size_t row = (width + PITCH - 1) / PITCH * PITCH;
	int err;

	/* The driver returns the error for other arguments. */
	if (!pitch_ok(ret, pitch, row, height, element))
		return fdry_real(cuMemAllocPitch_v2)(ret, pitch, width, height, element);
	err = fdry_dispatch_alloc(row * height, UINT64_MAX, ret);
	if (err == FDRY_FOREIGN)
		return fdry_real(cuMemAllocPitch_v2)(ret, pitch, width, height, element);
	if (!err)
		*pitch = row;
	return fdry_dispatch_alloc_result(err);
}

CUresult cuMemAllocPitch(unsigned int *ret, unsigned int *pitch, unsigned int width,
			 unsigned int height, unsigned int element)
{
	CUdeviceptr addr;
	int err = ret && pitch ? fdry_dispatch_alloc(1, UINT32_MAX, &addr) : FDRY_FOREIGN;

	/* No region has 32-bit addresses. */
	return err == FDRY_FOREIGN ? fdry_real(cuMemAllocPitch)(ret, pitch, width, height, element)
				   : fdry_dispatch_alloc_result(err);
}

/* The driver makes such handles only for memory of cuMemAlloc. A region's memory is a mapping, so
 * the call is refused. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *ret, CUdeviceptr addr)
{
	struct fdry_region *r;
	int err = fdry_dispatch_holder(addr, &r);

	if (err == FDRY_FOREIGN)
		return fdry_real(cuIpcGetMemHandle)(ret, addr);
	fdry_dispatch_put(false);
	fdry_fail(FDRY_E_STATE,
		  "cuIpcGetMemHandle: the memory at %#llx belongs to the capture and cannot be "
		  "shared with another process; allocate shared memory while the capture is paused",
		  addr);
	fdry_warn("interposer: %s", fdry_last_error());
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* Find an allocation of the region. Memory that the program mapped is left to the driver. */
static int find_own(CUdeviceptr addr, struct fdry_alloc *ret)
{
	struct fdry_alloc a;
	int err = fdry_dispatch_find(addr, &a);

	if (err)
		return err;
	if (a.kind == FDRY_KIND_MAP || a.kind == FDRY_KIND_SHARED)
		return FDRY_FOREIGN;
	*ret = a;
	return 0;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr addr)
{
	struct fdry_alloc a;
	int err = find_own(addr, &a);

	if (err == FDRY_FOREIGN)
		return fdry_real(cuMemGetAddressRange_v2)(base, size, addr);
	if (err)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = a.addr;
	if (size)
		*size = a.size;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(unsigned int *base, unsigned int *size, unsigned int addr)
{
	struct fdry_alloc a;
	int err = find_own(addr, &a);

	if (err == FDRY_FOREIGN)
		return fdry_real(cuMemGetAddressRange)(base, size, addr);
	if (err)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = (unsigned int)a.addr;
	if (size)
		*size = (unsigned int)a.size;
	return CUDA_SUCCESS;
}

