// SPDX-License-Identifier: Apache-2.0
/*
 * object.c - texture and surface objects: small integers, as on the real driver.
 *
 * No kernel of the software driver reads through them. They exist for tests of programs that use
 * such objects.
 */
#include <stdlib.h>

#include "arch/sim/sim.h"

struct object {
	struct sim_obj obj;
	struct object *next;
	unsigned long long nr;
	CUDA_RESOURCE_DESC desc;
};

static struct object *objects;
static unsigned long long next_nr = 1;

static CUresult object_new(const CUDA_RESOURCE_DESC *desc, enum sim_type type,
			   unsigned long long *ret)
{
	struct object *o;
	struct sim_ctx *ctx;
	CUresult res;

	if (!ret || !desc || desc->flags || (unsigned int)desc->resType > CU_RESOURCE_TYPE_PITCH2D)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	o = calloc(1, sizeof(*o));
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = sim_obj_open(&o->obj, type, NULL);
	if (res) {
		free(o);
		return res;
	}
	o->desc = *desc;
	o->nr = next_nr++;
	o->next = objects;
	objects = o;
	*ret = o->nr;
	return CUDA_SUCCESS;
}

static struct object **object_find(unsigned long long nr, enum sim_type type)
{
	struct object **link;

	for (link = &objects; *link; link = &(*link)->next)
		if ((*link)->nr == nr && (*link)->obj.type == type)
			return link;
	return NULL;
}

static CUresult object_close(unsigned long long nr, enum sim_type type)
{
	struct object **link = object_find(nr, type), *o;

	if (!link)
		return CUDA_ERROR_INVALID_VALUE;
	o = *link;
	*link = o->next;
	sim_obj_close(&o->obj);
	return CUDA_SUCCESS;
}

static CUresult object_desc(CUDA_RESOURCE_DESC *ret, unsigned long long nr, enum sim_type type)
{
	struct object **link = object_find(nr, type);

	if (!ret || !link)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (*link)->desc;
	return CUDA_SUCCESS;
}

CUresult cuTexObjectCreate(CUtexObject *ret, const CUDA_RESOURCE_DESC *desc,
			   const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
	(void)view;
	SIM_ENTER(cuTexObjectCreate);
	return texture ? object_new(desc, SIM_TEXTURE, ret) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectDestroy(CUtexObject nr)
{
	SIM_ENTER(cuTexObjectDestroy);
	return object_close(nr, SIM_TEXTURE);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *ret, CUtexObject nr)
{
	SIM_ENTER(cuTexObjectGetResourceDesc);
	return object_desc(ret, nr, SIM_TEXTURE);
}

CUresult cuSurfObjectCreate(CUsurfObject *ret, const CUDA_RESOURCE_DESC *desc)
{
	SIM_ENTER(cuSurfObjectCreate);
	return object_new(desc, SIM_SURFACE, ret);
}

CUresult cuSurfObjectDestroy(CUsurfObject nr)
{
	SIM_ENTER(cuSurfObjectDestroy);
	return object_close(nr, SIM_SURFACE);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *ret, CUsurfObject nr)
{
	SIM_ENTER(cuSurfObjectGetResourceDesc);
	return object_desc(ret, nr, SIM_SURFACE);
}
