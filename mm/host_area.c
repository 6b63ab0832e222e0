// SPDX-License-Identifier: Apache-2.0
/*
 * host_area.c - allocates pinned memory at fixed addresses; see host_area.h.
 *
 * An allocation takes its addresses first, is backed and registered without the lock, and then
 * enters the ledger. A free leaves the ledger first, and returns its addresses last. So addresses
 * in use have one owner at a time.
 */
#include "mm/host_area.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/log.h"
#include "mm/bump.h"
#include "mm/free_ranges.h"
#include "mm/host_map.h"
#include "mm/ledger.h"

struct fdry_host_area {
	pthread_mutex_t lock;
	const struct fdry_driver *drv;
	CUdevice dev;
	CUcontext ctx; /* the primary one, retained */
	struct fdry_bump bump;
	struct fdry_ledger ledger;
	struct fdry_ranges free;    /* freed addresses of allocations outside of captures */
	struct fdry_ranges skipped; /* skipped by claims; only other claims get them */
};

int fdry_host_area_new(const struct fdry_driver *drv, CUdevice dev, uint64_t base, uint64_t size,
		       struct fdry_host_area **ret)
{
	struct fdry_host_area *a;
	int err = fdry_host_map_check(drv, dev);

	if (err)
		return err;
	a = calloc(1, sizeof(*a));
	if (!a)
		return fdry_nomem();
	a->drv = drv;
	a->dev = dev;
	err = fdry_bump_init(&a->bump, base, size, FDRY_HOST_AREA_ALIGN, FDRY_ALLOC_BLOCK);
	if (err)
		goto out_free;
	err = fdry_call(drv, cuDevicePrimaryCtxRetain, &a->ctx, dev);
	if (err)
		goto out_free;
	err = fdry_host_reserve(base, size);
	if (err)
		goto out_release;
	pthread_mutex_init(&a->lock, NULL);
	*ret = a;
	return 0;
out_release:
	(void)fdry_call_raw(drv, cuDevicePrimaryCtxRelease_v2, dev);
out_free:
	free(a);
	return err;
}

static int back(const struct fdry_host_area *a, uint64_t addr, uint64_t size)
{
	CUstreamCaptureMode mode;
	int err = fdry_driver_enter(a->drv, a->ctx, &mode);

	if (err)
		return err;
	err = fdry_host_back(a->drv, addr, size);
	fdry_driver_leave(a->drv, &mode);
	return err;
}

static int unback(const struct fdry_host_area *a, uint64_t addr, uint64_t size)
{
	CUstreamCaptureMode mode;
	CUresult res;
	int err = fdry_driver_enter(a->drv, a->ctx, &mode);

	if (err)
		return err;
	res = fdry_host_unback(a->drv, addr, size);
	fdry_driver_leave(a->drv, &mode);
	return res ? fdry_driver_result(a->drv, FDRY_DRV_cuMemHostUnregister, res) : 0;
}

