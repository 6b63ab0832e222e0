// SPDX-License-Identifier: Apache-2.0
/* Unit tests of buffers by handle. */
#include <sched.h>
#include <stdatomic.h>

#include "run/device.h"
#include "lib/telemetry.h"
#include "tests/lib/device.h"
#include "tests/lib/test.h"

START_TEST(residents)
{
	fdry_resident h = 0, again = 0;
	fdry_devptr addr = 0;
	uint32_t out[4] = { 0 }, in[4] = { 1, 2, 3, 4 };
	size_t bytes = 0;

	fails(NOKEY, "ever had the handle 0", fdry_resident_view(dev, 0, &addr, &bytes));
	fails(NOKEY, "ever had", fdry_resident_view(dev, 1ull << 32 | 1, &addr, &bytes));
	ok(fdry_resident_new(dev, 16, &h));
	ok(fdry_resident_view(dev, h, &addr, &bytes));
	ck_assert_uint_eq(bytes, 16);
	ok(fdry_resident_view(dev, h, NULL, NULL));
	ok(fdry_resident_write(dev, h, 0, in, 16, NULL));
	ok(fdry_resident_read(dev, h, 4, out, 8, NULL));
	ck_assert_uint_eq(out[0], 2);
	ck_assert_uint_eq(out[1], 3);
	fails(RANGE, "13 bytes at 4 do not fit into a resident buffer of 16",
	      fdry_resident_read(dev, h, 4, out, 13, NULL));
	fails(RANGE, "do not fit", fdry_resident_read(dev, h, SIZE_MAX, out, 2, NULL));
	fails(INVAL, "NULL", fdry_resident_write(dev, h, 0, NULL, 1, NULL));
	ok(fdry_device_clean_up(dev)); /* it is in use */
	ok(fdry_resident_read(dev, h, 0, out, 16, NULL));
	ck_assert_uint_eq(fdry_resident_count(dev), 1);
	ok(fdry_resident_free(dev, h, NULL));
	fails(STALE, "was freed", fdry_resident_view(dev, h, &addr, &bytes));
	fails(STALE, "was freed", fdry_resident_free(dev, h, NULL));
	fails(STALE, "was freed", fdry_resident_read(dev, h, 0, out, 4, NULL));
	ok(fdry_resident_new(dev, 16, &again)); /* the same slot, another buffer */
	ck_assert_uint_eq((uint32_t)again, (uint32_t)h);
	ck_assert_uint_ne(again, h);
	fails(STALE, "was freed", fdry_resident_view(dev, h, &addr, &bytes));
	fails(NOKEY, "ever had", fdry_resident_view(dev, again + (1ull << 32), &addr, &bytes));
	ok(fdry_resident_free(dev, again, NULL));
	ck_assert_uint_eq(fdry_resident_count(dev), 0);
	ok(fdry_resident_free(dev, 0, NULL)); /* does nothing */
}
END_TEST

/* The excess over a pool's limit cannot be released: that is no error for the caller that returns a
 * buffer. */
START_TEST(given_back_though_nothing_can_be_released)
{
	uint64_t a = transient_get(DEV, 100, NONE);
	fdry_resident h = 0;

	ok(fdry_resident_new(dev, 16, &h));
	ok(fdry_transient_set_limit(dev, DEV, 0));
	test_sim_fail("cuMemFree_v2:1+:999");
	ok(fdry_transient_put(dev, DEV, a, NONE));
	fails(STALE, "returned before", fdry_transient_put(dev, DEV, a, NONE));
	ok(fdry_resident_free(dev, h, NONE));
	ck_assert_uint_eq(test_sim_failed(), 2);
	fails(STALE, "was freed", fdry_resident_view(dev, h, NULL, NULL));
	ck_assert_uint_eq(fdry_resident_count(dev), 0);
	ck_assert_uint_eq(transient_stats(DEV).used_count, 0);
	test_sim_fail(NULL);
	ck_assert_int_eq(test_sim_live("allocation"), 2); /* the driver's to explain */
}
END_TEST

struct drop {
	fdry_resident handle;
	CUstream stream;
};

static void *drop_it(void *arg)
{
	const struct drop *d = arg;

	ok(fdry_resident_free(dev, d->handle, d->stream));
	return NULL;
}

