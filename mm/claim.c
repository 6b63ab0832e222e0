// SPDX-License-Identifier: Apache-2.0
/*
 * claim.c - allocations at an address that the caller chooses; see fdry_region_claim().
 */
#include <inttypes.h>

#include "lib/log.h"
#include "mm/internal.h"

/* Addresses that a claim removed from the sets of freed addresses below the cursor. */
struct claimed {
	struct fdry_ranges small, large, skipped;
};

/* Undo claimed_take(). If host memory is too short to note addresses, they are never used again. */
static void claimed_give(struct fdry_region *r, struct claimed *c)
{
	struct fdry_ranges *from[] = { &c->small, &c->large, &c->skipped },
			   *to[] = { &r->small, &r->large, &r->skipped };
	int i;

	for (i = 0; i < 3; i++) {
		if (fdry_free_ranges_move(to[i], from[i]))
			fdry_warn("%" PRIu64 " bytes of addresses are lost: %s", from[i]->bytes,
				  fdry_last_error());
		fdry_free_ranges_release(from[i]);
	}
}

/* Remove [@start, @end), which lies below the cursor, from the freed addresses of both kinds and
 * from the skipped ones. */
static int claimed_take(struct fdry_region *r, uint64_t start, uint64_t end, struct claimed *ret)
{
	struct claimed c = { 0 };
	int err = fdry_free_ranges_extract(&r->small, start, end, &c.small);

	if (err)
		goto out_give;
	err = fdry_free_ranges_extract(&r->large, start, end, &c.large);
	if (err)
		goto out_give;
	err = fdry_free_ranges_extract(&r->skipped, start, end, &c.skipped);
	if (err)
		goto out_give;
	if (c.small.bytes + c.large.bytes + c.skipped.bytes != end - start) {
		err = fdry_fail(FDRY_E_TAKEN,
				"the %" PRIu64 " bytes at %#" PRIx64
				" are in use, or had another use before",
				end - start, start);
		goto out_give;
	}
	*ret = c;
	return 0;
out_give:
	claimed_give(r, &c);
	return err;
}

/* The place of an allocation of @size bytes at @addr, if one can begin there; it ends at @end or
 * before. Large allocations of a pool begin anywhere, like small ones. */
static int claim_place(const struct fdry_region *r, CUdeviceptr addr, uint64_t size,
		       CUdeviceptr end, struct fdry_place *ret)
{
	uint64_t step = fdry_bump_step(&r->bump, size), extent;
	int err = fdry_region_check_inside(r, addr, size);

	if (err)
		return err;
	if (addr % step)
		step = FDRY_ALLOC_ALIGN;
	if (fdry_round_up(size, step, &extent))
		return -FDRY_E_INVAL;
	if (end > addr && end - addr < extent)
		extent = fdry_round_down(end - addr, FDRY_ALLOC_ALIGN);
	if (addr % step || extent < size)
		return fdry_fail(FDRY_E_INVAL,
				 "no allocation of %" PRIu64 " bytes can begin at %#llx", size,
				 addr);
	err = fdry_region_check_inside(r, addr, extent);
	if (err)
		return err;
	*ret = (struct fdry_place){ .addr = addr, .extent = extent };
	return 0;
}

/* Put a claim at or above the cursor, and move the cursor past it. The addresses between are kept
 * for other claims. */
static int claim_put(struct fdry_region *r, const struct fdry_place *p, struct fdry_alloc *a)
{
	CUdeviceptr cursor = fdry_region_cursor(r), end = p->addr + p->extent;
	struct claimed c = { 0 };
	int err = 0;

	if (p->addr < cursor)
		err = claimed_take(r, p->addr, end < cursor ? end : cursor, &c);
	if (err)
		return err;
	err = fdry_region_put_at(r, p, a);
	if (err)
		claimed_give(r, &c);
	else if (p->addr > cursor)
		fdry_region_give(&r->skipped, cursor, p->addr - cursor);
	fdry_free_ranges_release(&c.small);
	fdry_free_ranges_release(&c.large);
	fdry_free_ranges_release(&c.skipped);
	return err;
}

/* --- claims in slabs --- */

static bool in_slab(const struct fdry_region *r, CUdeviceptr addr)
{
	struct fdry_alloc slab;

	return fdry_ledger_find(&r->ledger, addr, &slab) && slab.kind == FDRY_KIND_SLAB;
}

/* A claim within a slab is an allocation of the pool. */
static int claim_piece(struct fdry_region *r, const struct fdry_place *p, struct fdry_alloc *a)
{
	struct fdry_fill zeros = { .addr = p->addr, .size = p->extent };
	int err;

	if (!fdry_free_ranges_remove(&r->pool.settled, p->addr, p->addr + p->extent))
		return fdry_fail(FDRY_E_TAKEN,
				 "the %" PRIu64 " bytes at %#" PRIx64
				 " are in use by the pool (cuMemAllocAsync)",
				 p->extent, p->addr);
	r->pool.live += p->extent;
	a->kind = FDRY_KIND_POOL;
	a->addr = p->addr;
	a->extent = p->extent;
	err = fdry_backing_take(&r->backing, p->addr, p->extent, &zeros);
	if (err)
		goto out_return;
	fdry_backing_put(&r->backing, p->addr, p->extent, true); /* the slab has its own use */
	err = fdry_region_note(r, &r->pieces, a);
	if (err)
		goto out_return;
	return 0;
out_return:
	fdry_stream_pool_return(&r->pool, p->addr, p->addr + p->extent);
	return err;
}

int fdry_region_claim(struct fdry_region *r, CUdeviceptr addr, uint64_t size, CUdeviceptr end)
{
	struct fdry_alloc a = { .size = size, .kind = FDRY_KIND_ALLOC };
	struct fdry_place p;
	bool piece;
	int err;

	fdry_region_lock(r);
	piece = in_slab(r, addr);
	fdry_region_unlock(r);
	err = piece ? fdry_region_settle(r) : 0;
	if (err)
		return err;
	fdry_region_lock(r);
	err = claim_place(r, addr, size, end, &p);
	if (err)
		goto out_unlock;
	err = in_slab(r, addr) ? claim_piece(r, &p, &a) : claim_put(r, &p, &a);
out_unlock:
	fdry_region_unlock(r);
	return err;
}
