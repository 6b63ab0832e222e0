// SPDX-License-Identifier: Apache-2.0
/*
 * copy.c - copies; all of them become 3D copies.
 *
 * Host memory that the driver does not know is pageable. An asynchronous copy from it reads the
 * bytes during the call; a copy to it has finished when the call returns. Pinned memory, and the
 * memory of a captured copy, is read and written when the stream runs the copy. The host does not
 * wait for copies from device to device memory.
 */
#include <stdlib.h>
#include <string.h>

#include "arch/sim/sim.h"

#define PITCH_MAX 2147483647u

/* Both sides of CUDA_MEMCPY3D in one shape. */
struct side {
	CUmemorytype type;
	CUdeviceptr base;
	size_t x, y, z, lod, pitch, height;
	const struct sim_array *array;
};

/* The bytes of an array lie like those of memory with its pitch and height. */
static void side_array(struct side *s, CUarray handle)
{
	if (s->type != CU_MEMORYTYPE_ARRAY)
		return;
	s->array = sim_array_find(handle);
	s->base = s->array ? (CUdeviceptr)(uintptr_t)s->array->bytes : 0;
	s->pitch = s->array ? s->array->row : 0;
	s->height = s->array ? s->array->rows : 0;
}

static struct side side_src(const CUDA_MEMCPY3D *p)
{
	struct side s = {
		p->srcMemoryType,
		p->srcMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)p->srcHost
						       : p->srcDevice,
		p->srcXInBytes,
		p->srcY,
		p->srcZ,
		p->srcLOD,
		p->srcPitch,
		p->srcHeight,
		NULL,
	};

	side_array(&s, p->srcArray);
	return s;
}

static struct side side_dst(const CUDA_MEMCPY3D *p)
{
	struct side s = {
		p->dstMemoryType,
		p->dstMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)p->dstHost
						       : p->dstDevice,
		p->dstXInBytes,
		p->dstY,
		p->dstZ,
		p->dstLOD,
		p->dstPitch,
		p->dstHeight,
		NULL,
	};

	side_array(&s, p->dstArray);
	return s;
}

static struct sim_plane side_plane(const struct side *s, const CUDA_MEMCPY3D *p)
{
	struct sim_plane plane = { .pitch = s->pitch ? s->pitch : p->WidthInBytes + s->x,
				   .rows = s->height ? s->height : p->Height + s->y };

	if (s->type != CU_MEMORYTYPE_ARRAY || s->array)
		plane.base = s->base + (s->z * plane.rows + s->y) * plane.pitch + s->x;
	return plane;
}

struct sim_plane sim_copy_src(const CUDA_MEMCPY3D *p)
{
	struct side s = side_src(p);

	return side_plane(&s, p);
}

struct sim_plane sim_copy_dst(const CUDA_MEMCPY3D *p)
{
	struct side s = side_dst(p);

	return side_plane(&s, p);
}

static bool copy_empty(const CUDA_MEMCPY3D *p)
{
	return !p->WidthInBytes || !p->Height || !p->Depth;
}

static bool shape_ok(const struct side *s, const CUDA_MEMCPY3D *p)
{
	bool rows = p->Height > 1 || p->Depth > 1 || s->y || s->z;

	if (s->lod || s->type < CU_MEMORYTYPE_HOST || s->type > CU_MEMORYTYPE_UNIFIED)
		return false;
	if (s->type == CU_MEMORYTYPE_ARRAY)
		return true; /* side_check() */
	if (p->WidthInBytes > SIZE_MAX / 4 || s->x > SIZE_MAX / 4)
		return false;
	if (!rows)
		return true;
	return s->pitch <= PITCH_MAX && p->WidthInBytes + s->x <= PITCH_MAX &&
	       (!s->pitch || s->pitch >= p->WidthInBytes + s->x) && p->Height <= PITCH_MAX &&
	       p->Depth <= PITCH_MAX && s->y <= PITCH_MAX && s->z <= PITCH_MAX &&
	       s->height <= PITCH_MAX &&
	       (!s->height || p->Depth <= 1 || s->height >= p->Height + s->y);
}

/* The number of bytes from the first to the last. */
static size_t plane_extent(const struct sim_plane *plane, const CUDA_MEMCPY3D *p)
{
	return ((p->Depth - 1) * plane->rows + p->Height - 1) * plane->pitch + p->WidthInBytes;
}

/* Whether it is host memory that the driver does not know. */
static bool side_pageable(const struct side *s, const CUDA_MEMCPY3D *p)
{
	struct sim_plane plane = side_plane(s, p);

	return s->type != CU_MEMORYTYPE_DEVICE && s->type != CU_MEMORYTYPE_ARRAY &&
	       !sim_range_find(plane.base);
}

