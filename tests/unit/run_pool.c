// SPDX-License-Identifier: Apache-2.0
/* Unit tests of pools that reuse memory, streams and events. */
#include "foundry/run.h"
#include "lib/map.h"
#include "lib/telemetry.h"
#include "tests/lib/device.h"
#include "tests/lib/test.h"

/* --- memory --- */

START_TEST(memory_comes_again)
{
	uint64_t a = transient_get(_i, 1000, NONE), b = transient_get(_i, 1000, NONE), c;
	struct fdry_transient_stats st = transient_stats(_i);

	ck_assert(a != b);
	ck_assert_uint_eq(st.used, 2048);
	ck_assert_uint_eq(st.used_count, 2);
	ck_assert_uint_eq(st.cached, 0);
	ck_assert_uint_eq(st.misses, 2);
	ck_assert_uint_eq(st.limit, _i == DEV ? 256u << 20 : 128u << 20);
	ok(fdry_transient_put(dev, _i, a, NONE));
	st = transient_stats(_i);
	ck_assert_uint_eq(st.cached, 1024);
	ck_assert_uint_eq(st.cached_count, 1);
	ck_assert_uint_eq(st.used, 1024);
	c = transient_get(_i, 1024, NONE); /* the same class */
	ck_assert_uint_eq(c, a);
	st = transient_stats(_i);
	ck_assert_uint_eq(st.hits, 1);
	ck_assert_uint_eq(st.peak, 2048);
	ck_assert_uint_eq(st.cached, 0);
	ok(fdry_transient_put(dev, _i, c, NONE));
	ck_assert_uint_ne(transient_get(_i, 1025, NONE), a); /* another class */
	ok(fdry_transient_put(dev, _i, b, NONE));
	ok(fdry_device_clean_up(dev));
	st = transient_stats(_i);
	ck_assert_uint_eq(st.cached, 0);
	ck_assert_uint_eq(st.used_count, 1); /* buffers in use stay */
	ck_assert_int_eq(test_sim_live(_i == DEV ? "allocation" : "host"), 1);
}
END_TEST

/* Each size fits its class, and is not rounded up by more than the documented part. */
START_TEST(size_classes)
{
	static const size_t more[] = { 0, 1, 511, 512, 513, 4095, 4096, 4097 };
	struct fdry_transient_stats st;
	size_t i, k, bytes;
	uint64_t addr;

	ok(fdry_transient_set_limit(dev, DEV, 0));
	for (i = 9; i < 30; i++)
		for (k = 0; k < 8; k++) {
			bytes = ((size_t)1 << i) + more[k];
			addr = transient_get(DEV, bytes, NONE);
			st = transient_stats(DEV);
			ck_assert_msg(st.used >= bytes && st.used < bytes + bytes / 8 + 512,
				      "%zu became %zu", bytes, (size_t)st.used);
			ok(fdry_transient_put(dev, DEV, addr, NONE));
		}
	ck_assert_uint_eq(transient_stats(DEV).cached, 0);
}
END_TEST

START_TEST(not_before_the_work_is_done)
{
	CUstream s = stream_get(), t = stream_get();
	uint64_t a = transient_get(_i, 5000, s), b, c, d;
	struct gate g;

	gate_shut(&g, s);
	ok(fdry_transient_put(dev, _i, a, s));
	b = transient_get(_i, 5000, t);
	ck_assert_uint_ne(b, a); /* another stream */
	c = transient_get(_i, 5000, NONE);
	ck_assert_uint_ne(c, a); /* the host */
	ck_assert_uint_eq(transient_stats(_i).busy, 2);
	d = transient_get(_i, 5000, s);
	ck_assert_uint_eq(d, a); /* the same stream may reuse it, since its order separates the two
				    uses */
	ok(fdry_transient_put(dev, _i, d, s));
	gate_open(&g, s);
	ck_assert_uint_eq(transient_get(_i, 5000, t), a);
	ok(fdry_transient_put(dev, _i, a, NONE));
	ok(fdry_transient_put(dev, _i, b, NONE));
	ok(fdry_transient_put(dev, _i, c, NONE));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, t));
}
END_TEST

