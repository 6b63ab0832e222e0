/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - many items read from a store by several threads.
 *
 * Items are begun in ascending order. Each thread has a session of its own, which the
 * pool keeps until it is freed: what an item mapped stays mapped until then. Whoever waits
 * for an item that nobody has begun works as well, so that a pool without threads is
 * slower and nothing else. After a failure nothing more is begun.
 *
 * The caller holds a session for the pool's life: objects that it can see cannot be
 * collected, and the pool's sessions wait for nobody.
 *
 * Locking: start, wait and free belong to one thread; the function runs in any.
 */
#ifndef FDRY_IMAGE_POOL_H
#define FDRY_IMAGE_POOL_H

#include <stddef.h>

#include "lib/err.h"
#include "store/store.h"

#define FDRY_POOL_THREADS_MAX 16

struct fdry_pool;

/* Item @i, by a thread whose session is @reader. What the items share, the function locks. */
typedef int (*fdry_pool_fn)(void *arg, struct fdry_reader *reader, size_t i);

struct fdry_pool_opts {
	struct fdry_store *store;
	struct fdry_reader *reader; /* the caller's, for what it does itself */
	fdry_pool_fn fn;
	void *arg;
	size_t count;         /* items */
	unsigned int threads; /* at most; no more than items are started */
	const char *name;     /* of the threads, at most 15 bytes */
};

int fdry_pool_start(const struct fdry_pool_opts *opts, struct fdry_pool **ret) __must_check;
/* Until item @i is done; the pool's first failure, where there was one before. */
int fdry_pool_wait(struct fdry_pool *p, size_t i) __must_check;
int fdry_pool_wait_all(struct fdry_pool *p) __must_check;

struct fdry_pool_stats {
	unsigned int threads; /* that were had */
	double cpu_ms;        /* spent on items by all threads */
	double done_ms;       /* when the last item was done, by the clock of clock.h; 0: not yet */
};
void fdry_pool_stats(struct fdry_pool *p, struct fdry_pool_stats *ret);

/* Begin nothing more, wait for what was begun, end the sessions. NULL is fine. The sentence of the last failure stays. */
void fdry_pool_free(struct fdry_pool *p);

#endif
