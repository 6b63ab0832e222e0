// SPDX-License-Identifier: Apache-2.0
/*
 * ptr.c - finds the memory to which an address in a graph or in content points.
 *
 * The ledger, the list of allocations, decides about addresses in the region. A word with an
 * address that the region never allocated is a number. So is a word outside the region if the
 * process has no mapping there, since the driver reserves all its memory in the address space of
 * the process. The driver decides about all other words: if it has memory there, the image does not
 * hold that memory. It does not know the device's heap, so heap.c finds that.
 */
#include <stdio.h>

#include "image/seal/seal.h"

/* Return the kind of memory that the program itself mapped at @addr, or NULL for other memory. */
static const char *mapped_name(const struct fdry_capture *cap, CUdeviceptr addr)
{
	CUmemGenericAllocationHandle handle;
	const char *ret;

	if (fdry_call_raw(cap->drv, cuMemRetainAllocationHandle, &handle, (void *)(uintptr_t)addr))
		return NULL;
	ret = cap->hook->origin(handle);
	(void)fdry_call_raw(cap->drv, cuMemRelease, handle);
	return ret;
}

/* Find the kind of memory outside of the region, and its name for messages. */
static enum fdry_where outside_kind(const struct fdry_capture *cap, CUdeviceptr addr,
				    unsigned int type, bool managed, const char **what)
{
	*what = "managed memory";
	if (managed)
		return FDRY_WHERE_OUTSIDE;
	*what = cap->pinned ? "pinned host memory"
			    : "pinned host memory, which only a capture with "
			      "FDRY_CAPTURE_PINNED (in Python pinned=True) keeps";
	if (type == CU_MEMORYTYPE_HOST)
		return FDRY_WHERE_HOST;
	*what = cap->hook->origin_at(addr);
	if (!*what)
		*what = mapped_name(cap, addr);
	if (*what)
		return FDRY_WHERE_OUTSIDE;
	*what = "device memory outside the capture's region: a module variable, memory "
		"from before fdry_capture_begin(), or memory of another process or API";
	return FDRY_WHERE_VARIABLE;
}

static int outside(const struct fdry_capture *cap, CUdeviceptr addr, enum fdry_where *ret,
		   const char **what)
{
	const struct fdry_driver *drv = cap->drv;
	unsigned int type = 0, managed = 0;
	CUresult res;

	res = fdry_call_raw(drv, cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
			    addr);
	if (res == CUDA_ERROR_INVALID_VALUE) {
		*ret = FDRY_WHERE_NOTHING;
		return 0;
	}
	if (res != CUDA_SUCCESS)
		return fdry_driver_result(drv, FDRY_DRV_cuPointerGetAttribute, res);
	(void)fdry_call_raw(drv, cuPointerGetAttribute, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
			    addr);
	*ret = outside_kind(cap, addr, type, managed, what);
	return 0;
}

/* Is this freed address of the region unmapped? It is if its whole block was freed. */
static bool is_gone(const struct fdry_seal *s, CUdeviceptr addr)
{
	unsigned int type;

	return fdry_call_raw(s->cap->drv, cuPointerGetAttribute, &type,
			     CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr) == CUDA_ERROR_INVALID_VALUE;
}

/* Is @addr in the last allocation that was found? Many words are searched in the order of
 * addresses. */
static bool is_near(const struct fdry_seal *s, uint64_t addr)
{
	return s->near && addr - s->near->addr < s->near->extent;
}

/* Did the region ever allocate this address? */
static bool was_used(const struct fdry_layout *l, CUdeviceptr addr)
{
	return addr < l->used || (addr >= l->aside && addr < l->aside_used);
}

/* Is @addr the address of a function that kernels call through pointers? A load has it elsewhere.
 */
static bool is_function(struct fdry_seal *s, CUdeviceptr addr, enum fdry_where *ret,
			const char **what)
{
	const char *name = fdry_kernel_set_function(s->kernels, addr);

	if (!name)
		return false;
	snprintf(s->what, sizeof(s->what), "the function %.200s, which a load has elsewhere", name);
	*what = s->what;
	*ret = FDRY_WHERE_OUTSIDE;
	return true;
}

/* @addr lies inside the bounds of the heap. Inside bounds that are not exact, it may be an address
 * of memory that the driver knows. */
static int maybe_heap(const struct fdry_seal *s, CUdeviceptr addr, enum fdry_where *ret,
		      const char **what)
{
	int err = outside(s->cap, addr, ret, what);

	if (err || (*ret != FDRY_WHERE_NOTHING && !s->heap.exact))
		return err;
	*what = "the device's heap, which is empty in a loading process";
	*ret = FDRY_WHERE_HEAP;
	return 0;
}

int fdry_seal_ptr(void *arg, CUdeviceptr addr, uint64_t bytes, enum fdry_where *ret,
		  const char **what)
{
	struct fdry_seal *s = arg;
	const struct fdry_layout *l = &s->layout;
	bool live;

	if (!bytes && is_near(s, addr)) {
		*ret = FDRY_WHERE_REGION;
		return 0;
	}
	if (!bytes && is_function(s, addr, ret, what))
		return 0;
	if (addr < l->base || addr - l->base >= l->size) {
		if (fdry_seal_pinned_ptr(s, addr, bytes, ret, what))
			return 0;
		if (!bytes && fdry_seal_heap_may_hold(s, addr))
			return maybe_heap(s, addr, ret, what);
		if (bytes || fdry_seal_mapped(s, addr))
			return outside(s->cap, addr, ret, what);
		*ret = FDRY_WHERE_NOTHING;
		return 0;
	}
	live = bytes ? fdry_layout_holds(l, addr, bytes) : fdry_layout_points(l, addr);
	*what = fdry_layout_shared(l, addr) ? mapped_name(s->cap, addr) : NULL;
	if (!*what)
		*what = "memory of the region that was freed";
	if (live) {
		s->near = fdry_layout_find(l, addr);
		*ret = FDRY_WHERE_REGION;
	} else if (!was_used(l, addr)) {
		*ret = FDRY_WHERE_NOTHING;
	} else {
		*ret = is_gone(s, addr) ? FDRY_WHERE_FREED : FDRY_WHERE_OUTSIDE;
	}
	return 0;
}