/* A stream gets a buffer that it gave back, without a wait and without the driver, however many
 * buffers other streams have given back since. */
START_TEST(its_own_comes_at_once)
{
	CUstream s = stream_get(), t = stream_get();
	struct gate g, h;
	uint64_t mine = transient_get(_i, 5000, s), others[40], again;
	int i;

	for (i = 0; i < 40; i++)
		others[i] = transient_get(_i, 5000, t);
	gate_shut(&g, s);
	gate_shut(&h, t);
	ok(fdry_transient_put(dev, _i, mine, s));
	for (i = 0; i < 40; i++)
		ok(fdry_transient_put(dev, _i, others[i], t));
	again = transient_get(_i, 5000, s);
	ck_assert_uint_eq(again, mine);
	ck_assert_uint_eq(transient_stats(_i).busy, 1); /* it passed over the others */
	ok(fdry_transient_put(dev, _i, again, s));
	gate_open(&g, s);
	gate_open(&h, t);
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, t));
}
END_TEST

/* A new stream with the handle of a destroyed one is a different stream. */
START_TEST(a_stream_that_comes_again)
{
	CUstream s, t = NULL;
	uint64_t a, b;
	struct gate g;
	int i;

	ck_assert_int_eq(drv->cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	a = transient_get(DEV, 5000, s);
	gate_shut(&g, s);
	ok(fdry_transient_put(dev, DEV, a, s));
	ck_assert_int_eq(drv->cuStreamDestroy_v2(s), CUDA_SUCCESS);
	for (i = 0; i < 64 && t != s; i++)
		ck_assert_int_eq(drv->cuStreamCreate(&t, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	b = transient_get(DEV, 5000, t);
	ck_assert_uint_ne(a, b);
	pthread_mutex_lock(&g.lock);
	g.open = true;
	pthread_mutex_unlock(&g.lock);
	ok(fdry_transient_put(dev, DEV, b, t));
	ok(fdry_device_clean_up(dev)); /* waits for the destroyed stream's work */
	ck_assert_int_eq(test_sim_live("allocation"), 0);
	fdry_device_put(dev);
	_exit(0); /* the driver keeps the streams of this test */
}
END_TEST

START_TEST(the_limit)
{
	uint64_t a[4];
	struct fdry_transient_stats st;
	int i;

	for (i = 0; i < 4; i++)
		a[i] = transient_get(_i, 1 << 20, NONE);
	ok(fdry_transient_set_limit(dev, _i, 2 << 20));
	for (i = 0; i < 4; i++)
		ok(fdry_transient_put(dev, _i, a[i], NONE));
	st = transient_stats(_i);
	ck_assert_uint_eq(st.cached, 2 << 20);
	ck_assert_uint_eq(st.cached_count, 2);
	/* the first buffer returned is the first released */
	ck_assert_uint_eq(transient_get(_i, 1 << 20, NONE), a[3]);
	ck_assert_uint_eq(transient_get(_i, 1 << 20, NONE), a[2]);
	ok(fdry_transient_put(dev, _i, a[3], NONE));
	ok(fdry_transient_put(dev, _i, a[2], NONE));
	a[0] = transient_get(_i, 3 << 20,
			     NONE); /* larger than the limit: not kept, nor are the others then */
	ok(fdry_transient_put(dev, _i, a[0], NONE));
	ck_assert_uint_eq(transient_stats(_i).cached, 0);
	ok(fdry_transient_set_limit(dev, _i, 0));
	a[0] = transient_get(_i, 100, NONE);
	ok(fdry_transient_put(dev, _i, a[0], NONE));
	ck_assert_uint_eq(transient_stats(_i).cached, 0);
	ck_assert_int_eq(test_sim_live(_i == DEV ? "allocation" : "host"), 0);
}
END_TEST

START_TEST(wrong_addresses)
{
	uint64_t a = transient_get(DEV, 100, NONE), r = 77;

	fails(STALE, "returned before", fdry_transient_put(dev, DEV, a + 512, NONE));
	fails(STALE, "pinned pool", fdry_transient_put(dev, PIN, a, NONE));
	fails(STALE, "returned before", fdry_transient_put(dev, DEV, 0, NONE));
	ok(fdry_transient_put(dev, DEV, a, NONE));
	fails(STALE, "returned before", fdry_transient_put(dev, DEV, a, NONE));
	fails(INVAL, "0 bytes", fdry_transient_get(dev, DEV, 0, NONE, &r));
	fails(INVAL, "no kind", fdry_transient_get(dev, 2, 1, NONE, &r));
	fails(INVAL, "NULL", fdry_transient_get(dev, DEV, 1, NONE, NULL));
	fails(INVAL, "NULL", fdry_transient_get(NULL, DEV, 1, NONE, &r));
	fails(NODEVMEM, "more than any device has",
	      fdry_transient_get(dev, DEV, SIZE_MAX, NONE, &r));
	ck_assert_uint_eq(r, 77);
}
END_TEST

/* Memory that a graph uses must live as long as the graph: buffers are neither lent nor returned on
 * a capturing stream. */
START_TEST(not_while_capturing)
{
	CUstream s = stream_get();
	uint64_t a = transient_get(DEV, 100, s), r = 77;
	CUgraph graph;

	ck_assert_int_eq(drv->cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL),
			 CUDA_SUCCESS);
	fails(STATE, "is capturing", fdry_transient_get(dev, DEV, 100, s, &r));
	fails(STATE, "is capturing", fdry_transient_put(dev, DEV, a, s));
	fails(STATE, "is capturing", fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
	ck_assert_uint_eq(r, 77);
	r = transient_get(DEV, 100, NONE); /* others are not kept from it, and the capture lives */
	ck_assert_int_eq(drv->cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuGraphDestroy(graph), CUDA_SUCCESS);
	ok(fdry_transient_put(dev, DEV, r, NONE));
	ok(fdry_transient_put(dev, DEV, a, s)); /* it is still in use until then */
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
}
END_TEST

START_TEST(none_left)
{
	uint64_t a = transient_get(_i, 1 << 20, NONE), b, r = 77;
	const char *call = _i == DEV ? "cuMemAlloc_v2" : "cuMemHostAlloc";
	char spec[64];

	ok(fdry_transient_put(dev, _i, a, NONE));
	b = transient_get(_i, 2 << 20, NONE);
	snprintf(spec, sizeof(spec), "%s:1:2",
		 call); /* after one CUDA_ERROR_OUT_OF_MEMORY, kept buffers are released, and the
			   call works */
	test_sim_fail(spec);
	a = transient_get(_i, 4 << 20, NONE);
	ck_assert_uint_eq(test_sim_failed(), 1);
	ck_assert_uint_eq(transient_stats(_i).cached, 0);
	ck_assert_uint_eq(transient_stats(_i).retries, 1);
	snprintf(spec, sizeof(spec), "%s:1+:2", call);
	test_sim_fail(spec);
	if (_i == DEV)
		fails(NODEVMEM, "there are no 8388608 bytes of device memory",
		      fdry_transient_get(dev, DEV, 8 << 20, NONE, &r));
	else
		fails(NOMEM, "there are no 8388608 bytes of pinned memory",
		      fdry_transient_get(dev, PIN, 8 << 20, NONE, &r));
	ck_assert_uint_eq(r, 77);
	test_sim_fail(NULL);
	ok(fdry_transient_put(dev, _i, a, NONE));
	ok(fdry_transient_put(dev, _i, b, NONE));
}
END_TEST

/* Every driver call of a get and a put fails once: an error, and all is as before. */
START_TEST(each_call_fails)
{
	CUstream s = stream_get();
	uint64_t a, b;
	char spec[32];
	int n, failed = 0;

	a = transient_get(DEV, 5000, s);
	ok(fdry_transient_put(dev, DEV, a, s));
	for (n = 1; n < 40; n++) {
		snprintf(spec, sizeof(spec), "*:%d:999", n);
		test_sim_fail(spec);
		a = 0;
		if (!fdry_transient_get(dev, DEV, 5000, s, &a) &&
		    fdry_transient_put(dev, DEV, a, s)) {
			failed++;
			ck_assert_uint_eq(transient_stats(DEV).used_count, 1); /* still in use */
			test_sim_fail(NULL);
			ok(fdry_transient_put(dev, DEV, a, s));
		}
		test_sim_fail(NULL);
		ck_assert_uint_eq(transient_stats(DEV).used_count, 0);
		ck_assert_uint_le(transient_stats(DEV).cached_count, 2);
	}
	ck_assert_int_ge(failed, 2);
	b = transient_get(DEV, 5000, s);
	ok(fdry_transient_put(dev, DEV, b, s));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
}
END_TEST

/* --- threads --- */

#define THREADS 4
#define TURNS 300

/* No two threads have the same buffer: each writes its own number and reads it again. */
static void *churn(void *arg)
{
	uint64_t mine[8] = { 0 }, me = (uint64_t)(uintptr_t)arg, *p;
	void *stream = NULL;
	int i, k;

	ok(fdry_device_warm_up(dev));
	ok(fdry_sync_get(dev, FDRY_SYNC_STREAM, &stream));
	for (i = 0; i < TURNS; i++) {
		k = i * 7 % 8;
		if (mine[k]) {
			p = (uint64_t *)(uintptr_t)mine[k];
			ck_assert_msg(p[0] == me && p[60] == me, "two had the same memory");
			ok(fdry_transient_put(dev, PIN, mine[k], i % 3 ? (CUstream)stream : NONE));
		}
		ok(fdry_transient_get(dev, PIN, 500 + 100 * (size_t)(i % 5),
				      i % 2 ? (CUstream)stream : NONE, &mine[k]));
		p = (uint64_t *)(uintptr_t)mine[k];
		p[0] = p[60] = me;
		if (i % 50 == 49 && me == 1)
			ok(fdry_device_clean_up(dev));
	}
	for (k = 0; k < 8; k++)
		ok(mine[k] ? fdry_transient_put(dev, PIN, mine[k], stream) : 0);
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, stream));
	return NULL;
}

START_TEST(many_threads)
{
	pthread_t threads[THREADS];
	uintptr_t i;

	for (i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&threads[i], NULL, churn, (void *)(i + 1)));
	for (i = 0; i < THREADS; i++)
		ck_assert(!pthread_join(threads[i], NULL));
	ck_assert_uint_eq(transient_stats(PIN).used_count, 0);
	ck_assert_uint_eq(transient_stats(PIN).used, 0);
	ck_assert_uint_eq(transient_stats(PIN).hits + transient_stats(PIN).misses, THREADS * TURNS);
}
END_TEST

