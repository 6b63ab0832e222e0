// SPDX-License-Identifier: Apache-2.0
/*
 * graphpool.c - device memory that graphs share; see foundry/run/cudagraph.h.
 *
 * Memory comes from cuMemAlloc, not from the driver's own pools. In a capturing stream, those make
 * nodes, which no pool owns, graphs cannot share, and a seal refuses. A capture allows cuMemAlloc
 * if the thread is in relaxed mode.
 *
 * Locking: @lock of a pool guards its memory and state. @all_lock guards the list of pools and
 * their references, and is never taken while @lock is held.
 */
#include "run/graphpool.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/opts.h"
#include "run/blocks.h"
#include "lib/live.h"

#define PIECE ((uint64_t)2 << 20)
#define SIZE_MOST ((uint64_t)1 << 48)

struct fdry_graphpool {
	struct fdry_graphpool *next;
	struct fdry_graphpool_id id;
	int refs;
	struct fdry_primary on;
	pthread_mutex_t lock;
	struct fdry_blocks blocks;
	uint32_t graphs;
	bool sealed;
	bool capturing;
	pthread_t thread; /* the thread that captures */
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_graphpool *all;
static uint64_t last_nr;

static int pool_check(const struct fdry_graphpool *p)
{
	int err = p ? fdry_live_check(p, "the pool")
		    : fdry_fail(FDRY_E_INVAL,
				"no pool was given (NULL); fdry_graphpool_new() makes one");

	return err ? err : fdry_primary_check(&p->on, "the pool");
}

/* --- new, get, put --- */

/* The pool then owns @on. */
static int pool_new(const struct fdry_primary *on, bool private, struct fdry_graphpool **ret)
{
	struct fdry_graphpool *p = calloc(1, sizeof(*p));

	if (!p)
		return fdry_nomem();
	p->on = *on;
	p->refs = 1;
	pthread_mutex_init(&p->lock, NULL);
	pthread_mutex_lock(&all_lock);
	last_nr++;
	if (private)
		p->id.hi = last_nr;
	else
		p->id.lo = last_nr;
	p->next = all;
	all = p;
	pthread_mutex_unlock(&all_lock);
	fdry_live_add(p);
	*ret = p;
	return 0;
}

int fdry_graphpool_new(const struct fdry_graphpool_opts *opts, struct fdry_graphpool **ret)
{
	struct fdry_graphpool_opts o;
	struct fdry_primary on;
	int err = fdry_need(ret) ?: fdry_opts_take(opts, &o, sizeof(o));

	if (err)
		return err;
	err = fdry_primary_init(o.driver, o.device, &on);
	if (err)
		return err;
	err = pool_new(&on, false, ret);
	if (err)
		fdry_primary_release(&on);
	return err;
}

int fdry_graphpool_new_private(const struct fdry_primary *on, struct fdry_graphpool **ret)
{
	struct fdry_primary again;
	int err = fdry_primary_copy(on, &again);

	if (err)
		return err;
	err = pool_new(&again, true, ret);
	if (err)
		fdry_primary_release(&again);
	return err;
}

int fdry_graphpool_get(const struct fdry_graphpool_id *id, struct fdry_graphpool **ret)
{
	struct fdry_graphpool *p;
	int err = fdry_need(id) ?: fdry_need(ret);

	if (err)
		return err;
	pthread_mutex_lock(&all_lock);
	for (p = all; p && (p->id.hi != id->hi || p->id.lo != id->lo); p = p->next)
		;
	if (p)
		p->refs++;
	pthread_mutex_unlock(&all_lock);
	if (!p)
		return fdry_fail(
			FDRY_E_NOKEY,
			"there is no pool with the id (%llu, %llu); it never existed, or its "
			"last reference was put",
			(unsigned long long)id->hi, (unsigned long long)id->lo);
	err = fdry_primary_check(&p->on, "the pool");
	if (err) {
		fdry_graphpool_put(p);
		return err;
	}
	*ret = p;
	return 0;
}

/* The context is current; cuMemFree waits for the device if it must. */
static void pieces_free(struct fdry_graphpool *p, bool any)
{
	uint64_t addr;

	while ((addr = fdry_blocks_remove(&p->blocks, any)) != 0)
		(void)fdry_call_raw(p->on.drv, cuMemFree_v2, addr);
}

static void memory_free(struct fdry_graphpool *p)
{
	CUstreamCaptureMode mode;

	if (!p->blocks.first || fdry_primary_check(&p->on, "") || fdry_primary_enter(&p->on, &mode))
		return;
	pieces_free(p, true);
	fdry_primary_leave(&p->on, &mode);
}

static bool last_put(struct fdry_graphpool *pool)
{
	struct fdry_graphpool **p;
	bool last;

	pthread_mutex_lock(&all_lock);
	last = !--pool->refs;
	for (p = &all; last && *p; p = &(*p)->next)
		if (*p == pool) {
			*p = pool->next;
			break;
		}
	pthread_mutex_unlock(&all_lock);
	return last;
}

void fdry_graphpool_put(struct fdry_graphpool *pool)
{
	if (!pool || fdry_live_check(pool, "the pool") || !last_put(pool) ||
	    fdry_live_end(pool, "the pool"))
		return;
	memory_free(pool);
	while (fdry_blocks_remove(&pool->blocks, true)) /* in a forked child */
		;
	fdry_primary_release(&pool->on);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

int fdry_graphpool_id(const struct fdry_graphpool *pool, struct fdry_graphpool_id *ret)
{
	int err = pool_check(pool) ?: fdry_need(ret);

	if (err)
		return err;
	*ret = pool->id;
	return 0;
}

/* --- sealing --- */

static int sealed_set(struct fdry_graphpool *pool, bool sealed)
{
	int err = pool_check(pool);

	if (err)
		return err;
	pthread_mutex_lock(&pool->lock);
	pool->sealed = sealed;
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

int fdry_graphpool_seal(struct fdry_graphpool *pool)
{
	return sealed_set(pool, true);
}

int fdry_graphpool_unseal(struct fdry_graphpool *pool)
{
	return sealed_set(pool, false);
}

int fdry_graphpool_sealed(struct fdry_graphpool *pool, uint32_t *ret)
{
	struct fdry_graphpool_info info = { .sz = sizeof(info) };
	int err = fdry_need(ret);

	if (err)
		return err;
	err = fdry_graphpool_info(pool, &info);
	if (err)
		return err;
	*ret = info.sealed;
	return 0;
}

/* --- memory --- */

static int sealed_fail(const struct fdry_graphpool *p, const char *what)
{
	return fdry_fail(FDRY_E_STATE,
			 "%s: the pool (%llu, %llu) is sealed; call fdry_graphpool_unseal(), or "
			 "use another pool",
			 what, (unsigned long long)p->id.hi, (unsigned long long)p->id.lo);
}

/* Allocate a piece that has space for @size. The lock is held. */
static int piece_add(struct fdry_graphpool *p, uint64_t size)
{
	uint64_t piece = (size + PIECE - 1) / PIECE * PIECE;
	CUstreamCaptureMode mode;
	CUdeviceptr addr;
	int err = fdry_primary_enter(&p->on, &mode);

	if (err)
		return err;
	err = fdry_call(p->on.drv, cuMemAlloc_v2, &addr, piece);
	if (err)
		goto out_leave;
	err = fdry_blocks_add(&p->blocks, addr, piece);
	if (err)
		(void)fdry_call_raw(p->on.drv, cuMemFree_v2, addr);
out_leave:
	fdry_primary_leave(&p->on, &mode);
	return err;
}

/* The lock is held. */
static int block_alloc(struct fdry_graphpool *p, uint64_t size, fdry_devptr *ret)
{
	bool inside = p->capturing && pthread_equal(p->thread, pthread_self());
	uint64_t addr = 0;
	int err;

	if (p->sealed)
		return sealed_fail(p, "no memory can be allocated");
	err = fdry_blocks_alloc(&p->blocks, size, inside, &addr);
	if (err)
		return err;
	if (!addr) {
		err = piece_add(p, size);
		if (err)
			return err;
		err = fdry_blocks_alloc(&p->blocks, size, inside, &addr);
		if (err)
			return err;
	}
	*ret = addr;
	return 0;
}

int fdry_graphpool_mem_alloc(struct fdry_graphpool *pool, uint64_t size, fdry_devptr *ret)
{
	int err = pool_check(pool) ?: fdry_need(ret);

	if (err)
		return err;
	if (!size || size > SIZE_MOST)
		return fdry_fail(FDRY_E_RANGE,
				 "a pool cannot allocate %llu bytes; request 1 to 2^48",
				 (unsigned long long)size);
	pthread_mutex_lock(&pool->lock);
	err = block_alloc(pool, (size + FDRY_BLOCK_ALIGN - 1) / FDRY_BLOCK_ALIGN * FDRY_BLOCK_ALIGN,
			  ret);
	pthread_mutex_unlock(&pool->lock);
	return err;
}

int fdry_graphpool_mem_free(struct fdry_graphpool *pool, fdry_devptr addr)
{
	bool known;
	int err = pool_check(pool);

	if (err)
		return err;
	pthread_mutex_lock(&pool->lock);
	known = fdry_blocks_free(&pool->blocks, addr, pool->graphs > 0);
	pthread_mutex_unlock(&pool->lock);
	return known ? 0
		     : fdry_fail(FDRY_E_RANGE,
				 "no allocation of the pool begins at %#llx; it was released "
				 "before, or belongs to another pool",
				 addr);
}

static int pool_trim(struct fdry_graphpool *p)
{
	CUstreamCaptureMode mode;
	int err;

	if (p->graphs)
		return fdry_fail(FDRY_E_STATE, "%u graph(s) use the pool, %s; reset them first",
				 p->graphs,
				 p->capturing ? "one of which captures" : "and may be launched");
	err = fdry_primary_enter(&p->on, &mode);
	if (err)
		return err;
	pieces_free(p, false);
	fdry_primary_leave(&p->on, &mode);
	return 0;
}

int fdry_graphpool_trim(struct fdry_graphpool *pool)
{
	int err = pool_check(pool);

	if (err)
		return err;
	pthread_mutex_lock(&pool->lock);
	err = pool_trim(pool);
	pthread_mutex_unlock(&pool->lock);
	return err;
}

int fdry_graphpool_info(struct fdry_graphpool *pool, struct fdry_graphpool_info *ret)
{
	struct fdry_graphpool_info info = { 0 };
	int err = pool_check(pool) ?: fdry_need(ret);

	if (err)
		return err;
	pthread_mutex_lock(&pool->lock);
	info.reserved_bytes = pool->blocks.reserved;
	info.used_bytes = pool->blocks.used;
	info.graphs = pool->graphs;
	info.sealed = pool->sealed;
	info.capturing = pool->capturing;
	pthread_mutex_unlock(&pool->lock);
	return fdry_report_give(&info, sizeof(info), ret);
}

/* --- graphs --- */

static int join_check(const struct fdry_graphpool *p, const struct fdry_primary *on)
{
	if (p->on.ctx != on->ctx || p->on.drv != on->drv)
		return fdry_fail(FDRY_E_INVAL,
				 "the pool is of device %d and the graph of device %d, or of "
				 "another driver; use a pool of the graph's device",
				 p->on.device, on->device);
	if (p->sealed)
		return sealed_fail(p, "no capture can begin");
	if (p->capturing)
		return fdry_fail(FDRY_E_STATE, "another capture uses the pool; end it first, or "
					       "use a pool of its own for each");
	return 0;
}

int fdry_graphpool_join(struct fdry_graphpool *pool, const struct fdry_primary *on)
{
	int err = pool_check(pool);

	if (err)
		return err;
	pthread_mutex_lock(&pool->lock);
	err = join_check(pool, on);
	if (err)
		goto out_unlock;
	pool->capturing = true;
	pool->thread = pthread_self();
	pool->graphs++;
out_unlock:
	pthread_mutex_unlock(&pool->lock);
	if (err)
		return err;
	pthread_mutex_lock(&all_lock);
	pool->refs++;
	pthread_mutex_unlock(&all_lock);
	return 0;
}

void fdry_graphpool_captured(struct fdry_graphpool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->capturing = false;
	pthread_mutex_unlock(&pool->lock);
}

void fdry_graphpool_leave(struct fdry_graphpool *pool)
{
	pthread_mutex_lock(&pool->lock);
	if (!--pool->graphs)
		fdry_blocks_untouch(&pool->blocks);
	pthread_mutex_unlock(&pool->lock);
	fdry_graphpool_put(pool);
}