void fdry_host_area_free(struct fdry_host_area *a)
{
	const struct fdry_alloc *e;
	struct fdry_range *n;

	if (!a)
		return;
	fdry_ranges_each(n, &a->ledger.entries, 0, UINT64_MAX) {
		e = fdry_ledger_entry(n);
		if (unback(a, e->addr, e->size))
			fdry_warn("%s", fdry_last_error());
	}
	fdry_host_unreserve(a->bump.base, a->bump.size);
	fdry_ledger_release(&a->ledger);
	fdry_free_ranges_release(&a->free);
	fdry_free_ranges_release(&a->skipped);
	(void)fdry_call_raw(a->drv, cuDevicePrimaryCtxRelease_v2, a->dev);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* Return addresses that are not in use any more. */
static void give(struct fdry_host_area *a, uint64_t addr, uint64_t extent, bool capturing)
{
	pthread_mutex_lock(&a->lock);
	if (!capturing && fdry_free_ranges_add(&a->free, addr, addr + extent))
		fdry_warn("%" PRIu64 " bytes of host addresses are lost: %s", extent,
			  fdry_last_error());
	pthread_mutex_unlock(&a->lock);
}

static int place(struct fdry_host_area *a, struct fdry_alloc *e)
{
	uint64_t step = fdry_bump_step(&a->bump, e->size);
	bool reuse = !e->capturing && e->size && e->size <= a->bump.size;
	struct fdry_place p = { .extent = (e->size + step - 1) / step * step };
	int err;

	if (!reuse || !fdry_free_ranges_take(&a->free, p.extent, step, &p.addr)) {
		err = fdry_bump_place(&a->bump, e->size, 0, &p);
		if (err)
			return err;
		fdry_bump_take(&a->bump, &p);
	}
	e->addr = p.addr;
	e->extent = p.extent;
	return 0;
}

static void stamp(const struct fdry_alloc *e)
{
	uint32_t *word = (uint32_t *)(uintptr_t)e->addr;
	uint64_t i, n = (e->size + sizeof(*word) - 1) / sizeof(*word);

	for (i = 0; i < n; i++)
		word[i] = FDRY_STAMP;
}

/* Back an allocation whose addresses were taken, and add it to the ledger. */
static int enter(struct fdry_host_area *a, struct fdry_alloc *e)
{
	int err = back(a, e->addr, e->size);

	if (err)
		return err;
	if (e->capturing)
		stamp(e);
	pthread_mutex_lock(&a->lock);
	err = fdry_ledger_add(&a->ledger, e);
	pthread_mutex_unlock(&a->lock);
	if (err && unback(a, e->addr, e->size))
		fdry_warn("%s", fdry_last_error());
	return err;
}

int fdry_host_area_alloc(struct fdry_host_area *a, uint64_t size, unsigned int flags,
			 uint64_t owner, uint64_t *ret)
{
	struct fdry_alloc e = { .size = size,
				.owner = owner,
				.kind = FDRY_KIND_PINNED,
				.capturing = flags & FDRY_ALLOC_CAPTURING };
	int err;

	pthread_mutex_lock(&a->lock);
	err = place(a, &e);
	pthread_mutex_unlock(&a->lock);
	if (err)
		return err;
	err = enter(a, &e);
	if (err) {
		give(a, e.addr, e.extent, e.capturing);
		return fdry_fail_at(err, "pinned memory of %" PRIu64 " bytes", size);
	}
	*ret = e.addr;
	return 0;
}

/* Take the addresses of a claim. */
static int claim_place(struct fdry_host_area *a, const struct fdry_alloc *e)
{
	uint64_t cursor = a->bump.base + a->bump.cursor, end = e->addr + e->extent;
	struct fdry_place p = { e->addr, e->extent };

	if (e->addr >= cursor) {
		if (e->addr > cursor && fdry_free_ranges_add(&a->skipped, cursor, e->addr))
			return fdry_nomem();
		fdry_bump_take(&a->bump, &p);
		return 0;
	}
	if (fdry_free_ranges_remove(&a->skipped, e->addr, end) ||
	    fdry_free_ranges_remove(&a->free, e->addr, end))
		return 0;
	return fdry_fail(FDRY_E_TAKEN,
			 "the %" PRIu64 " bytes of pinned memory at %#llx are in use, or had "
			 "another use before",
			 e->extent, e->addr);
}

int fdry_host_area_claim(struct fdry_host_area *a, uint64_t addr, uint64_t size)
{
	uint64_t step = fdry_bump_step(&a->bump, size), extent;
	struct fdry_alloc e = { .addr = addr, .size = size, .kind = FDRY_KIND_PINNED };
	int err;

	if (!size || addr % step || fdry_round_up(size, step, &extent) || addr < a->bump.base ||
	    addr - a->bump.base > a->bump.size ||
	    extent > a->bump.size - (addr - a->bump.base))
		return fdry_fail(FDRY_E_INVAL,
				 "no pinned memory of %" PRIu64 " bytes can begin at %#" PRIx64,
				 size, addr);
	e.extent = extent;
	pthread_mutex_lock(&a->lock);
	err = claim_place(a, &e);
	pthread_mutex_unlock(&a->lock);
	if (err)
		return err;
	err = enter(a, &e);
	if (err)
		give(a, e.addr, e.extent, false);
	return err;
}

int fdry_host_area_dealloc(struct fdry_host_area *a, uint64_t addr)
{
	struct fdry_alloc e;
	int err;

	pthread_mutex_lock(&a->lock);
	err = fdry_ledger_at(&a->ledger, addr, &e);
	pthread_mutex_unlock(&a->lock);
	if (err)
		return err;
	err = unback(a, e.addr, e.size);
	if (err)
		return err;
	pthread_mutex_lock(&a->lock);
	fdry_ledger_del(&a->ledger, addr);
	pthread_mutex_unlock(&a->lock);
	give(a, e.addr, e.extent, e.capturing);
	return 0;
}

bool fdry_host_area_find(struct fdry_host_area *a, uint64_t addr, struct fdry_alloc *ret)
{
	bool found;

	pthread_mutex_lock(&a->lock);
	found = fdry_ledger_find(&a->ledger, addr, ret);
	pthread_mutex_unlock(&a->lock);
	return found;
}

int fdry_host_area_ledger(struct fdry_host_area *a, struct fdry_buf *ret)
{
	struct fdry_range *n;
	int err = 0;

	pthread_mutex_lock(&a->lock);
	fdry_ranges_each(n, &a->ledger.entries, 0, UINT64_MAX)
		err = err ?: fdry_buf_put(ret, fdry_ledger_entry(n), sizeof(struct fdry_alloc));
	pthread_mutex_unlock(&a->lock);
	return err;
}

uint64_t fdry_host_area_used(struct fdry_host_area *a)
{
	uint64_t ret;

	pthread_mutex_lock(&a->lock);
	ret = a->bump.base + a->bump.cursor;
	pthread_mutex_unlock(&a->lock);
	return ret;
}

bool fdry_host_area_unused(struct fdry_host_area *a)
{
	bool ret;

	pthread_mutex_lock(&a->lock);
	ret = !a->ledger.entries.count;
	pthread_mutex_unlock(&a->lock);
	return ret;
}