static void *put_once(void *arg)
{
	return (void *)(intptr_t)fdry_transient_put(dev, DEV, *(uint64_t *)arg, NONE);
}

START_TEST(two_give_back_the_same)
{
	pthread_t t[2];
	void *r[2];
	uint64_t a;
	int i, k;

	for (i = 0; i < 50; i++) {
		a = transient_get(DEV, 100, NONE);
		for (k = 0; k < 2; k++)
			ck_assert(!pthread_create(&t[k], NULL, put_once, &a));
		for (k = 0; k < 2; k++)
			ck_assert(!pthread_join(t[k], &r[k]));
		ck_assert_msg(!r[0] != !r[1], "%ld and %ld", (long)(intptr_t)r[0],
			      (long)(intptr_t)r[1]);
		ck_assert_int_eq((int)(intptr_t)(r[0] ? r[0] : r[1]), -FDRY_E_STALE);
	}
}
END_TEST

/* --- streams, events --- */

static struct fdry_sync_stats syncs(enum fdry_sync_kind kind)
{
	struct fdry_sync_stats st = { .sz = sizeof(st) };

	ok(fdry_sync_stats(dev, kind, &st));
	return st;
}

START_TEST(syncs_come_again)
{
	void *a = NULL, *b = NULL, *c = NULL;
	struct fdry_sync_stats st;

	ok(fdry_sync_get(dev, _i, &a));
	ok(fdry_sync_get(dev, _i, &b));
	ck_assert_ptr_ne(a, b);
	st = syncs(_i);
	ck_assert_uint_eq(st.used, 2);
	ck_assert_uint_eq(st.made, 2);
	ck_assert_uint_eq(st.limit, 128);
	ok(fdry_sync_put(dev, _i, a));
	fails(STALE, "returned before", fdry_sync_put(dev, _i, a));
	fails(STALE, "returned before", fdry_sync_put(dev, _i, &c));
	fails(INVAL, "NULL", fdry_sync_put(dev, _i, NULL));
	ck_assert_uint_eq(fdry_sync_count(dev), 1);
	ok(fdry_sync_get(dev, _i, &c));
	ck_assert_ptr_eq(a, c);
	st = syncs(_i);
	ck_assert_uint_eq(st.again, 1);
	ck_assert_uint_eq(st.kept, 0);
	ok(fdry_sync_put(dev, _i, b));
	ok(fdry_device_clean_up(dev));
	st = syncs(_i);
	ck_assert_uint_eq(st.destroyed, 1);
	ck_assert_uint_eq(st.used, 1);
	ok(fdry_sync_put(dev, _i, c));
}
END_TEST

