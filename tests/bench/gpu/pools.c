// SPDX-License-Identifier: Apache-2.0
/*
 * The cost of getting memory, a stream or an event from a device's pools and of putting it back,
 * beside the driver's own calls that make and destroy it. Prints nanoseconds of the calling thread
 * for both calls together, and the ratio to the first line of its kind. Nothing uses the results,
 * so a pool can always return an object that it keeps.
 *
 * pools [DRIVER]: also runs on the software driver, whose figures say nothing about a GPU.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "foundry/run.h"
#include "tests/lib/clock.h"
#include "tests/lib/gpu.h"
#include "tests/lib/need.h"

#define ROUNDS 15
#define BATCH 20 /* timed together; the stream is idle before and after */

struct bench {
	const struct fdry_driver *drv;
	struct fdry_device *dev;
	CUstream stream;
	CUmemoryPool pool; /* the device's default one */
	size_t bytes;
};

/* Driver functions that the library's table lacks. */
static CUresult (*alloc_async)(CUdeviceptr *, size_t, CUstream);
static CUresult (*free_async)(CUdeviceptr, CUstream);
static CUresult (*default_pool)(CUmemoryPool *, CUdevice);
static CUresult (*pool_set)(CUmemoryPool, CUmemPool_attribute, void *);

/* --- the ways --- */

static int plain_device(struct bench *b)
{
	CUdeviceptr p;
	int err = fdry_call(b->drv, cuMemAlloc_v2, &p, b->bytes);

	return err ? err : fdry_call(b->drv, cuMemFree_v2, p);
}

static int async_device(struct bench *b)
{
	CUdeviceptr p;
	CUresult res = alloc_async(&p, b->bytes, b->stream);

	return (int)(res ? res : free_async(p, b->stream));
}

static int plain_pinned(struct bench *b)
{
	void *p;
	int err = fdry_call(b->drv, cuMemAllocHost_v2, &p, b->bytes);

	return err ? err : fdry_call(b->drv, cuMemFreeHost, p);
}

static int pool_memory(struct bench *b, enum fdry_transient_kind kind, CUstream stream)
{
	uint64_t addr;
	int err = fdry_transient_get(b->dev, kind, b->bytes, stream, &addr);

	return err ? err : fdry_transient_put(b->dev, kind, addr, stream);
}

static int pool_device(struct bench *b)
{
	return pool_memory(b, FDRY_TRANSIENT_DEVICE, b->stream);
}

static int pool_device_none(struct bench *b)
{
	return pool_memory(b, FDRY_TRANSIENT_DEVICE, FDRY_STREAM_NONE);
}

static int pool_pinned(struct bench *b)
{
	return pool_memory(b, FDRY_TRANSIENT_PINNED, b->stream);
}

static int pool_pinned_none(struct bench *b)
{
	return pool_memory(b, FDRY_TRANSIENT_PINNED, FDRY_STREAM_NONE);
}

static int plain_stream(struct bench *b)
{
	CUstream s;
	int err = fdry_call(b->drv, cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);

	return err ? err : fdry_call(b->drv, cuStreamDestroy_v2, s);
}

static int event(struct bench *b, unsigned int flags)
{
	CUevent e;
	int err = fdry_call(b->drv, cuEventCreate, &e, flags);

	return err ? err : fdry_call(b->drv, cuEventDestroy_v2, e);
}

static int plain_event(struct bench *b)
{
	return event(b, CU_EVENT_DISABLE_TIMING);
}

static int plain_timer(struct bench *b)
{
	return event(b, CU_EVENT_DEFAULT);
}

static int pool_sync(struct bench *b, enum fdry_sync_kind kind)
{
	void *what;
	int err = fdry_sync_get(b->dev, kind, &what);

	return err ? err : fdry_sync_put(b->dev, kind, what);
}

static int pool_stream(struct bench *b)
{
	return pool_sync(b, FDRY_SYNC_STREAM);
}

static int pool_event(struct bench *b)
{
	return pool_sync(b, FDRY_SYNC_EVENT);
}

static int pool_timer(struct bench *b)
{
	return pool_sync(b, FDRY_SYNC_TIMER);
}

