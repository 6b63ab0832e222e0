// SPDX-License-Identifier: Apache-2.0
/* check_mm.c - see check_mm.h. */
#include "tests/lib/check_mm.h"

#include <inttypes.h>

/* --- the cursor --- */

static bool is_power_of_two(uint64_t v)
{
	return v && !(v & (v - 1));
}

int check_bump(const struct fdry_bump *b)
{
	uint64_t end;

	if (!is_power_of_two(b->unit) || !is_power_of_two(b->block) || b->unit > b->block ||
	    !b->base || !b->size || b->base % b->block ||
	    __builtin_add_overflow(b->base, b->size, &end))
		return fdry_bug("a bump allocator's bounds are broken");
	if (b->cursor > b->size || b->touched > b->size)
		return fdry_bug("a bump allocator's cursor %#" PRIx64 " or mark %#" PRIx64
				" left its %#" PRIx64 " bytes",
				b->cursor, b->touched, b->size);
	return 0;
}

/* --- the ledger --- */

int check_ledger(const struct fdry_ledger *l, CUdeviceptr start, CUdeviceptr end)
{
	uint64_t bytes = 0, count = 0;
	struct fdry_range *n;

	fdry_ranges_each(n, &l->entries, 0, UINT64_MAX) {
		const struct fdry_alloc *a = fdry_ledger_entry(n);

		if (n->start < start || n->end > end || n->end <= n->start)
			return fdry_bug("the allocation at %#" PRIx64
					" overlaps another, or leaves what was "
					"handed out",
					n->start);
		if (a->addr != n->start || a->extent != n->end - n->start || a->size > a->extent ||
		    a->serial > l->serial)
			return fdry_bug("the ledger's entry at %#" PRIx64 " contradicts itself",
					n->start);
		start = n->end;
		bytes += a->size;
		count++;
	}
	if (bytes != l->bytes || count != l->entries.count)
		return fdry_bug("the ledger counts %zu allocations and has %" PRIu64,
				l->entries.count, count);
	return 0;
}

/* --- free addresses --- */

int check_free_ranges(const struct fdry_ranges *s)
{
	const struct fdry_range *n;
	uint64_t bytes = 0, end = 0;
	size_t count = 0;

	fdry_ranges_each(n, s, 0, UINT64_MAX) {
		if (n->start >= n->end || (count && n->start <= end))
			return fdry_bug("the free range at %#" PRIx64
					" is empty, or touches another",
					n->start);
		count++;
		bytes += n->end - n->start;
		end = n->end;
	}
	if (count != s->count || bytes != s->bytes)
		return fdry_bug("%zu free ranges, and the count says %zu", count, s->count);
	return 0;
}

int check_stream_pool(const struct fdry_stream_pool *p)
{
	int ret = check_free_ranges(&p->settled);
	const struct fdry_stream_queue *q;
	uint64_t waiting = 0;

	for (q = p->queues; q && !ret; q = q->next) {
		ret = check_free_ranges(&q->freed);
		waiting += q->freed.bytes;
	}
	if (!ret && (waiting != p->waiting || p->settled.bytes + waiting + p->live != p->slabs))
		ret = fdry_bug("a pool of %" PRIu64 " bytes has %" PRIu64 " live, %" PRIu64
			       " waiting, %" PRIu64 " free",
			       p->slabs, p->live, p->waiting, p->settled.bytes);
	return ret;
}

/* --- memory --- */

static bool is_covered(const struct fdry_backing *b, uint64_t start, uint64_t end)
{
	const struct fdry_range *n;

	for (; start < end; start = n->end) {
		n = fdry_ranges_from(&b->blocks, start);
		if (!n || n->start > start)
			return false;
	}
	return true;
}

static int check_block(const struct fdry_backing *b, const struct fdry_block *blk,
		       const struct fdry_ranges *allocs)
{
	const struct fdry_range *n = &blk->range, *a;
	bool unused = !blk->uses && !blk->keep;
	uint32_t uses = 0;

	if (n->start % b->vmm.granule || n->end % b->vmm.granule ||
	    n->end > b->vmm.base + b->vmm.size)
		return fdry_bug("block %#" PRIx64 "-%#" PRIx64 " lies askew", n->start, n->end);
	if (unused != !!blk->idle.next)
		return fdry_bug("block %#" PRIx64 " is used or kept, and idle", n->start);
	fdry_ranges_each(a, allocs, n->start, n->end)
		uses++;
	if (uses != blk->uses)
		return fdry_bug("block %#" PRIx64 " has %u uses and says %u", n->start, uses,
				blk->uses);
	return 0;
}

