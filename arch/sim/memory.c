// SPDX-License-Identifier: Apache-2.0
/*
 * memory.c - every range of memory that the driver knows, by address; pointer attributes.
 *
 * Device memory is host memory, so an address means the same to kernels, copies and tests. The
 * ranges lie in one array, sorted by address, and never overlap.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arch/sim/sim.h"
#include "lib/search.h"

#define PAGE 4096u
/* Fresh memory is poisoned up to this size, then one page in 16 or fewer, since touching pages
 * takes time. */
#define SOIL_ALL ((size_t)256 << 10)
#define SOIL_PAGES 256u

static struct sim_range *ranges;
static size_t range_count, range_capacity;
static uint64_t next_id = 1;
static size_t used[SIM_DEVICES_MAX];

/* The first range that ends after @addr. */
static size_t range_index(CUdeviceptr addr)
{
	return fdry_lower_bound(i, range_count, ranges[i].start + ranges[i].size <= addr);
}

static bool ranges_grow(void)
{
	size_t capacity = range_capacity ? 2 * range_capacity : 64;
	struct sim_range *p;

	if (range_count < range_capacity)
		return true;
	p = reallocarray(ranges, capacity, sizeof(*ranges));
	if (!p)
		return false;
	ranges = p;
	range_capacity = capacity;
	return true;
}

CUresult sim_range_add(const struct sim_range *range)
{
	size_t i = range_index(range->start);

	if (i < range_count && ranges[i].start < range->start + range->size)
		return CUDA_ERROR_ALREADY_MAPPED;
	if (!ranges_grow())
		return CUDA_ERROR_OUT_OF_MEMORY;
	memmove(&ranges[i + 1], &ranges[i], (range_count - i) * sizeof(*ranges));
	ranges[i] = *range;
	ranges[i].id = next_id++;
	range_count++;
	return CUDA_SUCCESS;
}

void sim_range_remove(CUdeviceptr start)
{
	size_t i = range_index(start);

	if (i == range_count || ranges[i].start != start)
		return;
	range_count--;
	memmove(&ranges[i], &ranges[i + 1], (range_count - i) * sizeof(*ranges));
}

struct sim_range *sim_range_from(CUdeviceptr addr)
{
	size_t i = range_index(addr);

	return i < range_count ? &ranges[i] : NULL;
}

struct sim_range *sim_range_find(CUdeviceptr addr)
{
	struct sim_range *r = sim_range_from(addr);

	return r && r->start <= addr ? r : NULL;
}

bool sim_range_ok(CUdeviceptr addr, size_t size, bool write)
{
	const struct sim_range *r;
	size_t part;

	if (size > UINT64_MAX - addr)
		return false;
	while (size) {
		r = sim_range_find(addr);
		if (!r || !(write ? r->write : r->read))
			return false;
		part = r->start + r->size - addr;
		if (part > size)
			part = size;
		addr += part;
		size -= part;
	}
	return true;
}

unsigned long sim_range_count(unsigned int kinds)
{
	unsigned long n = 0;
	size_t i;

	for (i = 0; i < range_count; i++)
		n += (kinds & 1u << ranges[i].kind) != 0;
	return n;
}

CUresult sim_memory_charge(CUdevice dev, size_t size)
{
	if (size > sim_device_memory() - used[dev])
		return CUDA_ERROR_OUT_OF_MEMORY;
	used[dev] += size;
	return CUDA_SUCCESS;
}

void sim_memory_uncharge(CUdevice dev, size_t size)
{
	used[dev] -= size;
}

size_t sim_poison_next(size_t size, size_t at)
{
	size_t step = 16 * PAGE;

	if (at + PAGE < SOIL_ALL)
		return at + PAGE;
	while (size / step > SOIL_PAGES)
		step *= 2;
	return at + step;
}

void sim_memory_poison(void *p, size_t size)
{
	size_t at;

	for (at = 0; at < size; at = sim_poison_next(size, at))
		memset((unsigned char *)p + at, SIM_POISON, size - at < PAGE ? size - at : PAGE);
}

