// SPDX-License-Identifier: Apache-2.0
/*
 * array.c - CUDA arrays, which copies read and write.
 *
 * The bytes of an array lie row by row, without gaps. Textures and surfaces do not read them.
 */
#include <stdlib.h>

#include "arch/array_desc.h"
#include "arch/sim/sim.h"

#define WIDTH_MAX 131072u /* elements of a row */
#define HEIGHT_MAX 65536u
#define BOX_MAX 16384u /* of each extent of a 3D array */
#define LAYERED_MAX 32768u /* of a row or column of a layered array */
#define LAYERS_MAX 2048u
#define FLAGS (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | \
	       CUDA_ARRAY3D_TEXTURE_GATHER)

static struct sim_array *arrays;

static size_t format_size(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

/* A cube has six faces, and layered cubes a multiple of six. */
static bool cube_ok(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return d->Width == d->Height && d->Depth &&
	       (d->Flags & CUDA_ARRAY3D_LAYERED ? d->Depth % 6 == 0 : d->Depth == 6);
}

static bool extents_ok(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	if (!d->Width)
		return false;
	if (d->Flags & CUDA_ARRAY3D_CUBEMAP && !cube_ok(d))
		return false;
	if (d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP))
		return d->Depth && d->Width <= LAYERED_MAX && d->Height <= LAYERED_MAX &&
		       d->Depth <= LAYERS_MAX;
	if (d->Depth)
		return d->Height && d->Width <= BOX_MAX && d->Height <= BOX_MAX &&
		       d->Depth <= BOX_MAX;
	return d->Width <= WIDTH_MAX && d->Height <= HEIGHT_MAX;
}

bool sim_array_desc_ok(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return format_size(d->Format) &&
	       (d->NumChannels == 1 || d->NumChannels == 2 || d->NumChannels == 4) &&
	       !(d->Flags & ~(unsigned int)FLAGS) && extents_ok(d);
}

static void array_release(struct sim_obj *obj)
{
	struct sim_array *a = (struct sim_array *)obj;

	sim_memory_uncharge(a->dev, a->row * a->rows * a->slices);
	free(a->bytes);
	free(a);
}

CUresult sim_array_new(struct sim_ctx *ctx, const CUDA_ARRAY3D_DESCRIPTOR *desc,
		       struct sim_array **ret)
{
	struct sim_array *a = calloc(1, sizeof(*a));
	size_t size;
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	if (!a)
		return res;
	a->desc = *desc;
	a->ctx = ctx->handle;
	a->dev = ctx->dev;
	a->element = format_size(desc->Format) * desc->NumChannels;
	a->row = desc->Width * a->element;
	a->rows = desc->Height ? desc->Height : 1;
	a->slices = desc->Depth ? desc->Depth : 1;
	size = a->row * a->rows * a->slices;
	res = sim_memory_charge(a->dev, size);
	if (res)
		goto out_free;
	res = CUDA_ERROR_OUT_OF_MEMORY;
	a->bytes = malloc(size);
	if (!a->bytes)
		goto out_uncharge;
	sim_memory_poison(a->bytes, size);
	res = sim_obj_open(&a->obj, SIM_ARRAY, array_release);
	if (res)
		goto out_uncharge;
	a->next = arrays;
	arrays = a;
	*ret = a;
	return CUDA_SUCCESS;

out_uncharge:
	sim_memory_uncharge(a->dev, size);
	free(a->bytes);
out_free:
	free(a);
	return res;
}

const struct sim_array *sim_array_find(CUarray handle)
{
	return sim_find(handle, SIM_ARRAY);
}

void sim_array_close(struct sim_array *a)
{
	struct sim_array **link;

	for (link = &arrays; *link != a; link = &(*link)->next)
		;
	*link = a->next;
	sim_obj_close(&a->obj);
}

void sim_arrays_release(struct sim_ctx *ctx)
{
	struct sim_array *a, *next;

	for (a = arrays; a; a = next) {
		next = a->next;
		if (a->ctx == ctx->handle)
			sim_array_close(a);
	}
}

static CUresult array_create(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	struct sim_array *a;
	struct sim_ctx *ctx;

	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	if (!sim_array_desc_ok(desc))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_array_new(ctx, desc, &a));
	*ret = SIM_HANDLE(CUarray, a);
	return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	SIM_ENTER(cuArrayCreate_v2);
	return ret && desc ? array_create(ret, &FDRY_ARRAY_DESC_FLAT(desc))
			   : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArray3DCreate_v2(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	SIM_ENTER(cuArray3DCreate_v2);
	return ret && desc ? array_create(ret, desc) : CUDA_ERROR_INVALID_VALUE;
}

/* Waits for the device's running work, like the freeing of memory. A level lives as long as its
 * mipmapped array. */
CUresult cuArrayDestroy(CUarray handle)
{
	const struct sim_array *a;
	struct sim_ctx *ctx;

	SIM_ENTER(cuArrayDestroy);
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	a = sim_array_find(handle);
	if (!a || a->level)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_device_wait());
	if (!sim_array_find(handle))
		return CUDA_ERROR_INVALID_HANDLE;
	sim_array_close((struct sim_array *)sim_array_find(handle));
	return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *ret, CUarray handle)
{
	const struct sim_array *a;

	SIM_ENTER(cuArrayGetDescriptor_v2);
	a = sim_array_find(handle);
	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUDA_ARRAY_DESCRIPTOR){ a->desc.Width, a->desc.Height, a->desc.Format,
					a->desc.NumChannels };
	return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *ret, CUarray handle)
{
	const struct sim_array *a;

	SIM_ENTER(cuArray3DGetDescriptor_v2);
	a = sim_array_find(handle);
	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = a->desc;
	return CUDA_SUCCESS;
}
