// SPDX-License-Identifier: Apache-2.0
/*
 * Regions among other work of the process: other contexts, captures, work in flight,
 * several threads.
 */
#include "tests/lib/region.h"
#include "tests/lib/test.h"
#include "tests/lib/check_mm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define BLOCK ((uint64_t)FDRY_ALLOC_BLOCK)

/* --- contexts, captures, work in flight --- */

static CUresult (*ctx_create)(CUcontext *, unsigned int, CUdevice);
static CUresult (*ctx_destroy)(CUcontext);
static CUresult (*launch_host)(CUstream, CUhostFn, void *);

static void more_symbols(void)
{
	*(void **)&ctx_create = test_sim_symbol("cuCtxCreate_v2");
	*(void **)&ctx_destroy = test_sim_symbol("cuCtxDestroy_v2");
	*(void **)&launch_host = test_sim_symbol("cuLaunchHostFunc");
}

static CUcontext current(void)
{
	CUcontext ctx;

	ck_assert_int_eq(drv->cuCtxGetCurrent(&ctx), 0);
	return ctx;
}

static CUstreamCaptureMode mode_set(CUstreamCaptureMode mode)
{
	ck_assert_int_eq(drv->cuThreadExchangeStreamCaptureMode(&mode), 0);
	return mode;
}

/* A driver that checks that memory is used only in the primary context and in relaxed mode. */
static struct fdry_driver watched;
static CUcontext primary;
static unsigned int watch_calls;

static void watch(const char *call)
{
	CUstreamCaptureMode mode = mode_set(CU_STREAM_CAPTURE_MODE_RELAXED);

	if (mode != CU_STREAM_CAPTURE_MODE_RELAXED || current() != primary)
		ck_abort_msg("%s in mode %d, in %s context", call, (int)mode,
			     current() == primary ? "the" : "another");
	watch_calls++;
}

#define WATCHED(X) \
	X(cuMemAddressReserve, \
	  (CUdeviceptr * a, size_t b, size_t c, CUdeviceptr d, unsigned long long e), \
	  (a, b, c, d, e)) \
	X(cuMemAddressFree, (CUdeviceptr a, size_t b), (a, b)) \
	X(cuMemCreate, \
	  (CUmemGenericAllocationHandle * a, size_t b, const CUmemAllocationProp *c, \
	   unsigned long long d), \
	  (a, b, c, d)) \
	X(cuMemMap, \
	  (CUdeviceptr a, size_t b, size_t c, CUmemGenericAllocationHandle d, \
	   unsigned long long e), \
	  (a, b, c, d, e)) \
	X(cuMemRelease, (CUmemGenericAllocationHandle a), (a)) \
	X(cuMemSetAccess, (CUdeviceptr a, size_t b, const CUmemAccessDesc *c, size_t d), \
	  (a, b, c, d)) \
	X(cuMemUnmap, (CUdeviceptr a, size_t b), (a, b)) \
	X(cuMemsetD32Async, (CUdeviceptr a, unsigned int b, size_t c, CUstream d), (a, b, c, d)) \
	X(cuStreamCreate, (CUstream * a, unsigned int b), (a, b)) \
	X(cuStreamDestroy_v2, (CUstream a), (a)) \
	X(cuStreamSynchronize, (CUstream a), (a))

#define X(name, parameters, arguments)        \
	static CUresult watch_##name parameters \
	{                                      \
		watch(#name);                  \
		return drv->name arguments;    \
	}
WATCHED(X)
#undef X

static void watch_up(void)
{
	watched = *drv;
#define X(name, parameters, arguments) watched.name = watch_##name;
	WATCHED(X)
#undef X
	ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&primary, 0), 0);
	ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease_v2(0),
			 0); /* the fixture's region holds it */
}

/* Everything that a region does, on a region of its own. */
static void do_everything(void)
{
	struct fdry_region *mine = region;
	CUdeviceptr a;

	ok(fdry_region_new(&watched, 0, BASE + SIZE, 64 * MiB, &region));
	a = region_get(3 * MiB);
	ck_assert(region_all(a, 3 * MiB, 0));
	region_get_with(1, FDRY_ALLOC_CAPTURING);
	ok(fdry_region_preallocate(region, 3 * MiB));
	ok(fdry_region_back(region, BASE + SIZE + 32 * MiB, 3 * MiB));
	region_put(a);
	ok(fdry_region_dealloc(region, region_get(2 * MiB), FDRY_ALLOC_CAPTURING));
	ok(fdry_region_trim(region));
	ok(fdry_region_free_preallocated(region, 0));
	fdry_region_free(region);
	region = mine;
}

