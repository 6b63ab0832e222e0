// SPDX-License-Identifier: Apache-2.0
/*
 * mem.c - cuMemAlloc, cuMemFree and what is asked about their addresses.
 *
 * What does not concern a region goes to the driver untouched. Questions about a region's
 * address are answered per allocation, as if the driver had made it: to the driver it is
 * a part of one large mapping.
 */
#include "hook/internal.h"

/* An allocation from the region failed. */
static CUresult alloc_result(int err)
{
	return err == -FDRY_E_INVAL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t size)
{
	int err;

	if (fdry_reach_arrived())
		return CUDA_ERROR_OUT_OF_MEMORY;
	err = fdry_steer_alloc(size, UINT64_MAX, ret);
	if (err == FDRY_FOREIGN)
		return fdry_real(cuMemAlloc_v2)(ret, size);
	return err ? alloc_result(err) : CUDA_SUCCESS;
}

CUresult cuMemAlloc(unsigned int *ret, unsigned int size)
{
	CUdeviceptr addr;
	int err = fdry_steer_alloc(size, UINT32_MAX, ret ? &addr : NULL);

	if (err == FDRY_FOREIGN)
		return fdry_real(cuMemAlloc)(ret, size);
	if (err)
		return alloc_result(err);
	*ret = (unsigned int)addr;
	return CUDA_SUCCESS;
}

static CUresult free_result(int err)
{
	if (!err)
		return CUDA_SUCCESS;
	return err == -FDRY_E_DRIVER ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFree_v2(CUdeviceptr addr)
{
	int err = fdry_steer_free(addr);

	return err == FDRY_FOREIGN ? fdry_real(cuMemFree_v2)(addr) : free_result(err);
}

CUresult cuMemFree(unsigned int addr)
{
	int err = fdry_steer_free(addr);

	return err == FDRY_FOREIGN ? fdry_real(cuMemFree)(addr) : free_result(err);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr addr)
{
	struct fdry_alloc a;
	int err = fdry_steer_find(addr, &a);

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
	int err = fdry_steer_find(addr, &a);

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

static bool is_range(CUpointer_attribute attr)
{
	return attr == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || attr == CU_POINTER_ATTRIBUTE_RANGE_SIZE;
}

static void put_range(const struct fdry_alloc *a, CUpointer_attribute attr, void *ret)
{
	if (attr == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
		*(CUdeviceptr *)ret = a->addr;
	else
		*(size_t *)ret = a->size;
}

CUresult cuPointerGetAttribute(void *ret, CUpointer_attribute attr, CUdeviceptr addr)
{
	CUresult res = fdry_real(cuPointerGetAttribute)(ret, attr, addr);
	struct fdry_alloc a;
	int err;

	if (res || !is_range(attr))
		return res;
	err = fdry_steer_find(addr, &a);
	if (err == FDRY_FOREIGN)
		return res;
	if (err)
		return CUDA_ERROR_INVALID_VALUE;
	put_range(&a, attr, ret);
	return res;
}

CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attrs, void **ret, CUdeviceptr addr)
{
	CUresult res = fdry_real(cuPointerGetAttributes)(n, attrs, ret, addr);
	struct fdry_alloc a = { 0 }; /* between allocations: 0, as the driver answers for what it does not know */
	unsigned int i;

	for (i = 0; !res && i < n; i++)
		if (is_range(attrs[i])) {
			if (fdry_steer_find(addr, &a) == FDRY_FOREIGN)
				break;
			put_range(&a, attrs[i], ret[i]);
		}
	return res;
}
