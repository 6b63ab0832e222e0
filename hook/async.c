// SPDX-License-Identifier: Apache-2.0
/*
 * async.c - cuMemAllocAsync, cuMemFreeAsync: memory in the order of a stream.
 *
 * The region allocates and frees addresses during the call. Its rule for reuse (mm/stream_pool.h)
 * respects the order of streams. In a stream that captures, the driver would make nodes that
 * allocate at every launch. The region gives the graph memory of its own instead, at the same
 * addresses in every process, and no node.
 */
#include "hook/internal.h"

#include <pthread.h>

/* A unique number of the stream, 0 if the driver has none. Seen on driver 580: this query fails for
 * a stream that captures, and breaks its capture; if another stream captures, the thread must be in
 * relaxed mode. */
static CUresult number_of(CUstream stream, bool captures, uint64_t *ret)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	unsigned long long id = 0;
	CUresult res;

	if (captures && fdry_real(cuThreadExchangeStreamCaptureMode)(&mode))
		captures = false;
	res = fdry_real(cuStreamGetId)(stream, &id);
	if (captures)
		fdry_real(cuThreadExchangeStreamCaptureMode)(&mode);
	if (res && res != CUDA_ERROR_NOT_FOUND)
		return res;
	*ret = res ? 0 : id + 1;
	return CUDA_SUCCESS;
}

/* Identify the stream and its capture. In a capture, the stream's handle identifies it, since no
 * other stream has the same handle until it is destroyed. Then the region forgets what the stream
 * freed. */
static CUresult stream_of(CUstream stream, struct fdry_async *a)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	cuuint64_t capture = 0;
	CUresult res;

	a->flags = fdry_capture_alloc_flags();
	if (!a->flags)
		return number_of(stream, false, &a->stream);
	res = fdry_real(cuStreamGetCaptureInfo_v3)(stream, &status, &capture, NULL, NULL, NULL,
						   NULL);
	if (res)
		return res;
	if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (status == CU_STREAM_CAPTURE_STATUS_NONE)
		return number_of(stream, true, &a->stream);
	a->graph = capture + 1;
	a->stream = stream == CU_STREAM_PER_THREAD ? (uint64_t)pthread_self() : (uintptr_t)stream;
	return CUDA_SUCCESS;
}

static bool is_elsewhere(CUstream stream, CUdevice dev)
{
	CUdevice of = dev;
	CUcontext ctx;

	if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
	    fdry_real(cuStreamGetCtx)(stream, &ctx) || fdry_real(cuCtxPushCurrent_v2)(ctx))
		return false;
	fdry_real(cuCtxGetDevice)(&of);
	fdry_real(cuCtxPopCurrent_v2)(&ctx);
	return of != dev;
}

/* True if a stream belongs to another device than the current context. */
static bool is_foreign(CUstream stream, CUdevice dev)
{
	static int devices; /* 0: unknown yet */
	int n = __atomic_load_n(&devices, __ATOMIC_RELAXED);

	if (!n && !fdry_real(cuDeviceGetCount)(&n))
		__atomic_store_n(&devices, n, __ATOMIC_RELAXED);
	return n > 1 && is_elsewhere(stream, dev);
}

static CUresult alloc_from(struct fdry_region *r, struct fdry_async *a, CUstream stream,
			   CUdeviceptr *ret)
{
	CUresult res = stream_of(stream, a);
	int err;

	if (res)
		return res;
	err = fdry_region_alloc_async(r, a, ret);
	if (!err && !a->graph)
		fdry_mempool_count((CUmemoryPool)(uintptr_t)a->owner, (int64_t)a->size);
	return fdry_dispatch_alloc_result(err);
}

/* False: the driver must answer the call. */
static bool alloc(CUdeviceptr *ret, size_t size, CUmemoryPool pool, CUstream stream, CUresult *res)
{
	struct fdry_async a = { .size = size };
	struct fdry_region *r;
	int err = ret && size ? fdry_dispatch_current(&r) : FDRY_FOREIGN;
	bool ours;

	if (err == FDRY_FOREIGN)
		return false;
	*res = fdry_dispatch_alloc_result(err);
	if (err)
		return true;
	ours = !is_foreign(stream, fdry_region_device(r)) &&
	       fdry_mempool_in_region(fdry_region_device(r), &pool);
	a.owner = (uintptr_t)pool;
	if (ours)
		*res = alloc_from(r, &a, stream, ret);
	fdry_dispatch_put(false);
	return ours;
}

/* False: the driver must answer the call. */
static bool release(CUdeviceptr addr, CUstream stream, CUresult *res)
{
	struct fdry_async by = { 0 };
	struct fdry_alloc gone;
	struct fdry_region *r;
	int err = 0;

	if (fdry_dispatch_holder(addr, &r)) {
		fdry_import_gone(addr);
		return false;
	}
	*res = stream_of(stream, &by);
	if (!*res) {
		err = fdry_region_free_async(r, addr, &by, &gone);
		*res = fdry_dispatch_free_result(err);
	}
	if (!*res && gone.kind == FDRY_KIND_POOL && !gone.capturing)
		fdry_mempool_count((CUmemoryPool)(uintptr_t)gone.owner, -(int64_t)gone.size);
	fdry_dispatch_put(!*res);
	return true;
}

/* Stream 0 in the variants for the per-thread default stream. */
static CUstream per_thread(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

CUresult cuMemAllocAsync(CUdeviceptr *ret, size_t size, CUstream stream)
{
	CUresult res;

	return alloc(ret, size, NULL, stream, &res) ? res
						    : fdry_real(cuMemAllocAsync)(ret, size, stream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ret, size_t size, CUstream stream)
{
	CUresult res;

	return alloc(ret, size, NULL, per_thread(stream), &res)
		       ? res
		       : fdry_real(cuMemAllocAsync_ptsz)(ret, size, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ret, size_t size, CUmemoryPool pool, CUstream stream)
{
	CUresult res;

	return pool && alloc(ret, size, pool, stream, &res) ? res :
	       fdry_real(cuMemAllocFromPoolAsync)(ret, size, pool, stream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ret, size_t size, CUmemoryPool pool,
				      CUstream stream)
{
	CUresult res;

	return pool && alloc(ret, size, pool, per_thread(stream), &res) ? res :
	       fdry_real(cuMemAllocFromPoolAsync_ptsz)(ret, size, pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr addr, CUstream stream)
{
	CUresult res;

	return release(addr, stream, &res) ? res : fdry_real(cuMemFreeAsync)(addr, stream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr addr, CUstream stream)
{
	CUresult res;

	return release(addr, per_thread(stream), &res)
		       ? res
		       : fdry_real(cuMemFreeAsync_ptsz)(addr, stream);
}