#define MEMORY(name, bytes) \
	{ "device_" name "_cuMemAlloc", plain_device, bytes, 100, 0, true }, \
	{ "device_" name "_cuMemAllocAsync", async_device, bytes, 1000, 0, false }, \
	{ "device_" name "_cuMemAllocAsync_kept", async_device, bytes, 1000, UINT64_MAX, false }, \
	{ "device_" name "_pool", pool_device, bytes, 1000, 0, false }, \
	{ "device_" name "_pool_no_stream", pool_device_none, bytes, 1000, 0, false }, \
	{ "pinned_" name "_cuMemAllocHost", plain_pinned, bytes, 100, 0, true }, \
	{ "pinned_" name "_pool", pool_pinned, bytes, 1000, 0, false }, \
	{ "pinned_" name "_pool_no_stream", pool_pinned_none, bytes, 1000, 0, false }

static const struct way {
	const char *name;
	int (*fn)(struct bench *b);
	size_t bytes;
	int calls;
	cuuint64_t keeps; /* the release threshold of the driver's own pool */
	bool first;       /* those below are compared with it */
} ways[] = {
	MEMORY("64K", 64u << 10),
	MEMORY("4M", 4u << 20),
	{ "stream_cuStreamCreate", plain_stream, 0, 100, 0, true },
	{ "stream_pool", pool_stream, 0, 1000, 0, false },
	{ "event_cuEventCreate", plain_event, 0, 1000, 0, true },
	{ "event_pool", pool_event, 0, 1000, 0, false },
	{ "timer_cuEventCreate", plain_timer, 0, 1000, 0, true },
	{ "timer_pool", pool_timer, 0, 1000, 0, false },
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* --- measured --- */

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double round_ns(struct bench *b, const struct way *w)
{
	cuuint64_t keeps = w->keeps;
	double sum = 0, from;
	int i, k;

	b->bytes = w->bytes;
	need((int)pool_set(b->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keeps),
	     "cuMemPoolSetAttribute");
	need(w->fn(b), w->name);
	for (i = 0; i < w->calls / BATCH; i++) {
		need(fdry_call(b->drv, cuStreamSynchronize, b->stream), "waiting");
		from = now_ns();
		for (k = 0; k < BATCH; k++)
			need(w->fn(b), w->name);
		sum += now_ns() - from;
	}
	need(fdry_call(b->drv, cuStreamSynchronize, b->stream), "waiting");
	return sum / w->calls;
}

static void *symbol(const struct fdry_driver *drv, const char *name)
{
	void *p = dlsym(drv->handle, name);

	need(!p, name);
	return p;
}

static void make(struct bench *b)
{
	need(fdry_device_get(0, &b->dev), "fdry_device_get");
	need(fdry_device_warm_up(b->dev), "fdry_device_warm_up");
	need(fdry_call(b->drv, cuStreamCreate, &b->stream, CU_STREAM_NON_BLOCKING),
	     "cuStreamCreate");
	*(void **)&alloc_async = symbol(b->drv, "cuMemAllocAsync");
	*(void **)&free_async = symbol(b->drv, "cuMemFreeAsync");
	*(void **)&default_pool = symbol(b->drv, "cuDeviceGetDefaultMemPool");
	*(void **)&pool_set = symbol(b->drv, "cuMemPoolSetAttribute");
	need((int)default_pool(&b->pool, 0), "cuDeviceGetDefaultMemPool");
}

static void print(double ns[WAYS][ROUNDS])
{
	double first = 0, median;
	size_t w;

	for (w = 0; w < WAYS; w++) {
		qsort(ns[w], ROUNDS, sizeof(double), by_size);
		median = ns[w][ROUNDS / 2];
		if (ways[w].first)
			first = median;
		printf("%-32s %9.0f %9.0f %9.0f %8.4f\n", ways[w].name, median, ns[w][0],
		       ns[w][ROUNDS - 1], median / first);
	}
}

int main(int argc, char **argv)
{
	static double ns[WAYS][ROUNDS];
	struct bench b = { 0 };
	size_t w;
	int r;

	if (argc > 1 ? setenv("FOUNDRY_DRIVER", argv[1], 1) : unsetenv("FOUNDRY_DRIVER"))
		return EXIT_FAILURE;
	if (argc > 1)
		need(fdry_driver_open(argv[1], &b.drv), argv[1]);
	else
		b.drv = gpu_driver();
	make(&b);
	printf("%s; medians of %d rounds, in turns\n%-32s %9s %9s %9s %8s\n",
	       b.drv->software ? "software driver" : "GPU", ROUNDS, "", "ns", "least", "most",
	       "ratio");
	for (r = 0; r < ROUNDS; r++)
		for (w = 0; w < WAYS; w++)
			ns[w][r] = round_ns(&b, &ways[w]);
	print(ns);
	need(fdry_call(b.drv, cuStreamDestroy_v2, b.stream), "cuStreamDestroy");
	fdry_device_put(b.dev);
	return EXIT_SUCCESS;
}
