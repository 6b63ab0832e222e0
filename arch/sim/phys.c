// SPDX-License-Identifier: Apache-2.0
/*
 * phys.c - memory by handle: cuMemCreate, export to other processes, and import.
 *
 * The memory of all handles lies in one file in memory, which only grows at its end. After the last
 * use of a handle, its bytes are removed from the file (FALLOC_FL_PUNCH_HOLE). One file for all
 * handles needs few descriptors, and a handle that is mapped twice shows the same bytes at both
 * addresses. Memory that may be shared has a file of its own, whose name identifies the software
 * driver and the device.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/file.h"
#include "arch/sim/vmm.h"

#define SHARED_NAME "foundry-shared-"
#define SHARED_TYPES CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static int file = -1;
static off_t file_end;

static CUresult prop_check(const CUmemAllocationProp *prop)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->win32HandleMetaData)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    prop->requestedHandleTypes & ~(unsigned int)SHARED_TYPES)
		return CUDA_ERROR_NOT_SUPPORTED;
	return sim_device_ok(prop->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *ret, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	SIM_ENTER(cuMemGetAllocationGranularity);
	if (!ret || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
		     option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(prop_check(prop));
	*ret = SIM_GRANULARITY;
	return CUDA_SUCCESS;
}

static bool file_grow(size_t size)
{
	if (file < 0)
		file = fdry_memfd("foundry-device-memory");
	return file >= 0 && size <= (size_t)(INT64_MAX - file_end) &&
	       !fdry_truncate(file, (uint64_t)file_end + size);
}

/* A file of its own, for memory that may be shared. */
static bool bytes_own(struct sim_mem *mem)
{
	char name[32];

	snprintf(name, sizeof(name), SHARED_NAME "%d", mem->prop.location.id);
	mem->fd = fdry_memfd(name);
	if (mem->fd < 0)
		return false;
	mem->shared = true;
	return !fdry_truncate(mem->fd, mem->size);
}

static bool bytes_common(struct sim_mem *mem)
{
	if (!file_grow(mem->size))
		return false;
	mem->fd = file;
	mem->offset = file_end;
	file_end += (off_t)mem->size;
	return true;
}

/* Write the bytes by system calls, which takes half the time of mapping them. */
static bool bytes_soil(const struct sim_mem *mem)
{
	unsigned char page[4096];
	struct fdry_xfsz x;
	bool ok = true;
	size_t at;

	memset(page, SIM_POISON, sizeof(page));
	fdry_xfsz_hold(&x);
	for (at = 0; at < mem->size && ok; at = sim_poison_next(mem->size, at))
		ok = pwrite(mem->fd, page, sizeof(page), mem->offset + (off_t)at) == sizeof(page);
	fdry_xfsz_release(&x);
	return ok;
}

static void mem_release(struct sim_obj *obj)
{
	struct sim_mem *mem = (struct sim_mem *)obj;

	/* A failure only leaves unused host memory allocated. */
	if (mem->shared && mem->fd >= 0)
		close(mem->fd);
	else if (mem->fd >= 0)
		(void)fallocate(mem->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, mem->offset,
				(off_t)mem->size);
	if (mem->bound)
		sim_obj_put(&mem->bound->obj);
	if (!mem->imported && !mem->multicast)
		sim_memory_uncharge(mem->prop.location.id, mem->size);
	free(mem);
}

CUresult sim_mem_open(struct sim_mem *mem, CUmemGenericAllocationHandle *ret)
{
	CUresult res = sim_obj_open(&mem->obj, SIM_MEM, mem_release);

	if (res)
		mem_release(&mem->obj);
	else
		*ret = mem->obj.id;
	return res;
}

struct sim_mem *sim_mem_new(size_t size, const CUmemAllocationProp *prop)
{
	struct sim_mem *mem = calloc(1, sizeof(*mem));

	if (!mem)
		return NULL;
	mem->size = size;
	mem->prop = *prop;
	mem->handles = 1;
	mem->fd = -1;
	return mem;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct sim_mem *mem;

	SIM_ENTER(cuMemCreate);
	if (!ret || !size || !sim_granular(size) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(prop_check(prop));
	SIM_TRY(sim_memory_charge(prop->location.id, size));
	mem = sim_mem_new(size, prop);
	if (!mem) {
		sim_memory_uncharge(prop->location.id, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!(prop->requestedHandleTypes ? bytes_own(mem) : bytes_common(mem)) ||
	    !bytes_soil(mem)) {
		mem_release(&mem->obj);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return sim_mem_open(mem, ret);
}

struct sim_mem *sim_mem_find(CUmemGenericAllocationHandle handle)
{
	struct sim_mem *mem = sim_find(handle, SIM_MEM);

	return mem && mem->handles ? mem : NULL;
}

/* The memory of a released handle stays while it is mapped; a mapping can return the handle again.
 */
void sim_mem_unused(struct sim_mem *mem)
{
	if (!mem->handles && !mem->mappings)
		sim_obj_close(&mem->obj);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct sim_mem *mem;

	SIM_ENTER(cuMemRelease);
	mem = sim_mem_find(handle);
	if (!mem)
		return CUDA_ERROR_INVALID_VALUE;
	mem->handles--;
	sim_mem_unused(mem);
	return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret, void *addr)
{
	const struct sim_range *r;

	SIM_ENTER(cuMemRetainAllocationHandle);
	r = sim_range_find((CUdeviceptr)(uintptr_t)addr);
	if (!ret || !r || r->kind != SIM_MEM_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	r->mem->handles++;
	*ret = r->mem->obj.id;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						CUmemGenericAllocationHandle handle)
{
	const struct sim_mem *mem;

	SIM_ENTER(cuMemGetAllocationPropertiesFromHandle);
	mem = sim_mem_find(handle);
	if (!prop || !mem)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = mem->prop;
	return CUDA_SUCCESS;
}


/* The caller closes the descriptor, which keeps the bytes. */
CUresult cuMemExportToShareableHandle(void *ret, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	const struct sim_mem *mem;
	int fd;

	SIM_ENTER(cuMemExportToShareableHandle);
	mem = sim_mem_find(handle);
	if (!ret || !mem || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !mem->shared)
		return CUDA_ERROR_INVALID_VALUE;
	fd = fdry_dup(mem->fd);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)ret = fd;
	return CUDA_SUCCESS;
}

/* The device of a descriptor's memory, by the name of its file; -1: the file is not of this
 * driver. */
static int shared_device(int fd)
{
	static const char prefix[] = "/memfd:" SHARED_NAME;
	char link[64], name[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, name, sizeof(name) - 1);
	if (n < (ssize_t)sizeof(prefix))
		return -1;
	name[n] = '\0';
	return strncmp(name, prefix, sizeof(prefix) - 1)
		       ? -1
		       : (int)strtol(name + sizeof(prefix) - 1, NULL, 10);
}

static CUresult import(int fd, CUmemGenericAllocationHandle *ret)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes = SHARED_TYPES,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	struct sim_mem *mem;
	struct stat st;

	prop.location.id = shared_device(fd);
	if (prop.location.id < 0 || fstat(fd, &st) || st.st_size <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(prop.location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	mem = sim_mem_new((size_t)st.st_size, &prop);
	if (!mem)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mem->shared = mem->imported = true;
	mem->fd = fdry_dup(fd);
	if (mem->fd < 0) {
		mem_release(&mem->obj);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	return sim_mem_open(mem, ret);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret, void *handle,
					CUmemAllocationHandleType type)
{
	SIM_ENTER(cuMemImportFromShareableHandle);
	if (!ret || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	return import((int)(intptr_t)handle, ret);
}
