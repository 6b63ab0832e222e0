// SPDX-License-Identifier: Apache-2.0
/*
 * region.c - allocates, frees and describes memory of a region; see region.h.
 *
 * A free finds the allocation, waits without the lock, finds it again, and removes it. If two
 * threads free the same address, both pass the first look-up, and the second look-up stops one of
 * them. The wait does not cover frees that other threads made during it. The backing's clock
 * identifies those.
 */
#include "mm/region.h"

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
	if (err)
		goto out_free;
	err = fdry_backing_init(&r->backing, drv, dev, base, size);
	if (err)
		goto out_free;
	pthread_mutex_init(&r->lock, NULL);
	*ret = r;
	return 0;
out_free:
	free(r);
	return err;
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

int fdry_region_alloc(struct fdry_region *r, uint64_t size, unsigned int flags, CUdeviceptr *ret)
{
	struct fdry_alloc a = { .size = size,
				.kind = FDRY_KIND_ALLOC,
				.capturing = flags & FDRY_ALLOC_CAPTURING };
	int err;

	do {
		fdry_region_lock(r);
		err = fdry_region_place(r, &a);
		/* The cursor may have left an idle granule, which can now be unmapped. */
		if (!err && !a.capturing)
			fdry_backing_trim(&r->backing, fdry_region_cursor(r));
		fdry_region_unlock(r);
	} while (fdry_region_relieve(r, err, flags));
	if (err)
		return err;
	*ret = a.addr;
	return 0;
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

	if (ret)
		return ret;
	if (!capturing)
		ret = fdry_region_settle(r);
	if (ret)
		return ret;
	fdry_region_lock(r);
	ret = fdry_region_at(r, addr, &a);
	if (ret)
		goto out_trim;
	if (a.kind == FDRY_KIND_POOL)
		fdry_region_piece_drop(r, &a, !capturing);
	else
		fdry_region_drop(r, &a, !capturing);
out_trim:
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
	if (ret)
		goto out_unlock;
	ret = fdry_backing_keep(&r->backing, fdry_region_cursor(r), size, FDRY_KEEP_ARENA);
	if (ret)
		goto out_unlock;
	r->arena = true;
out_unlock:
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

uint64_t fdry_region_size(const struct fdry_region *r)
{
	return __atomic_load_n(&r->backing.vmm.size, __ATOMIC_RELAXED); /* it may grow */
}

CUdevice fdry_region_device(const struct fdry_region *r)
{
	return r->backing.vmm.dev;
}

void fdry_region_skip_numbers(struct fdry_region *r)
{
	uint64_t skip;

	fdry_region_lock(r);
	skip = fdry_bump_past_numbers(&r->bump, r->bump.base, 1) - r->bump.base;
	r->bump.cursor = skip;
	fdry_region_give(&r->skipped, r->bump.base, skip);
	fdry_region_unlock(r);
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
	if (ret)
		return ret;
	forget_free(r);
	fdry_backing_trim(&r->backing, fdry_region_cursor(r));
	return 0;
}

/* After the cursor is set back, its memory is allocated again, so no work may use it any more. */
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
	if (fdry_region_is_slab(&a))
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
		qsort(list, n, sizeof(*list), fdry_alloc_cmp);
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
