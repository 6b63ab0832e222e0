// SPDX-License-Identifier: Apache-2.0
/*
 * region_place.c - finds places for allocations, and notes, maps and drops them; see internal.h.
 *
 * An allocation computes its place, notes it in the ledger, maps and fills memory, and moves the
 * cursor. Only mapping and filling can fail late, and undoing the note cannot fail. The cursor
 * moves last, so a failure leaves no trace.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "lib/log.h"
#include "mm/internal.h"

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

/* The free ranges for allocations like @a. Allocations of captures have none, since no other
 * allocation may ever have had their addresses. A claim of any size can begin anywhere, and only
 * small allocations can use all of its addresses. */
static struct fdry_ranges *free_for(struct fdry_region *r, const struct fdry_alloc *a)
{
	if (a->capturing)
		return NULL;
	return a->size < FDRY_ALLOC_BLOCK || (a->addr | a->extent) % FDRY_ALLOC_BLOCK ? &r->small
											: &r->large;
}

void fdry_region_give(struct fdry_ranges *free, CUdeviceptr addr, uint64_t size)
{
	if (free && size && fdry_free_ranges_add(free, addr, addr + size))
		fdry_warn("%" PRIu64 " bytes of addresses at %#llx are lost: %s", size, addr,
			  fdry_last_error());
}

/* The bytes to write before the memory at @p is used: the stamp, or zeros if it was allocated
 * before. */
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
	return 0;

out_note:
	fdry_ledger_undo(&r->ledger, p->addr);
out:
	return fdry_fail_at(ret, "an allocation of %" PRIu64 " bytes", a->size);
}

int fdry_region_place(struct fdry_region *r, struct fdry_alloc *a)
{
	uint64_t step = fdry_bump_step(&r->bump, a->size);
	struct fdry_ranges *from = a->size && a->size <= r->bump.size ? free_for(r, a) : NULL;
	struct fdry_place p = { .extent = (a->size + step - 1) / step * step };
	int ret;

	/* Use the lowest free range where it fits, else the cursor. */
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

/* Note that the device has finished all work before the frees that both clocks count. */
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

bool fdry_region_is_slab(const struct fdry_alloc *a)
{
	return a->kind == FDRY_KIND_SLAB || a->kind == FDRY_KIND_GRAPH;
}

int fdry_region_at(const struct fdry_region *r, CUdeviceptr addr, struct fdry_alloc *ret)
{
	struct fdry_alloc a;

	if (fdry_ledger_find(&r->ledger, addr, &a) && fdry_region_is_slab(&a))
		return fdry_ledger_at(&r->pieces, addr, ret);
	return fdry_ledger_at(&r->ledger, addr, ret);
}
