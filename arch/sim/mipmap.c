// SPDX-License-Identifier: Apache-2.0
/*
 * mipmap.c - mipmapped arrays: arrays of which each level has half the extents of the one before.
 *
 * A level is an array with a handle of its own, which stays the same. It lives as long as the
 * mipmapped array. Layers and faces are not halved.
 */
#include <stdlib.h>

#include "arch/sim/sim.h"

#define LEVELS_MAX 32

struct sim_mipmap {
	struct sim_obj obj;
	struct sim_mipmap *next;
	uint64_t ctx; /* the context's handle */
	unsigned int count;
	struct sim_array *levels[LEVELS_MAX];
};

static struct sim_mipmap *mipmaps;

static size_t half(size_t extent)
{
	return extent > 1 ? extent / 2 : extent;
}

static bool next_level(CUDA_ARRAY3D_DESCRIPTOR *d)
{
	bool layers = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);

	if (d->Width <= 1 && d->Height <= 1 && (layers || d->Depth <= 1))
		return false;
	d->Width = half(d->Width);
	d->Height = half(d->Height);
	d->Depth = layers ? d->Depth : half(d->Depth);
	return true;
}

static void mipmap_release(struct sim_obj *obj)
{
	free(obj);
}

static void levels_close(struct sim_mipmap *m)
{
	while (m->count)
		sim_array_close(m->levels[--m->count]);
}

/* As many of @count levels, at least one, as there can be. */
static CUresult levels_make(struct sim_ctx *ctx, struct sim_mipmap *m, CUDA_ARRAY3D_DESCRIPTOR d,
			    unsigned int count)
{
	CUresult res;

	do {
		res = sim_array_new(ctx, &d, &m->levels[m->count]);
		if (res) {
			levels_close(m);
			return res;
		}
		m->levels[m->count++]->level = true;
	} while (m->count < count && m->count < LEVELS_MAX && next_level(&d));
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc,
				unsigned int count)
{
	struct sim_mipmap *m;
	struct sim_ctx *ctx;
	CUresult res;

	SIM_ENTER(cuMipmappedArrayCreate);
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	if (!ret || !desc || !sim_array_desc_ok(desc))
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->ctx = ctx->handle;
	res = levels_make(ctx, m, *desc, count);
	if (res)
		goto out_free;
	res = sim_obj_open(&m->obj, SIM_MIPMAP, mipmap_release);
	if (res)
		goto out_close;
	m->next = mipmaps;
	mipmaps = m;
	*ret = SIM_HANDLE(CUmipmappedArray, m);
	return CUDA_SUCCESS;

out_close:
	levels_close(m);
out_free:
	free(m);
	return res;
}

CUresult cuMipmappedArrayGetLevel(CUarray *ret, CUmipmappedArray handle, unsigned int level)
{
	const struct sim_mipmap *m;

	SIM_ENTER(cuMipmappedArrayGetLevel);
	m = sim_find(handle, SIM_MIPMAP);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!ret || level >= m->count)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = SIM_HANDLE(CUarray, m->levels[level]);
	return CUDA_SUCCESS;
}

static void mipmap_close(struct sim_mipmap *m)
{
	struct sim_mipmap **link;

	for (link = &mipmaps; *link != m; link = &(*link)->next)
		;
	*link = m->next;
	levels_close(m);
	sim_obj_close(&m->obj);
}

/* Waits for the device's running work, like cuArrayDestroy(). */
CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
	struct sim_mipmap *m;
	struct sim_ctx *ctx;

	SIM_ENTER(cuMipmappedArrayDestroy);
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_unsafe());
	if (!sim_find(handle, SIM_MIPMAP))
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_device_wait());
	m = sim_find(handle, SIM_MIPMAP);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	mipmap_close(m);
	return CUDA_SUCCESS;
}

void sim_mipmaps_release(struct sim_ctx *ctx)
{
	struct sim_mipmap *m, *next;

	for (m = mipmaps; m; m = next) {
		next = m->next;
		if (m->ctx == ctx->handle)
			mipmap_close(m);
	}
}
