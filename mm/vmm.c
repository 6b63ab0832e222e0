// SPDX-License-Identifier: Apache-2.0
/*
 * vmm.c - reserves addresses, and maps, fills and unmaps memory; see vmm.h.
 *
 * The handle of physical memory is released as soon as it is mapped. The mapping alone keeps the
 * memory, so one call frees it, and that call succeeds or changes nothing.
 *
 * Code that undoes a failure uses fdry_call_raw(), which preserves the failure's message.
 */
#include "mm/vmm.h"

#include <inttypes.h>
#include <stddef.h>

#include "lib/log.h"
#include "arch/stream.h"
#include "mm/maps.h"
#include "mm/va_cache.h"
#include "mm/region.h"

int fdry_vmm_enter(const struct fdry_vmm *v, CUstreamCaptureMode *mode)
{
	return fdry_driver_enter(v->drv, v->ctx, mode);
}

void fdry_vmm_leave(const struct fdry_vmm *v, CUstreamCaptureMode *mode)
{
	fdry_driver_leave(v->drv, mode);
}

/* --- memory --- */

int fdry_vmm_fill(const struct fdry_vmm *v, uint64_t start, uint64_t size, uint32_t pattern)
{
	return fdry_call(v->drv, cuMemsetD32Async, start, pattern, size / 4, v->stream);
}

int fdry_vmm_sync(const struct fdry_vmm *v)
{
	return fdry_call(v->drv, cuStreamSynchronize, v->stream);
}

void fdry_vmm_quiesce(const struct fdry_vmm *v)
{
	fdry_call_raw(v->drv, cuStreamSynchronize, v->stream);
}

CUresult fdry_vmm_unmap(const struct fdry_vmm *v, uint64_t start, uint64_t size)
{
	return fdry_call_raw(v->drv, cuMemUnmap, start, size);
}

static CUmemAccessDesc access_of(CUdevice dev, bool open)
{
	return (CUmemAccessDesc){
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev },
		.flags = open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE,
	};
}

CUresult fdry_vmm_open(const struct fdry_vmm *v, uint64_t start, uint64_t size, CUdevice dev,
		       bool open)
{
	CUmemAccessDesc access = access_of(dev, open);

	return fdry_call_raw(v->drv, cuMemSetAccess, start, size, &access, 1);
}

static CUmemAllocationProp memory_of(const struct fdry_vmm *v)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = v->dev },
	};
}

int fdry_vmm_map(const struct fdry_vmm *v, uint64_t start, uint64_t size)
{
	CUmemAccessDesc access[1 + FDRY_VMM_DEVICES] = { access_of(v->dev, true) };
	CUmemAllocationProp prop = memory_of(v);
	CUmemGenericAllocationHandle handle;
	CUdevice dev;
	size_t n = 1;
	int ret = fdry_call(v->drv, cuMemCreate, &handle, size, &prop, 0);

	if (ret)
		goto out;
	for (dev = 0; dev < FDRY_VMM_DEVICES; dev++)
		if (v->peers >> dev & 1)
			access[n++] = access_of(dev, true);
	ret = fdry_call(v->drv, cuMemMap, start, size, 0, handle, 0);
	if (ret)
		goto out_release;
	ret = fdry_call(v->drv, cuMemSetAccess, start, size, access, n);
	if (ret)
		goto out_unmap;
	ret = fdry_call(v->drv, cuMemsetD32Async, start, 0, size / 4, v->stream);
	if (ret)
		goto out_unmap;
	ret = fdry_call(v->drv, cuMemRelease, handle);
	if (ret)
		goto out_unmap;
	return 0;

out_unmap:
	fdry_vmm_quiesce(v);
	fdry_vmm_unmap(v, start, size);
out_release:
	fdry_call_raw(v->drv, cuMemRelease, handle);
out:
	return fdry_fail_at(ret, "mapping %" PRIu64 " bytes of device memory at %#" PRIx64, size,
			    start);
}

/* --- waiting --- */