static int backing_check(const struct fdry_backing *b, const struct fdry_ranges *allocs)
{
	uint64_t mapped = 0, end = b->vmm.base;
	struct fdry_range *n;
	int ret;

	fdry_ranges_each(n, &b->blocks, 0, UINT64_MAX) {
		ret = check_block(b, (const struct fdry_block *)n, allocs);
		if (ret)
			return ret;
		if (n->start < end)
			return fdry_bug("block %#" PRIx64 " overlaps another", n->start);
		end = n->end;
		mapped += n->end - n->start;
	}
	if (mapped != b->mapped)
		return fdry_bug("%" PRIu64 " bytes are mapped, the count says %" PRIu64, mapped,
				b->mapped);
	fdry_ranges_each(n, allocs, 0, UINT64_MAX)
		if (!is_covered(b, fdry_round_down(n->start, b->vmm.granule), n->end))
			return fdry_bug("the allocation at %#" PRIx64 " has memory missing",
					n->start);
	return 0;
}

/* --- allocations in the order of streams --- */

static int check_slabs(const struct fdry_region *r)
{
	uint64_t bytes = 0, graphs = 0;
	struct fdry_range *n;
	size_t count = 0;

	fdry_ranges_each(n, &r->ledger.entries, 0, UINT64_MAX) {
		const struct fdry_alloc *a = fdry_ledger_entry(n);

		if (a->kind != FDRY_KIND_SLAB && a->kind != FDRY_KIND_GRAPH)
			continue;
		count++;
		bytes += a->extent;
		graphs += a->kind == FDRY_KIND_GRAPH ? a->extent : 0;
	}
	if (count != r->slabs || bytes != r->slab_bytes || graphs != r->graph_bytes)
		return fdry_bug("%zu slabs of %" PRIu64
				" bytes, and the counts say %zu and %" PRIu64,
				count, bytes, r->slabs, r->slab_bytes);
	return 0;
}

static int async_check(const struct fdry_region *r)
{
	const struct fdry_graph_pool *g;
	struct fdry_range *n;
	int ret = check_slabs(r) ?: check_stream_pool(&r->pool);

	for (g = r->graphs; g && !ret; g = g->next)
		ret = check_stream_pool(&g->pool);
	ret = ret ?: check_ledger(&r->pieces, r->bump.base, fdry_region_cursor(r));
	fdry_ranges_each(n, &r->pieces.entries, 0, UINT64_MAX)
		if (!ret && (fdry_free_ranges_overlap(&r->pool.settled, n->start, n->end) ||
			     !fdry_ledger_find(&r->ledger, n->start, &(struct fdry_alloc){ 0 })))
			ret = fdry_bug("the allocation at %#" PRIx64
				       " lies in free memory, or in no slab",
				       n->start);
	return ret;
}

/* --- mappings of the program --- */

static bool is_reserved(const struct fdry_region *r, const struct fdry_range *map)
{
	const struct fdry_range *n = fdry_ranges_floor(&r->reservations, map->start);

	return n && map->end <= n->end;
}

static int mapping_check(const struct fdry_region *r)
{
	struct fdry_range *n;
	int ret = check_free_ranges(&r->unreserved) ?: check_free_ranges(&r->plain) ?:
		  check_ledger(&r->maps, r->bump.base, r->backing.vmm.base + r->backing.vmm.size);

	fdry_ranges_each(n, &r->maps.entries, 0, UINT64_MAX)
		if (!ret && !is_reserved(r, n))
			ret = fdry_bug("memory is mapped at %#" PRIx64 ", which is not reserved",
				       n->start);
	fdry_ranges_each(n, &r->reservations, 0, UINT64_MAX)
		if (!ret && fdry_free_ranges_overlap(&r->unreserved, n->start, n->end))
			ret = fdry_bug("the reservation at %#" PRIx64 " lies in free addresses",
				       n->start);
	return ret;
}

/* --- the whole region --- */

/* No live allocation lies in a free range. */
static int check_free(const struct fdry_region *r, const struct fdry_ranges *set)
{
	struct fdry_range *n;
	int ret = check_free_ranges(set);

	fdry_ranges_each(n, &r->ledger.entries, 0, UINT64_MAX)
		if (!ret && fdry_free_ranges_overlap(set, n->start, n->end))
			ret = fdry_bug("the allocation at %#" PRIx64 " lies in a free range",
				       n->start);
	return ret;
}

static int check(const struct fdry_region *r)
{
	return check_bump(&r->bump) ?:
	       check_ledger(&r->ledger, r->bump.base, fdry_region_cursor(r)) ?:
	       backing_check(&r->backing, &r->ledger.entries) ?: check_free(r, &r->small) ?:
	       check_free(r, &r->large) ?: check_free(r, &r->skipped) ?: async_check(r) ?:
	       mapping_check(r);
}

int check_region(struct fdry_region *r)
{
	int ret;

	fdry_region_lock(r);
	ret = check(r);
	fdry_region_unlock(r);
	return ret;
}
