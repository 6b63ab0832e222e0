// SPDX-License-Identifier: Apache-2.0
/*
 * alloc.c - cuMemAlloc and similar functions, and pinned host memory.
 *
 * Every allocation has pages of its own, so a stale or overrun pointer soon faults. Freeing waits
 * for the device's running work, as in the real driver.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "arch/sim/sim.h"

#define PAGE 4096u
#define PITCH_ALIGN 512u

static size_t pages(size_t size)
{
	return (size + PAGE - 1) / PAGE * PAGE;
}

static CUresult range_new(struct sim_ctx *ctx, size_t size, enum sim_mem_kind kind,
			  CUdeviceptr *ret)
{
	struct sim_range r = { .size = size, .extent = pages(size), .kind = kind, .dev = ctx->dev,
			       .ctx = ctx->handle, .read = true, .write = true };
	bool host = kind == SIM_MEM_PINNED;
	CUresult res;

	if (host && size > SIZE_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!size || size > SIZE_MAX / 2)
		return CUDA_ERROR_INVALID_VALUE;
	if (!host)
		SIM_TRY(sim_memory_charge(ctx->dev, r.extent));
	res = CUDA_ERROR_OUT_OF_MEMORY;
	r.start = (CUdeviceptr)(uintptr_t)sim_memory_map(r.extent);
	if (!r.start)
		goto out_give;
	res = sim_range_add(&r);
	if (res)
		goto out_unmap;
	*ret = r.start;
	return CUDA_SUCCESS;

out_unmap:
	munmap((void *)(uintptr_t)r.start, r.extent);
out_give:
	if (!host)
		sim_memory_uncharge(ctx->dev, r.extent);
	return res;
}

static void range_free(const struct sim_range *range)
{
	struct sim_range r = *range;

	sim_range_remove(r.start);
	sim_pool_freed(&r);
	if (r.kind == SIM_MEM_REGISTERED)
		return;
	munmap((void *)(uintptr_t)r.start, r.extent);
	if (r.exported)
		close(r.exported - 1);
	if (r.kind != SIM_MEM_PINNED)
		sim_memory_uncharge(r.dev, r.extent);
}

/* The range that starts at @addr and is one of the kinds in @mask. */
static struct sim_range *range_at(CUdeviceptr addr, unsigned int mask)
{
	struct sim_range *r = sim_range_find(addr);

	return r && r->start == addr && (mask & 1u << r->kind) && !r->ipc ? r : NULL;
}

#define DEVICE_KINDS (1u << SIM_MEM_DEVICE | 1u << SIM_MEM_MANAGED)

CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t size)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuMemAlloc_v2);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	return range_new(ctx, size, SIM_MEM_DEVICE, ret);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *ret, size_t *pitch, size_t width, size_t height,
			    unsigned int element)
{
	struct sim_ctx *ctx;
	size_t row;

	SIM_ENTER(cuMemAllocPitch_v2);
	if (!ret || !pitch || !width || !height ||
	    (element != 4 && element != 8 && element != 16) || width > SIZE_MAX / 4)
		return CUDA_ERROR_INVALID_VALUE;
	row = (width + PITCH_ALIGN - 1) / PITCH_ALIGN * PITCH_ALIGN;
	if (height > SIZE_MAX / 4 / row)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	SIM_TRY(range_new(ctx, row * height, SIM_MEM_DEVICE, ret));
	*pitch = row;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *ret, size_t size, unsigned int flags)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuMemAllocManaged);
	if (!ret || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	return range_new(ctx, size, SIM_MEM_MANAGED, ret);
}

static CUresult range_close(CUdeviceptr addr, unsigned int mask)
{
	struct sim_range *r;
	struct sim_ctx *ctx;

	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	if (!range_at(addr, mask))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_wait());
	r = range_at(addr, mask);
	if (!r)
		return CUDA_ERROR_INVALID_VALUE;
	range_free(r);
	return CUDA_SUCCESS;
}

CUresult sim_alloc(struct sim_ctx *ctx, size_t size, CUdeviceptr *ret)
{
	return range_new(ctx, size, SIM_MEM_DEVICE, ret);
}

bool sim_alloc_is(CUdeviceptr addr)
{
	return range_at(addr, DEVICE_KINDS) != NULL;
}

void sim_alloc_free(CUdeviceptr addr)
{
	const struct sim_range *r = range_at(addr, DEVICE_KINDS);

	if (r)
		range_free(r);
}

CUresult cuMemFree_v2(CUdeviceptr addr)
{
	SIM_ENTER(cuMemFree_v2);
	if (!addr || sim_gmem_free(addr))
		return CUDA_SUCCESS;
	return range_close(addr, DEVICE_KINDS);
}

