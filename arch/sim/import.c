// SPDX-License-Identifier: Apache-2.0
/*
 * import.c - memory of other processes and of other APIs: IPC handles, external memory.
 *
 * Exported memory moves into a file in memory, at the same addresses. The handle names that file,
 * and another process maps it. The files of external memory are mapped, too.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/file.h"
#include "arch/sim/sim.h"

#define PAGE 4096u
#define MAGIC 0x43504946u

/* The bytes of a CUipcMemHandle. */
struct exported {
	uint32_t magic;
	int32_t pid, fd, dev;
	uint64_t size;
};

static void *addr_ptr(CUdeviceptr addr)
{
	return (void *)(uintptr_t)addr;
}

/* Move the bytes of a range into a file, which is mapped at the same addresses. Returns the file's
 * descriptor, or -1. */
static int make_shared(const struct sim_range *r)
{
	int fd = fdry_memfd("foundry-exported");

	if (fd < 0)
		return -1;
	if (!fdry_pwrite(fd, addr_ptr(r->start), r->extent, 0) &&
	    mmap(addr_ptr(r->start), r->extent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 0) != MAP_FAILED)
		return fd;
	close(fd);
	return -1;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *ret, CUdeviceptr addr)
{
	struct exported e = { .magic = MAGIC, .pid = getpid() };
	struct sim_range *r;

	SIM_ENTER(cuIpcGetMemHandle);
	SIM_TRY(sim_device_wait());
	r = sim_range_find(addr);
	if (!ret || !r || r->kind != SIM_MEM_DEVICE || r->pool || r->imported)
		return CUDA_ERROR_INVALID_VALUE;
	if (!r->exported)
		r->exported = make_shared(r) + 1;
	if (!r->exported)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e.fd = r->exported - 1;
	e.dev = r->dev;
	e.size = r->size;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &e, sizeof(e));
	return CUDA_SUCCESS;
}

/* Map the @size bytes of a file from @offset on. @ipc: cuIpcCloseMemHandle unmaps it, else
 * cuMemFree. */
static CUresult map_file(struct sim_ctx *ctx, int fd, off_t offset, size_t size, bool ipc,
			 CUdeviceptr *ret)
{
	struct sim_range r = { .size = size,
			       .extent = (size + PAGE - 1) / PAGE * PAGE,
			       .kind = SIM_MEM_DEVICE,
			       .dev = ctx->dev,
			       .ctx = ctx->handle,
			       .read = true,
			       .write = true,
			       .imported = true,
			       .ipc = ipc };
	CUresult res;
	void *p;

	SIM_TRY(sim_memory_charge(r.dev,
				  r.extent)); /* it is not this process's memory, but cuMemFree will
						 uncharge it */
	p = mmap(NULL, r.extent, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
	if (p == MAP_FAILED) {
		sim_memory_uncharge(r.dev, r.extent);
		return CUDA_ERROR_INVALID_VALUE;
	}
	r.start = (CUdeviceptr)(uintptr_t)p;
	res = sim_range_add(&r);
	if (res) {
		munmap(p, r.extent);
		sim_memory_uncharge(r.dev, r.extent);
		return res;
	}
	*ret = r.start;
	return CUDA_SUCCESS;
}

static CUresult ipc_open(CUdeviceptr *ret, const CUipcMemHandle *handle, unsigned int flags)
{
	struct exported e;
	struct sim_ctx *ctx;
	char path[64];
	CUresult res;
	int fd;

	memcpy(&e, handle, sizeof(e));
	if (!ret || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || e.magic != MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	if (e.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", e.pid, e.fd);
	fd = fdry_open(path, O_RDWR, 0);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	res = map_file(ctx, fd, 0, e.size, true, ret);
	close(fd);
	return res;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ret, CUipcMemHandle handle, unsigned int flags)
{
	SIM_ENTER(cuIpcOpenMemHandle_v2);
	return ipc_open(ret, &handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr addr)
{
	struct sim_range *r;

	SIM_ENTER(cuIpcCloseMemHandle);
	SIM_TRY(sim_device_wait());
	r = sim_range_find(addr);
	if (!r || r->start != addr || !r->ipc)
		return CUDA_ERROR_INVALID_VALUE;
	r->ipc = false;
	sim_alloc_free(addr);
	return CUDA_SUCCESS;
}

/* --- external memory --- */

struct sim_external {
	struct sim_obj obj;
	int fd;
	uint64_t size;
};

static void external_release(struct sim_obj *obj)
{
	close(((struct sim_external *)obj)->fd);
	free(obj);
}

/* On success, the driver owns the descriptor. */
CUresult cuImportExternalMemory(CUexternalMemory *ret, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
	struct sim_external *e;
	struct stat st;
	CUresult res;

	SIM_ENTER(cuImportExternalMemory);
	if (!ret || !desc || !desc->size || desc->flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (fstat(desc->handle.fd, &st) || (uint64_t)st.st_size < desc->size)
		return CUDA_ERROR_INVALID_VALUE;
	e = calloc(1, sizeof(*e));
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->size = desc->size;
	res = sim_obj_open(&e->obj, SIM_EXTERNAL, external_release);
	if (res) {
		free(e);
		return res;
	}
	e->fd = desc->handle.fd;
	*ret = SIM_HANDLE(CUexternalMemory, e);
	return CUDA_SUCCESS;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *ret, CUexternalMemory handle,
					 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
	struct sim_external *e;
	struct sim_ctx *ctx;

	SIM_ENTER(cuExternalMemoryGetMappedBuffer);
	SIM_TRY(sim_ctx_current(&ctx));
	e = sim_find(handle, SIM_EXTERNAL);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!ret || !desc || desc->flags || !desc->size || desc->offset % PAGE ||
	    desc->offset > e->size || desc->size > e->size - desc->offset)
		return CUDA_ERROR_INVALID_VALUE;
	return map_file(ctx, e->fd, (off_t)desc->offset, desc->size, false, ret);
}

CUresult cuDestroyExternalMemory(CUexternalMemory handle)
{
	struct sim_external *e;

	SIM_ENTER(cuDestroyExternalMemory);
	e = sim_find(handle, SIM_EXTERNAL);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	sim_obj_close(&e->obj);
	return CUDA_SUCCESS;
}
