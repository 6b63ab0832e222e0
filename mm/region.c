// SPDX-License-Identifier: Apache-2.0
/*
 * region.c - puts cursor, ledger and backing together; see region.h.
 *
 * Order of an allocation: place (pure), note in the ledger, map and fill, move the cursor.
 * Only mapping and filling can fail late, and undoing the note cannot. The cursor moves
 * last, so a failure leaves no trace.
 *
 * Freeing: look, wait without the lock, look again, put. Two threads that free the same
 * address both pass the first look; the second look stops one of them. What was freed
 * by others meanwhile is not covered by the wait: the backing's clock tells which.
 */
#include "mm/region.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "mm/backing.h"
#include "mm/bump.h"
#include "mm/ledger.h"

struct fdry_region {
	pthread_mutex_t lock;
	struct fdry_bump bump;
	struct fdry_ledger ledger;
	struct fdry_backing backing;
	bool arena; /* preallocated, and not freed since */
};

static void lock(struct fdry_region *r)
{
	pthread_mutex_lock(&r->lock);
}

static void unlock(struct fdry_region *r)
{
	pthread_mutex_unlock(&r->lock);
}

static CUdeviceptr cursor_addr(const struct fdry_region *r)
{
	return r->bump.base + r->bump.cursor;
}

int fdry_region_new(const struct fdry_driver *drv, CUdevice dev, CUdeviceptr base, uint64_t size,
		    struct fdry_region **ret)
{
	struct fdry_region *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return fdry_nomem();
	err = fdry_bump_init(&r->bump, base, size, FDRY_ALLOC_ALIGN, FDRY_ALLOC_BLOCK);
	if (!err)
		err = fdry_backing_init(&r->backing, drv, dev, base, size);
	if (err) {
		free(r);
		return err;
	}
	pthread_mutex_init(&r->lock, NULL);
	*ret = r;
	return 0;
}

