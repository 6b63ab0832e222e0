// SPDX-License-Identifier: Apache-2.0
/*
 * mempool.c - memory pools: their attributes and counters.
 *
 * A pool allocates device memory at once, and frees it when the stream runs the free. So a pool
 * reserves no more than is used, and no address is reused in the order of a stream.
 */
#include <stdlib.h>

#include "arch/sim/sim.h"

struct sim_pool {
	struct sim_obj obj;
	CUmemPoolProps props;
	bool fixed; /* a device's default pool */
	int reuse[CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES + 1];
	cuuint64_t threshold;
	cuuint64_t used, high;
	CUmemAccess_flags access[SIM_DEVICES_MAX]; /* of other devices */
};

static struct sim_pool *defaults[SIM_DEVICES_MAX];
static uint64_t current[SIM_DEVICES_MAX]; /* 0: the default one */

static CUresult pool_new(const CUmemPoolProps *props, struct sim_pool **ret)
{
	struct sim_pool *p = calloc(1, sizeof(*p));
	CUresult res;
	size_t i;

	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->props = *props;
	for (i = 0; i < sizeof(p->reuse) / sizeof(*p->reuse); i++)
		p->reuse[i] = 1;
	res = sim_obj_open(&p->obj, SIM_POOL, NULL);
	if (res)
		free(p);
	else
		*ret = p;
	return res;
}

static CUresult default_pool(CUdevice dev, struct sim_pool **ret)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev } };

	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!defaults[dev]) {
		SIM_TRY(pool_new(&props, &defaults[dev]));
		defaults[dev]->fixed = true;
	}
	*ret = defaults[dev];
	return CUDA_SUCCESS;
}

static CUresult current_pool(CUdevice dev, struct sim_pool **ret)
{
	struct sim_pool *p = sim_device_ok(dev) ? sim_obj_find(current[dev], SIM_POOL) : NULL;

	if (!p)
		return default_pool(dev, ret);
	*ret = p;
	return CUDA_SUCCESS;
}

static CUresult pool_find(CUmemoryPool handle, struct sim_pool **ret)
{
	*ret = sim_find(handle, SIM_POOL);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_pool_alloc(struct sim_ctx *ctx, CUmemoryPool handle, size_t size, CUdeviceptr *ret)
{
	struct sim_pool *p;

	if (handle)
		SIM_TRY(pool_find(handle, &p));
	else
		SIM_TRY(current_pool(ctx->dev, &p));
	SIM_TRY(sim_alloc(ctx, size, ret));
	sim_range_find(*ret)->pool = p->obj.id;
	p->used += size;
	if (p->used > p->high)
		p->high = p->used;
	return CUDA_SUCCESS;
}

void sim_pool_freed(const struct sim_range *r)
{
	struct sim_pool *p = r->pool ? sim_obj_find(r->pool, SIM_POOL) : NULL;

	if (p)
		p->used -= r->size;
}

static CUresult props_check(const CUmemPoolProps *props)
{
	if (!props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    props->win32SecurityAttributes)
		return CUDA_ERROR_INVALID_VALUE;
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    (props->handleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return CUDA_ERROR_NOT_SUPPORTED;
	return sim_device_ok(props->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemPoolCreate(CUmemoryPool *ret, const CUmemPoolProps *props)
{
	struct sim_pool *p;

	SIM_ENTER(cuMemPoolCreate);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(props_check(props));
	SIM_TRY(pool_new(props, &p));
	*ret = SIM_HANDLE(CUmemoryPool, p);
	return CUDA_SUCCESS;
}

/* Live allocations of a destroyed pool stay. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	struct sim_pool *p;

	SIM_ENTER(cuMemPoolDestroy);
	SIM_TRY(pool_find(pool, &p));
	if (p->fixed)
		return CUDA_ERROR_INVALID_VALUE;
	sim_obj_close(&p->obj);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	struct sim_pool *p;

	(void)keep;
	SIM_ENTER(cuMemPoolTrimTo);
	return pool_find(pool, &p);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct sim_pool *p;

	SIM_ENTER(cuMemPoolGetAttribute);
	SIM_TRY(pool_find(pool, &p));
	if (!value || attr < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
	    attr > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	if (attr < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		*(int *)value = p->reuse[attr];
	else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		*(cuuint64_t *)value = p->threshold;
	else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
		 attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		*(cuuint64_t *)value = p->used;
	else
		*(cuuint64_t *)value = p->high;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct sim_pool *p;

	SIM_ENTER(cuMemPoolSetAttribute);
	SIM_TRY(pool_find(pool, &p));
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (attr >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
	    attr < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		p->reuse[attr] = *(int *)value;
	else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		p->threshold = *(cuuint64_t *)value;
	else if ((attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
		  attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) &&
		 !*(cuuint64_t *)value)
		p->high = p->used;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult access_check(const struct sim_pool *p, const CUmemAccessDesc *desc)
{
	if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!sim_device_ok(desc->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
	    desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_VALUE;
	/* The pool's own device keeps its access. */
	return desc->location.id == p->props.location.id && !desc->flags ? CUDA_ERROR_INVALID_DEVICE
									 : CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	struct sim_pool *p;
	size_t i;

	SIM_ENTER(cuMemPoolSetAccess);
	SIM_TRY(pool_find(pool, &p));
	if (!map || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++)
		SIM_TRY(access_check(p, &map[i]));
	for (i = 0; i < count; i++)
		p->access[map[i].location.id] = map[i].flags;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
	struct sim_pool *p;

	SIM_ENTER(cuMemPoolGetAccess);
	SIM_TRY(pool_find(pool, &p));
	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(location->id))
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = location->id == p->props.location.id ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
						      : p->access[location->id];
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *ret, CUdevice dev)
{
	struct sim_pool *p;

	SIM_ENTER(cuDeviceGetDefaultMemPool);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(default_pool(dev, &p));
	*ret = SIM_HANDLE(CUmemoryPool, p);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *ret, CUdevice dev)
{
	struct sim_pool *p;

	SIM_ENTER(cuDeviceGetMemPool);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(current_pool(dev, &p));
	*ret = SIM_HANDLE(CUmemoryPool, p);
	return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	struct sim_pool *p;

	SIM_ENTER(cuDeviceSetMemPool);
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	SIM_TRY(pool_find(pool, &p));
	if (p->props.location.id != dev)
		return CUDA_ERROR_INVALID_VALUE;
	current[dev] = p->obj.id;
	return CUDA_SUCCESS;
}
