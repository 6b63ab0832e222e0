// SPDX-License-Identifier: Apache-2.0
/*
 * pool.c - memory that is kept and used again; see foundry/run/pool.h.
 *
 * Sizes are rounded up to classes, and kept memory is found by class. Memory that was put has an
 * event after its last use. The pool returns it to a new user when the event has happened, or at
 * once to the same stream, which preserves the order. Streams are identified by the driver's
 * number, because handles are reused. The lock is not held while the driver allocates, waits or
 * frees.
 */
#include <stdlib.h>

#include "lib/opts.h"
#include "run/device.h"
#include "lib/config.h"
#include "lib/log.h"
#include "arch/stream.h"
#include "lib/telemetry.h"

/* Up to SMALL, classes are multiples of GRAIN; above, each doubling has eight classes. */
#define GRAIN 512
#define SMALL 4096
#define LARGE (1ull << 47)

static const struct {
	const char *name;
	enum fdry_config limit;
	enum fdry_metric_id hits, misses, cached, used;
} kinds[] = {
	[FDRY_TRANSIENT_DEVICE] = { "device", FDRY_CONFIG_POOL_DEVICE, FDRY_METRIC_POOL_HITS_DEVICE,
				    FDRY_METRIC_POOL_MISSES_DEVICE, FDRY_METRIC_POOL_CACHED_DEVICE,
				    FDRY_METRIC_POOL_USED_DEVICE },
	[FDRY_TRANSIENT_PINNED] = { "pinned", FDRY_CONFIG_POOL_PINNED, FDRY_METRIC_POOL_HITS_PINNED,
				    FDRY_METRIC_POOL_MISSES_PINNED, FDRY_METRIC_POOL_CACHED_PINNED,
				    FDRY_METRIC_POOL_USED_PINNED },
};

/* The class of @bytes, rounded up to the size of that class. */
static unsigned int size_class(size_t *bytes)
{
	unsigned int log;
	size_t step, n;

	if (*bytes <= SMALL) {
		n = (*bytes + GRAIN - 1) / GRAIN;
		*bytes = n * GRAIN;
		return (unsigned int)n;
	}
	log = 63 - (unsigned int)__builtin_clzll(*bytes - 1); /* 2^log < bytes <= 2^(log + 1) */
	step = (size_t)1 << (log - 3);
	n = (*bytes - ((size_t)1 << log) + step - 1) / step;
	*bytes = ((size_t)1 << log) + n * step;
	return SMALL / GRAIN + (log - 12) * 8 + (unsigned int)n;
}

int fdry_transient_init(struct fdry_transient *p, struct fdry_device *dev,
			enum fdry_transient_kind kind)
{
	p->dev = dev;
	p->kind = kind;
	p->stats.sz = sizeof(p->stats);
	pthread_mutex_init(&p->lock, NULL);
	return fdry_config_number(kinds[kind].limit, &p->stats.limit);
}

/* --- kept memory; the lock is held --- */

static void kept_link(struct fdry_transient *p, struct fdry_spare *b)
{
	size_t bytes = b->bytes;
	struct fdry_spare **head = &p->kept[size_class(&bytes)];

	b->prev = NULL;
	b->next = *head;
	if (b->next)
		b->next->prev = b;
	*head = b;
	b->newer = NULL;
	b->older = p->newest;
	*(p->newest ? &p->newest->newer : &p->oldest) = b;
	p->newest = b;
	p->stats.cached += b->bytes;
	p->stats.cached_count++;
	fdry_gauge(kinds[p->kind].cached, (int64_t)b->bytes);
}

static void kept_unlink(struct fdry_transient *p, struct fdry_spare *b)
{
	size_t bytes = b->bytes;

	*(b->prev ? &b->prev->next : &p->kept[size_class(&bytes)]) = b->next;
	if (b->next)
		b->next->prev = b->prev;
	*(b->newer ? &b->newer->older : &p->newest) = b->older;
	*(b->older ? &b->older->newer : &p->oldest) = b->newer;
	p->stats.cached -= b->bytes;
	p->stats.cached_count--;
	fdry_gauge(kinds[p->kind].cached, -(int64_t)b->bytes);
}

/* Remove kept memory until @keep bytes remain. Returns it as a list. */
static struct fdry_spare *kept_cut(struct fdry_transient *p, uint64_t keep)
{
	struct fdry_spare *list = NULL, *b;

	while (p->stats.cached > keep) {
		b = p->oldest;
		kept_unlink(p, b);
		b->next = list;
		list = b;
	}
	return list;
}

/* The most events of other streams to query. After that, the driver allocates new memory. */
#define QUERIES 16

