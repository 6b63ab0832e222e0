// SPDX-License-Identifier: Apache-2.0
/*
 * vmm.c - reserved addresses, and mappings of memory at them.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "arch/sim/vmm.h"

#define PAGE 4096u

struct reservation {
	struct reservation *next;
	CUdeviceptr start;
	size_t size;
};

static struct reservation *reservations;

static void *addr_ptr(CUdeviceptr addr)
{
	return (void *)(uintptr_t)addr;
}

/* The reservation that holds all of [@start, @start + @size), or NULL. */
static const struct reservation *reservation_of(CUdeviceptr start, size_t size)
{
	const struct reservation *v;

	for (v = reservations; v; v = v->next)
		if (start >= v->start && size <= v->size && start - v->start <= v->size - size)
			return v;
	return NULL;
}

bool sim_reservation_find(CUdeviceptr addr, CUdeviceptr *start, size_t *size)
{
	const struct reservation *v = reservation_of(addr, 1);

	if (!v)
		return false;
	*start = v->start;
	*size = v->size;
	return true;
}

unsigned long sim_reservation_count(void)
{
	const struct reservation *v;
	unsigned long n = 0;

	for (v = reservations; v; v = v->next)
		n++;
	return n;
}

/* Map addresses without access and without memory. */
static void *vacant(void *hint, size_t size, int flags)
{
	void *p = mmap(hint, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags,
		       -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Map at any aligned address: map more, and unmap both ends. */
static void *vacant_aligned(size_t size, size_t align)
{
	uintptr_t raw, start;

	raw = (uintptr_t)vacant(NULL, size + align, 0);
	if (!raw)
		return NULL;
	start = (raw + align - 1) / align * align;
	if (start > raw)
		munmap((void *)raw, start - raw);
	munmap((void *)(start + size), raw + align - start);
	return (void *)start;
}

/* On the real driver, smaller reservations come from a pool, which ignores the hint. The limit
 * differs between processes. */
static size_t hint_min(void)
{
	const char *mib = getenv("FDRY_SIM_HINT_MIN");

	return (mib ? (size_t)strtoul(mib, NULL, 10) : 32) << 20;
}

static CUdeviceptr reserve(size_t size, size_t align, CUdeviceptr hint)
{
	void *p = NULL;

	if (hint && hint % align == 0 && size >= hint_min())
		p = vacant(addr_ptr(hint), size, MAP_FIXED_NOREPLACE);
	if (p && p != addr_ptr(hint)) { /* an old Linux kernel, which takes the address only as a
					   hint */
		munmap(p, size);
		p = NULL;
	}
	if (!p)
		p = vacant_aligned(size, align);
	return (CUdeviceptr)(uintptr_t)p;
}

CUresult cuMemAddressReserve(CUdeviceptr *ret, size_t size, size_t align, CUdeviceptr hint,
			     unsigned long long flags)
{
	struct reservation *v;

	SIM_ENTER(cuMemAddressReserve);
	if (!ret || !size || !sim_granular(size) || hint % PAGE || align & (align - 1) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (align < SIM_GRANULARITY)
		align = SIM_GRANULARITY;
	if (size > SIZE_MAX / 4 || align > SIZE_MAX / 4)
		return CUDA_ERROR_OUT_OF_MEMORY;
	v = calloc(1, sizeof(*v));
	if (!v)
		return CUDA_ERROR_OUT_OF_MEMORY;
	v->size = size;
	v->start = reserve(size, align, hint);
	if (!v->start) {
		free(v);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	v->next = reservations;
	reservations = v;
	*ret = v->start;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr addr, size_t size)
{
	struct reservation **link, *v;
	const struct sim_range *r;

	SIM_ENTER(cuMemAddressFree);
	for (link = &reservations; (v = *link) != NULL; link = &v->next)
		if (v->start == addr)
			break;
	r = sim_range_from(addr);
	if (!v || v->size != size || (r && r->start < addr + size))
		return CUDA_ERROR_INVALID_VALUE;
	munmap(addr_ptr(addr), size);
	*link = v->next;
	free(v);
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr addr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	struct sim_range r = {
		.start = addr, .size = size, .extent = size, .kind = SIM_MEM_MAPPED
	};
	const struct sim_mem *bytes;
	struct sim_mem *mem;
	CUresult res;

	SIM_ENTER(cuMemMap);
	mem = sim_mem_find(handle);
	if (!mem || !size || !sim_granular(addr) || !sim_granular(size) || flags ||
	    size > mem->size || !reservation_of(addr, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (offset || size != mem->size)
		return CUDA_ERROR_NOT_SUPPORTED; /* parts of a handle's memory */
	bytes = mem->multicast ? mem->bound : mem;
	if (!bytes)
		return CUDA_ERROR_NOT_PERMITTED; /* nothing is bound */
	r.dev = mem->prop.location.id;
	r.mem = mem;
	res = sim_range_add(&r);
	if (res)
		return res == CUDA_ERROR_ALREADY_MAPPED ? CUDA_ERROR_INVALID_VALUE : res;
	if (mmap(addr_ptr(addr), size, PROT_NONE, MAP_SHARED | MAP_FIXED, bytes->fd,
		 bytes->offset) == MAP_FAILED) {
		sim_range_remove(addr);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	mem->mappings++;
	return CUDA_SUCCESS;
}

/* Whether [@addr, @addr + @size) consists of whole mappings. */
static bool mapped(CUdeviceptr addr, size_t size)
{
	const struct sim_range *r;

	if (!size || addr > UINT64_MAX - size)
		return false;
	while (size) {
		r = sim_range_find(addr);
		if (!r || r->kind != SIM_MEM_MAPPED)
			return false;
		if (r->start != addr || r->size > size)
			return false;
		addr += r->size;
		size -= r->size;
	}
	return true;
}

/* Whether every mapping that [@addr, @addr + @size) touches lies in it. There may be none. */
static bool whole(CUdeviceptr addr, size_t size)
{
	const struct sim_range *r;
	CUdeviceptr end = addr + size;

	if (!size || end < addr || !sim_granular(addr) || !sim_granular(size) ||
	    !reservation_of(addr, size))
		return false;
	for (r = sim_range_from(addr); r && r->start < end; r = sim_range_from(r->start + r->size))
		if (r->start < addr || r->start + r->size > end)
			return false;
	return true;
}

CUresult cuMemUnmap(CUdeviceptr addr, size_t size)
{
	struct sim_range *r;
	struct sim_mem *mem;
	CUdeviceptr end = addr + size;

	SIM_ENTER(cuMemUnmap);
	if (!whole(addr, size))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_wait());
	if (!whole(addr, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (!vacant(addr_ptr(addr), size, MAP_FIXED))
		return CUDA_ERROR_OUT_OF_MEMORY;
	while ((r = sim_range_from(addr)) != NULL && r->start < end) {
		mem = r->mem;
		sim_range_remove(r->start);
		mem->mappings--;
		sim_mem_unused(mem);
	}
	return CUDA_SUCCESS;
}

static CUresult access_check(const CUmemAccessDesc *desc, size_t count)
{
	size_t i;

	if (!desc || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++) {
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (!sim_device_ok(desc[i].location.id))
			return CUDA_ERROR_INVALID_DEVICE;
		if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
		    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
		    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* The access of @dev to a mapping's memory. */
static void access_set(struct sim_range *r, CUdevice dev, CUmemAccess_flags flags)
{
	bool read = flags != CU_MEM_ACCESS_FLAGS_PROT_NONE,
	     write = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

	if (dev == r->dev) {
		r->read = read;
		r->write = write;
		return;
	}
	r->peers_read = (r->peers_read & ~(1u << dev)) | (unsigned int)read << dev;
	r->peers_write = (r->peers_write & ~(1u << dev)) | (unsigned int)write << dev;
}

/* Give the process the access to the pages that all devices have together. */
static bool pages_open(const struct sim_range *r)
{
	int prot = (r->read || r->peers_read ? PROT_READ : PROT_NONE) |
		   (r->write || r->peers_write ? PROT_WRITE : 0);

	return !mprotect(addr_ptr(r->start), r->size, prot);
}

CUresult cuMemSetAccess(CUdeviceptr addr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUdeviceptr end = addr + size;
	struct sim_range *r;
	size_t i;

	SIM_ENTER(cuMemSetAccess);
	SIM_TRY(access_check(desc, count));
	if (!sim_granular(addr) || !sim_granular(size) || !mapped(addr, size))
		return CUDA_ERROR_INVALID_VALUE;
	for (r = sim_range_from(addr); r && r->start < end;
	     r = sim_range_from(r->start + r->size)) {
		for (i = 0; i < count; i++)
			access_set(r, desc[i].location.id, desc[i].flags);
		if (!pages_open(r))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr addr)
{
	const struct sim_range *r;
	bool read, write;

	SIM_ENTER(cuMemGetAccess);
	r = sim_range_find(addr);
	if (!flags || !location || !r || r->kind != SIM_MEM_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_ok(location->id))
		return CUDA_ERROR_INVALID_DEVICE;
	read = location->id == r->dev ? r->read : r->peers_read >> location->id & 1;
	write = location->id == r->dev ? r->write : r->peers_write >> location->id & 1;
	*flags = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE :
		 read  ? CU_MEM_ACCESS_FLAGS_PROT_READ :
			 CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}
