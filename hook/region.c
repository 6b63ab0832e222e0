// SPDX-License-Identifier: Apache-2.0
/*
 * region.c - the regions from which device allocations come.
 *
 * One region is current at a time, for all threads of the process and for the device whose context
 * was current when the region began. It may have an aside area, a second region right behind it,
 * from which new allocations come after fdry_capture_aside(). An ended region stays known until its
 * last allocation is freed. An allocation that should come from the region and cannot is an error.
 * It never gets an address from the driver.
 *
 * Locking: every use of a region holds a lock for reading; beginning and ending one holds it for
 * writing. If there is no region, no lock is taken. In a forked child a thread that does not exist
 * there may hold the lock, so the driver handles all calls.
 */
#include "hook/internal.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/log.h"
#include "lib/threads.h"
#include "mm/vmm.h"

#define PLACES_MAX 64

struct place {
	struct fdry_region *region; /* NULL: the place is free */
	CUdeviceptr base;
	uint64_t size;
	CUdevice dev;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct place places[PLACES_MAX];
static unsigned int used;      /* places in use, atomic */
static struct place *current; /* the region that has begun, or NULL */
static struct place *aside;   /* the current region's aside area, or NULL */
static bool paused;	      /* new allocations come from the driver */
static bool use_aside;	      /* new allocations come from the aside area */
/* The devices that may use memory of each device, a bit for each; read and written atomically. */
static uint64_t peers[FDRY_VMM_DEVICES];

static bool idle(void)
{
	return !__atomic_load_n(&used, __ATOMIC_ACQUIRE) || fdry_start_is_forked();
}

static struct place *place_of(CUdeviceptr addr)
{
	int i;

