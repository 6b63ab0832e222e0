// SPDX-License-Identifier: Apache-2.0
/* Unit tests of asynchronous writes: stream order, updates faster than launches, failures.
 */
#include <pthread.h>

#include "tests/lib/image.h"

#define SPINS 300000u /* about a millisecond of the software driver's */
#define LARGE (200u << 10)

/* Graph 1: c += a, after a while. Graph 2: the same, a from pinned memory h. And a large tensor. */
static void seal_sums(void *arg)
{
	struct fdry_tensor x = { .name = "x", .dtype = FDRY_U64, .use = FDRY_USE_STATE };
	struct fdry_tensor large = {
		.name = "large", .dtype = FDRY_U8, .rank = 1, .shape = { LARGE }, .stride = { 1 }
	};
	struct work w;
	float *h;
	int i;

	(void)arg;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &x.addr, 8);
	cuda_ok(cuMemAlloc_v2, &large.addr, LARGE);
	cuda_ok(cuMemAllocHost_v2, (void **)&h, BYTES);
	cuda_ok(cuMemsetD8Async, w.c, 0, BYTES, w.stream);
	cuda_ok(cuStreamSynchronize, w.stream);
	for (i = 1; i <= 2; i++) {
		capture_start(&w);
		launch_step(&w, x.addr, 5, SPINS);
		if (i == 2)
			cuda_ok(cuMemcpyHtoDAsync_v2, w.a, h, BYTES, w.stream);
		launch_add(&w, w.a, w.c, w.c);
		ok(fdry_capture_graph(w.cap, (uint64_t)i, NULL, capture_stop(&w)));
	}
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, FDRY_TENSOR_EXTERNAL);
	tensor_add(&w, "c", w.c, FDRY_USE_STATE, 0);
	tensor_add(&w, "h", (uintptr_t)h, FDRY_USE_INPUT, FDRY_TENSOR_HOST);
	ok(fdry_capture_tensor(w.cap, &x));
	ok(fdry_capture_tensor(w.cap, &large));
	ok(work_seal(&w, "img"));
	work_end(&w);
}

static struct fdry_image *load(void)
{
	struct fdry_image *img = NULL;

	test_child(seal_sums, NULL);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	return img;
}

static void all_set(float *v, float x)
{
	int i;

	for (i = 0; i < N; i++)
		v[i] = x;
}

static void all_are(struct fdry_image *img, const char *name, float x)
{
	float v[N];
	int i;

	ok(fdry_image_read(img, name, v, BYTES, NULL));
	for (i = 0; i < N; i++)
		ck_assert_msg(v[i] == x, "%s[%d] is %g, not %g", name, i, (double)v[i], (double)x);
}

/* Each launch must see its own number, and the caller's buffer is overwritten at once. */
START_TEST(updates_come_faster_than_launches)
{
	struct fdry_image *img = load();
	const char *name = _i ? "h" : "a";
	float v[N];
	int i;

	all_set(v, 0);
	ok(fdry_image_filled(img, NULL));
	for (i = 1; i <= 200; i++) {
		all_set(v, (float)i);
		ok(fdry_image_write_async(img, name, v, BYTES, NULL));
		ok(fdry_image_launch(img, _i ? 2 : 1, NULL));
	}
	all_set(v, -1);
	all_are(img, "c", 200 * 201 / 2);
	all_are(img, name, 200);
	fdry_image_unload(img);
}
END_TEST

START_TEST(nobody_waits)
{
	struct fdry_image *img = load();
	CUresult (*query)(CUstream);
	float v[N];
	int i;

	test_sim();
	*(void **)&query = test_sim_symbol("cuStreamQuery");
	all_set(v, 1);
	ok(fdry_image_filled(img, NULL));
	for (i = 0; i < 20; i++)
		ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_write_async(img, _i ? "h" : "a", v, BYTES, NULL));
	ck_assert_int_eq(query(NULL), CUDA_ERROR_NOT_READY);
	ok(fdry_image_synchronize(img, NULL));
	fdry_image_unload(img);
}
END_TEST

START_TEST(large_tensors_go_in_pieces)
{
	struct fdry_image *img = load();
	static uint8_t v[LARGE], got[LARGE];
	unsigned int i, k;

	for (k = 0; k < 30; k++) {
		for (i = 0; i < LARGE; i++)
			v[i] = (uint8_t)(i * 7 + i / 256 + k);
		ok(fdry_image_write_async(img, "large", v, LARGE, NULL));
	}
	ok(fdry_image_read(img, "large", got, LARGE, NULL));
	ck_assert_mem_eq(got, v, LARGE);
	fdry_image_unload(img);
}
END_TEST

