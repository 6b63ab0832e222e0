// SPDX-License-Identifier: Apache-2.0
/*
 * telemetry.c - see telemetry.h.
 *
 * A block has one writer at a time: the thread that took it, until that thread ends. Blocks are
 * never freed, so a snapshot walks their list without a lock. A thread without a block (no memory,
 * or the thread is ending) adds atomically to numbers that all such threads share.
 */
#include "lib/telemetry.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const struct fdry_metric_info fdry_metric_infos[FDRY_METRICS] = {
#define FDRY_METRIC(id, kind, unit, name, labels, help) \
	{ FDRY_METRIC_##kind, FDRY_METRIC_##unit, name, labels, help },
#include "lib/telemetry.def"
#undef FDRY_METRIC
};

struct block {
	_Atomic uint64_t n[FDRY_METRICS];
	struct block *next;  /* does not change once it is in the list */
	atomic_bool taken;
} __attribute__((aligned(64)));

static _Atomic(struct block *) blocks;
static _Atomic uint64_t shared[FDRY_METRICS];
static _Atomic uint64_t zero[FDRY_METRICS]; /* the sums at the last reset */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool keyed;
static __thread bool ending;

__thread _Atomic uint64_t *fdry_metrics_mine;

static void thread_ends(void *arg)
{
	struct block *b = arg;

	fdry_metrics_mine = NULL;
	ending = true;
	atomic_store_explicit(&b->taken, false, memory_order_release);
}

static void key_make(void)
{
	keyed = !pthread_key_create(&key, thread_ends);
}

static struct block *block_take(void)
{
	struct block *b;
	bool no;

	for (b = atomic_load_explicit(&blocks, memory_order_acquire); b; b = b->next) {
		no = false;
		if (atomic_compare_exchange_strong_explicit(
			    &b->taken, &no, true, memory_order_acquire, memory_order_relaxed))
			return b;
	}
	b = aligned_alloc(64, sizeof(*b));
	if (!b)
		return NULL;
	memset(b, 0, sizeof(*b));
	atomic_store_explicit(&b->taken, true, memory_order_relaxed);
	b->next = atomic_load_explicit(&blocks, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&blocks, &b->next, b, memory_order_release,
						      memory_order_relaxed))
		;
	return b;
}

static void thread_begins(void)
{
	struct block *b;

	pthread_once(&once, key_make);
	b = keyed ? block_take() : NULL;
	if (!b)
		return;
	if (pthread_setspecific(key, b)) /* no destructor would give it back */
		atomic_store_explicit(&b->taken, false, memory_order_release);
	else
		fdry_metrics_mine = b->n;
}

static void count_shared(enum fdry_metric_id id, uint64_t n)
{
	atomic_fetch_add_explicit(&shared[id], n, memory_order_relaxed);
}

void fdry_count_first(enum fdry_metric_id id, uint64_t n)
{
	if (!ending)
		thread_begins();
	if (fdry_metrics_mine)
		fdry_count(id, n);
	else
		count_shared(id, n);
}

void fdry_count_error(unsigned int code)
{
	static const enum fdry_metric_id of[10] = {
		/* by the hundreds digit; 0 stands for no metric of errors */
		[1] = FDRY_METRIC_ERRORS_CALLER,      [2] = FDRY_METRIC_ERRORS_IMAGE,
		[3] = FDRY_METRIC_ERRORS_STORE,	      [4] = FDRY_METRIC_ERRORS_DRIVER,
		[5] = FDRY_METRIC_ERRORS_ENVIRONMENT, [9] = FDRY_METRIC_ERRORS_BUG,
	};
	enum fdry_metric_id id =
		of[code / 100 % 10] ? of[code / 100 % 10] : FDRY_METRIC_ERRORS_OTHER;

	if (fdry_metrics_mine)
		fdry_count(id, 1);
	else
		count_shared(id, 1);
}

/* --- snapshots --- */

static uint64_t sum(enum fdry_metric_id id)
{
	uint64_t n = atomic_load_explicit(&shared[id], memory_order_relaxed);
	struct block *b;

	for (b = atomic_load_explicit(&blocks, memory_order_acquire); b; b = b->next)
		n += atomic_load_explicit(&b->n[id], memory_order_relaxed);
	return n;
}

void fdry_telemetry_read(uint64_t values[FDRY_METRICS])
{
	enum fdry_metric_id id;
	uint64_t from;

	for (id = 0; id < FDRY_METRICS; id++) {
		/* In this order a sum is never older than the zero that is subtracted from it. */
		from = atomic_load_explicit(&zero[id], memory_order_acquire);
		values[id] = sum(id) - from;
	}
}

void fdry_telemetry_zero(void)
{
	enum fdry_metric_id id;

	for (id = 0; id < FDRY_METRICS; id++)
		if (fdry_metric_infos[id].kind == FDRY_METRIC_COUNTER)
			atomic_store_explicit(&zero[id], sum(id), memory_order_release);
}