static CUresult host_new(void **ret, size_t size, unsigned int flags)
{
	struct sim_ctx *ctx;
	CUdeviceptr addr;

	if (!ret || flags & ~(unsigned int)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
					    CU_MEMHOSTALLOC_WRITECOMBINED))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	if (!size) {
		*ret = NULL;
		return CUDA_SUCCESS;
	}
	SIM_TRY(range_new(ctx, size, SIM_MEM_PINNED, &addr));
	/* All of it is mapped, as with unified addressing. */
	sim_range_find(addr)->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
	*ret = (void *)(uintptr_t)addr;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **ret, size_t size)
{
	SIM_ENTER(cuMemAllocHost_v2);
	return host_new(ret, size, 0);
}

CUresult cuMemHostAlloc(void **ret, size_t size, unsigned int flags)
{
	SIM_ENTER(cuMemHostAlloc);
	return host_new(ret, size, flags);
}

CUresult cuMemFreeHost(void *p)
{
	SIM_ENTER(cuMemFreeHost);
	if (!p)
		return CUDA_SUCCESS;
	return range_close((CUdeviceptr)(uintptr_t)p, 1u << SIM_MEM_PINNED);
}

/* Whether all of the range is mapped in this process. */
static bool host_mapped(uintptr_t start, size_t size)
{
	unsigned char in_core[64];
	uintptr_t page = start / PAGE * PAGE, end = start + size;
	size_t part;

	for (; page < end; page += part) {
		part = sizeof(in_core) * PAGE;
		if (part > end - page)
			part = end - page;
		if (mincore((void *)page, part, in_core))
			return false;
	}
	return true;
}

static CUresult register_check(const void *p, size_t size, unsigned int flags)
{
	const struct sim_range *r;
	uintptr_t start = (uintptr_t)p;

	if (!p || !size || size > SIZE_MAX / 2 || start > UINTPTR_MAX - size ||
	    flags & ~(unsigned int)(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
				    CU_MEMHOSTREGISTER_READ_ONLY))
		return CUDA_ERROR_INVALID_VALUE;
	r = sim_range_from(start);
	if (r && r->start < start + size)
		return r->kind == SIM_MEM_REGISTERED ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
						     : CUDA_ERROR_INVALID_VALUE;
	return host_mapped(start, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned int flags)
{
	struct sim_range r = { .start = (CUdeviceptr)(uintptr_t)p, .size = size, .extent = size,
			       .kind = SIM_MEM_REGISTERED, .read = true };
	struct sim_ctx *ctx;

	SIM_ENTER(cuMemHostRegister_v2);
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	SIM_TRY(register_check(p, size, flags));
	r.dev = ctx->dev;
	r.ctx = ctx->handle;
	r.flags = (flags & CU_MEMHOSTREGISTER_PORTABLE) | CU_MEMHOSTREGISTER_DEVICEMAP;
	r.write = !(flags & CU_MEMHOSTREGISTER_READ_ONLY);
	return sim_range_add(&r);
}

CUresult cuMemHostUnregister(void *p)
{
	const struct sim_range *r;
	CUresult res;

	SIM_ENTER(cuMemHostUnregister);
	r = sim_range_find((CUdeviceptr)(uintptr_t)p);
	res = range_close((CUdeviceptr)(uintptr_t)p, 1u << SIM_MEM_REGISTERED);
	return res == CUDA_ERROR_INVALID_VALUE && !r ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : res;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret, void *p, unsigned int flags)
{
	const struct sim_range *r;
	struct sim_ctx *ctx;

	SIM_ENTER(cuMemHostGetDevicePointer_v2);
	SIM_TRY(sim_ctx_current(&ctx));
	r = sim_range_find((CUdeviceptr)(uintptr_t)p);
	if (!ret || flags || !r || !sim_range_host(r))
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *p)
{
	const struct sim_range *r;
	struct sim_ctx *ctx;

	SIM_ENTER(cuMemHostGetFlags);
	SIM_TRY(sim_ctx_current(&ctx));
	r = sim_range_find((CUdeviceptr)(uintptr_t)p);
	if (!flags || !r || !sim_range_host(r))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = r->flags;
	return CUDA_SUCCESS;
}

void sim_memory_release(struct sim_ctx *ctx)
{
	const unsigned int mask = DEVICE_KINDS | 1u << SIM_MEM_PINNED | 1u << SIM_MEM_REGISTERED;
	CUdeviceptr at = 0;
	struct sim_range *r;

	while ((r = sim_range_from(at)) != NULL) {
		at = r->start + r->size;
		if (r->ctx == ctx->handle && (mask & 1u << r->kind))
			range_free(r);
	}
}
