// SPDX-License-Identifier: Apache-2.0
/*
 * async.c - allocations in the order of a stream; see region.h.
 *
 * Stream-ordered allocations have a ledger of their own. They lie in slabs, which are allocations
 * of the region. The pool knows which addresses of the slabs are free (stream_pool.h). A capture
 * has its own pool and slabs, so a replay touches only memory of its own graph.
 */
#include "mm/internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* The bytes of a slab. Mapping 32 MiB costs about as much as mapping 2 MiB. */
#define SLAB (32ull << 20)
/* A gap between two slabs, so that no free range joins across their border and each can be unmapped
 * alone. */
#define GUARD FDRY_ALLOC_ALIGN
/* Waiting for the device is worthwhile if it frees this many bytes, and most of the pool. */
#define WORTH_WAITING (1ull << 30)

static struct fdry_graph_pool *graph_pool(const struct fdry_region *r, uint64_t graph)
{
	struct fdry_graph_pool *g = r->graphs;

	while (g && g->graph != graph)
		g = g->next;
	return g;
}

static struct fdry_stream_pool *pool_of(struct fdry_region *r, uint64_t graph)
{
	struct fdry_graph_pool *g = graph ? graph_pool(r, graph) : NULL;

	if (!graph)
		return &r->pool;
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g)
			return NULL;
		g->graph = graph;
		g->next = r->graphs;
		r->graphs = g;
	}
	return &g->pool;
}

/* --- slabs --- */

static void slab_drop(struct fdry_region *r, const struct fdry_alloc *slab)
{
	r->slabs--;
	r->slab_bytes -= slab->extent;
	fdry_region_drop(r, slab, true);
}

static int slab_new(struct fdry_region *r, struct fdry_stream_pool *p, uint64_t extent, bool graph)
{
	struct fdry_alloc slab = { .capturing = graph,
				   .kind = graph ? FDRY_KIND_GRAPH : FDRY_KIND_SLAB };
	int ret = fdry_round_up(extent, FDRY_ALLOC_BLOCK, &slab.size);

	if (ret)
		return ret;
	if (slab.size - extent < GUARD)
		slab.size += FDRY_ALLOC_BLOCK;
	if (slab.size < SLAB)
		slab.size = SLAB;
	ret = fdry_region_place(r, &slab);
	if (ret)
		return ret;
	r->slabs++;
	r->slab_bytes += slab.extent;
	ret = fdry_stream_pool_grow(p, slab.addr, slab.addr + slab.extent - GUARD);
	if (ret)
		slab_drop(r, &slab);
	else if (graph)
		r->graph_bytes += slab.extent;
	return ret;
}

/* Unmap empty slabs, while more than @keep bytes remain. */
static void slabs_trim(struct fdry_region *r, uint64_t keep)
{
	CUdeviceptr below = UINT64_MAX;
	struct fdry_range *n;

	while (r->pool.slabs > keep && (n = fdry_ranges_floor(&r->ledger.entries, below))) {
		const struct fdry_alloc slab = *fdry_ledger_entry(n);

		below = slab.addr - 1;
		if (slab.kind == FDRY_KIND_SLAB &&
		    fdry_stream_pool_shrink(&r->pool, slab.addr, slab.addr + slab.extent - GUARD))
			slab_drop(r, &slab);
	}
}

bool fdry_region_relieve(struct fdry_region *r, int err, unsigned int flags)
{
	uint64_t before, after;

	if (err != -FDRY_E_NODEVMEM || flags & FDRY_ALLOC_CAPTURING || fdry_region_settle(r))
		return false;
	fdry_region_lock(r);
	before = r->backing.mapped;
	slabs_trim(r, 0);
	fdry_backing_trim(&r->backing, fdry_region_cursor(r));
	after = r->backing.mapped;
	fdry_region_unlock(r);
	return after < before;
}

int fdry_region_trim_pool(struct fdry_region *r, uint64_t keep)
{
	int ret = fdry_region_settle(r);

	if (ret)
		return ret;
	fdry_region_lock(r);
	slabs_trim(r, keep);
	fdry_backing_trim(&r->backing, fdry_region_cursor(r));
	fdry_region_unlock(r);
	return 0;
}

/* --- allocating --- */

static int piece_new(struct fdry_region *r, const struct fdry_async *want, struct fdry_alloc *a)
{
	struct fdry_stream_pool *p = pool_of(r, want->graph);
	uint64_t addr;
	int ret;

	if (!p)
		return fdry_nomem();
	if (!fdry_stream_pool_take(p, want->stream, a->extent, FDRY_ALLOC_ALIGN, &addr)) {
		ret = slab_new(r, p, a->extent, want->graph);
		if (ret)
			return ret;
		if (!fdry_stream_pool_take(p, want->stream, a->extent, FDRY_ALLOC_ALIGN, &addr))
			return fdry_nomem();
	}
	a->addr = addr;
	ret = fdry_region_note(r, &r->pieces, a);
	if (ret)
		fdry_stream_pool_give(p, want->stream, addr, addr + a->extent, r->frees);
	return ret;
}

