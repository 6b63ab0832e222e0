// SPDX-License-Identifier: Apache-2.0
/*
 * pool.c - lists the memory pools that the region replaces, and answers queries about them.
 *
 * The region replaces a device's default pool, and pools that a program creates for device memory
 * of its own. The driver's pools stay, empty, and keep their settings. Their reported sizes include
 * the memory that the program has from the region. Pools that can be shared with other processes,
 * have a limit, or hold other memory stay native.
 *
 * Locking: a lock around the list. A forked child uses none of this.
 */
#include "hook/internal.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/log.h"

struct pool {
	struct pool *next;
	CUmemoryPool pool;
	CUdevice dev;
	uint64_t used, used_high; /* bytes of the region */
	uint64_t reserved_high;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool *pools; /* pools that the region replaces */
static bool chosen;        /* the program has set a device's pool: query it */

static struct pool *pool_of(CUmemoryPool pool)
{
	struct pool *p = pools;

	while (p && p->pool != pool)
		p = p->next;
	return p;
}

static void pool_note(CUmemoryPool pool, CUdevice dev)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		return; /* it stays native */
	p->pool = pool;
	p->dev = dev;
	p->next = pools;
	pools = p;
}

/* The default pool of a device; the list has it from now on. */
static CUmemoryPool default_pool(CUdevice dev)
{
	CUmemoryPool pool;

	if (fdry_real(cuDeviceGetDefaultMemPool)(&pool, dev))
		return NULL;
	if (!pool_of(pool))
		pool_note(pool, dev);
	return pool;
}

/* The pool of cuMemAllocAsync on @dev. */
static CUmemoryPool current_pool(CUdevice dev)
{
	static CUmemoryPool first; /* cached for the first device, since programs seldom use
				      another */
	static CUdevice first_dev;
	CUmemoryPool pool;

	if (chosen)
		return fdry_real(cuDeviceGetMemPool)(&pool, dev) ? NULL : pool;
	if (first && first_dev == dev)
		return first;
	pool = default_pool(dev);
	if (!first && pool && pool_of(pool)) { /* it could be listed */
		first = pool;
		first_dev = dev;
	}
	return pool;
}

bool fdry_mempool_in_region(CUdevice dev, CUmemoryPool *pool)
{
	struct pool *p;
	bool is;

	pthread_mutex_lock(&lock);
	if (!*pool)
		*pool = current_pool(dev);
	else if (!pool_of(*pool))
		default_pool(dev); /* puts it into the list if it is a default pool */
	p = *pool ? pool_of(*pool) : NULL;
	is = p && p->dev == dev;
	pthread_mutex_unlock(&lock);
	return is;
}

/* Put all devices' default pools into the list. Lock held. */
static CUresult defaults_note(void)
{
	CUdevice dev;
	int n = 0;
	CUresult res = fdry_real(cuDeviceGetCount)(&n);

	if (res)
		return res;
	for (dev = 0; dev < n; dev++)
		if (!default_pool(dev))
			return CUDA_ERROR_UNKNOWN;
	return CUDA_SUCCESS;
}

CUresult fdry_mempool_device(CUmemoryPool pool, CUdevice *ret)
{
	CUresult res = CUDA_SUCCESS;
	struct pool *p;

	pthread_mutex_lock(&lock);
	if (!pool_of(pool))
		res = defaults_note();
	p = pool_of(pool);
	if (p)
		*ret = p->dev;
	pthread_mutex_unlock(&lock);
	return res || p ? res : CUDA_ERROR_NOT_FOUND;
}

void fdry_mempool_count(CUmemoryPool pool, int64_t size)
{
	struct pool *p;

	pthread_mutex_lock(&lock);
	p = pool_of(pool);
	if (p) {
		p->used += (uint64_t)size;
		if (p->used > p->used_high)
			p->used_high = p->used;
	}
	pthread_mutex_unlock(&lock);
}

static bool is_plain(const CUmemPoolProps *props)
{
	return props && props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       props->handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
	       props->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !props->maxSize;
}

CUresult cuMemPoolCreate(CUmemoryPool *ret, const CUmemPoolProps *props)
{
	CUresult res = fdry_real(cuMemPoolCreate)(ret, props);

	if (res || fdry_start_is_forked() || !is_plain(props))
		return res;
	pthread_mutex_lock(&lock);
	pool_note(*ret, props->location.id);
	pthread_mutex_unlock(&lock);
	return res;
}

void fdry_mempool_forget(CUmemoryPool pool)
{
	struct pool **link, *p;

	pthread_mutex_lock(&lock);
	for (link = &pools; (p = *link); link = &p->next)
		if (p->pool == pool) {
			*link = p->next;
			free(p);
			break;
		}
	pthread_mutex_unlock(&lock);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	__atomic_store_n(&chosen, true, __ATOMIC_RELAXED);
	return fdry_real(cuDeviceSetMemPool)(dev, pool);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	__atomic_store_n(&chosen, true, __ATOMIC_RELAXED);
	return fdry_real(cuMemSetMemPool)(location, type, pool);
}

/* The driver trims memory that it knows to be free, without waiting. The region must wait to know
 * that.
 */
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	CUresult res = fdry_real(cuMemPoolTrimTo)(pool, keep);
	struct fdry_region *r;

	if (res || !pool || fdry_capture_count() || fdry_dispatch_current(&r))
		return res;
	if (fdry_mempool_in_region(fdry_region_device(r), &pool) && fdry_region_trim_pool(r, keep))
		fdry_warn("interposer: cuMemPoolTrimTo: %s", fdry_last_error());
	fdry_dispatch_put(false);
	return res;
}

static uint64_t region_figure(struct pool *p, CUmemPool_attribute attr, uint64_t slabs)
{
	uint64_t reserved = slabs > p->used ? slabs : p->used;

	if (reserved > p->reserved_high)
		p->reserved_high = reserved;
	switch (attr) {
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return reserved;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return p->reserved_high > p->used_high ? p->reserved_high : p->used_high;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return p->used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return p->used_high;
	default:
		return 0;
	}
}

static bool is_figure(CUmemPool_attribute attr)
{
	return attr >= CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT &&
	       attr <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult res = fdry_real(cuMemPoolGetAttribute)(pool, attr, value);
	struct pool *p;
	uint64_t slabs;

	if (res || !is_figure(attr) || fdry_start_is_forked())
		return res;
	slabs = fdry_dispatch_slab_bytes();
	pthread_mutex_lock(&lock);
	p = pool_of(pool);
	if (p)
		*(cuuint64_t *)value += region_figure(p, attr, slabs);
	pthread_mutex_unlock(&lock);
	return res;
}

/* The driver accepts only 0 for a high mark, which resets it. */
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult res = fdry_real(cuMemPoolSetAttribute)(pool, attr, value);
	struct pool *p;

	if (res || !is_figure(attr) || fdry_start_is_forked())
		return res;
	pthread_mutex_lock(&lock);
	p = pool_of(pool);
	if (p && attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		p->used_high = p->used;
	else if (p)
		p->reserved_high = 0;
	pthread_mutex_unlock(&lock);
	return res;
}