START_TEST(no_more_than_the_limit)
{
	void *a[130];
	struct fdry_sync_stats st;
	int i;

	for (i = 0; i < 130; i++)
		ok(fdry_sync_get(dev, FDRY_SYNC_TIMER, &a[i]));
	for (i = 0; i < 130; i++)
		ok(fdry_sync_put(dev, FDRY_SYNC_TIMER, a[i]));
	st = syncs(FDRY_SYNC_TIMER);
	ck_assert_uint_eq(st.kept, 128);
	ck_assert_uint_eq(st.destroyed, 2);
	ck_assert_int_eq(test_sim_live("event"), 128);
	ck_assert_uint_eq(syncs(FDRY_SYNC_EVENT).kept, 0); /* kinds are apart */
}
END_TEST

START_TEST(timing_events_time)
{
	CUresult (*elapsed)(float *, CUevent, CUevent);
	void *a = NULL, *b = NULL, *c = NULL;
	CUstream s = stream_get();
	float ms = -1;

	*(void **)&elapsed = test_sim_symbol("cuEventElapsedTime");
	ok(fdry_sync_get(dev, FDRY_SYNC_TIMER, &a));
	ok(fdry_sync_get(dev, FDRY_SYNC_TIMER, &b));
	ok(fdry_sync_get(dev, FDRY_SYNC_EVENT, &c));
	ck_assert_int_eq(drv->cuEventRecord(a, s), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuEventRecord(b, s), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuEventRecord(c, s), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuStreamSynchronize(s), CUDA_SUCCESS);
	ck_assert_int_eq(elapsed(&ms, a, b), CUDA_SUCCESS);
	ck_assert(ms >= 0);
	ck_assert_int_eq(elapsed(&ms, a, c), CUDA_ERROR_INVALID_HANDLE);
	ok(fdry_sync_put(dev, FDRY_SYNC_TIMER, a));
	ok(fdry_sync_put(dev, FDRY_SYNC_TIMER, b));
	fails(STALE, "timing event", fdry_sync_put(dev, FDRY_SYNC_TIMER, c));
	ok(fdry_sync_put(dev, FDRY_SYNC_EVENT, c));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
}
END_TEST