void *sim_memory_map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	sim_memory_poison(p, size);
	return p;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuMemGetInfo_v2);
	SIM_TRY(sim_ctx_current(&ctx));
	if (free)
		*free = sim_device_memory() - used[ctx->dev];
	if (total)
		*total = sim_device_memory();
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr addr)
{
	const struct sim_range *r;
	struct sim_ctx *ctx;

	SIM_ENTER(cuMemGetAddressRange_v2);
	SIM_TRY(sim_ctx_current(&ctx));
	r = sim_range_find(addr);
	if (!r || !r->read) /* the real driver does not find mappings without access */
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = r->start;
	if (size)
		*size = r->size;
	return CUDA_SUCCESS;
}

/* The value of one attribute, and the number of its bytes for the caller. */
struct answer {
	uint64_t value;
	size_t size;
};

static CUresult answer_range(CUpointer_attribute attr, const struct sim_range *r, CUdeviceptr addr,
			     struct answer *a)
{
	CUdeviceptr start = r->start;
	size_t size = r->size;

	if (r->kind == SIM_MEM_MAPPED)
		sim_reservation_find(addr, &start, &size);
	a->size = 8;
	if (attr == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
		a->value = start;
	else if (attr == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
		a->value = size;
	else if (attr == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR)
		a->value = r->start;
	else if (attr == CU_POINTER_ATTRIBUTE_MAPPING_SIZE)
		a->value = r->size;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static unsigned int access_flags(const struct sim_range *r)
{
	return r->write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE :
	       r->read	? CU_MEM_ACCESS_FLAGS_PROT_READ :
			  CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

static CUresult answer_known(CUpointer_attribute attr, const struct sim_range *r, CUdeviceptr addr,
			     struct answer *a)
{
	bool host = sim_range_host(r);

	switch (attr) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*a = (struct answer){ r->pool ? 0 : r->ctx, sizeof(CUcontext) };
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*a = (struct answer){ host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
				      sizeof(int) };
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*a = (struct answer){ addr, sizeof(CUdeviceptr) };
		return r->read ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*a = (struct answer){ addr, sizeof(void *) };
		return host || r->kind == SIM_MEM_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*a = (struct answer){ r->id, sizeof(uint64_t) };
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*a = (struct answer){ r->kind == SIM_MEM_MANAGED, sizeof(int) };
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*a = (struct answer){ (uint64_t)r->dev, sizeof(int) };
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*a = (struct answer){ 1, sizeof(int) };
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*a = (struct answer){ access_flags(r), sizeof(int) };
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*a = (struct answer){ 0, sizeof(int) };
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*a = (struct answer){ 0, 8 };
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*a = (struct answer){ r->pool, 8 };
		return CUDA_SUCCESS;
	default:
		return answer_range(attr, r, addr, a);
	}
}

static CUresult answer(CUpointer_attribute attr, CUdeviceptr addr, struct answer *a)
{
	const struct sim_range *r = sim_range_find(addr);

	return r ? answer_known(attr, r, addr, a) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attr, CUdeviceptr addr)
{
	struct answer a;

	SIM_ENTER(cuPointerGetAttribute);
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(answer(attr, addr, &a));
	memcpy(data, &a.value, a.size);
	return CUDA_SUCCESS;
}

/* The size of an attribute of an unknown address. */
static size_t answer_size(CUpointer_attribute attr)
{
	static const struct sim_range any = { .size = 1 };
	struct answer a = { 0, 0 };

	(void)answer_known(attr, &any, 0, &a);
	return a.size;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attrs, void **data,
				CUdeviceptr addr)
{
	struct answer a;
	unsigned int i;

	SIM_ENTER(cuPointerGetAttributes);
	if (!count || !attrs || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++)
		if (!answer_size(attrs[i]))
			return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++) {
		if (answer(attrs[i], addr, &a))
			a = (struct answer){ attrs[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
						     ? (uint64_t)CU_DEVICE_INVALID
						     : 0,
					     answer_size(attrs[i]) };
		memcpy(data[i], &a.value, a.size);
	}
	return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attr, CUdeviceptr addr)
{
	SIM_ENTER(cuPointerSetAttribute);
	if (!value || attr != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !sim_range_find(addr))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS; /* synchronous copies always synchronise here */
}