/* Wait in another context of the caller, which may use the memory, too. A destroyed context has no
 * work left. */
static int wait_in(const struct fdry_vmm *v, CUcontext ctx)
{
	CUresult res = fdry_call_raw(v->drv, cuCtxPushCurrent_v2, ctx);
	int ret;

	if (res == CUDA_ERROR_INVALID_CONTEXT || res == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return 0;
	ret = fdry_driver_result(v->drv, FDRY_DRV_cuCtxPushCurrent_v2, res);
	if (ret)
		return ret;
	ret = fdry_call(v->drv, cuCtxSynchronize);
	fdry_call_raw(v->drv, cuCtxPopCurrent_v2, &ctx);
	return ret;
}

int fdry_vmm_wait(const struct fdry_vmm *v)
{
	CUcontext ctx = NULL;
	CUstreamCaptureMode mode;
	int ret = fdry_call(v->drv, cuCtxGetCurrent, &ctx);

	if (ret)
		return ret;
	ret = fdry_vmm_enter(v, &mode);
	if (ret)
		return ret;
	ret = fdry_call(v->drv, cuCtxSynchronize);
	if (!ret && ctx && ctx != v->ctx)
		ret = wait_in(v, ctx);
	fdry_vmm_leave(v, &mode);
	return ret;
}

/* --- the reservation --- */

static int check_granule(struct fdry_vmm *v)
{
	CUmemAllocationProp prop = memory_of(v);
	size_t granule = 0;
	int ret = fdry_call(v->drv, cuMemGetAllocationGranularity, &granule, &prop,
			    CU_MEM_ALLOC_GRANULARITY_MINIMUM);

	if (ret)
		return ret;
	if (!granule || granule & (granule - 1))
		return fdry_fail(
			FDRY_E_DRIVER,
			"the driver maps memory in units of %zu bytes, not a power of two; "
			"use another driver",
			granule);
	if (granule < FDRY_ALLOC_BLOCK)
		granule = FDRY_ALLOC_BLOCK;
	if (v->base % granule || v->size % granule)
		return fdry_fail(FDRY_E_INVAL,
				 "a region of %" PRIu64
				 " bytes at %#llx; both must be multiples of %zu",
				 v->size, v->base, granule);
	v->granule = granule;
	return 0;
}

/*
 * Seen on driver 580: small reservations come from a pool of the driver, which ignores their hint.
 * Small means below 32 MiB in a process that did nothing else, and below 512 MiB in one that has
 * used PyTorch.
 */
#define RESERVE_MIN (32ull << 20)
#define RESERVE_MAX (1ull << 40)

/* The base is a hint for the driver, which returns another address if the base is taken. */
static int reserve_once(struct fdry_vmm *v, CUdeviceptr at, uint64_t size, bool *found)
{
	CUdeviceptr got = 0;
	int ret = fdry_call(v->drv, cuMemAddressReserve, &got, size, 0, at, 0);

	*found = !ret && got == at;
	if (*found)
		v->reserved[v->parts++] = size;
	else if (!ret)
		fdry_call_raw(v->drv, cuMemAddressFree, got, size);
	return ret;
}

static int taken(CUdeviceptr start, CUdeviceptr end)
{
	char what[600];

	fdry_maps_describe(start, end, what, sizeof(what));
	return fdry_fail(
		FDRY_E_TAKEN,
		"the addresses %#llx-%#llx are taken by %s; choose another base, or reserve "
		"the region earlier in the process",
		start, end, what);
}

static int reserve(struct fdry_vmm *v)
{
	uint64_t size = v->size < RESERVE_MIN ? RESERVE_MIN : v->size;
	bool found;
	int ret;

	if (fdry_va_cache_take(v->drv, v->base, v->size, &v->reserved[0])) {
		v->parts = 1;
		return 0;
	}
	fdry_va_cache_clear(v->base, size);
	ret = reserve_once(v, v->base, size, &found);
	if (ret)
		return fdry_fail_at(ret, "reserving %" PRIu64 " bytes of addresses at %#llx",
				    v->size, v->base);
	/* The driver ignored the hint because the reservation is small, or because another mapping
	 * lies there. */
	while (!found && !ret && size < RESERVE_MAX) {
		size *= 2;
		ret = reserve_once(v, v->base, size, &found);
	}
	return found ? 0 : taken(v->base, v->base + v->size);
}

/* The end of all reservations. */
static CUdeviceptr reserved_end(const struct fdry_vmm *v)
{
	CUdeviceptr end = v->base;
	unsigned int i;

	for (i = 0; i < v->parts; i++)
		end += v->reserved[i];
	return end;
}

/* A reservation of this size is never small. */
#define EXTEND_MIN (1ull << 30)

int fdry_vmm_extend(struct fdry_vmm *v, uint64_t size, CUdeviceptr *ret)
{
	CUdeviceptr start = reserved_end(v);
	bool found;
	int err;

	if (v->parts == FDRY_VMM_PARTS)
		return fdry_fail(FDRY_E_LIMIT,
				 "the region at %#llx was extended %d times; reserve a larger one",
				 v->base, FDRY_VMM_PARTS - 1);
	if (size < EXTEND_MIN)
		size = EXTEND_MIN;
	if (size > UINT64_MAX / 4)
		return fdry_fail(FDRY_E_RANGE,
				 "%" PRIu64
				 " bytes more than the region at %#llx has; ask for less",
				 size, v->base);
	err = reserve_once(v, start, size, &found);
	if (err)
		return fdry_fail_at(err, "reserving %" PRIu64 " bytes more of addresses at %#llx",
				    size, start);
	if (!found)
		return taken(start, start + size);
	__atomic_store_n(&v->size, reserved_end(v) - v->base, __ATOMIC_RELAXED);
	*ret = start;
	return 0;
}

/* Free the reservations, last first. */
static void give_up(struct fdry_vmm *v)
{
	CUdeviceptr at;
	CUresult res;

	while (v->parts) {
		at = reserved_end(v) - v->reserved[v->parts - 1];
		v->parts--;
		if (v->keep_va) {
			fdry_va_cache_add(
				&(struct fdry_va_cached){ v->drv, at, v->reserved[v->parts] });
			continue;
		}
		res = fdry_call_raw(v->drv, cuMemAddressFree, at, v->reserved[v->parts]);
		if (res)
			fdry_warn("the addresses %#llx-%#llx could not be freed (%d)", at,
				  at + v->reserved[v->parts], (int)res);
	}
}

static int set_up(struct fdry_vmm *v)
{
	int ret = check_granule(v);

	if (ret)
		return ret;
	ret = fdry_stream_shared(v->drv, FDRY_STREAM_MEMORY, &v->stream);
	if (ret)
		return ret;
	return reserve(v);
}

int fdry_vmm_init(struct fdry_vmm *v, const struct fdry_driver *drv, CUdevice dev, CUdeviceptr base,
		  uint64_t size)
{
	CUstreamCaptureMode mode;
	int ret;

	*v = (struct fdry_vmm){ .drv = drv, .dev = dev, .base = base, .size = size };
	ret = fdry_call(drv, cuDevicePrimaryCtxRetain, &v->ctx, dev);
	if (ret)
		return ret;
	ret = fdry_vmm_enter(v, &mode);
	if (ret)
		goto out_release;
	ret = set_up(v);
	fdry_vmm_leave(v, &mode);
	if (ret)
		goto out_release;
	return 0;
out_release:
	fdry_call_raw(drv, cuDevicePrimaryCtxRelease_v2, dev);
	return ret;
}

void fdry_vmm_release(struct fdry_vmm *v)
{
	CUstreamCaptureMode mode;
	int err = fdry_vmm_enter(v, &mode);

	give_up(v);
	if (!err)
		fdry_vmm_leave(v, &mode);
	fdry_call_raw(v->drv, cuDevicePrimaryCtxRelease_v2, v->dev);
}