/* CUDA_ERROR_NOT_READY if another stream may still use @b. */
static CUresult spare_state(const struct fdry_transient *p, const struct fdry_spare *b,
			    unsigned long long stream, bool query)
{
	if (!b->done || (stream && b->stream == stream))
		return CUDA_SUCCESS;
	return query ? fdry_call_raw(p->dev->drv, cuEventQuery, b->done) : CUDA_ERROR_NOT_READY;
}

static int kept_find(struct fdry_transient *p, unsigned int class, unsigned long long stream,
		     struct fdry_spare **ret)
{
	struct fdry_spare *b;
	CUresult res = CUDA_SUCCESS;
	int queries = 0;

	for (b = p->kept[class]; b; b = b->next, queries++) {
		res = spare_state(p, b, stream, queries < QUERIES);
		if (res != CUDA_ERROR_NOT_READY)
			break;
	}
	if (res && res != CUDA_ERROR_NOT_READY)
		return fdry_driver_result(p->dev->drv, FDRY_DRV_cuEventQuery, res);
	*ret = b;
	p->stats.busy += queries > 0;
	return 0;
}

/* --- memory in use; the lock is held, and the table has space --- */

static void used_add(struct fdry_transient *p, struct fdry_spare *b)
{
	fdry_map_put(&p->used, b->addr, b);
	p->stats.used += b->bytes;
	p->stats.used_count++;
	if (p->stats.used > p->stats.peak)
		p->stats.peak = p->stats.used;
	fdry_gauge(kinds[p->kind].used, (int64_t)b->bytes);
}

static void used_remove(struct fdry_transient *p, struct fdry_spare *b)
{
	(void)fdry_map_take(&p->used, b->addr);
	p->stats.used -= b->bytes;
	p->stats.used_count--;
	fdry_gauge(kinds[p->kind].used, -(int64_t)b->bytes);
}

/* --- the driver; the lock is not held --- */

static int memory_make(const struct fdry_transient *p, size_t bytes, uint64_t *ret)
{
	CUdeviceptr addr = 0;
	void *host = NULL;
	int err;

	if (p->kind == FDRY_TRANSIENT_DEVICE)
		err = fdry_call(p->dev->drv, cuMemAlloc_v2, &addr, bytes);
	else
		err = fdry_call(p->dev->drv, cuMemHostAlloc, &host, bytes,
				CU_MEMHOSTALLOC_PORTABLE);
	if (err)
		return err;
	*ret = p->kind == FDRY_TRANSIENT_DEVICE ? addr : (uint64_t)(uintptr_t)host;
	return 0;
}

static int memory_free(const struct fdry_transient *p, uint64_t addr)
{
	if (p->kind == FDRY_TRANSIENT_DEVICE)
		return fdry_call(p->dev->drv, cuMemFree_v2, addr);
	return fdry_call(p->dev->drv, cuMemFreeHost, (void *)(uintptr_t)addr);
}

static void event_put(struct fdry_transient *p, struct fdry_spare *b)
{
	if (b->done)
		(void)fdry_syncs_put(&p->dev->syncs[FDRY_SYNC_EVENT], b->done);
	b->done = NULL;
}

/* Free a chain, and return the first error. If a wait fails, the context is lost, and all its
 * memory with it. */
static int blocks_free(struct fdry_transient *p, struct fdry_spare *list)
{
	struct fdry_spare *b;
	int err = 0, one;

	while ((b = list)) {
		list = b->next;
		one = b->done ? fdry_event_wait(p->dev->drv, b->done) : 0;
		if (!one)
			one = memory_free(p, b->addr);
		event_put(p, b);
		free(b);
		err = err ? err : one;
	}
	return err;
}

int fdry_transient_trim(struct fdry_transient *p, uint64_t keep)
{
	struct fdry_spare *list;

	pthread_mutex_lock(&p->lock);
	list = kept_cut(p, keep);
	pthread_mutex_unlock(&p->lock);
	return blocks_free(p, list);
}

static int memory_fail(struct fdry_transient *p, size_t bytes)
{
	size_t avail = 0, total = 0;
	uint64_t used;

	(void)fdry_call_raw(p->dev->drv, cuMemGetInfo_v2, &avail, &total);
	pthread_mutex_lock(&p->lock);
	used = p->stats.used;
	pthread_mutex_unlock(&p->lock);
	if (p->kind == FDRY_TRANSIENT_PINNED)
		return fdry_fail(
			FDRY_E_NOMEM,
			"there are no %zu bytes of pinned memory: %llu are in use, and all "
			"kept memory is released; return some, or raise the limit of "
			"locked memory",
			bytes, (unsigned long long)used);
	return fdry_fail(
		FDRY_E_NODEVMEM,
		"there are no %zu bytes of device memory: %zu of %zu are free, %llu of this "
		"pool are in use, and all kept memory is released; return some, or use a "
		"larger GPU",
		bytes, avail, total, (unsigned long long)used);
}