START_TEST(a_busy_stream_is_passed_over)
{
	CUstream s = stream_get(), t;
	struct gate g;

	gate_shut(&g, s);
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
	t = stream_get();
	ck_assert_ptr_ne(s, t);
	gate_open(&g, s);
	ck_assert_ptr_eq(stream_get(), s);
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, t));
}
END_TEST

/* --- counters --- */

static uint64_t value(enum fdry_metric_id id)
{
	uint64_t values[FDRY_METRICS];

	fdry_telemetry_read(values);
	return values[id];
}

START_TEST(numbers_of_pools)
{
	uint64_t a = transient_get(DEV, 4096, NONE), b = transient_get(PIN, 512, NONE);
	fdry_resident h;

	ok(fdry_transient_put(dev, DEV, a, NONE));
	a = transient_get(DEV, 4096, NONE);
	ok(fdry_resident_new(dev, 100, &h));
	ck_assert_uint_eq(value(FDRY_METRIC_POOL_HITS_DEVICE), 1);
	ck_assert_uint_eq(value(FDRY_METRIC_POOL_MISSES_DEVICE), 2);
	ck_assert_uint_eq(value(FDRY_METRIC_POOL_USED_DEVICE), 4096 + 512);
	ck_assert_uint_eq(value(FDRY_METRIC_POOL_USED_PINNED), 512);
	ok(fdry_transient_put(dev, PIN, b, NONE));
	fdry_telemetry_reset(); /* sets counters to zero, and does not change gauges */
	ck_assert_uint_eq(value(FDRY_METRIC_POOL_HITS_DEVICE), 0);
	ck_assert_uint_eq(value(FDRY_METRIC_POOL_CACHED_PINNED), 512);
	ck_assert_uint_eq(value(FDRY_METRIC_POOL_USED_PINNED), 0);
	ck_assert_uint_eq(value(FDRY_METRIC_RESIDENT), 1);
	ck_assert_uint_eq(value(FDRY_METRIC_RESIDENT_BYTES), 100);
	ok(fdry_resident_free(dev, h, NONE));
	ok(fdry_transient_put(dev, DEV, a, NONE));
	ok(fdry_device_clean_up(dev));
	ck_assert_uint_eq(value(FDRY_METRIC_POOL_CACHED_DEVICE), 0);
	ck_assert_uint_eq(value(FDRY_METRIC_POOL_USED_DEVICE), 0);
	ck_assert_uint_eq(value(FDRY_METRIC_RESIDENT_BYTES), 0);
}
END_TEST

