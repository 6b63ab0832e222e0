// SPDX-License-Identifier: Apache-2.0
/*
 * region.c - joins cursor, ledger and backing; see region.h.
 *
 * An allocation computes its place, notes it in the ledger, maps and fills memory, and moves the
 * cursor. Only mapping and filling can fail late, and undoing the note cannot fail. The cursor
 * moves last, so a failure leaves no trace.
 *
 * A free looks the allocation up, waits without the lock, looks it up again, and ends it. Two
 * threads that free the same address both pass the first look-up; the second one stops one of them.
 * The wait does not cover frees that other threads made meanwhile: the backing's clock identifies
 * those.
 */
#include "mm/region.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "lib/log.h"
#include "mm/internal.h"

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

/* Forget freed addresses: allocations continue at the cursor. */
static void forget_free(struct fdry_region *r)
{
	struct fdry_freed *f;

	while ((f = r->freed)) {
		r->freed = f->next;
		free(f);
	}
	fdry_free_ranges_release(&r->small);
	fdry_free_ranges_release(&r->large);
	fdry_free_ranges_release(&r->unreserved);
	fdry_free_ranges_release(&r->skipped);
}

void fdry_region_free(struct fdry_region *r)
{
	if (!r)
		return;
	fdry_backing_release(&r->backing);
	forget_free(r);
	fdry_region_async_release(r);
	fdry_region_mapping_release(r);
	fdry_ledger_release(&r->ledger);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

void fdry_region_free_to_cache(struct fdry_region *r)
{
	if (r)
		r->backing.vmm.keep_va = true;
	fdry_region_free(r);
}

int fdry_region_note(struct fdry_region *r, struct fdry_ledger *l, const struct fdry_alloc *a)
{
	uint64_t serial = l->serial;
	int ret;

	l->serial = r->ledger.serial;
	ret = fdry_ledger_add(l, a);
	if (ret)
		l->serial = serial;
	else
		r->ledger.serial = l->serial;
	return ret;
}

/* The free ranges for allocations like @a. Capturing ones have none: no other allocation ever had
 * their addresses. */
static struct fdry_ranges *free_for(struct fdry_region *r, const struct fdry_alloc *a)
{
	if (a->capturing)
		return NULL;
	return a->size < FDRY_ALLOC_BLOCK ? &r->small : &r->large;
}

void fdry_region_give(struct fdry_ranges *free, CUdeviceptr addr, uint64_t size)
{
	if (free && size && fdry_free_ranges_add(free, addr, addr + size))
		fdry_warn("%" PRIu64 " bytes of addresses at %#llx are lost: %s", size, addr,
			  fdry_last_error());
}

/* The bytes to write before the memory at @p is handed out: the stamp, or zeros if it was handed
 * out before. */
static struct fdry_fill fill_for(const struct fdry_region *r, const struct fdry_place *p,
				 bool capturing)
{
	uint64_t dirty = r->bump.base + r->bump.touched;
	struct fdry_fill f = { .addr = p->addr,
			       .size = p->extent,
			       .pattern = capturing ? FDRY_STAMP : 0 };

	if (!capturing && dirty < p->addr + p->extent)
		f.size = dirty > p->addr ? dirty - p->addr : 0;
	return f;
}

int fdry_region_put_at(struct fdry_region *r, const struct fdry_place *p, struct fdry_alloc *a)
{
	struct fdry_fill fill = fill_for(r, p, a->capturing);
	int ret;

	a->addr = p->addr;
	a->extent = p->extent;
	ret = fdry_region_note(r, &r->ledger, a);
	if (ret)
		goto out;
	ret = fdry_backing_take(&r->backing, p->addr, p->extent, &fill);
	if (ret)
		goto out_note;
	if (p->addr + p->extent > fdry_region_cursor(r))
		fdry_bump_take(&r->bump, p);
	assert(!fdry_bump_check(&r->bump));
	return 0;

out_note:
	fdry_ledger_undo(&r->ledger, p->addr);
out:
	return fdry_fail_at(ret, "an allocation of %" PRIu64 " bytes", a->size);
}

int fdry_region_place(struct fdry_region *r, struct fdry_alloc *a)
{
	uint64_t step = a->size < FDRY_ALLOC_BLOCK ? r->bump.unit : r->bump.block;
	struct fdry_ranges *from = a->size && a->size <= r->bump.size ? free_for(r, a) : NULL;
	struct fdry_place p = { .extent = (a->size + step - 1) / step * step };
	int ret;

	/* The lowest free range that holds it, else the cursor. */
	if (!from || !fdry_free_ranges_take(from, p.extent, step, &p.addr)) {
		from = NULL;
		ret = fdry_bump_place(&r->bump, a->size, 0, &p);
		if (ret)
			return ret;
	}
	ret = fdry_region_put_at(r, &p, a);
	if (ret)
		fdry_region_give(from, p.addr, p.extent);
	return ret;
}

int fdry_region_check_inside(const struct fdry_region *r, CUdeviceptr addr, uint64_t size)
{
	const struct fdry_bump *b = &r->bump;

	if (!size)
		return fdry_fail(FDRY_E_INVAL, "a range of 0 bytes at %#llx; ask for at least 1",
				 addr);
	if (addr < b->base || addr - b->base > b->size || size > b->size - (addr - b->base))
		return fdry_fail(FDRY_E_RANGE,
				 "%" PRIu64 " bytes at %#llx do not lie in the region of %" PRIu64
				 " bytes at %#" PRIx64 "; reserve a larger one",
				 size, addr, b->size, b->base);
	return 0;
}

static void freed_note(struct fdry_region *r, const struct fdry_alloc *a)
{
	struct fdry_freed *f = calloc(1, sizeof(*f));

	if (!f)
		return; /* the addresses are not used again */
	f->alloc = *a;
	f->clock = r->backing.clock;
	f->next = r->freed;
	r->freed = f;
}

void fdry_region_drop(struct fdry_region *r, const struct fdry_alloc *a, bool waited)
{
	const struct fdry_alloc gone = *a;

	fdry_ledger_del(&r->ledger, gone.addr);
	fdry_backing_put(&r->backing, gone.addr, gone.extent, waited);
	if (waited)
		fdry_region_give(free_for(r, &gone), gone.addr, gone.extent);
	else if (free_for(r, &gone))
		freed_note(r, &gone);
}

int fdry_region_alloc(struct fdry_region *r, uint64_t size, unsigned int flags, CUdeviceptr *ret)
{
	struct fdry_alloc a = { .size = size,
				.kind = FDRY_KIND_ALLOC,
				.capturing = flags & FDRY_ALLOC_CAPTURING };
	int err;

	do {
		fdry_region_lock(r);
		err = fdry_region_place(r, &a);
		if (!err && !a.capturing)
			fdry_backing_trim(
				&r->backing,
				fdry_region_cursor(r)); /* the granule that the cursor has left */
		fdry_region_unlock(r);
	} while (fdry_region_relieve(r, err, flags));
	if (err)
		return err;
	*ret = a.addr;
	return 0;
}

/* The device has finished all work that preceded the frees of both clocks. */
static void settled(struct fdry_region *r, uint64_t clock, uint64_t frees)
{
	struct fdry_freed **link = &r->freed, *f;

	fdry_backing_settle(&r->backing, clock);
	fdry_stream_pool_settle(&r->pool, frees);
	while ((f = *link)) {
		if (f->clock > clock) {
			link = &f->next;
			continue;
		}
		fdry_region_give(free_for(r, &f->alloc), f->alloc.addr, f->alloc.extent);
		*link = f->next;
		free(f);
	}
}

int fdry_region_settle(struct fdry_region *r)
{
	uint64_t clock, frees;
	int ret;

	fdry_region_lock(r);
	clock = r->backing.clock;
	frees = r->frees;
	fdry_region_unlock(r);
	ret = fdry_vmm_wait(&r->backing.vmm);
	if (ret)
		return ret;
	fdry_region_lock(r);
	settled(r, clock, frees);
	fdry_region_unlock(r);
	return 0;
}

bool fdry_region_relieve(struct fdry_region *r, int err, unsigned int flags)
{
	uint64_t before, after;

	if (err != -FDRY_E_NODEVMEM || flags & FDRY_ALLOC_CAPTURING || fdry_region_settle(r))
		return false;
	fdry_region_lock(r);
	before = r->backing.mapped;
	fdry_region_slabs_trim(r, 0);
	fdry_backing_trim(&r->backing, fdry_region_cursor(r));
	after = r->backing.mapped;
	fdry_region_unlock(r);
	return after < before;
}

static bool is_slab(const struct fdry_alloc *a)
{
	return a->kind == FDRY_KIND_SLAB || a->kind == FDRY_KIND_GRAPH;
}

int fdry_region_at(const struct fdry_region *r, CUdeviceptr addr, struct fdry_alloc *ret)
{
	struct fdry_alloc a;

	if (fdry_ledger_find(&r->ledger, addr, &a) && is_slab(&a))
		return fdry_ledger_at(&r->pieces, addr, ret);
	return fdry_ledger_at(&r->ledger, addr, ret);
}

static int look(struct fdry_region *r, CUdeviceptr addr)
{
	struct fdry_alloc a;
	int ret;

	fdry_region_lock(r);
	ret = fdry_region_at(r, addr, &a);
	fdry_region_unlock(r);
	return ret;
}

int fdry_region_dealloc(struct fdry_region *r, CUdeviceptr addr, unsigned int flags)
{
	bool capturing = flags & FDRY_ALLOC_CAPTURING;
	struct fdry_alloc a;
	int ret = look(r, addr);

	if (!ret && !capturing)
		ret = fdry_region_settle(r);
	if (ret)
		return ret;
	fdry_region_lock(r);
	ret = fdry_region_at(r, addr, &a);
	if (!ret && a.kind == FDRY_KIND_POOL)
		fdry_region_piece_drop(r, &a, !capturing);
	else if (!ret)
		fdry_region_drop(r, &a, !capturing);
	if (!capturing)
		fdry_backing_trim(&r->backing, fdry_region_cursor(r));
	fdry_region_unlock(r);
	return ret;
}

/* Wait if work may still use memory that was freed. */
static int settle_rest(struct fdry_region *r)
{
	bool settled;

	fdry_region_lock(r);
	settled = r->backing.settled == r->backing.clock;
	fdry_region_unlock(r);
	return settled ? 0 : fdry_region_settle(r);
}

int fdry_region_trim(struct fdry_region *r)
{
	int ret = settle_rest(r);

	if (ret)
		return ret;
	fdry_region_lock(r);
	fdry_region_graphs_end(r);
	fdry_backing_trim(&r->backing, fdry_region_cursor(r));
	fdry_region_unlock(r);
	return 0;
}

int fdry_region_preallocate(struct fdry_region *r, uint64_t size)
{
	int ret;

	fdry_region_lock(r);
	ret = fdry_region_check_inside(r, fdry_region_cursor(r), size);
	if (!ret)
		ret = fdry_backing_keep(&r->backing, fdry_region_cursor(r), size, FDRY_KEEP_ARENA);
	if (!ret)
		r->arena = true;
	fdry_region_unlock(r);
	return ret;
}

int fdry_region_free_preallocated(struct fdry_region *r, unsigned int flags)
{
	bool capturing = flags & FDRY_ALLOC_CAPTURING;
	int ret = capturing ? 0 : settle_rest(r);

	if (ret)
		return ret;
	fdry_region_lock(r);
	if (r->arena) {
		fdry_backing_unkeep(&r->backing);
		if (!capturing)
			fdry_backing_trim(&r->backing, fdry_region_cursor(r));
		r->arena = false;
	} else {
		ret = fdry_fail(FDRY_E_STATE,
				"the region at %#" PRIx64 " has no preallocated memory to free",
				r->bump.base);
	}
	fdry_region_unlock(r);
	return ret;
}

int fdry_region_back(struct fdry_region *r, CUdeviceptr addr, uint64_t size)
{
	int ret = fdry_region_check_inside(r, addr, size);

	if (ret)
		return ret;
	fdry_region_lock(r);
	ret = fdry_backing_keep(&r->backing, addr, size, FDRY_KEEP_BACKED);
	fdry_region_unlock(r);
	return ret;
}

int fdry_region_open(struct fdry_region *r, CUdevice dev, bool open)
{
	bool is;
	int ret = 0;

	fdry_region_lock(r);
	is = dev >= 0 && dev < FDRY_VMM_DEVICES && r->backing.vmm.peers >> dev & 1;
	if (is != open)
		ret = fdry_backing_open(&r->backing, dev, open);
	fdry_region_unlock(r);
	return ret;
}

CUdeviceptr fdry_region_base(const struct fdry_region *r)
{
	return r->bump.base;
}

uint64_t fdry_region_size(const struct fdry_region *r)
{
	return __atomic_load_n(&r->backing.vmm.size, __ATOMIC_RELAXED); /* it may grow */
}

CUdevice fdry_region_device(const struct fdry_region *r)
{
	return r->backing.vmm.dev;
}

CUcontext fdry_region_context(const struct fdry_region *r)
{
	return r->backing.vmm.ctx;
}

uint64_t fdry_region_offset(struct fdry_region *r)
{
	uint64_t ret;

	fdry_region_lock(r);
	ret = r->bump.cursor;
	fdry_region_unlock(r);
	return ret;
}

static int set_offset(struct fdry_region *r, uint64_t offset)
{
	struct fdry_alloc last;
	int ret;

	if (offset < r->bump.cursor && fdry_ledger_last(&r->ledger, &last) &&
	    last.addr + last.extent - r->bump.base > offset)
		return fdry_fail(FDRY_E_STATE,
				 "offset %" PRIu64 " lies below the end of the live allocation "
				 "of %" PRIu64 " bytes at %#llx; free it first",
				 offset, last.size, last.addr);
	if (offset < r->bump.cursor && fdry_region_reserved_end(r) - r->bump.base > offset)
		return fdry_fail(FDRY_E_STATE,
				 "offset %" PRIu64
				 " lies below the end of the addresses that the program has "
				 "reserved; free them first",
				 offset);
	if (offset < r->bump.cursor && r->backing.settled != r->backing.clock)
		return fdry_fail(
			FDRY_E_STATE,
			"memory was freed while a stream captured, and work may still be on it; "
			"set the offset after the capture");
	ret = fdry_bump_set(&r->bump, offset);
	assert(!fdry_bump_check(&r->bump));
	if (!ret) {
		forget_free(r);
		fdry_backing_trim(&r->backing, fdry_region_cursor(r));
	}
	return ret;
}

/* Setting the cursor back hands memory out again, so no work may use it any more. */
int fdry_region_set_offset(struct fdry_region *r, uint64_t offset)
{
	int ret = offset < fdry_region_offset(r) ? settle_rest(r) : 0;

	if (ret)
		return ret;
	fdry_region_lock(r);
	ret = set_offset(r, offset);
	fdry_region_unlock(r);
	return ret;
}

static bool find(const struct fdry_region *r, CUdeviceptr addr, struct fdry_alloc *ret)
{
	struct fdry_alloc a;

	if (!fdry_ledger_find(&r->ledger, addr, &a))
		return fdry_ledger_find(&r->maps, addr, ret);
	if (is_slab(&a))
		return fdry_ledger_find(&r->pieces, addr, ret);
	*ret = a;
	return true;
}

bool fdry_region_find(struct fdry_region *r, CUdeviceptr addr, struct fdry_alloc *ret)
{
	bool found;

	fdry_region_lock(r);
	found = find(r, addr, ret);
	fdry_region_unlock(r);
	return found;
}

bool fdry_region_unused(struct fdry_region *r)
{
	bool unused;

	fdry_region_lock(r);
	unused = !r->pieces.entries.count && !r->maps.entries.count && !r->reservations.count &&
		 !r->graph_bytes && r->ledger.entries.count == r->slabs;
	fdry_region_unlock(r);
	return unused;
}

/* --- copies of the ledger --- */

/* Copies leave out the region's own slabs, allocations in slabs of graphs, and memory that cannot
 * be read yet. */
static bool is_shown(const struct fdry_alloc *a)
{
	return a->kind != FDRY_KIND_SLAB && !a->blank &&
	       !(a->kind == FDRY_KIND_POOL && a->capturing);
}

static int by_address(const void *a, const void *b)
{
	const struct fdry_alloc *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

static int copy(const struct fdry_region *r, struct fdry_alloc **ret, size_t *count)
{
	const struct fdry_ledger *all[] = { &r->ledger, &r->pieces, &r->maps };
	size_t i, n = 0, capacity = 1;
	struct fdry_alloc *list;
	struct fdry_range *e;

	for (i = 0; i < 3; i++)
		capacity += all[i]->entries.count;
	list = calloc(capacity, sizeof(*list));
	if (!list)
		return fdry_nomem();
	for (i = 0; i < 3; i++)
		fdry_ranges_each(e, &all[i]->entries, 0, UINT64_MAX)
			if (is_shown(fdry_ledger_entry(e)))
				list[n++] = *fdry_ledger_entry(e);
	if (r->pieces.entries.count || r->maps.entries.count)
		qsort(list, n, sizeof(*list), by_address);
	*ret = list;
	*count = n;
	return 0;
}

int fdry_region_ledger(struct fdry_region *r, struct fdry_alloc **ret, size_t *count)
{
	int err;

	fdry_region_lock(r);
	err = copy(r, ret, count);
	fdry_region_unlock(r);
	return err;
}

void fdry_region_stats(struct fdry_region *r, struct fdry_region_stats *ret)
{
	fdry_region_lock(r);
	*ret = (struct fdry_region_stats){
		.allocs = r->ledger.entries.count - r->slabs + r->pieces.entries.count +
			  r->maps.entries.count,
		.alloc_bytes = r->ledger.bytes - r->slab_bytes + r->pieces.bytes + r->maps.bytes,
		.mapped_bytes = r->backing.mapped,
		.idle_bytes = fdry_backing_idle_bytes(&r->backing),
		.blocks = r->backing.blocks.count,
		.free_bytes = r->small.bytes + r->large.bytes + r->unreserved.bytes,
		.slab_bytes = r->slab_bytes,
		.pool_bytes = r->pieces.bytes,
	};
	fdry_region_unlock(r);
}

/* No live allocation lies in a free range. */
static int check_free(const struct fdry_region *r, const struct fdry_ranges *set)
{
	struct fdry_range *n;
	int ret = fdry_free_ranges_check(set);

	fdry_ranges_each(n, &r->ledger.entries, 0, UINT64_MAX)
		if (!ret && fdry_free_ranges_overlap(set, n->start, n->end))
			ret = fdry_bug("the allocation at %#" PRIx64 " lies in a free range",
				       n->start);
	return ret;
}

static int check(const struct fdry_region *r)
{
	int ret = fdry_bump_check(&r->bump);

	if (!ret)
		ret = fdry_ledger_check(&r->ledger, r->bump.base, fdry_region_cursor(r));
	if (!ret)
		ret = fdry_backing_check(&r->backing, &r->ledger.entries);
	if (!ret)
		ret = check_free(r, &r->small);
	if (!ret)
		ret = check_free(r, &r->large);
	if (!ret)
		ret = check_free(r, &r->skipped);
	if (!ret)
		ret = fdry_region_async_check(r);
	if (!ret)
		ret = fdry_region_mapping_check(r);
	return ret;
}

int fdry_region_check(struct fdry_region *r)
{
	int ret;

	fdry_region_lock(r);
	ret = check(r);
	fdry_region_unlock(r);
	return ret;
}