	for (i = 0; i < PLACES_MAX; i++)
		if (places[i].region && addr >= places[i].base &&
		    addr - places[i].base < fdry_region_size(places[i].region))
			return &places[i];
	return NULL;
}

/* Free a place; the lock is held for writing. */
static void place_free(struct place *p)
{
	fdry_region_free(p->region);
	p->region = NULL;
	__atomic_fetch_sub(&used, 1, __ATOMIC_RELEASE);
}

/* 0 if the current region allocates for the current context, else FDRY_FOREIGN or an error. */
static int current_check(void)
{
	CUresult res;
	CUdevice dev;

	if (!current || paused)
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
	return dev == current->dev ? 0 : FDRY_FOREIGN;
}

/* Return the place of new allocations. current_check() has succeeded. */
static struct place *target(void)
{
	return use_aside ? aside : current;
}

unsigned int fdry_dispatch_flags(void)
{
	return fdry_capture_count() ? FDRY_ALLOC_CAPTURING : 0;
}

int fdry_dispatch_alloc(uint64_t size, CUdeviceptr limit, CUdeviceptr *ret)
{
	int err;

	if (idle())
		return FDRY_FOREIGN;
	pthread_rwlock_rdlock(&lock);
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
		err = fdry_region_alloc(target()->region, size, fdry_dispatch_flags(), ret);
out_unlock:
	pthread_rwlock_unlock(&lock);
	return err;
}

/* Free ended regions without allocations, but not during a capture, since unmapping would break
 * it. */
static void release_ended(void)
{
	int i;

	pthread_rwlock_wrlock(&lock);
	for (i = 0; i < PLACES_MAX && !fdry_capture_count(); i++)
		if (places[i].region && &places[i] != current && &places[i] != aside &&
		    fdry_region_unused(places[i].region))
			place_free(&places[i]);
	pthread_rwlock_unlock(&lock);
}

void fdry_dispatch_captured(void)
{
	int err = 0, i;

	if (idle())
		return;
	release_ended();
	pthread_rwlock_rdlock(&lock);
	for (i = 0; i < PLACES_MAX; i++)
		if (places[i].region)
			err = fdry_region_trim(places[i].region);
	pthread_rwlock_unlock(&lock);
	if (err)
		fdry_warn("interposer: %s", fdry_last_error()); /* the next free tries again */
}

void fdry_dispatch_forget(void)
{
	int i;

	if (idle())
		return;
	pthread_rwlock_rdlock(&lock);
	for (i = 0; i < PLACES_MAX; i++)
		if (places[i].region)
			fdry_region_forget_graphs(places[i].region);
	pthread_rwlock_unlock(&lock);
}

int fdry_dispatch_current(struct fdry_region **ret)
{
	int err;

	if (idle())
		return FDRY_FOREIGN;
	pthread_rwlock_rdlock(&lock);
	err = current_check();
	if (err)
		pthread_rwlock_unlock(&lock);
	else
		*ret = target()->region;
	return err;
}

int fdry_dispatch_holder(CUdeviceptr addr, struct fdry_region **ret)
{
	struct place *p;

	if (idle())
		return FDRY_FOREIGN;
	pthread_rwlock_rdlock(&lock);
	p = place_of(addr);
	if (!p) {
		pthread_rwlock_unlock(&lock);
		return FDRY_FOREIGN;
	}
	*ret = p->region;
	return 0;
}

void fdry_dispatch_put(bool freed)
{
	unsigned int begun = !!current + !!aside;
	bool ended = freed && __atomic_load_n(&used, __ATOMIC_RELAXED) > begun;

	pthread_rwlock_unlock(&lock);
	if (ended)
		release_ended();
}

int fdry_dispatch_find(CUdeviceptr addr, struct fdry_alloc *ret)
{
	int err = FDRY_FOREIGN;
	struct place *p;

	if (idle())
		return FDRY_FOREIGN;
	pthread_rwlock_rdlock(&lock);
	p = place_of(addr);
	if (p)
		err = fdry_region_find(p->region, addr, ret)
			      ? 0
			      : fdry_fail(FDRY_E_NOKEY,
					  "0x%llx lies in a region but in none of its allocations",
					  (unsigned long long)addr);
	pthread_rwlock_unlock(&lock);
	return err;
}

/* Open or close the regions of @owner before @end. */
static int open_until(const struct place *end, CUdevice owner, CUdevice dev, bool open,
		      const struct place **failed)
{
	const struct place *p;
	int err;

	for (p = places; p < end; p++) {
		err = p->region && p->dev == owner ? fdry_region_open(p->region, dev, open) : 0;
		if (err) {
			*failed = p;
			return err;
		}
	}
	return 0;
}

int fdry_dispatch_open(CUdevice owner, CUdevice dev, bool open)
{
	uint64_t bit = 1ull << dev, was = peers[owner];
	const struct place *failed = NULL;
	int err;

	if (!!(was & bit) == open)
		return 0;
	/* Set it before the lock is taken, so that a region that begins next is open to the same
	 * devices. */
	__atomic_store_n(&peers[owner], was ^ bit, __ATOMIC_RELAXED);
	if (idle())
		return 0;
	pthread_rwlock_rdlock(&lock);
	err = open_until(places + PLACES_MAX, owner, dev, open, &failed);
	if (err && open_until(failed, owner, dev, !open, &failed))
		fdry_warn("interposer: %s", fdry_last_error());
	pthread_rwlock_unlock(&lock);
	if (err && open)
		__atomic_store_n(&peers[owner], was, __ATOMIC_RELAXED);
	return err;
}

/* The error if @current is NULL or unusable. */
static int no_region(void)
{
	if (fdry_start_is_forked())
		return fdry_start_forked();
	return fdry_fail(FDRY_E_STATE, "no region has begun; begin one first");
}

static struct place *place_new(void)
{
	int i;