/* If the driver has no memory, release all kept memory and try again. */
static int block_make(struct fdry_transient *p, size_t bytes, struct fdry_spare **ret)
{
	struct fdry_spare *b = calloc(1, sizeof(*b));
	int err;

	if (!b)
		return fdry_nomem();
	b->bytes = bytes;
	err = memory_make(p, bytes, &b->addr);
	if (err == -FDRY_E_NODEVMEM) {
		(void)fdry_transient_trim(&p->dev->pools[FDRY_TRANSIENT_DEVICE], 0);
		(void)fdry_transient_trim(&p->dev->pools[FDRY_TRANSIENT_PINNED], 0);
		pthread_mutex_lock(&p->lock);
		p->stats.retries++;
		pthread_mutex_unlock(&p->lock);
		err = memory_make(p, bytes, &b->addr);
	}
	if (err == -FDRY_E_NODEVMEM)
		err = memory_fail(p, bytes);
	if (err)
		goto out_free;
	*ret = b;
	return 0;
out_free:
	free(b);
	return err;
}

/* --- getting --- */

/* Move kept memory of that class to the memory in use; NULL if there is none. */
static int kept_use(struct fdry_transient *p, unsigned int class, unsigned long long stream,
		    struct fdry_spare **ret)
{
	int err;

	pthread_mutex_lock(&p->lock);
	err = fdry_map_reserve(&p->used);
	if (err)
		goto out_unlock;
	err = kept_find(p, class, stream, ret);
	if (err || !*ret)
		goto out_unlock;
	kept_unlink(p, *ret);
	used_add(p, *ret);
	p->stats.hits++;
out_unlock:
	pthread_mutex_unlock(&p->lock);
	return err;
}

static int new_use(struct fdry_transient *p, size_t bytes, struct fdry_spare **ret)
{
	struct fdry_spare *b = NULL;
	int err = block_make(p, bytes, &b);

	if (err)
		return err;
	pthread_mutex_lock(&p->lock);
	err = fdry_map_reserve(&p->used);
	if (err)
		goto out_free;
	used_add(p, b);
	p->stats.misses++;
	pthread_mutex_unlock(&p->lock);
	*ret = b;
	return 0;
out_free:
	pthread_mutex_unlock(&p->lock);
	(void)memory_free(p, b->addr);
	free(b);
	return err;
}

/* Find the number of a stream; 0 for FDRY_STREAM_NONE. */
static int stream_number(const struct fdry_device *dev, CUstream stream, const char *doing,
			 unsigned long long *ret)
{
	int err;

	*ret = 0;
	if (stream == FDRY_STREAM_NONE)
		return 0;
	err = fdry_device_not_capturing(dev, stream, doing);
	return err ? err : fdry_stream_number(dev->drv, stream, ret);
}

static int pool_get(struct fdry_transient *p, size_t bytes, CUstream stream, uint64_t *ret)
{
	unsigned int class = size_class(&bytes);
	struct fdry_spare *b = NULL;
	unsigned long long number;
	int err = stream_number(p->dev, stream,
				"get memory for a graph before its capture begins, and keep it as "
				"long as the graph",
				&number);

	if (err)
		return err;
	err = kept_use(p, class, number, &b);
	if (err)
		return err;
	fdry_count(b ? kinds[p->kind].hits : kinds[p->kind].misses, 1);
	if (b)
		event_put(p, b);
	else
		err = new_use(p, bytes, &b);
	if (err)
		return err;
	*ret = b->addr;
	return 0;
}

/* --- putting --- */

/* Find the memory, and mark it so that no other caller can put it as well. */
static int leave_begin(struct fdry_transient *p, uint64_t addr, struct fdry_spare **ret)
{
	struct fdry_spare *b;

	pthread_mutex_lock(&p->lock);
	b = fdry_map_get(&p->used, addr);
	if (b && b->leaving)
		b = NULL;
	if (b)
		b->leaving = true;
	pthread_mutex_unlock(&p->lock);
	*ret = b;
	return b ? 0
		 : fdry_fail(FDRY_E_STALE,
			     "no memory of the %s pool that is in use begins at %#llx: it was "
			     "returned before, or belongs to another pool; return memory once, to "
			     "its "
			     "own pool",
			     kinds[p->kind].name, (unsigned long long)addr);
}