static bool part_ok(size_t at, size_t size, size_t all)
{
	return at <= all && size <= all - at;
}

/* Whether the copy is of whole elements inside of the array. */
static bool array_holds(const struct side *s, const CUDA_MEMCPY3D *p)
{
	const struct sim_array *a = s->array;

	return a && s->x % a->element == 0 && p->WidthInBytes % a->element == 0 &&
	       part_ok(s->x, p->WidthInBytes, a->row) && part_ok(s->y, p->Height, a->rows) &&
	       part_ok(s->z, p->Depth, a->slices);
}

static CUresult side_check(const struct side *s, const CUDA_MEMCPY3D *p, bool write)
{
	struct sim_plane plane = side_plane(s, p);

	if (s->type == CU_MEMORYTYPE_ARRAY)
		return array_holds(s, p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (!s->base)
		return CUDA_ERROR_INVALID_VALUE;
	if (s->type == CU_MEMORYTYPE_HOST || side_pageable(s, p))
		return CUDA_SUCCESS;
	return sim_range_ok(plane.base, plane_extent(&plane, p), write) ? CUDA_SUCCESS
									: CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_copy_check(const CUDA_MEMCPY3D *p)
{
	struct side src, dst;

	if (!p || p->reserved0 || p->reserved1)
		return CUDA_ERROR_INVALID_VALUE;
	src = side_src(p);
	dst = side_dst(p);
	if (!shape_ok(&src, p) || !shape_ok(&dst, p))
		return CUDA_ERROR_INVALID_VALUE;
	if (copy_empty(p))
		return CUDA_SUCCESS;
	if (src.array && dst.array && src.array->element != dst.array->element)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(side_check(&src, p, false));
	return side_check(&dst, p, true);
}

/* Copy the source's bytes now; the operation reads them from the copy. */
static CUresult copy_stage(struct sim_copy *c)
{
	CUDA_MEMCPY3D *p = &c->p;
	struct sim_plane src = sim_copy_src(p);
	size_t y, z, row = p->WidthInBytes;
	char *to;

	if (p->Height > SIZE_MAX / row || p->Depth > SIZE_MAX / (row * p->Height))
		return CUDA_ERROR_OUT_OF_MEMORY;
	to = malloc(row * p->Height * p->Depth);
	if (!to)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->staged = to;
	for (z = 0; z < p->Depth; z++)
		for (y = 0; y < p->Height; y++, to += row)
			memcpy(to, sim_plane_row(&src, y, z), row);
	p->srcXInBytes = p->srcY = p->srcZ = 0;
	p->srcMemoryType = CU_MEMORYTYPE_HOST;
	p->srcHost = c->staged;
	p->srcPitch = row;
	p->srcHeight = p->Height;
	return CUDA_SUCCESS;
}

static CUresult submit_and_wait(struct sim_stream *s, struct sim_op *op, bool wait)
{
	struct sim_ctx *ctx = s->ctx;
	struct sim_fence *done;
	CUresult res;

	SIM_TRY(sim_stream_submit(s, op, wait ? &done : NULL));
	if (!wait || !done)
		return CUDA_SUCCESS;
	sim_obj_get(&ctx->obj);
	sim_fence_wait(done);
	res = ctx->error;
	sim_fence_put(done);
	sim_obj_put(&ctx->obj);
	return res;
}

static CUresult copy_async(const CUDA_MEMCPY3D *p, CUstream stream)
{
	struct sim_op op = { .kind = SIM_OP_MEMCPY };
	struct sim_stream *s;
	struct side src, dst;
	bool wait = false;

	SIM_TRY(sim_stream_find(stream, &s));
	SIM_TRY(sim_copy_check(p));
	if (copy_empty(p))
		return CUDA_SUCCESS;
	op.copy.p = *p;
	op.copy.ctx = (CUcontext)(uintptr_t)s->ctx->handle;
	src = side_src(p);
	dst = side_dst(p);
	if (!s->capture && side_pageable(&dst, p))
		wait = true;
	else if (!s->capture && side_pageable(&src, p))
		SIM_TRY(copy_stage(&op.copy));
	return submit_and_wait(s, &op, wait);
}

static bool side_device(const struct side *s, const CUDA_MEMCPY3D *p)
{
	struct sim_plane plane = side_plane(s, p);
	const struct sim_range *r = sim_range_find(plane.base);

	return s->array || (s->type != CU_MEMORYTYPE_HOST && r && !sim_range_host(r));
}

static CUresult copy_sync(const CUDA_MEMCPY3D *p)
{
	struct sim_op op = { .kind = SIM_OP_MEMCPY };
	struct side src, dst;
	struct sim_ctx *ctx;

	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	SIM_TRY(sim_copy_check(p));
	if (copy_empty(p))
		return CUDA_SUCCESS;
	src = side_src(p);
	dst = side_dst(p);
	op.copy.p = *p;
	op.copy.ctx = (CUcontext)(uintptr_t)ctx->handle;
	return submit_and_wait(ctx->legacy, &op, !side_device(&src, p) || !side_device(&dst, p));
}

/* A plain copy. The types say which of the addresses are host pointers. */
static CUDA_MEMCPY3D linear(CUmemorytype dst_type, CUdeviceptr dst, CUmemorytype src_type,
			    CUdeviceptr src, size_t size)
{
	CUDA_MEMCPY3D p = { .dstMemoryType = dst_type, .srcMemoryType = src_type,
			    .WidthInBytes = size, .Height = 1, .Depth = 1 };

	if (dst_type == CU_MEMORYTYPE_HOST)
		p.dstHost = (void *)(uintptr_t)dst;
	else
		p.dstDevice = dst;
	if (src_type == CU_MEMORYTYPE_HOST)
		p.srcHost = (const void *)(uintptr_t)src;
	else
		p.srcDevice = src;
	return p;
}

#define HOST CU_MEMORYTYPE_HOST
#define DEVICE CU_MEMORYTYPE_DEVICE
#define UNIFIED CU_MEMORYTYPE_UNIFIED

/* The plain copies: name, types, parameters, and the addresses as numbers. */
#define COPY(name, dst_type, src_type, dst_param, src_param)                                       \
	CUresult name(dst_param dst, src_param src, size_t size)                                   \
	{                                                                                          \
		CUDA_MEMCPY3D p = linear(dst_type, (CUdeviceptr)(uintptr_t)dst, src_type,          \
					 (CUdeviceptr)(uintptr_t)src, size);                       \
	\
		SIM_ENTER(name);                                                                   \
		return copy_sync(&p);                                                              \
	}

#define COPY_ASYNC(name, dst_type, src_type, dst_param, src_param)                                 \
	CUresult name(dst_param dst, src_param src, size_t size, CUstream stream)                  \
	{                                                                                          \
		CUDA_MEMCPY3D p = linear(dst_type, (CUdeviceptr)(uintptr_t)dst, src_type,          \
					 (CUdeviceptr)(uintptr_t)src, size);                       \
	\
		SIM_ENTER(name);                                                                   \
		return copy_async(&p, stream);                                                     \
	}

COPY(cuMemcpy, UNIFIED, UNIFIED, CUdeviceptr, CUdeviceptr)
COPY(cuMemcpyHtoD_v2, DEVICE, HOST, CUdeviceptr, const void *)
COPY(cuMemcpyDtoH_v2, HOST, DEVICE, void *, CUdeviceptr)
COPY(cuMemcpyDtoD_v2, DEVICE, DEVICE, CUdeviceptr, CUdeviceptr)
COPY_ASYNC(cuMemcpyAsync, UNIFIED, UNIFIED, CUdeviceptr, CUdeviceptr)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, DEVICE, HOST, CUdeviceptr, const void *)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, HOST, DEVICE, void *, CUdeviceptr)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, DEVICE, DEVICE, CUdeviceptr, CUdeviceptr)

