/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - the struct and functions that the files of a region share: region.c, region_place.c,
 * async.c, claim.c and mapping.c.
 *
 * Locking: callers hold the region's lock, unless a function says otherwise.
 */
#ifndef FDRY_MM_INTERNAL_H
#define FDRY_MM_INTERNAL_H

#include <pthread.h>

#include "mm/backing.h"
#include "mm/bump.h"
#include "mm/free_ranges.h"
#include "mm/ledger.h"
#include "mm/stream_pool.h"
#include "mm/region.h"

/* An allocation that was freed, and that no wait has followed yet. */
struct fdry_freed {
	struct fdry_freed *next;
	struct fdry_alloc alloc;
	uint64_t clock;
};

/* Stream-ordered allocations of one capture. */
struct fdry_graph_pool {
	struct fdry_graph_pool *next;
	uint64_t graph;
	struct fdry_stream_pool pool;
};

struct fdry_region {
	pthread_mutex_t lock;
	struct fdry_bump bump;
	struct fdry_backing backing;
	struct fdry_ledger ledger; /* allocations and slabs, which count as uses of blocks */
	bool arena;                /* preallocated, and not freed since */

	struct fdry_ranges small;    /* freed, under FDRY_ALLOC_BLOCK */
	struct fdry_ranges large;
	struct fdry_ranges skipped;  /* skipped by claims or past numbers; only claims get them */
	struct fdry_freed *freed;   /* become free ranges after the next wait */

	struct fdry_ledger pieces;  /* stream-ordered allocations, which lie in slabs */
	struct fdry_stream_pool pool;
	uint64_t frees;             /* counts frees into pools */
	struct fdry_graph_pool *graphs; /* of captures in progress, and of allocation nodes */
	size_t slabs;         /* entries of the ledger that are slabs */
	uint64_t slab_bytes;  /* bytes of these */
	uint64_t graph_bytes; /* bytes of the slabs of graphs */

	struct fdry_ranges reservations;
	struct fdry_ranges unreserved;
	struct fdry_ledger maps;
	struct fdry_ranges plain;    /* addresses that ever had a mapping outside of captures */
};

static inline void fdry_region_lock(struct fdry_region *r)
{
	pthread_mutex_lock(&r->lock);
}

static inline void fdry_region_unlock(struct fdry_region *r)
{
	pthread_mutex_unlock(&r->lock);
}

static inline CUdeviceptr fdry_region_cursor(const struct fdry_region *r)
{
	return r->bump.base + r->bump.cursor;
}

/* region_place.c */

/* Whether an allocation is a slab, in which stream-ordered allocations lie. */
bool fdry_region_is_slab(const struct fdry_alloc *a);
/* Add the next allocation to @l, one of the region's ledgers. They share one count of serial
 * numbers. */
int fdry_region_note(struct fdry_region *r, struct fdry_ledger *l,
		     const struct fdry_alloc *a) __must_check;

/* Find the allocation that starts at @addr. FDRY_E_INVAL if there is none, or it is a slab of the
 * region. */
int fdry_region_at(const struct fdry_region *r, CUdeviceptr addr,
		   struct fdry_alloc *ret) __must_check;
/* Note and map @a at @p, and move the cursor to its end. */
int fdry_region_put_at(struct fdry_region *r, const struct fdry_place *p,
		       struct fdry_alloc *a) __must_check;
/* Add addresses to @free, which may be NULL. Without host memory to note them, they are never used
 * again. */
void fdry_region_give(struct fdry_ranges *free, CUdeviceptr addr, uint64_t size);
/* [@addr, @addr + @size) must be bytes of the region: FDRY_E_INVAL, FDRY_E_RANGE. */
int fdry_region_check_inside(const struct fdry_region *r, CUdeviceptr addr,
			     uint64_t size) __must_check;
/* Find a place for @a, whose size, kind and flags are set, and note and map it. Sets addr and
 * extent.
 */
int fdry_region_place(struct fdry_region *r, struct fdry_alloc *a) __must_check;
/* Remove the allocation @a of r->ledger; @waited as in fdry_backing_put(). */
void fdry_region_drop(struct fdry_region *r, const struct fdry_alloc *a, bool waited);

/* Without the lock: wait for the work in flight, and settle the frees before it. */
int fdry_region_settle(struct fdry_region *r) __must_check;

/* async.c */

/* Without the lock: if @err is FDRY_E_NODEVMEM and nothing captures, wait and unmap idle memory.
 * True if that freed any, so that the caller tries again. */
bool fdry_region_relieve(struct fdry_region *r, int err, unsigned int flags);
/* Remove the stream-ordered allocation @a. @waited: the device has finished its work since the last
 * use. */
void fdry_region_piece_drop(struct fdry_region *r, const struct fdry_alloc *a, bool waited);
/* Drop the pools of captures. Call this when no capture is in progress any more. */
void fdry_region_graphs_end(struct fdry_region *r);
void fdry_region_async_release(struct fdry_region *r);

/* mapping.c */

/* The end of the last reservation within the region's original size; the base if there is none. */
CUdeviceptr fdry_region_reserved_end(const struct fdry_region *r);
void fdry_region_mapping_release(struct fdry_region *r);

#endif
