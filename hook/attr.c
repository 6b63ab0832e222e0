// SPDX-License-Identifier: Apache-2.0
/*
 * attr.c - answers queries of pointer attributes of a region's memory as if the driver had
 * allocated it.
 *
 * To the driver a region is a few large mappings. So this file answers the queries in which a
 * mapping and an allocation differ, from the ledger; the driver answers the others. For memory that
 * the program mapped, this file answers only the reserved range. An address of the region without
 * an allocation is unknown, even if the region has memory there.
 */
#include "hook/internal.h"

#include <string.h>

/* The driver numbers buffers from 1; ours must differ from its numbers. */
#define BUFFER_IDS (1ull << 62)

static bool is_known(CUpointer_attribute attr)
{
	switch (attr) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return true;
	default:
		return false;
	}
}

/* The answer for an allocation; for memory that the program mapped, @a is the reservation. */
static void answer(const struct fdry_alloc *a, CUcontext ctx, CUpointer_attribute attr, void *ret)
{
	bool allocated = a->kind == FDRY_KIND_ALLOC || a->kind == FDRY_KIND_POOL;

	if (attr == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
		*(CUdeviceptr *)ret = a->addr;
	else if (attr == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
		*(size_t *)ret = a->size;
	else if (attr == CU_POINTER_ATTRIBUTE_CONTEXT && a->kind == FDRY_KIND_ALLOC)
		*(CUcontext *)ret = ctx;
	else if (attr == CU_POINTER_ATTRIBUTE_BUFFER_ID && allocated)
		*(uint64_t *)ret = BUFFER_IDS + a->serial;
	else if (attr == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE && a->kind == FDRY_KIND_POOL &&
		 !a->capturing)
		*(uint64_t *)ret = a->owner;
}

/* The allocation that holds @addr, or for memory that the program mapped, the reservation. */
static int holder(CUdeviceptr addr, struct fdry_alloc *a, CUcontext *ctx)
{
	struct fdry_region *r;
	int err = fdry_dispatch_holder(addr, &r);

	if (err)
		return err;
	*ctx = fdry_region_context(r);
	if (!fdry_region_find(r, addr, a))
		err = -FDRY_E_NOKEY;
	else if (a->kind == FDRY_KIND_MAP || a->kind == FDRY_KIND_SHARED)
		fdry_region_reserved(r, addr, &a->addr, &a->size);
	fdry_dispatch_put(false);
	return err;
}

CUresult cuPointerGetAttribute(void *ret, CUpointer_attribute attr, CUdeviceptr addr)
{
	CUresult res = fdry_real(cuPointerGetAttribute)(ret, attr, addr);
	struct fdry_alloc a;
	CUcontext ctx;
	int err;

	if (res)
		return res;
	err = holder(addr, &a, &ctx);
	if (err == FDRY_FOREIGN)
		return res;
	if (err)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_known(attr))
		answer(&a, ctx, attr, ret);
	return res;
}

/* The values that the driver writes for an unknown address. */
static void answer_nothing(CUpointer_attribute attr, void *ret)
{
	switch (attr) {
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)ret = CU_DEVICE_INVALID;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		memset(ret, 0, sizeof(int));
		break;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		memset(ret, 0, sizeof(uint64_t));
		break;
	default:
		break;
	}
}

CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attrs, void **ret,
				CUdeviceptr addr)
{
	CUresult res = fdry_real(cuPointerGetAttributes)(n, attrs, ret, addr);
	struct fdry_alloc a;
	CUcontext ctx;
	unsigned int i;
	int err;

	if (res)
		return res;
	err = holder(addr, &a, &ctx);
	for (i = 0; err != FDRY_FOREIGN && i < n; i++) {
		if (err)
			answer_nothing(attrs[i], ret[i]);
		else if (is_known(attrs[i]))
			answer(&a, ctx, attrs[i], ret[i]);
	}
	return res;
}