/* A drop that waits for a stream does not block the use of other buffers. */
START_TEST(others_while_a_drop_waits)
{
	struct drop d = { .stream = stream_get() };
	fdry_resident other;
	pthread_t thread;
	struct gate g;

	ok(fdry_resident_new(dev, 1 << 20, &d.handle));
	ok(fdry_resident_new(dev, 16, &other));
	ok(fdry_transient_set_limit(dev, DEV, 0));
	gate_shut(&g, d.stream);
	ck_assert(!pthread_create(&thread, NULL, drop_it, &d));
	while (transient_stats(DEV).used_count == 2)
		sched_yield();
	ck_assert_int_eq(pthread_mutex_trylock(&dev->residents.lock), 0);
	pthread_mutex_unlock(&dev->residents.lock);
	ok(fdry_resident_view(dev, other, NULL, NULL));
	fails(STALE, "was freed", fdry_resident_view(dev, d.handle, NULL, NULL));
	ck_assert_uint_eq(fdry_resident_count(dev), 1);
	gate_open(&g, d.stream);
	ck_assert(!pthread_join(thread, NULL));
	ok(fdry_resident_free(dev, other, NONE));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, d.stream));
}
END_TEST

struct copy {
	fdry_resident handle;
	CUstream stream;
};

static void *copy_it(void *arg)
{
	static const uint32_t value = 7;
	const struct copy *c = arg;

	ok(fdry_resident_write(dev, c->handle, 0, &value, sizeof(value), c->stream));
	return NULL;
}

struct dropper {
	struct drop what;
	atomic_bool opened;
	bool found;
};

static void *drop_beside(void *arg)
{
	struct dropper *d = arg;

	ok(fdry_resident_free(dev, d->what.handle, d->what.stream));
	d->found = d->opened;
	return NULL;
}

static uint64_t copies_to(void)
{
	uint64_t values[FDRY_METRICS];

	fdry_telemetry_read(values);
	return values[FDRY_METRIC_COPIES_TO];
}

/* Otherwise another buffer could have the memory when the bytes arrive. */
START_TEST(a_drop_waits_for_copies)
{
	struct dropper d = { .what = { .stream = NONE } };
	struct copy c = { .stream = stream_get() };
	pthread_t copier, dropper;
	uint64_t before = copies_to();
	struct gate g;

	ok(fdry_resident_new(dev, 4, &c.handle));
	d.what.handle = c.handle;
	gate_shut(&g, c.stream);
	ck_assert(!pthread_create(&copier, NULL, copy_it, &c));
	while (copies_to() == before)
		sched_yield();
	ck_assert(!pthread_create(&dropper, NULL, drop_beside, &d));
	while (fdry_resident_view(dev, c.handle, NULL, NULL) != -FDRY_E_STALE)
		sched_yield();
	usleep(20000);
	d.opened = true;
	gate_open(&g, c.stream);
	ck_assert(!pthread_join(copier, NULL));
	ck_assert(!pthread_join(dropper, NULL));
	ck_assert(d.found);
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, c.stream));
}
END_TEST

/* A drop that fails does not change the buffer. */
START_TEST(a_drop_that_fails)
{
	CUstream s = stream_get();
	fdry_resident h, more[80];
	uint32_t value = 7, got = 0;
	int i;

	ok(fdry_resident_new(dev, 4, &h));
	ok(fdry_resident_write(dev, h, 0, &value, 4, NULL));
	test_sim_fail("cuEventRecord:1:999");
	fails(DRIVER, "cuEventRecord", fdry_resident_free(dev, h, s));
	test_sim_fail(NULL);
	for (i = 0; i < 80; i++) /* none of which gets its place */
		ok(fdry_resident_new(dev, 4, &more[i]));
	ok(fdry_resident_read(dev, h, 0, &got, 4, NULL));
	ck_assert_uint_eq(got, 7);
	ck_assert_uint_eq(fdry_resident_count(dev), 81);
	ok(fdry_resident_free(dev, h, s));
	fails(STALE, "was freed", fdry_resident_free(dev, h, s));
	for (i = 0; i < 80; i++)
		ok(fdry_resident_free(dev, more[i], NONE));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
}
END_TEST

