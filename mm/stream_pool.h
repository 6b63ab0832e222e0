/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_pool.h - the addresses of stream-ordered allocations: arithmetic without the driver.
 *
 * Memory that a stream frees may be allocated again to that stream at once, and to other streams
 * after a later wait for the device. So memory in use is never allocated, no event is needed, and
 * addresses depend only on the calls, not on the progress of the device.
 *
 *      slabs      |==================|      |==================|       memory, mapped
 *      queue A      aaa     aaaaaa             aa                      freed by stream A
 *      queue B           bb                       bbbbb                freed by stream B
 *      settled                     sssss              ssssssss         free for every stream
 *
 * Invariants (fdry_stream_pool_check): each byte of a slab is in one queue, or settled, or in a
 * live allocation.
 *
 * Locking: the region's.
 */
#ifndef FDRY_MM_STREAM_POOL_H
#define FDRY_MM_STREAM_POOL_H

#include "mm/free_ranges.h"

/* The number of an unknown stream. Its allocations share memory with no stream. */
#define FDRY_STREAM_UNKNOWN 0

/* Memory that one stream freed, and that no wait has followed yet. */
struct fdry_stream_queue {
	struct fdry_stream_queue *next;
	uint64_t stream;
	uint64_t clock; /* value of the region's count of frees at its last free */
	struct fdry_ranges freed;
};

/* Zero it to start; fdry_stream_pool_release() at the end. */
struct fdry_stream_pool {
	struct fdry_ranges settled;
	struct fdry_stream_queue *queues; /* one for each stream that has freed memory since the
					     last wait */
	uint64_t waiting; /* bytes in queues */
	uint64_t slabs;   /* bytes in slabs */
	uint64_t live;    /* bytes in allocations */
};

/* Add newly mapped memory. FDRY_E_NOMEM. */
int fdry_stream_pool_grow(struct fdry_stream_pool *p, uint64_t start, uint64_t end) __must_check;
/* Remove memory; false if not all of it is settled. */
bool fdry_stream_pool_shrink(struct fdry_stream_pool *p, uint64_t start, uint64_t end);

/* Allocate the lowest @extent bytes (a multiple of @align) that @stream itself has freed, else the
 * lowest settled ones. False if there are none. */
bool fdry_stream_pool_take(struct fdry_stream_pool *p, uint64_t stream, uint64_t extent,
			   uint64_t align, uint64_t *ret);
/* Free in the order of @stream. @clock counts frees, so that fdry_stream_pool_settle() knows
 * which frees preceded a wait. Without host memory to note a free, the addresses are never used
 * again. */
void fdry_stream_pool_give(struct fdry_stream_pool *p, uint64_t stream, uint64_t start,
			   uint64_t end, uint64_t clock);
/* Free memory when the device was waited for after its last use. */
void fdry_stream_pool_return(struct fdry_stream_pool *p, uint64_t start, uint64_t end);

/* Make all frees up to @clock settled, since a wait for the device followed them. */
void fdry_stream_pool_settle(struct fdry_stream_pool *p, uint64_t clock);

/* Never allocate again memory that is free now. */
void fdry_stream_pool_forget(struct fdry_stream_pool *p);

/* Bytes that streams other than @stream have freed since the last wait. */
uint64_t fdry_stream_pool_foreign(const struct fdry_stream_pool *p, uint64_t stream);

void fdry_stream_pool_release(struct fdry_stream_pool *p);

#endif
