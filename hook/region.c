// SPDX-License-Identifier: Apache-2.0
/*
 * region.c - begins, uses and ends the regions from which device allocations come.
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
#include "hook/regions.h"

#include <stdlib.h>

#include "lib/log.h"
#include "lib/threads.h"
#include "mm/vmm.h"

struct fdry_regions fdry_regions = { .lock = PTHREAD_RWLOCK_INITIALIZER };

/* The devices that may use memory of each device, a bit for each; read and written atomically. */
static uint64_t peers[FDRY_VMM_DEVICES];

bool fdry_regions_idle(void)
{
	return !__atomic_load_n(&fdry_regions.used, __ATOMIC_ACQUIRE) || fdry_start_is_forked();
}

/* Free a place; the lock is held for writing. */
static void place_free(struct fdry_place *p)
{
	fdry_region_free(p->region);
	p->region = NULL;
	__atomic_fetch_sub(&fdry_regions.used, 1, __ATOMIC_RELEASE);
}

void fdry_regions_release_ended(void)
{
	int i;

	pthread_rwlock_wrlock(&fdry_regions.lock);
	for (i = 0; i < FDRY_PLACES_MAX && !fdry_capture_count(); i++)
		if (fdry_regions.places[i].region &&
		    &fdry_regions.places[i] != fdry_regions.current &&
		    &fdry_regions.places[i] != fdry_regions.aside &&
		    fdry_region_unused(fdry_regions.places[i].region))
			place_free(&fdry_regions.places[i]);
	pthread_rwlock_unlock(&fdry_regions.lock);
}

/* Open or close the regions of @owner before @end. */
static int open_until(const struct fdry_place *end, CUdevice owner, CUdevice dev, bool open,
		      const struct fdry_place **failed)
{
	const struct fdry_place *p;
	int err;

	for (p = fdry_regions.places; p < end; p++) {
		err = p->region && p->dev == owner ? fdry_region_open(p->region, dev, open) : 0;
		if (err) {
			*failed = p;
			return err;
		}
	}
	return 0;
}