/* The current context may be none, one of this device or one of another, and the thread may have
 * any capture mode. Memory is handled in the primary context and in relaxed mode, and both are
 * restored. */
START_TEST(context_and_mode_are_put_back)
{
	CUcontext ctx = NULL;

	more_symbols();
	watch_up();
	if (_i)
		ck_assert_int_eq(ctx_create(&ctx, 0, _i - 1), 0);
	mode_set(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	do_everything();
	ck_assert_ptr_eq(current(), ctx);
	ck_assert_int_eq(mode_set(CU_STREAM_CAPTURE_MODE_GLOBAL),
			 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	ck_assert_uint_gt(watch_calls, 30);
	if (ctx)
		ck_assert_int_eq(ctx_destroy(ctx), 0);
}
END_TEST

/* A context that was destroyed while it was current has no work to wait for. */
START_TEST(a_dead_context_is_no_obstacle)
{
	CUcontext ctx;

	more_symbols();
	ck_assert_int_eq(ctx_create(&ctx, 0, 0), 0);
	ck_assert_int_eq(drv->cuCtxPushCurrent_v2(ctx), 0);
	ck_assert_int_eq(ctx_destroy(ctx), 0);
	region_put(region_get(3 * MiB));
}
END_TEST

/* The primary context, current as in an ordinary program. */
static CUcontext primary_up(void)
{
	CUcontext ctx;

	more_symbols();
	ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	ck_assert_int_eq(drv->cuCtxSetCurrent(ctx), 0);
	return ctx;
}

static void primary_down(void)
{
	ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease_v2(0), 0);
}

/* In every mode: allocating and freeing neither break a capture nor become part of it. */
START_TEST(captures_go_on)
{
	CUstreamCaptureMode modes[] = { CU_STREAM_CAPTURE_MODE_GLOBAL,
					CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
					CU_STREAM_CAPTURE_MODE_RELAXED };
	CUdeviceptr before, during;
	CUstream stream;
	CUgraph graph;
	size_t nodes;

	primary_up();
	ck_assert_int_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	before = region_get(3 * MiB);
	ck_assert_int_eq(drv->cuStreamBeginCapture_v2(stream, modes[_i]), 0);
	during = region_get_with(5 * MiB, FDRY_ALLOC_CAPTURING);
	ck_assert(region_all(during, 6 * MiB, FDRY_STAMP));
	ok(fdry_region_preallocate(region, 16 * MiB));
	ok(fdry_region_free_preallocated(region, FDRY_ALLOC_CAPTURING));
	ok(fdry_region_dealloc(region, before, FDRY_ALLOC_CAPTURING));
	ok(fdry_region_dealloc(region, region_get_with(100, FDRY_ALLOC_CAPTURING),
			       FDRY_ALLOC_CAPTURING));
	ck_assert_uint_eq(region_stats().idle_bytes, 4 * MiB + 16 * MiB);
	ck_assert_int_eq(drv->cuStreamEndCapture(stream, &graph), 0);
	ck_assert_int_eq(drv->cuGraphGetNodes(graph, NULL, &nodes), 0);
	ck_assert_uint_eq(nodes, 0);
	/* Work may still use it: it is neither reused nor unmapped until a call has waited. */
	region_get(1);
	ck_assert_uint_eq(region_stats().idle_bytes, 4 * MiB);
	ok(fdry_region_trim(region));
	ck_assert_uint_eq(region_stats().idle_bytes, 0);
	drv->cuGraphDestroy(graph);
	drv->cuStreamDestroy_v2(stream);
	primary_down();
}
END_TEST

static atomic_int done;

static void slow(void *arg)
{
	usleep(100000);
	region_soil(*(CUdeviceptr *)arg, 4 * MiB);
	atomic_store(&done, 1);
}

static atomic_int may_end;

/* Gives up after 20 s. */
static void until_may_end(void *arg)
{
	int i;

	(void)arg;
	for (i = 0; i < 20000 && !atomic_load(&may_end); i++)
		usleep(1000);
	atomic_store(&done, atomic_load(&may_end));
}

/* Freeing waits for work in the region's context and in the current one, also if nothing is
 * unmapped. */
START_TEST(freeing_waits)
{
	CUcontext own = NULL;
	CUdeviceptr a;
	CUstream stream;

	ok(fdry_region_preallocate(region, 8 * MiB));
	a = region_get(4 * MiB);
	primary_up();
	if (_i)
		ck_assert_int_eq(ctx_create(&own, 0, 0), 0);
	ck_assert_int_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(launch_host(stream, slow, &a), 0);
	region_put(a);
	ck_assert_int_eq(atomic_load(&done), 1);
	drv->cuStreamDestroy_v2(stream);
	if (own)
		ctx_destroy(own);
	primary_down();
}
END_TEST

/* The software driver waits in cuMemUnmap as well, so the wait is counted. */
START_TEST(the_end_waits)
{
	struct fdry_region *r = region_at(BASE + SIZE, 64 * MiB);

	ok(fdry_region_back(r, BASE + SIZE, 2 * MiB));
	test_sim_fail("");
	fdry_region_free(r);
	ck_assert_uint_eq(test_sim_calls("cuCtxSynchronize"), 1);
	ck_assert_uint_eq(test_sim_calls("cuMemUnmap"), 1);
}
END_TEST

/* Allocating waits for nothing but its own filling, not for the default stream either. */
START_TEST(allocating_does_not_wait)
{
	primary_up();
	ck_assert_int_eq(launch_host(NULL, until_may_end, NULL), 0);
	region_get(4 * MiB);
	region_get_with(100, FDRY_ALLOC_CAPTURING);
	atomic_store(&may_end, 1);
	ck_assert_int_eq(drv->cuCtxSynchronize(), 0);
	ck_assert_int_eq(atomic_load(&done), 1);
	primary_down();
}
END_TEST

/* Before memory that was freed during a capture is unmapped or reused, the region waits for work on
 * it. */
START_TEST(late_freeing_waits)
{
	CUdeviceptr a = region_get(4 * MiB), b = region_get(4 * MiB);
	CUstream stream;

	primary_up();
	ck_assert_int_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(launch_host(stream, slow, &a), 0);
	ok(fdry_region_dealloc(region, a, FDRY_ALLOC_CAPTURING));
	ok(fdry_region_dealloc(region, b, FDRY_ALLOC_CAPTURING));
	ck_assert_int_eq(atomic_load(&done), 0);
	if (_i == 0)
		ok(fdry_region_trim(region));
	else if (_i == 1)
		ok(fdry_region_set_offset(region, 0));
	else
		region_put(region_get(1));
	ck_assert_int_eq(atomic_load(&done), 1);
	ck_assert_uint_eq(region_stats().idle_bytes, _i == 2 ? BLOCK : 0);
	drv->cuStreamDestroy_v2(stream);
	primary_down();
}
END_TEST

/* A wait covers memory freed before its beginning. During the wait, another thread frees
 * @meanwhile, which work still uses. */
static CUdeviceptr meanwhile;

static CUresult sync_and_free(void)
{
	CUdeviceptr addr = meanwhile;

	meanwhile = 0;
	if (addr)
		ok(fdry_region_dealloc(region, addr, FDRY_ALLOC_CAPTURING));
	return drv->cuCtxSynchronize();
}

START_TEST(freed_during_a_wait)
{
	struct fdry_region *mine = region;
	CUdeviceptr a, b;

	watched = *drv;
	watched.cuCtxSynchronize = sync_and_free;
	ok(fdry_region_new(&watched, 0, BASE + SIZE, 64 * MiB, &region));
	a = region_get(2 * MiB);
	b = meanwhile = region_get(2 * MiB);
	region_put(a);
	ck_assert_uint_eq(region_stats().idle_bytes, 2 * MiB); /* b's, not a's */
	ck_assert_uint_eq(region_stats().mapped_bytes, 2 * MiB);
	meanwhile = region_get(2 * MiB);
	ck_assert_uint_eq(meanwhile, a);
	ck_assert_int_eq(fdry_region_set_offset(region, 0), -FDRY_E_STATE);
	ck_assert_uint_eq(fdry_region_offset(region), 4 * MiB);
	ok(fdry_region_set_offset(region, 0));
	ck_assert_uint_eq(region_stats().mapped_bytes, 0);
	ck_assert(!fdry_region_find(region, b, &(struct fdry_alloc){ 0 }));
	/* the same address, freed twice at the same time */
	meanwhile = a = region_get(2 * MiB);
	ck_assert_int_eq(fdry_region_dealloc(region, a, 0), -FDRY_E_INVAL);
	ok(check_region(region));
	fdry_region_free(region);
	region = mine;
}
END_TEST

/* --- threads --- */

enum { THREADS = 4, ROUNDS = 200, KEPT = 8 };

struct worker {
	pthread_t thread;
	unsigned int seed;
	int failures;
	CUdeviceptr addr[KEPT];
	uint64_t size[KEPT];
};

static volatile uint8_t *byte(CUdeviceptr addr)
{
	return (volatile uint8_t *)(uintptr_t)addr;
}

/* First, middle and last byte of slot @k hold the worker's own mark. */
static void slot_write(struct worker *w, int k, uint8_t mark)
{
	*byte(w->addr[k]) = *byte(w->addr[k] + w->size[k] / 2) =
		*byte(w->addr[k] + w->size[k] - 1) = mark;
}

static void slot_free(struct worker *w, int k, uint8_t mark)
{
	CUdeviceptr last = w->addr[k] + w->size[k] - 1;
	struct fdry_alloc a;

	w->failures += *byte(w->addr[k]) != mark || *byte(last) != mark;
	w->failures += *byte(w->addr[k] + w->size[k] / 2) != mark;
	w->failures += !fdry_region_find(region, last, &a) || a.addr != w->addr[k];
	w->failures += fdry_region_dealloc(region, w->addr[k], 0) != 0;
	w->addr[k] = 0;
}

/* Allocate, write, read again, free: other threads' bytes never appear. */
static void *churn(void *arg)
{
	struct worker *w = arg;
	uint8_t mark = (uint8_t)(w->seed * 31);
	int i, k;

	for (i = 0; i < ROUNDS + KEPT; i++) {
		k = i % KEPT;
		if (w->addr[k])
			slot_free(w, k, mark);
		if (i >= ROUNDS)
			continue;
		w->size[k] = (uint64_t)rand_r(&w->seed) % (i % 32 ? 9000 : 3 * MiB) + 1;
		w->failures +=
			fdry_region_alloc(region, w->size[k], i % 7 ? 0 : FDRY_ALLOC_CAPTURING,
					  &w->addr[k]) != 0;
		if (w->addr[k])
			slot_write(w, k, mark);
	}
	return NULL;
}

START_TEST(threads_do_not_meet)
{
	struct worker w[THREADS] = { 0 };
	int i;

	if (_i)
		ok(fdry_region_preallocate(region, 40 * MiB));
	for (i = 0; i < THREADS; i++) {
		w[i].seed = (unsigned int)i + 1;
		ck_assert_int_eq(pthread_create(&w[i].thread, NULL, churn, &w[i]), 0);
	}
	for (i = 0; i < 50; i++)
		ok(check_region(region));
	for (i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		ck_assert_int_eq(w[i].failures, 0);
	}
	ck_assert_uint_eq(region_stats().allocs, 0);
	ck_assert_uint_eq(region_get_with(1, FDRY_ALLOC_CAPTURING),
			  BASE + fdry_region_offset(region) - 512);
	ck_assert(fdry_region_find(region, BASE + fdry_region_offset(region) - 512,
				   &(struct fdry_alloc){ 0 }));
}
END_TEST

static void *free_one(void *arg)
{
	return fdry_region_dealloc(region, *(CUdeviceptr *)arg, 0) ? NULL : arg;
}

/* If two threads free the same address, one succeeds. */
START_TEST(threads_free_once)
{
	CUdeviceptr addr;
	pthread_t other;
	void *a, *b;
	int i;

	for (i = 0; i < 100; i++) {
		addr = region_get(i % 4 ? 100 : 3 * MiB);
		ck_assert_int_eq(pthread_create(&other, NULL, free_one, &addr), 0);
		a = free_one(&addr);
		pthread_join(other, &b);
		if (!a == !b)
			ck_abort_msg("%s freed it", a ? "both" : "nobody");
	}
	ck_assert_uint_eq(region_stats().allocs, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mm_region_work");
	TCase *tc = tcase_create("work");

	setenv("FDRY_SIM_MEMORY", "256M", 1);
	setenv("FDRY_SIM_DEVICES", "2", 1);
	tcase_add_checked_fixture(tc, region_up, region_down);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, context_and_mode_are_put_back, 0, 3);
	tcase_add_test(tc, a_dead_context_is_no_obstacle);
	tcase_add_loop_test(tc, captures_go_on, 0, 3);
	tcase_add_loop_test(tc, freeing_waits, 0, 2);
	tcase_add_test(tc, the_end_waits);
	tcase_add_test(tc, allocating_does_not_wait);
	tcase_add_loop_test(tc, late_freeing_waits, 0, 3);
	tcase_add_test(tc, freed_during_a_wait);
	tcase_add_loop_test(tc, threads_do_not_meet, 0, 2);
	tcase_add_test(tc, threads_free_once);
	suite_add_tcase(s, tc);
	return test_main(s);
}