/* The plain copies of arrays: bytes of a row. */
static CUDA_MEMCPY3D into_array(CUDA_MEMCPY3D p, CUarray dst, size_t at)
{
	p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	p.dstArray = dst;
	p.dstXInBytes = at;
	return p;
}

static CUDA_MEMCPY3D from_array(CUDA_MEMCPY3D p, CUarray src, size_t at)
{
	p.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	p.srcArray = src;
	p.srcXInBytes = at;
	return p;
}

CUresult cuMemcpyDtoA_v2(CUarray dst, size_t at, CUdeviceptr src, size_t size)
{
	CUDA_MEMCPY3D p = into_array(linear(DEVICE, 0, DEVICE, src, size), dst, at);

	SIM_ENTER(cuMemcpyDtoA_v2);
	return copy_sync(&p);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dst, CUarray src, size_t at, size_t size)
{
	CUDA_MEMCPY3D p = from_array(linear(DEVICE, dst, DEVICE, 0, size), src, at);

	SIM_ENTER(cuMemcpyAtoD_v2);
	return copy_sync(&p);
}

CUresult cuMemcpyHtoA_v2(CUarray dst, size_t at, const void *src, size_t size)
{
	CUDA_MEMCPY3D p =
		into_array(linear(DEVICE, 0, HOST, (CUdeviceptr)(uintptr_t)src, size), dst, at);

	SIM_ENTER(cuMemcpyHtoA_v2);
	return copy_sync(&p);
}