int fdry_regions_open(CUdevice owner, CUdevice dev, bool open)
{
	uint64_t bit = 1ull << dev, was = peers[owner];
	const struct fdry_place *failed = NULL;
	int err;

	if (!!(was & bit) == open)
		return 0;
	/* Set it before the lock is taken, so that a region that begins next is open to the same
	 * devices. */
	__atomic_store_n(&peers[owner], was ^ bit, __ATOMIC_RELAXED);
	if (fdry_regions_idle())
		return 0;
	pthread_rwlock_rdlock(&fdry_regions.lock);
	err = open_until(fdry_regions.places + FDRY_PLACES_MAX, owner, dev, open, &failed);
	if (err && open_until(failed, owner, dev, !open, &failed))
		fdry_warn("interposer: %s", fdry_last_error());
	pthread_rwlock_unlock(&fdry_regions.lock);
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

static struct fdry_place *place_new(void)
{
	int i;

	for (i = 0; i < FDRY_PLACES_MAX; i++)
		if (!fdry_regions.places[i].region)
			return &fdry_regions.places[i];
	fdry_fail(FDRY_E_LIMIT, "%d ended regions still hold allocations; free them",
		  FDRY_PLACES_MAX);
	return NULL;
}

/* A region for the device @want.dev, open to its peers. */
static int region_new(const struct fdry_driver *drv, struct fdry_place *want)
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

static bool in_the_way(const struct fdry_place *old, const struct fdry_place *want)
{
	return old && old->base < want->base + want->size && want->base < old->base + old->size &&
	       !fdry_capture_count() && fdry_region_unused(old->region);
}

/* Replace the current region, which has no allocation, by one at its addresses. If that fails, it
 * begins again. */
static int begin_again(const struct fdry_driver *drv, struct fdry_place *want)
{
	uint64_t offset = fdry_region_offset(fdry_regions.current->region);
	struct fdry_place old = *fdry_regions.current;
	struct fdry_saved_err why;

	fdry_region_free(old.region);
	old.region = NULL;
	fdry_saved_err_set(&why, region_new(drv, want));
	if (!why.err) {
		*fdry_regions.current = *want;
		fdry_regions.paused = fdry_regions.pinned = false;
		fdry_regions.begun++;
		return 0;
	}
	fdry_regions.current->region = NULL;
	if (!region_new(drv, &old) && !fdry_region_set_offset(old.region, offset)) {
		*fdry_regions.current = old;
	} else {
		fdry_region_free(old.region);
		__atomic_fetch_sub(&fdry_regions.used, 1, __ATOMIC_RELEASE);
		fdry_regions.current = NULL;
	}
	return fdry_saved_err_restore(&why);
}

/* Lock held for writing. @move: the current region ends when the new one has begun. */
static int begin_locked(const struct fdry_driver *drv, struct fdry_place want, bool move)
{
	struct fdry_place *p = place_new();
	int err;

	if (fdry_regions.current && !move)
		return fdry_fail(FDRY_E_STATE,
				 "a region has begun already, at 0x%llx; end it first",
				 (unsigned long long)fdry_regions.current->base);
	if (in_the_way(fdry_regions.current, &want) && !fdry_regions.aside)
		return begin_again(drv, &want);
	if (!p)
		return -FDRY_E_LIMIT;
	err = region_new(drv, &want);
	if (err)
		return err;
	*p = want;
	fdry_regions.current = p;
	fdry_regions.aside = NULL; /* an ended region's area has ended with it */
	fdry_regions.paused = fdry_regions.use_aside = fdry_regions.pinned = false;
	fdry_regions.begun++;
	__atomic_fetch_add(&fdry_regions.used, 1, __ATOMIC_RELEASE);
	return 0;
}

static int region_begin(CUdeviceptr base, uint64_t size, bool move)
{
	struct fdry_place want = { .base = base, .size = size };
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
	pthread_rwlock_wrlock(&fdry_regions.lock);
	err = begin_locked(drv, want, move);
	pthread_rwlock_unlock(&fdry_regions.lock);
	return err;
}

int fdry_hook_region_begin(CUdeviceptr base, uint64_t size)
{
	return region_begin(base, size, false);
}

/* No lock is held. */
static void ended_call(void)
{
	void (*ended)(void) = __atomic_load_n(&fdry_regions.ended, __ATOMIC_RELAXED);

	if (ended)
		ended();
}

int fdry_hook_region_move(CUdeviceptr base, uint64_t size)
{
	int err = region_begin(base, size, true);

	if (err)
		return err;
	fdry_regions_release_ended(); /* the old region may be unused */
	ended_call();
	return 0;
}

int fdry_hook_region_end(void)
{
	bool ended;

	if (fdry_start_is_forked())
		return no_region();
	pthread_rwlock_wrlock(&fdry_regions.lock);
	ended = fdry_regions.current;
	fdry_regions.current = fdry_regions.aside = NULL;
	fdry_regions.use_aside = false;
	pthread_rwlock_unlock(&fdry_regions.lock);
	if (!ended)
		return no_region();
	fdry_regions_release_ended();
	ended_call();
	return 0;
}

static int set_paused(bool value)
{
	bool done;

	if (fdry_start_is_forked())
		return no_region();
	pthread_rwlock_wrlock(&fdry_regions.lock);
	done = fdry_regions.current;
	if (done)
		fdry_regions.paused = value;
	pthread_rwlock_unlock(&fdry_regions.lock);
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
	pthread_rwlock_rdlock(&fdry_regions.lock);
	if (fdry_regions.current)
		return 0;
	pthread_rwlock_unlock(&fdry_regions.lock);
	return no_region();
}

static int current_put(int err)
{
	pthread_rwlock_unlock(&fdry_regions.lock);
	return err;
}

int fdry_hook_region_preallocate(uint64_t size)
{
	int err = current_get();

	return err ? err : current_put(fdry_region_preallocate(fdry_regions.current->region, size));
}

int fdry_hook_region_free_preallocated(void)
{
	int err = current_get();

	return err ? err
		   : current_put(fdry_region_free_preallocated(fdry_regions.current->region,
							       fdry_capture_alloc_flags()));
}

int fdry_hook_region_offset(uint64_t *ret)
{
	int err = current_get();

	if (err)
		return err;
	*ret = fdry_region_offset(fdry_regions.current->region);
	return current_put(0);
}

int fdry_hook_region_set_offset(uint64_t offset)
{
	int err = current_get();

	return err ? err
		   : current_put(fdry_region_set_offset(fdry_regions.current->region, offset));
}

int fdry_hook_region_claim(CUdeviceptr addr, uint64_t size, CUdeviceptr end)
{
	const struct fdry_place *p;
	int err = current_get();

	if (err)
		return err;
	p = fdry_regions.aside && addr >= fdry_regions.aside->base ? fdry_regions.aside
								   : fdry_regions.current;
	return current_put(fdry_region_claim(p->region, addr, size, end));
}

/* --- the aside area --- */

static int aside_begin(const struct fdry_driver *drv, uint64_t size)
{
	struct fdry_place want, *p = place_new();
	int err;

	if (fdry_regions.aside)
		return fdry_fail(FDRY_E_STATE, "the region at 0x%llx has an aside area already",
				 (unsigned long long)fdry_regions.current->base);
	if (!p)
		return -FDRY_E_LIMIT;
	want = (struct fdry_place){ .base = fdry_regions.current->base +
					    fdry_region_size(fdry_regions.current->region),
				    .size = size,
				    .dev = fdry_regions.current->dev };
	err = region_new(drv, &want);
	if (err)
		return err;
	fdry_region_skip_numbers(want.region); /* engines refuse graphs with tensors there */
	*p = want;
	fdry_regions.aside = p;
	__atomic_fetch_add(&fdry_regions.used, 1, __ATOMIC_RELEASE);
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
	pthread_rwlock_wrlock(&fdry_regions.lock);
	err = fdry_regions.current ? aside_begin(drv, size) : no_region();
	pthread_rwlock_unlock(&fdry_regions.lock);
	return err;
}

int fdry_hook_region_aside(bool on)
{
	int err = 0;

	if (fdry_start_is_forked())
		return no_region();
	pthread_rwlock_wrlock(&fdry_regions.lock);
	if (!fdry_regions.current)
		err = no_region();
	else if (!fdry_regions.aside)
		err = fdry_fail(FDRY_E_STATE,
				"the region at 0x%llx has no aside area; begin it with one",
				(unsigned long long)fdry_regions.current->base);
	else
		fdry_regions.use_aside = on;
	pthread_rwlock_unlock(&fdry_regions.lock);
	return err;
}

void fdry_hook_region_pinned(bool on)
{
	if (fdry_start_is_forked())
		return;
	pthread_rwlock_wrlock(&fdry_regions.lock);
	fdry_regions.pinned = on;
	pthread_rwlock_unlock(&fdry_regions.lock);
}

int fdry_hook_region_aside_used(uint64_t *base, uint64_t *end)
{
	int err = current_get();

	if (err)
		return err;
	*base = *end = fdry_regions.current->base + fdry_region_size(fdry_regions.current->region);
	if (fdry_regions.aside) {
		*base = fdry_regions.aside->base;
		*end = fdry_regions.aside->base + fdry_region_offset(fdry_regions.aside->region);
	}
	return current_put(0);
}

/* --- copies of the ledger --- */

/* Serial numbers of the aside area follow those of the region. */
#define ASIDE_SERIALS (1ull << 62)

static int ledger_join(struct fdry_alloc **ret, size_t *count)
{
	struct fdry_alloc *more = NULL, *all;
	size_t i, n = 0;
	int err = fdry_region_ledger(fdry_regions.aside->region, &more, &n);

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
	err = fdry_region_ledger(fdry_regions.current->region, &list, &n);
	if (err)
		return current_put(err);
	err = fdry_regions.aside ? ledger_join(&list, &n) : 0;
	if (err) {
		free(list);
		return current_put(err);
	}
	*base = fdry_regions.current->base;
	*size = fdry_regions.aside
			? fdry_regions.aside->base + fdry_region_size(fdry_regions.aside->region) -
				  fdry_regions.current->base
			: fdry_region_size(fdry_regions.current->region);
	*ret = list;
	*count = n;
	return current_put(0);
}
