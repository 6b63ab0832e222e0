// SPDX-License-Identifier: Apache-2.0
/*
 * seal_where.c - what an address in a graph points at.
 *
 * In the region the ledger knows. Beyond what the region ever handed out there is nothing:
 * a word that looks like such an address is a number. Everywhere else the driver is asked,
 * and whatever it knows is memory that an image does not hold.
 */
#include "api/seal.h"

/* Physical memory that the program mapped somewhere itself. */
static bool is_mapped(const struct fdry_driver *drv, CUdeviceptr addr)
{
	CUmemGenericAllocationHandle handle;

	if (fdry_call_raw(drv, cuMemRetainAllocationHandle, &handle, (void *)(uintptr_t)addr))
		return false;
	(void)fdry_call_raw(drv, cuMemRelease, handle);
	return true;
}

/* For messages. */
static const char *outside_name(const struct fdry_driver *drv, CUdeviceptr addr, unsigned int type, bool managed)
{
	if (managed)
		return "managed memory";
	if (type == CU_MEMORYTYPE_HOST)
		return "pinned host memory";
	if (is_mapped(drv, addr))
		return "memory that the program mapped itself (cuMemMap), its own, imported, multicast or "
		       "mapped a second time";
	return "device memory outside the capture's region: a module variable, memory from before "
	       "fdry_capture_begin(), or of an allocator other than cuMemAlloc";
}

static int outside(const struct fdry_driver *drv, CUdeviceptr addr, enum fdry_where *ret, const char **what)
{
	unsigned int type = 0, managed = 0;
	CUresult res;

	res = fdry_call_raw(drv, cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr);
	if (res == CUDA_ERROR_INVALID_VALUE) {
		*ret = FDRY_WHERE_NOTHING;
		return 0;
	}
	if (res != CUDA_SUCCESS)
		return fdry_driver_result(drv, FDRY_DRV_cuPointerGetAttribute, res);
	(void)fdry_call_raw(drv, cuPointerGetAttribute, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, addr);
	*ret = type == CU_MEMORYTYPE_HOST && !managed ? FDRY_WHERE_HOST : FDRY_WHERE_OUTSIDE;
	*what = outside_name(drv, addr, type, managed);
	return 0;
}

int fdry_seal_where(void *arg, CUdeviceptr addr, uint64_t bytes, enum fdry_where *ret, const char **what)
{
	const struct fdry_seal *s = arg;
	const struct fdry_layout *l = &s->layout;
	bool live = bytes ? fdry_layout_holds(l, addr, bytes) : fdry_layout_points(l, addr);

	if (addr < l->base || addr - l->base >= l->size)
		return outside(s->cap->drv, addr, ret, what);
	*what = fdry_layout_shared(l, addr) ? "memory that the program mapped twice, exported, imported or created before "
					      "fdry_capture_begin()" :
					      "memory of the region that was freed";
	*ret = live ? FDRY_WHERE_REGION : addr < l->used ? FDRY_WHERE_OUTSIDE : FDRY_WHERE_NOTHING;
	return 0;
}