/* --- the table beneath --- */

START_TEST(a_map_against_a_list)
{
	static uint64_t keys[2000];
	static bool in[2000];
	struct fdry_map m = { 0 };
	uint64_t x = 88172645463325252ull;
	size_t n = 0;
	int i, k;

	for (i = 0; i < 2000; i++)
		keys[i] = (uint64_t)(i + 1) * (i % 3 ? 4096 : 512ull << 30);
	for (i = 0; i < 40000; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		k = (int)(x % 2000);
		if (in[k]) {
			ck_assert_ptr_eq(fdry_map_take(&m, keys[k]), &keys[k]);
		} else {
			ok(fdry_map_reserve(&m));
			fdry_map_put(&m, keys[k], &keys[k]);
		}
		in[k] = !in[k];
		n += in[k] ? 1 : -1;
		ck_assert_uint_eq(m.count, n);
	}
	for (k = 0; k < 2000; k++)
		ck_assert_ptr_eq(fdry_map_get(&m, keys[k]), in[k] ? &keys[k] : NULL);
	ck_assert_ptr_null(fdry_map_take(&m, 7));
	fdry_map_release(&m);
	ck_assert_ptr_null(fdry_map_get(&m, keys[0]));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run_pool");
	TCase *tc = tcase_create("pool");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, device_setup, device_teardown);
	tcase_add_loop_test(tc, not_before_the_work_is_done, 0, 2);
	tcase_add_loop_test(tc, its_own_comes_at_once, 0, 2);
	tcase_add_loop_test(tc, the_limit, 0, 2);
	tcase_add_loop_test(tc, none_left, 0, 2);
	tcase_add_test(tc, size_classes);
	tcase_add_test(tc, a_stream_that_comes_again);
	tcase_add_test(tc, wrong_addresses);
	tcase_add_test(tc, not_while_capturing);
	tcase_add_test(tc, each_call_fails);
	tcase_add_test(tc, many_threads);
	tcase_add_test(tc, two_give_back_the_same);
	tcase_add_loop_test(tc, syncs_come_again, 0, FDRY_SYNC_KINDS);
	tcase_add_test(tc, no_more_than_the_limit);
	tcase_add_test(tc, timing_events_time);
	tcase_add_test(tc, a_busy_stream_is_passed_over);
	tcase_add_test(tc, numbers_of_pools);
	suite_add_tcase(s, tc);
	tc = tcase_create("in use at the end");
	tcase_add_checked_fixture(tc, device_setup, NULL);
	tcase_add_loop_test(tc, memory_comes_again, 0, 2);
	tcase_add_test(tc, a_map_against_a_list);
	suite_add_tcase(s, tc);
	return test_main(s);
}