START_TEST(it_counts_as_filled)
{
	struct fdry_image *img = load();
	CUstream stream;
	CUgraph graph;
	float v[N];

	all_set(v, 3);
	fails(RANGE, "has 4000 bytes, and 8 were given",
	      fdry_image_write_async(img, "a", v, 8, NULL));
	fails(INVAL, "the host memory is NULL",
	      fdry_image_write_async(img, "a", NULL, BYTES, NULL));
	fails(NOKEY, "no tensor named", fdry_image_write_async(img, "b", v, BYTES, NULL));
	fails(INVAL, "given no img", fdry_image_write_async(NULL, "a", v, BYTES, NULL));
	ck_assert_int_eq(test_sim()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_int_eq(test_sim()->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
			 CUDA_SUCCESS);
	fails(STATE, "the stream captures", fdry_image_write_async(img, "a", v, BYTES, stream));
	ok(fdry_image_write_async(img, "h", v, BYTES, NULL)); /* beside the capture */
	ck_assert_int_eq(test_sim()->cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	fails(UNBOUND, "'a' first", fdry_image_launch(img, 1, NULL));
	ok(fdry_image_write_async(img, "a", v, BYTES, NULL));
	ok(fdry_image_launch(img, 1, NULL));
	all_are(img, "c", 3);
	fdry_image_unload(img);
}
END_TEST

/* Unloading waits for running work, also if no graph was built. */
START_TEST(unloaded_in_flight)
{
	struct fdry_image *img;
	long before;
	float v[N];
	int i;

	test_child(seal_sums, NULL);
	(void)load_store();
	test_sim();
	before = live_before();
	for (i = 0; i < 3; i++) {
		ok(fdry_image_load(load_store(), "img", NULL, &img));
		ok(fdry_image_filled(img, NULL));
		if (i)
			ok(fdry_image_launch(img, 2, NULL));
		ok(fdry_image_write_async(img, "h", v, BYTES, NULL));
		ok(fdry_image_write_async(img, "a", v, BYTES, NULL));
		fdry_image_unload(img);
		ck_assert_int_eq(live_objects(), before);
	}
}
END_TEST

static const char *const calls[] = { "cuMemHostAlloc", "cuEventCreate", "cuMemcpyHtoDAsync_v2",
				     "cuLaunchHostFunc", "cuEventSynchronize" };

/* If anything fails, the next write works, and nothing is left at the end. */
START_TEST(failures)
{
	struct fdry_image *img = load();
	char spec[64];
	float v[N];
	int i, err = 0;

	ok(fdry_image_filled(img, NULL));
	all_set(v, 4);
	snprintf(spec, sizeof(spec), "%s:1", calls[_i]);
	test_sim_fail(spec);
	for (i = 0; i < 70 && !err; i++) {
		err = fdry_image_write_async(img, "a", v, BYTES, NULL) ?:
		      fdry_image_write_async(img, "h", v, BYTES, NULL);
	}
	ck_assert_int_eq(err, -FDRY_E_DRIVER);
	ck_assert_msg(strstr(fdry_last_error(), calls[_i]) != NULL, "%s", fdry_last_error());
	test_sim_fail(NULL);
	all_set(v, 5);
	ok(fdry_image_write_async(img, "h", v, BYTES, NULL));
	ok(fdry_image_launch(img, 2, NULL));
	all_are(img, "c", 5);
	fdry_image_unload(img);
	ck_assert_int_eq(test_sim_live("event"), 0);
	ck_assert_int_eq(test_sim_live("host"), 0);
}
END_TEST

/* No event reports the end of the copy. The copy was made nevertheless, and the write follows it.
 */
START_TEST(written_without_an_event)
{
	uint8_t *v = malloc(LARGE), *back = calloc(1, LARGE);
	struct fdry_image *img = load();
	size_t i;

	for (i = 0; i < LARGE; i++)
		v[i] = (uint8_t)(i / 1000 + i);
	test_sim_fail("cuEventRecord:2");
	ok(fdry_image_write_async(img, "large", v, LARGE, NULL));
	ck_assert_uint_eq(test_sim_failed(), 1);
	test_sim_fail(NULL);
	ok(fdry_image_read(img, "large", back, LARGE, NULL));
	ck_assert_mem_eq(v, back, LARGE);
	fdry_image_unload(img);
	free(back);
	free(v);
}
END_TEST

static void *writer(void *arg)
{
	float v[N];
	int i;

	for (i = 0; i < 100; i++) {
		all_set(v, (float)i);
		ok(fdry_image_write_async(arg, i & 1 ? "h" : "a", v, BYTES, NULL));
	}
	return NULL;
}

START_TEST(several_threads)
{
	struct fdry_image *img = load();
	pthread_t t[4];
	int i;

	for (i = 0; i < 4; i++)
		ck_assert(!pthread_create(&t[i], NULL, writer, img));
	for (i = 0; i < 4; i++)
		ck_assert(!pthread_join(t[i], NULL));
	ok(fdry_image_synchronize(img, NULL));
	all_are(img, "h", 99);
	all_are(img, "a", 98);
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_staging");
	TCase *tc = tcase_create("staging");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, updates_come_faster_than_launches, 0, 2);
	tcase_add_loop_test(tc, nobody_waits, 0, 2);
	tcase_add_test(tc, large_tensors_go_in_pieces);
	tcase_add_test(tc, it_counts_as_filled);
	tcase_add_test(tc, unloaded_in_flight);
	tcase_add_test(tc, written_without_an_event);
	tcase_add_loop_test(tc, failures, 0, sizeof(calls) / sizeof(calls[0]));
	tcase_add_test(tc, several_threads);
	suite_add_tcase(s, tc);
	return test_main(s);
}