CUresult cuMemcpyAtoH_v2(void *dst, CUarray src, size_t at, size_t size)
{
	CUDA_MEMCPY3D p =
		from_array(linear(HOST, (CUdeviceptr)(uintptr_t)dst, DEVICE, 0, size), src, at);

	SIM_ENTER(cuMemcpyAtoH_v2);
	return copy_sync(&p);
}

CUresult cuMemcpyAtoA_v2(CUarray dst, size_t dst_at, CUarray src, size_t src_at, size_t size)
{
	CUDA_MEMCPY3D p = into_array(from_array(linear(DEVICE, 0, DEVICE, 0, size), src, src_at),
				     dst, dst_at);

	SIM_ENTER(cuMemcpyAtoA_v2);
	return copy_sync(&p);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dst, size_t at, const void *src, size_t size, CUstream stream)
{
	CUDA_MEMCPY3D p =
		into_array(linear(DEVICE, 0, HOST, (CUdeviceptr)(uintptr_t)src, size), dst, at);

	SIM_ENTER(cuMemcpyHtoAAsync_v2);
	return copy_async(&p, stream);
}

CUresult cuMemcpyAtoHAsync_v2(void *dst, CUarray src, size_t at, size_t size, CUstream stream)
{
	CUDA_MEMCPY3D p =
		from_array(linear(HOST, (CUdeviceptr)(uintptr_t)dst, DEVICE, 0, size), src, at);

	SIM_ENTER(cuMemcpyAtoHAsync_v2);
	return copy_async(&p, stream);
}

static CUresult contexts_check(CUcontext a, CUcontext b)
{
	struct sim_ctx *ctx;

	SIM_TRY(sim_ctx_find(a, &ctx));
	return sim_ctx_find(b, &ctx);
}

CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
		      size_t size)
{
	CUDA_MEMCPY3D p = linear(DEVICE, dst, DEVICE, src, size);

	SIM_ENTER(cuMemcpyPeer);
	SIM_TRY(contexts_check(dst_ctx, src_ctx));
	return copy_sync(&p);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
			   size_t size, CUstream stream)
{
	CUDA_MEMCPY3D p = linear(DEVICE, dst, DEVICE, src, size);

	SIM_ENTER(cuMemcpyPeerAsync);
	SIM_TRY(contexts_check(dst_ctx, src_ctx));
	return copy_async(&p, stream);
}

static CUDA_MEMCPY3D flat(const CUDA_MEMCPY2D *q)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = q->srcXInBytes,
		.srcY = q->srcY,
		.srcMemoryType = q->srcMemoryType,
		.srcHost = q->srcHost,
		.srcDevice = q->srcDevice,
		.srcArray = q->srcArray,
		.srcPitch = q->srcPitch,
		.dstXInBytes = q->dstXInBytes,
		.dstY = q->dstY,
		.dstMemoryType = q->dstMemoryType,
		.dstHost = q->dstHost,
		.dstDevice = q->dstDevice,
		.dstArray = q->dstArray,
		.dstPitch = q->dstPitch,
		.WidthInBytes = q->WidthInBytes,
		.Height = q->Height,
		.Depth = 1,
	};
}

static CUresult copy_flat(const CUDA_MEMCPY2D *q)
{
	CUDA_MEMCPY3D p;

	if (!q)
		return CUDA_ERROR_INVALID_VALUE;
	p = flat(q);
	return copy_sync(&p);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *q)
{
	SIM_ENTER(cuMemcpy2D_v2);
	return copy_flat(q);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *q)
{
	SIM_ENTER(cuMemcpy2DUnaligned_v2);
	return copy_flat(q);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *q, CUstream stream)
{
	CUDA_MEMCPY3D p;

	SIM_ENTER(cuMemcpy2DAsync_v2);
	if (!q)
		return CUDA_ERROR_INVALID_VALUE;
	p = flat(q);
	return copy_async(&p, stream);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *p)
{
	SIM_ENTER(cuMemcpy3D_v2);
	return p ? copy_sync(p) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *p, CUstream stream)
{
	SIM_ENTER(cuMemcpy3DAsync_v2);
	return p ? copy_async(p, stream) : CUDA_ERROR_INVALID_VALUE;
}