static int mark_done(struct fdry_transient *p, struct fdry_spare *b, CUstream stream)
{
	struct fdry_syncs *events = &p->dev->syncs[FDRY_SYNC_EVENT];
	void *event = NULL;
	int err = stream_number(
		p->dev, stream,
		"memory that its graph uses must stay as long as the graph: return it after that",
		&b->stream);

	if (err || stream == FDRY_STREAM_NONE)
		return err;
	err = fdry_syncs_get(events, &event);
	if (err)
		return err;
	err = fdry_call(p->dev->drv, cuEventRecord, event, stream);
	b->done = event;
	if (err)
		event_put(p, b);
	return err;
}

static int pool_put(struct fdry_transient *p, uint64_t addr, CUstream stream)
{
	struct fdry_spare *b = NULL, *over = NULL;
	int err = leave_begin(p, addr, &b);

	if (err)
		return err;
	err = mark_done(p, b, stream);
	pthread_mutex_lock(&p->lock);
	b->leaving = false;
	if (err)
		goto out_unlock;
	used_remove(p, b);
	kept_link(p, b);
	over = kept_cut(p, p->stats.limit);
out_unlock:
	pthread_mutex_unlock(&p->lock);
	if (blocks_free(p, over)) /* the put itself did not fail */
		fdry_warn("memory above a pool's limit could not be released: %s",
			  fdry_last_error());
	return err;
}

/* --- the end --- */

void fdry_transient_release(struct fdry_transient *p)
{
	size_t i;

	(void)fdry_transient_trim(p, 0);
	fdry_gauge(kinds[p->kind].used, -(int64_t)p->stats.used);
	for (i = 0; i < p->used.capacity; i++)
		free(p->used.slots[i].value);
	fdry_map_release(&p->used);
	pthread_mutex_destroy(&p->lock);
}

/* --- the public functions --- */

static int kind_check(const struct fdry_device *dev, enum fdry_transient_kind kind)
{
	return fdry_device_check_kind(dev, (int)kind, FDRY_TRANSIENT_KINDS,
				      "memory; use one of enum fdry_transient_kind");
}

static int kind_enter(struct fdry_device *dev, enum fdry_transient_kind kind,
		      CUstreamCaptureMode *mode)
{
	int err = kind_check(dev, kind);

	return err ? err : fdry_device_enter(dev, mode);
}

int fdry_transient_get(struct fdry_device *dev, enum fdry_transient_kind kind, size_t bytes,
		       CUstream stream, uint64_t *ret)
{
	CUstreamCaptureMode mode;
	int err = fdry_need(ret);

	if (err)
		return err;
	if (!bytes)
		return fdry_fail(FDRY_E_INVAL, "0 bytes were requested; request at least 1");
	if (bytes > LARGE)
		return fdry_fail(FDRY_E_NODEVMEM,
				 "%zu bytes are more than any device has; request less", bytes);
	err = kind_enter(dev, kind, &mode);
	if (err)
		return err;
	err = pool_get(&dev->pools[kind], bytes, stream, ret);
	fdry_device_leave(dev, &mode);
	return err;
}

int fdry_transient_put(struct fdry_device *dev, enum fdry_transient_kind kind, uint64_t addr,
		       CUstream stream)
{
	CUstreamCaptureMode mode;
	int err = kind_enter(dev, kind, &mode);

	if (err)
		return err;
	err = pool_put(&dev->pools[kind], addr, stream);
	fdry_device_leave(dev, &mode);
	return err;
}

int fdry_transient_stats(struct fdry_device *dev, enum fdry_transient_kind kind,
			 struct fdry_transient_stats *ret)
{
	struct fdry_transient *p;
	int err = kind_check(dev, kind) ?: fdry_need(ret);

	if (err)
		return err;
	p = &dev->pools[kind];
	pthread_mutex_lock(&p->lock);
	err = fdry_report_give(&p->stats, sizeof(p->stats), ret);
	pthread_mutex_unlock(&p->lock);
	return err;
}

int fdry_transient_set_limit(struct fdry_device *dev, enum fdry_transient_kind kind, uint64_t bytes)
{
	CUstreamCaptureMode mode;
	int err = kind_enter(dev, kind, &mode);

	if (err)
		return err;
	pthread_mutex_lock(&dev->pools[kind].lock);
	dev->pools[kind].stats.limit = bytes;
	pthread_mutex_unlock(&dev->pools[kind].lock);
	err = fdry_transient_trim(&dev->pools[kind], bytes);
	fdry_device_leave(dev, &mode);
	return err;
}
