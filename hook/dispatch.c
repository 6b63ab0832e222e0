// SPDX-License-Identifier: Apache-2.0
/*
 * dispatch.c - decides which region a call concerns, and allocates and finds memory in it.
 *
 * The hooked functions ask here first. FDRY_FOREIGN means that no region is concerned, and that the
 * driver must get the call.
 */
#include "hook/regions.h"

#include "lib/log.h"

static struct fdry_place *place_of(CUdeviceptr addr)
{
	int i;

	for (i = 0; i < FDRY_PLACES_MAX; i++)
		if (fdry_regions.places[i].region && addr >= fdry_regions.places[i].base &&
		    addr - fdry_regions.places[i].base <
			    fdry_region_size(fdry_regions.places[i].region))
			return &fdry_regions.places[i];
	return NULL;
}

/* 0 if the current region allocates for the current context, else FDRY_FOREIGN or an error. */
static int current_check(void)
{
	CUresult res;
	CUdevice dev;

	if (!fdry_regions.current || fdry_regions.paused)
		return FDRY_FOREIGN;
	res = fdry_real(cuCtxGetDevice)(&dev);
	if (res == CUDA_ERROR_INVALID_CONTEXT)
		return FDRY_FOREIGN; /* the driver then refuses the allocation for the same
					reason */
	if (res)
		return fdry_fail(FDRY_E_DRIVER,
				 "cuCtxGetDevice failed with error %d, so the device of this "
				 "memory is unknown",
				 (int)res);
	return dev == fdry_regions.current->dev ? 0 : FDRY_FOREIGN;
}

/* Return the place of new allocations. current_check() has succeeded. */
static struct fdry_place *target(void)
{
	return fdry_regions.use_aside ? fdry_regions.aside : fdry_regions.current;
}

int fdry_dispatch_alloc(uint64_t size, CUdeviceptr limit, CUdeviceptr *ret)
{
	int err;

	if (fdry_regions_idle())
		return FDRY_FOREIGN;
	pthread_rwlock_rdlock(&fdry_regions.lock);
	err = current_check();
	if (err)
		goto out_unlock;
	if (!ret)
		err = fdry_fail(FDRY_E_INVAL,
				"cuMemAlloc has no pointer for the address; pass one");
	else if (target()->base + target()->size - 1 > limit)
		err = fdry_fail(
			FDRY_E_INVAL,
			"the first version of cuMemAlloc holds 32-bit addresses, and the region "
			"at 0x%llx has longer ones; use cuMemAlloc_v2",
			(unsigned long long)target()->base);
	else
		err = fdry_region_alloc(target()->region, size, fdry_capture_alloc_flags(), ret);
out_unlock:
	pthread_rwlock_unlock(&fdry_regions.lock);
	return err;
}

void fdry_dispatch_captured(void)
{
	int err = 0, i;

	if (fdry_regions_idle())
		return;
	fdry_regions_release_ended();
	pthread_rwlock_rdlock(&fdry_regions.lock);
	for (i = 0; i < FDRY_PLACES_MAX; i++)
		if (fdry_regions.places[i].region)
			err = fdry_region_trim(fdry_regions.places[i].region);
	pthread_rwlock_unlock(&fdry_regions.lock);
	if (err)
		fdry_warn("interposer: %s", fdry_last_error()); /* the next free tries again */
}

void fdry_dispatch_forget(void)
{
	int i;

	if (fdry_regions_idle())
		return;
	pthread_rwlock_rdlock(&fdry_regions.lock);
	for (i = 0; i < FDRY_PLACES_MAX; i++)
		if (fdry_regions.places[i].region)
			fdry_region_forget_graphs(fdry_regions.places[i].region);
	pthread_rwlock_unlock(&fdry_regions.lock);
}

int fdry_dispatch_current(struct fdry_region **ret)
{
	int err;

	if (fdry_regions_idle())
		return FDRY_FOREIGN;
	pthread_rwlock_rdlock(&fdry_regions.lock);
	err = current_check();
	if (err)
		pthread_rwlock_unlock(&fdry_regions.lock);
	else
		*ret = target()->region;
	return err;
}

int fdry_dispatch_at(bool pinned, struct fdry_dispatch_at *ret)
{
	int err;

	if (fdry_regions_idle())
		return FDRY_FOREIGN;
	pthread_rwlock_rdlock(&fdry_regions.lock);
	err = pinned && !fdry_regions.pinned ? FDRY_FOREIGN : current_check();
	if (!err)
		*ret = (struct fdry_dispatch_at){ .number = fdry_regions.begun,
						  .base = fdry_regions.current->base,
						  .dev = fdry_regions.current->dev,
						  .aside = fdry_regions.use_aside };
	pthread_rwlock_unlock(&fdry_regions.lock);
	return err;
}

uint64_t fdry_dispatch_number(void)
{
	uint64_t ret;

	if (fdry_regions_idle())
		return 0;
	pthread_rwlock_rdlock(&fdry_regions.lock);
	ret = fdry_regions.current ? fdry_regions.begun : 0;
	pthread_rwlock_unlock(&fdry_regions.lock);
	return ret;
}

int fdry_dispatch_holder(CUdeviceptr addr, struct fdry_region **ret)
{
	struct fdry_place *p;

	if (fdry_regions_idle())
		return FDRY_FOREIGN;
	pthread_rwlock_rdlock(&fdry_regions.lock);
	p = place_of(addr);
	if (!p) {
		pthread_rwlock_unlock(&fdry_regions.lock);
		return FDRY_FOREIGN;
	}
	*ret = p->region;
	return 0;
}

void fdry_dispatch_put(bool freed)
{
	unsigned int begun = !!fdry_regions.current + !!fdry_regions.aside;
	bool ended = freed && __atomic_load_n(&fdry_regions.used, __ATOMIC_RELAXED) > begun;

	pthread_rwlock_unlock(&fdry_regions.lock);
	if (ended)
		fdry_regions_release_ended();
}

int fdry_dispatch_find(CUdeviceptr addr, struct fdry_alloc *ret)
{
	int err = FDRY_FOREIGN;
	struct fdry_place *p;

	if (fdry_regions_idle())
		return FDRY_FOREIGN;
	pthread_rwlock_rdlock(&fdry_regions.lock);
	p = place_of(addr);
	if (p)
		err = fdry_region_find(p->region, addr, ret)
			      ? 0
			      : fdry_fail(FDRY_E_NOKEY,
					  "0x%llx lies in a region but in none of its allocations",
					  (unsigned long long)addr);
	pthread_rwlock_unlock(&fdry_regions.lock);
	return err;
}

uint64_t fdry_dispatch_slab_bytes(void)
{
	struct fdry_place *const begun[] = { fdry_regions.current, fdry_regions.aside };
	struct fdry_region_stats stats;
	uint64_t sum = 0;
	int i;

	if (fdry_regions_idle())
		return 0;
	pthread_rwlock_rdlock(&fdry_regions.lock);
	for (i = 0; i < 2 && !current_check(); i++) {
		if (!begun[i])
			continue;
		fdry_region_stats(begun[i]->region, &stats);
		sum += stats.slab_bytes;
	}
	pthread_rwlock_unlock(&fdry_regions.lock);
	return sum;
}

CUresult fdry_dispatch_alloc_result(int err)
{
	if (!err)
		return CUDA_SUCCESS;
	return err == -FDRY_E_INVAL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fdry_dispatch_free_result(int err)
{
	if (!err)
		return CUDA_SUCCESS;
	return err == -FDRY_E_DRIVER ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_VALUE;
}
