/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_pool.h - which addresses a stream-ordered allocation gets: arithmetic, no driver.
 *
 * What is freed in the order of a stream may be handed out again in the order of that
 * stream at once, and to others when somebody has waited for the device since. So nothing
 * that is still in use is handed out, no event is needed, and addresses follow from the
 * calls alone, not from how far the device has come.
 *
 *      slabs      |==================|      |==================|       memory, mapped
 *      queue A      aaa     aaaaaa             aa                      freed by stream A
 *      queue B           bb                       bbbbb                freed by stream B
 *      settled                     sssss              ssssssss         free for every stream
 *
 * Invariants (fdry_stream_pool_check): a byte is in one queue at most, or settled, or in a live
 * allocation; free bytes and live ones are those of the slabs.
 *
 * Locking: the region's.
 */
#ifndef FDRY_MM_STREAM_POOL_H
#define FDRY_MM_STREAM_POOL_H

#include "mm/free_ranges.h"

/* The stream of an allocation whose stream is not known: it shares with none. */
#define FDRY_STREAM_UNKNOWN 0

struct fdry_stream_queue;

/* Zero it to start; fdry_stream_pool_release() at the end. */
struct fdry_stream_pool {
	struct fdry_ranges settled;
	struct fdry_stream_queue *queues; /* one for each stream that has freed something since */
	uint64_t waiting;          /* bytes in queues */
	uint64_t slabs;            /* bytes in slabs */
	uint64_t live;             /* bytes in allocations */
};

/* Memory was mapped for the pool. FDRY_E_NOMEM. */
int fdry_stream_pool_grow(struct fdry_stream_pool *p, uint64_t start, uint64_t end) __must_check;
/* Take memory away; false where not all of it is settled. */
bool fdry_stream_pool_shrink(struct fdry_stream_pool *p, uint64_t start, uint64_t end);

/* The lowest @extent bytes (a multiple of @align) that @stream itself has freed, else the lowest settled
 * ones; false where there are none. */
bool fdry_stream_pool_take(struct fdry_stream_pool *p, uint64_t stream, uint64_t extent, uint64_t align, uint64_t *ret);
/* @stream frees; @clock counts frees, so that fdry_stream_pool_settle() knows what came before a wait. What no host
 * memory is left to note is not used again. */
void fdry_stream_pool_give(struct fdry_stream_pool *p, uint64_t stream, uint64_t start, uint64_t end, uint64_t clock);
/* The same, where the device was waited for since the memory was used. */
void fdry_stream_pool_return(struct fdry_stream_pool *p, uint64_t start, uint64_t end);

/* The device was waited for after the free of @clock and those before. */
void fdry_stream_pool_settle(struct fdry_stream_pool *p, uint64_t clock);

/* Hand nothing out again of what is free now. */
void fdry_stream_pool_forget(struct fdry_stream_pool *p);

/* Bytes that other streams than @stream have freed and nobody has waited for. */
uint64_t fdry_stream_pool_foreign(const struct fdry_stream_pool *p, uint64_t stream);

int fdry_stream_pool_check(const struct fdry_stream_pool *p) __must_check;
void fdry_stream_pool_release(struct fdry_stream_pool *p);

#endif