	for (i = 0; i < PLACES_MAX; i++)
		if (!places[i].region)
			return &places[i];
	fdry_fail(FDRY_E_LIMIT, "%d ended regions still hold allocations; free them", PLACES_MAX);
	return NULL;
}

/* A region for the device @want.dev, open to its peers. */
static int region_new(const struct fdry_driver *drv, struct place *want)
{
	uint64_t open = want->dev < FDRY_VMM_DEVICES
				? __atomic_load_n(&peers[want->dev], __ATOMIC_RELAXED)
				: 0;
	CUdevice dev;
	int err = fdry_region_new(drv, want->dev, want->base, want->size, &want->region);

	if (err)
		goto out_free;
	for (dev = 0; open; dev++, open >>= 1) {
		if (!(open & 1))
			continue;
		err = fdry_region_open(want->region, dev, true);
		if (err)
			goto out_free;
	}
	return 0;
out_free:
	fdry_region_free(want->region);
	want->region = NULL;
	return err;
}

static bool in_the_way(const struct place *old, const struct place *want)
{
	return old && old->base < want->base + want->size && want->base < old->base + old->size &&
	       !fdry_capture_count() && fdry_region_unused(old->region);
}

/* Replace the current region, which has no allocation, by one at its addresses. If that fails, it
 * begins again. */
static int begin_again(const struct fdry_driver *drv, struct place *want)
{
	uint64_t offset = fdry_region_offset(current->region);
	struct place old = *current;
	struct fdry_saved_err why;

	fdry_region_free(old.region);
	fdry_saved_err_set(&why, region_new(drv, want));
	if (!why.err) {
		*current = *want;
		paused = false;
		return 0;
	}
	current->region = NULL;
	if (!region_new(drv, &old) && !fdry_region_set_offset(old.region, offset)) {
		*current = old;
	} else {
		__atomic_fetch_sub(&used, 1, __ATOMIC_RELEASE);
		current = NULL;
	}
	return fdry_saved_err_restore(&why);
}

/* Lock held for writing. @move: the current region ends when the new one has begun. */
static int begin_locked(const struct fdry_driver *drv, struct place want, bool move)
{
	struct place *p = place_new();
	int err;

	if (current && !move)
		return fdry_fail(FDRY_E_STATE,
				 "a region has begun already, at 0x%llx; end it first",
				 (unsigned long long)current->base);
	if (in_the_way(current, &want) && !aside)
		return begin_again(drv, &want);
	if (!p)
		return -FDRY_E_LIMIT;
	err = region_new(drv, &want);
	if (err)
		return err;
	*p = want;
	current = p;
	aside = NULL; /* an ended region's area has ended with it */
	paused = use_aside = false;
	__atomic_fetch_add(&used, 1, __ATOMIC_RELEASE);
	return 0;
}

static int region_begin(CUdeviceptr base, uint64_t size, bool move)
{
	struct place want = { .base = base, .size = size };
	const struct fdry_driver *drv;
	const char *path = fdry_find_path();
	int err;

	if (!path)
		return -FDRY_E_NODRIVER;
	if (fdry_start_is_forked())
		return no_region();
	err = fdry_loaded_late();
	if (err)
		return err;
	err = fdry_driver_open(path, &drv);
	if (err)
		return err;
	if (fdry_real(cuCtxGetDevice)(&want.dev))
		return fdry_fail(
			FDRY_E_STATE,
			"no CUDA context is current in this thread; make the device's primary "
			"context current, then begin the region");
	pthread_rwlock_wrlock(&lock);
	err = begin_locked(drv, want, move);
	pthread_rwlock_unlock(&lock);
	return err;
}

int fdry_hook_region_begin(CUdeviceptr base, uint64_t size)
{
	return region_begin(base, size, false);
}

int fdry_hook_region_move(CUdeviceptr base, uint64_t size)
{
	int err = region_begin(base, size, true);

	if (err)
		return err;
	release_ended(); /* the old region may be unused */
	return 0;
}

int fdry_hook_region_end(void)
{
	bool ended;

	if (fdry_start_is_forked())
		return no_region();
	pthread_rwlock_wrlock(&lock);
	ended = current;
	current = aside = NULL;
	use_aside = false;
	pthread_rwlock_unlock(&lock);
	if (!ended)
		return no_region();
	release_ended();
	return 0;
}

static int set_paused(bool value)
{
	bool done;

	if (fdry_start_is_forked())
		return no_region();
	pthread_rwlock_wrlock(&lock);
	done = current;
	if (done)
		paused = value;
	pthread_rwlock_unlock(&lock);
	return done ? 0 : no_region();
}

int fdry_hook_region_pause(void)
{
	return set_paused(true);
}

int fdry_hook_region_resume(void)
{
	return set_paused(false);
}

/* Take the lock to use the current region, or fail. */
static int current_get(void)
{
	if (fdry_start_is_forked())
		return no_region();
	pthread_rwlock_rdlock(&lock);
	if (current)
		return 0;
	pthread_rwlock_unlock(&lock);
	return no_region();
}

static int current_put(int err)
{
	pthread_rwlock_unlock(&lock);
	return err;
}

int fdry_hook_region_preallocate(uint64_t size)
{
	int err = current_get();

	return err ? err : current_put(fdry_region_preallocate(current->region, size));
}

int fdry_hook_region_free_preallocated(void)
{
	int err = current_get();

	return err ? err
		   : current_put(
			     fdry_region_free_preallocated(current->region, fdry_dispatch_flags()));
}

int fdry_hook_region_offset(uint64_t *ret)
{
	int err = current_get();

	if (err)
		return err;
	*ret = fdry_region_offset(current->region);
	return current_put(0);
}

int fdry_hook_region_set_offset(uint64_t offset)
{
	int err = current_get();

	return err ? err : current_put(fdry_region_set_offset(current->region, offset));
}

int fdry_hook_region_claim(CUdeviceptr addr, uint64_t size)
{
	const struct place *p;
	int err = current_get();

	if (err)
		return err;
	p = aside && addr >= aside->base ? aside : current;
	return current_put(fdry_region_claim(p->region, addr, size));
}

/* --- the aside area --- */

static int aside_begin(const struct fdry_driver *drv, uint64_t size)
{
	struct place want, *p = place_new();
	int err;

	if (aside)
		return fdry_fail(FDRY_E_STATE, "the region at 0x%llx has an aside area already",
				 (unsigned long long)current->base);
	if (!p)
		return -FDRY_E_LIMIT;
	want = (struct place){ .base = current->base + fdry_region_size(current->region),
			       .size = size,
			       .dev = current->dev };
	err = region_new(drv, &want);
	if (err)
		return err;
	*p = want;
	aside = p;
	__atomic_fetch_add(&used, 1, __ATOMIC_RELEASE);
	return 0;
}

int fdry_hook_region_aside_begin(uint64_t size)
{
	const char *path = fdry_find_path();
	const struct fdry_driver *drv;
	int err = path ? fdry_driver_open(path, &drv) : -FDRY_E_NODRIVER;

	if (err)
		return err;
	if (fdry_start_is_forked())
		return no_region();
	pthread_rwlock_wrlock(&lock);
	err = current ? aside_begin(drv, size) : no_region();
	pthread_rwlock_unlock(&lock);
	return err;
}

int fdry_hook_region_aside(bool on)
{
	int err = 0;

	if (fdry_start_is_forked())
		return no_region();
	pthread_rwlock_wrlock(&lock);
	if (!current)
		err = no_region();
	else if (!aside)
		err = fdry_fail(FDRY_E_STATE,
				"the region at 0x%llx has no aside area; begin it with one",
				(unsigned long long)current->base);
	else
		use_aside = on;
	pthread_rwlock_unlock(&lock);
	return err;
}

int fdry_hook_region_aside_used(uint64_t *base, uint64_t *end)
{
	int err = current_get();

	if (err)
		return err;
	*base = *end = current->base + fdry_region_size(current->region);
	if (aside) {
		*base = aside->base;
		*end = aside->base + fdry_region_offset(aside->region);
	}
	return current_put(0);
}

uint64_t fdry_dispatch_slab_bytes(void)
{
	struct place *const begun[] = { current, aside };
	struct fdry_region_stats stats;
	uint64_t sum = 0;
	int i;

	if (idle())
		return 0;
	pthread_rwlock_rdlock(&lock);
	for (i = 0; i < 2 && !current_check(); i++) {
		if (!begun[i])
			continue;
		fdry_region_stats(begun[i]->region, &stats);
		sum += stats.slab_bytes;
	}
	pthread_rwlock_unlock(&lock);
	return sum;
}

/* --- copies of the ledger --- */

/* Serial numbers of the aside area follow those of the region. */
#define ASIDE_SERIALS (1ull << 62)

static int ledger_join(struct fdry_alloc **ret, size_t *count)
{
	struct fdry_alloc *more = NULL, *all;
	size_t i, n = 0;
	int err = fdry_region_ledger(aside->region, &more, &n);

	if (err)
		return err;
	all = reallocarray(*ret, *count + n + 1, sizeof(*all));
	if (!all) {
		free(more);
		return fdry_nomem();
	}
	for (i = 0; i < n; i++) {
		all[*count + i] = more[i];
		all[*count + i].serial += ASIDE_SERIALS;
	}
	free(more);
	*ret = all;
	*count += n;
	return 0;
}

int fdry_hook_region_ledger(CUdeviceptr *base, uint64_t *size, struct fdry_alloc **ret,
			    size_t *count)
{
	struct fdry_alloc *list;
	size_t n;
	int err = current_get();

	if (err)
		return err;
	err = fdry_region_ledger(current->region, &list, &n);
	if (err)
		return current_put(err);
	err = aside ? ledger_join(&list, &n) : 0;
	if (err) {
		free(list);
		return current_put(err);
	}
	*base = current->base;
	*size = aside ? aside->base + fdry_region_size(aside->region) - current->base
		      : fdry_region_size(current->region);
	*ret = list;
	*count = n;
	return current_put(0);
}