/* True if waiting for the device would free most of the pool. */
static bool is_worth_waiting(struct fdry_region *r, const struct fdry_async *want, uint64_t extent)
{
	uint64_t foreign, at;
	bool worth;

	if (want->graph || want->flags & FDRY_ALLOC_CAPTURING)
		return false;
	fdry_region_lock(r);
	foreign = fdry_stream_pool_foreign(&r->pool, want->stream);
	worth = foreign >= WORTH_WAITING && foreign / 7 >= (r->pool.slabs - foreign);
	if (worth && fdry_stream_pool_take(&r->pool, want->stream, extent, FDRY_ALLOC_ALIGN, &at)) {
		worth = false; /* it fits without waiting */
		fdry_stream_pool_give(&r->pool, want->stream, at, at + extent, r->frees);
	}
	fdry_region_unlock(r);
	return worth;
}

int fdry_region_alloc_async(struct fdry_region *r, const struct fdry_async *want, CUdeviceptr *ret)
{
	struct fdry_alloc a = { .size = want->size,
				.kind = FDRY_KIND_POOL,
				.capturing = want->graph != 0,
				.owner = want->graph ? want->graph : want->owner };
	int err;

	if (!want->size)
		return fdry_fail(FDRY_E_INVAL, "an allocation of 0 bytes; ask for at least 1");
	err = fdry_round_up(want->size, FDRY_ALLOC_ALIGN, &a.extent);
	if (err)
		return err;
	if (is_worth_waiting(r, want, a.extent))
		err = fdry_region_settle(r);
	if (err)
		return err;
	do {
		fdry_region_lock(r);
		err = piece_new(r, want, &a);
		fdry_region_unlock(r);
	} while (fdry_region_relieve(r, err, want->flags));
	if (err)
		return err;
	*ret = a.addr;
	return 0;
}

/* --- freeing --- */

/* The pool that gets the freed addresses of @a: the pool of its capture; none if the capture has
 * ended. */
static struct fdry_stream_pool *home_of(struct fdry_region *r, const struct fdry_alloc *a)
{
	struct fdry_graph_pool *g = a->capturing ? graph_pool(r, a->owner) : NULL;

	if (g)
		return &g->pool;
	return a->capturing ? NULL : &r->pool;
}

void fdry_region_piece_drop(struct fdry_region *r, const struct fdry_alloc *a, bool waited)
{
	const struct fdry_alloc gone = *a;

	if (gone.capturing)
		return; /* the next launch of its graph uses it again */
	fdry_ledger_del(&r->pieces, gone.addr);
	if (waited)
		fdry_stream_pool_return(&r->pool, gone.addr, gone.addr + gone.extent);
	else
		fdry_stream_pool_give(&r->pool, FDRY_STREAM_UNKNOWN, gone.addr,
				      gone.addr + gone.extent, ++r->frees);
}

static int piece_free(struct fdry_region *r, const struct fdry_alloc *a,
		      const struct fdry_async *by)
{
	const struct fdry_alloc gone = *a;
	struct fdry_stream_pool *p = home_of(r, a);

	if (by->graph && !gone.capturing)
		return fdry_fail(FDRY_E_INVAL,
				 "a graph can free only memory that a graph allocated, not %#llx; "
				 "free that after the capture",
				 gone.addr);
	if (!by->graph && gone.capturing)
		return 0; /* the next launch of its graph uses it again */
	fdry_ledger_del(&r->pieces, gone.addr);
	if (p && (!by->graph || (gone.owner == by->graph && by->stream != FDRY_STREAM_UNKNOWN)))
		fdry_stream_pool_give(p, by->stream, gone.addr, gone.addr + gone.extent,
				      ++r->frees);
	return 0;
}

static int free_locked(struct fdry_region *r, const struct fdry_alloc *a,
		       const struct fdry_async *by)
{
	if (a->kind == FDRY_KIND_POOL)
		return piece_free(r, a, by);
	if (by->graph)
		return fdry_fail(
			FDRY_E_INVAL,
			"a capturing stream cannot free %#llx, which was allocated before; "
			"free it after the capture",
			a->addr);
	fdry_region_drop(r, a, false);
	return 0;
}

int fdry_region_free_async(struct fdry_region *r, CUdeviceptr addr, const struct fdry_async *by,
			   struct fdry_alloc *gone)
{
	struct fdry_alloc a;
	int ret;

	fdry_region_lock(r);
	ret = fdry_region_at(r, addr, &a);
	if (ret)
		goto out_unlock;
	ret = free_locked(r, &a, by);
	if (ret)
		goto out_unlock;
	*gone = a;
out_unlock:
	fdry_region_unlock(r);
	return ret;
}

/* --- beginning and end --- */

/* Drop the pools of captures, and with @nodes also that of allocation nodes. */
static void graphs_end(struct fdry_region *r, bool nodes)
{
	struct fdry_graph_pool **link = &r->graphs, *g;

	while ((g = *link)) {
		if (g->graph == FDRY_GRAPH_NODES && !nodes) {
			link = &g->next;
			continue;
		}
		*link = g->next;
		fdry_stream_pool_release(&g->pool);
		free(g);
	}
}

void fdry_region_graphs_end(struct fdry_region *r)
{
	graphs_end(r, false);
}

void fdry_region_forget_graphs(struct fdry_region *r)
{
	struct fdry_graph_pool *g;

	fdry_region_lock(r);
	for (g = r->graphs; g; g = g->next)
		if (g->graph != FDRY_GRAPH_NODES)
			fdry_stream_pool_forget(&g->pool);
	fdry_region_unlock(r);
}

void fdry_region_async_release(struct fdry_region *r)
{
	graphs_end(r, true);
	fdry_stream_pool_release(&r->pool);
	fdry_ledger_release(&r->pieces);
}