/* A copy would become a node of the graph, and waiting for it would spoil the capture. */
START_TEST(no_copies_while_capturing)
{
	CUstream s = stream_get();
	uint32_t in = 7, out = 0;
	fdry_resident h;
	CUgraph graph;
	size_t nodes = 9;
	CUresult (*count)(CUgraph, CUgraphNode *, size_t *);

	*(void **)&count = test_sim_symbol("cuGraphGetNodes");
	ok(fdry_resident_new(dev, 4, &h));
	ck_assert_int_eq(drv->cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL),
			 CUDA_SUCCESS);
	fails(STATE, "is capturing", fdry_resident_write(dev, h, 0, &in, 4, s));
	fails(STATE, "is capturing", fdry_resident_read(dev, h, 0, &out, 4, s));
	fails(STATE, "is capturing", fdry_resident_read(dev, h, 0, NULL, 0, s));
	fails(STATE, "is capturing", fdry_resident_free(dev, h, s));
	ok(fdry_resident_write(dev, h, 0, &in, 4, NULL));
	ck_assert_int_eq(drv->cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
	ck_assert_int_eq(count(graph, NULL, &nodes), CUDA_SUCCESS);
	ck_assert_uint_eq(nodes, 0);
	ck_assert_int_eq(drv->cuGraphDestroy(graph), CUDA_SUCCESS);
	ok(fdry_resident_read(dev, h, 0, &out, 4, s));
	ck_assert_uint_eq(out, 7);
	ok(fdry_resident_free(dev, h, s));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
}
END_TEST

/* Without a stream, the call waits for the copy alone. */
START_TEST(copies_behind_no_stream)
{
	CUstream s = stream_get();
	uint32_t in = 7, out = 0;
	fdry_resident h;
	struct gate g;

	ok(fdry_resident_new(dev, 4, &h));
	gate_shut(&g, s);
	ok(fdry_resident_write(dev, h, 0, &in, 4, NONE));
	ok(fdry_resident_read(dev, h, 0, &out, 4, NONE));
	ck_assert_uint_eq(out, 7);
	gate_open(&g, s);
	ok(fdry_resident_free(dev, h, NONE));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
	fdry_device_put(dev); /* the library's own stream stays with the context */
}
END_TEST

/* Queries without a device, or with a device of another process. */
START_TEST(counts_of_no_device)
{
	ck_assert_uint_eq(fdry_resident_count(NULL), 0);
	ck_assert_uint_eq(fdry_sync_count(NULL), 0);
}
END_TEST

START_TEST(many_residents)
{
	static fdry_resident h[1000];
	size_t bytes = 0;
	int i;

	for (i = 0; i < 1000; i++)
		ok(fdry_resident_new(dev, 8 + (size_t)i, &h[i]));
	for (i = 0; i < 1000; i += 2)
		ok(fdry_resident_free(dev, h[i], NONE));
	for (i = 0; i < 1000; i += 2)
		fails(STALE, "was freed", fdry_resident_view(dev, h[i], NULL, NULL));
	for (i = 1; i < 1000; i += 2) {
		ok(fdry_resident_view(dev, h[i], NULL, &bytes));
		ck_assert_uint_eq(bytes, 8 + (size_t)i);
	}
	for (i = 1; i < 1000; i += 2)
		ok(fdry_resident_free(dev, h[i], NONE));
	test_sim_fail("cuMemAlloc_v2:1+:2");
	ok(fdry_device_clean_up(dev));
	ck_assert_int_eq(fdry_resident_new(dev, 1 << 20, &h[0]), -FDRY_E_NODEVMEM);
	ck_assert_uint_eq(fdry_resident_count(dev), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run_resident");
	TCase *tc = tcase_create("residents");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, device_setup, device_teardown);
	tcase_add_test(tc, residents);
	tcase_add_test(tc, others_while_a_drop_waits);
	tcase_add_test(tc, a_drop_waits_for_copies);
	tcase_add_test(tc, a_drop_that_fails);
	tcase_add_test(tc, no_copies_while_capturing);
	tcase_add_test(tc, counts_of_no_device);
	tcase_add_test(tc, many_residents);
	suite_add_tcase(s, tc);
	tc = tcase_create("in use at the end");
	tcase_add_checked_fixture(tc, device_setup, NULL);
	tcase_add_test(tc, given_back_though_nothing_can_be_released);
	tcase_add_test(tc, copies_behind_no_stream);
	suite_add_tcase(s, tc);
	return test_main(s);
}
