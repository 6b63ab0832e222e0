// SPDX-License-Identifier: Apache-2.0
/* stream_pool.c - the queues and settled ranges of a pool; see stream_pool.h. */
#include "mm/stream_pool.h"

#include <inttypes.h>
#include <stdlib.h>

#include "lib/log.h"

static struct fdry_stream_queue *queue_of(const struct fdry_stream_pool *p, uint64_t stream)
{
	struct fdry_stream_queue *q = p->queues;

	while (q && q->stream != stream)
		q = q->next;
	return q;
}

int fdry_stream_pool_grow(struct fdry_stream_pool *p, uint64_t start, uint64_t end)
{
	int ret = fdry_free_ranges_add(&p->settled, start, end);

	if (ret)
		return ret;
	p->slabs += end - start;
	return 0;
}

bool fdry_stream_pool_shrink(struct fdry_stream_pool *p, uint64_t start, uint64_t end)
{
	if (!fdry_free_ranges_remove(&p->settled, start, end))
		return false;
	p->slabs -= end - start;
	return true;
}

bool fdry_stream_pool_take(struct fdry_stream_pool *p, uint64_t stream, uint64_t extent,
			   uint64_t align, uint64_t *ret)
{
	struct fdry_stream_queue *q = stream != FDRY_STREAM_UNKNOWN ? queue_of(p, stream) : NULL;

	if (q && fdry_free_ranges_take(&q->freed, extent, align, ret))
		p->waiting -= extent;
	else if (!fdry_free_ranges_take(&p->settled, extent, align, ret))
		return false;
	p->live += extent;
	return true;
}

static struct fdry_stream_queue *queue_new(struct fdry_stream_pool *p, uint64_t stream)
{
	struct fdry_stream_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->stream = stream;
	q->next = p->queues;
	p->queues = q;
	return q;
}

static void lost(struct fdry_stream_pool *p, uint64_t bytes)
{
	fdry_warn("%" PRIu64 " bytes of device memory are lost: no host memory to note them",
		  bytes);
	p->slabs -= bytes;
}

void fdry_stream_pool_give(struct fdry_stream_pool *p, uint64_t stream, uint64_t start,
			   uint64_t end, uint64_t clock)
{
	struct fdry_stream_queue *q = queue_of(p, stream);

	p->live -= end - start;
	if (!q)
		q = queue_new(p, stream);
	if (!q || fdry_free_ranges_add(&q->freed, start, end)) {
		lost(p, end - start);
		return;
	}
	q->clock = clock;
	p->waiting += end - start;
}

void fdry_stream_pool_return(struct fdry_stream_pool *p, uint64_t start, uint64_t end)
{
	p->live -= end - start;
	if (fdry_free_ranges_add(&p->settled, start, end))
		lost(p, end - start);
}

void fdry_stream_pool_settle(struct fdry_stream_pool *p, uint64_t clock)
{
	struct fdry_stream_queue **link = &p->queues, *q;
	uint64_t bytes;

	while ((q = *link)) {
		bytes = q->freed.bytes;
		if (q->clock > clock || fdry_free_ranges_move(&p->settled, &q->freed)) {
			p->waiting -= bytes - q->freed.bytes;
			link = &q->next;
			continue;
		}
		p->waiting -= bytes;
		*link = q->next;
		free(q);
	}
}

uint64_t fdry_stream_pool_foreign(const struct fdry_stream_pool *p, uint64_t stream)
{
	const struct fdry_stream_queue *q =
		stream != FDRY_STREAM_UNKNOWN ? queue_of(p, stream) : NULL;

	return p->waiting - (q ? q->freed.bytes : 0);
}

void fdry_stream_pool_forget(struct fdry_stream_pool *p)
{
	struct fdry_stream_queue *q;

	p->slabs -= p->waiting + p->settled.bytes;
	p->waiting = 0;
	while ((q = p->queues)) {
		p->queues = q->next;
		fdry_free_ranges_release(&q->freed);
		free(q);
	}
	fdry_free_ranges_release(&p->settled);
}

void fdry_stream_pool_release(struct fdry_stream_pool *p)
{
	fdry_stream_pool_forget(p);
	*p = (struct fdry_stream_pool){ 0 };
}