void fdry_region_free(struct fdry_region *r)
{
	if (!r)
		return;
	fdry_backing_release(&r->backing);
	fdry_ledger_release(&r->ledger);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* What must be written before the memory at @p is handed out: the stamp, or zeros where the cursor has been before. */
static struct fdry_fill fill_for(const struct fdry_region *r, const struct fdry_place *p, bool capturing)
{
	uint64_t dirty = r->bump.base + r->bump.touched;
	struct fdry_fill f = { .addr = p->addr, .size = p->room, .pattern = capturing ? FDRY_STAMP : 0 };

	if (!capturing && dirty < p->addr + p->room)
		f.size = dirty > p->addr ? dirty - p->addr : 0;
	return f;
}

static int alloc_at(struct fdry_region *r, const struct fdry_place *p, uint64_t size, bool capturing)
{
	struct fdry_alloc a = { .addr = p->addr, .size = size, .room = p->room, .capturing = capturing };
	struct fdry_fill fill = fill_for(r, p, capturing);
	int ret = fdry_ledger_add(&r->ledger, &a);

	if (ret)
		return ret;
	ret = fdry_backing_take(&r->backing, p->addr, p->room, &fill);
	if (ret) {
		fdry_ledger_undo(&r->ledger, p->addr);
		return fdry_fail_at(ret, "an allocation of %" PRIu64 " bytes", size);
	}
	fdry_bump_take(&r->bump, p);
	assert(!fdry_bump_check(&r->bump));
	return 0;
}

int fdry_region_alloc(struct fdry_region *r, uint64_t size, unsigned int flags, CUdeviceptr *ret)
{
	bool capturing = flags & FDRY_ALLOC_CAPTURING;
	struct fdry_place p;
	int err;

	lock(r);
	err = fdry_bump_place(&r->bump, size, 0, &p);
	if (!err)
		err = alloc_at(r, &p, size, capturing);
	if (!err && !capturing)
		fdry_backing_trim(&r->backing, cursor_addr(r)); /* the granule that the cursor left */
	unlock(r);
	if (err)
		return err;
	*ret = p.addr;
	return 0;
}

/* Wait for the work in flight and let what was freed before go. Without the lock. */
static int settle(struct fdry_region *r)
{
	uint64_t clock;
	int ret;

	lock(r);
	clock = r->backing.clock;
	unlock(r);
	ret = fdry_vmm_wait(&r->backing.vmm);
	if (ret)
		return ret;
	lock(r);
	fdry_backing_settle(&r->backing, clock);
	unlock(r);
	return 0;
}

static int look(struct fdry_region *r, CUdeviceptr addr)
{
	struct fdry_alloc a;
	int ret;

	lock(r);
	ret = fdry_ledger_at(&r->ledger, addr, &a);
	unlock(r);
	return ret;
}

int fdry_region_dealloc(struct fdry_region *r, CUdeviceptr addr, unsigned int flags)
{
	bool capturing = flags & FDRY_ALLOC_CAPTURING;
	struct fdry_alloc a;
	int ret = look(r, addr);

	if (!ret && !capturing)
		ret = settle(r);
	if (ret)
		return ret;
	lock(r);
	ret = fdry_ledger_at(&r->ledger, addr, &a);
	if (!ret) {
		fdry_ledger_del(&r->ledger, addr);
		fdry_backing_put(&r->backing, addr, a.room, !capturing);
		if (!capturing)
			fdry_backing_trim(&r->backing, cursor_addr(r));
	}
	unlock(r);
	return ret;
}

/* Wait, if memory was freed whose work nobody has waited for. */
static int settle_rest(struct fdry_region *r)
{
	bool settled;

	lock(r);
	settled = r->backing.settled == r->backing.clock;
	unlock(r);
	return settled ? 0 : settle(r);
}

int fdry_region_trim(struct fdry_region *r)
{
	int ret = settle_rest(r);

	if (ret)
		return ret;
	lock(r);
	fdry_backing_trim(&r->backing, cursor_addr(r));
	unlock(r);
	return 0;
}

/* [@addr, @addr + @size) must be bytes of the region. */
static int check_inside(const struct fdry_region *r, CUdeviceptr addr, uint64_t size)
{
	const struct fdry_bump *b = &r->bump;

	if (!size)
		return fdry_fail(FDRY_E_INVAL, "a range of 0 bytes at %#llx; ask for at least 1", addr);
	if (addr < b->base || addr - b->base > b->size || size > b->size - (addr - b->base))
		return fdry_fail(FDRY_E_RANGE, "%" PRIu64 " bytes at %#llx do not lie in the region of %" PRIu64
				 " bytes at %#" PRIx64 "; reserve a larger one", size, addr, b->size, b->base);
	return 0;
}

int fdry_region_preallocate(struct fdry_region *r, uint64_t size)
{
	int ret;

	lock(r);
	ret = check_inside(r, cursor_addr(r), size);
	if (!ret)
		ret = fdry_backing_keep(&r->backing, cursor_addr(r), size, FDRY_KEEP_ARENA);
	if (!ret)
		r->arena = true;
	unlock(r);
	return ret;
}

int fdry_region_free_preallocated(struct fdry_region *r, unsigned int flags)
{
	bool capturing = flags & FDRY_ALLOC_CAPTURING;
	int ret = capturing ? 0 : settle_rest(r);

	if (ret)
		return ret;
	lock(r);
	if (r->arena) {
		fdry_backing_unkeep(&r->backing);
		if (!capturing)
			fdry_backing_trim(&r->backing, cursor_addr(r));
		r->arena = false;
	} else {
		ret = fdry_fail(FDRY_E_STATE, "the region at %#" PRIx64 " has no preallocated memory to free",
				r->bump.base);
	}
	unlock(r);
	return ret;
}

int fdry_region_back(struct fdry_region *r, CUdeviceptr addr, uint64_t size)
{
	int ret = check_inside(r, addr, size);

	if (ret)
		return ret;
	lock(r);
	ret = fdry_backing_keep(&r->backing, addr, size, FDRY_KEEP_BACKED);
	unlock(r);
	return ret;
}

CUdeviceptr fdry_region_base(const struct fdry_region *r)
{
	return r->bump.base;
}

uint64_t fdry_region_size(const struct fdry_region *r)
{
	return r->bump.size;
}

CUdevice fdry_region_device(const struct fdry_region *r)
{
	return r->backing.vmm.dev;
}

uint64_t fdry_region_offset(struct fdry_region *r)
{
	uint64_t ret;

	lock(r);
	ret = r->bump.cursor;
	unlock(r);
	return ret;
}

static int set_offset(struct fdry_region *r, uint64_t offset)
{
	struct fdry_alloc last;
	int ret;

	if (offset < r->bump.cursor && fdry_ledger_last(&r->ledger, &last) &&
	    last.addr + last.room - r->bump.base > offset)
		return fdry_fail(FDRY_E_STATE, "offset %" PRIu64 " lies below the end of the live allocation "
				 "of %" PRIu64 " bytes at %#llx; free it first", offset, last.size, last.addr);
	if (offset < r->bump.cursor && r->backing.settled != r->backing.clock)
		return fdry_fail(FDRY_E_STATE, "memory was freed while a stream captured, and work may still be on it; "
				 "set the offset after the capture");
	ret = fdry_bump_set(&r->bump, offset);
	assert(!fdry_bump_check(&r->bump));
	if (!ret)
		fdry_backing_trim(&r->backing, cursor_addr(r));
	return ret;
}

/* Going back hands memory out again: nothing may be at work on it any more. */
int fdry_region_set_offset(struct fdry_region *r, uint64_t offset)
{
	int ret = offset < fdry_region_offset(r) ? settle_rest(r) : 0;

	if (ret)
		return ret;
	lock(r);
	ret = set_offset(r, offset);
	unlock(r);
	return ret;
}

bool fdry_region_find(struct fdry_region *r, CUdeviceptr addr, struct fdry_alloc *ret)
{
	bool found;

	lock(r);
	found = fdry_ledger_find(&r->ledger, addr, ret);
	unlock(r);
	return found;
}

int fdry_region_ledger(struct fdry_region *r, struct fdry_alloc **ret, size_t *count)
{
	int err;

	lock(r);
	err = fdry_ledger_copy(&r->ledger, ret, count);
	unlock(r);
	return err;
}

void fdry_region_stats(struct fdry_region *r, struct fdry_region_stats *ret)
{
	lock(r);
	*ret = (struct fdry_region_stats){
		.allocs = r->ledger.entries.count,
		.alloc_bytes = r->ledger.bytes,
		.mapped_bytes = r->backing.mapped,
		.idle_bytes = fdry_backing_idle_bytes(&r->backing),
		.blocks = r->backing.blocks.count,
	};
	unlock(r);
}

static int check(const struct fdry_region *r)
{
	int ret = fdry_bump_check(&r->bump);

	if (!ret)
		ret = fdry_ledger_check(&r->ledger, r->bump.base, r->bump.base + r->bump.cursor);
	if (!ret)
		ret = fdry_backing_check(&r->backing, &r->ledger.entries);
	return ret;
}

int fdry_region_check(struct fdry_region *r)
{
	int ret;

	lock(r);
	ret = check(r);
	unlock(r);
	return ret;
}
