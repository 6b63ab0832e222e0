// SPDX-License-Identifier: Apache-2.0
/* Unit tests of callers' streams, of private contexts of images, and of launches that overlap. */
#include <pthread.h>
#include <semaphore.h>

#include "tests/lib/image.h"

#define ADD 1
#define SLOW 3 /* key of a graph that runs long */
#define SPINS 20000000u

static const struct fdry_driver *drv;

/* Graph ADD: c = a + b; graph SLOW: x is stepped on. */
static void seal_slow(void *arg)
{
	struct fdry_tensor t = { .name = "x", .dtype = FDRY_U64, .use = FDRY_USE_STATE };
	struct work w;

	work_make(&w);
	graph_add(&w, ADD);
	cuda_ok(cuMemAlloc_v2, &t.addr, 8);
	capture_start(&w);
	launch_step(&w, t.addr, 5, SPINS);
	ok(fdry_capture_graph(w.cap, SLOW, "slow", capture_stop(&w)));
	ok(fdry_capture_tensor(w.cap, &t));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, arg ? arg : "img"));
	work_end(&w);
}

static void seal_elsewhere(void *arg)
{
	work_base += 1ull << 35;
	seal_slow(arg);
}

static struct fdry_image *load_on(const char *name, int device, uint32_t flags)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .device = device, .flags = flags };
	struct fdry_image *img = NULL;

	ok(fdry_image_load(load_store(), name, &opts, &img));
	return img;
}

static struct fdry_image *load(uint32_t flags)
{
	struct fdry_image *img;

	if (!drv) {
		(void)load_store();
		drv = test_sim();
	}
	img = load_on("img", 0, flags);
	return img;
}

#define drv_ok(fn, ...) ck_assert_int_eq(drv->fn(__VA_ARGS__), CUDA_SUCCESS)

static CUstream stream_make(void)
{
	CUstream s;

	drv_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	return s;
}

static void add_check(struct fdry_image *img, CUstream stream, float salt)
{
	float v[N], c[N];

	vector_fill(v, salt);
	ok(fdry_image_write(img, "a", v, BYTES, stream));
	ok(fdry_image_launch(img, ADD, stream));
	ok(fdry_image_read(img, "c", c, BYTES, stream));
	ck_assert(c[7] == vector_value(7, salt) + vector_value(7, 100));
}

/* Each function with a stream refuses this one. */
#define refused(code, text, img, stream) do { \
	float v_[N]; \
	fails(code, text, fdry_image_launch(img, ADD, stream)); \
	fails(code, text, fdry_image_write(img, "a", v_, BYTES, stream)); \
	fails(code, text, fdry_image_read(img, "a", v_, BYTES, stream)); \
	fails(code, text, fdry_image_restore(img, stream)); \
	fails(code, text, fdry_image_synchronize(img, stream)); \
} while (0)

/* --- wrong streams --- */

START_TEST(a_stream_of_another_device)
{
	struct fdry_image *img;
	CUcontext ctx, popped;
	CUstream s;

	test_child(seal_slow, NULL);
	ok(setenv("FDRY_SIM_DEVICES", "2", 1));
	img = load(_i ? FDRY_LOAD_OWN_CONTEXT : 0);
	drv_ok(cuDevicePrimaryCtxRetain, &ctx, 1);
	drv_ok(cuCtxPushCurrent_v2, ctx);
	s = stream_make();
	refused(INVAL, "belongs to device 1 and the image to device 0", img, s);
	/* NULL is the image's device's, whatever is current. */
	add_check(img, NULL, 4);
	drv_ok(cuCtxPopCurrent_v2, &popped);
	ck_assert_ptr_eq(popped, ctx);
	add_check(img, stream_make(), 5);
	fdry_image_unload(img);
}
END_TEST

START_TEST(a_stream_of_another_context)
{
	struct fdry_image *img;
	CUcontext ctx, popped;
	CUstream s;

	test_child(seal_slow, NULL);
	img = load(0);
	drv_ok(cuCtxCreate_v4, &ctx, NULL, 0, 0);
	s = stream_make();
	drv_ok(cuCtxPopCurrent_v2, &popped);
	refused(INVAL, "another context of device 0", img, s);
	drv_ok(cuCtxDestroy_v2, ctx);
	refused(INVAL, "the stream is not alive", img, s);
	add_check(img, NULL, 4);
	fdry_image_unload(img);
}
END_TEST

START_TEST(that_was_destroyed)
{
	struct fdry_image *img;
	CUstream s;

	test_child(seal_slow, NULL);
	img = load(_i ? FDRY_LOAD_OWN_CONTEXT : 0);
	add_check(img, NULL, 4); /* makes the library's streams: none gets the handle of @s */
	s = stream_make();
	drv_ok(cuStreamDestroy_v2, s);
	refused(INVAL, "the stream is not alive", img, s);
	add_check(img, NULL, 4);
	fdry_image_unload(img);
}
END_TEST

START_TEST(that_captures)
{
	struct fdry_image *img;
	CUgraph graph = NULL;
	CUstream s;

	test_child(seal_slow, NULL);
	img = load((_i & 1 ? FDRY_LOAD_OWN_CONTEXT : 0) | (_i & 2 ? FDRY_LOAD_CHECK_OVERLAP : 0));
	s = stream_make();
	ok(fdry_image_launch(img, ADD, NULL));
	drv_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	refused(STATE, "the stream captures", img, s);
	/* Launches continue during the capture, and the capture stays valid. */
	add_check(img, NULL, 4);
	drv_ok(cuStreamEndCapture, s, &graph);
	ck_assert_ptr_nonnull(graph);
	drv_ok(cuGraphDestroy, graph);
	add_check(img, s, 6);
	fdry_image_unload(img);
}
END_TEST

/* --- threads --- */

struct job {
	struct fdry_image *img;
	CUstream stream;
};

static void *add_in_thread(void *arg)
{
	struct job *j = arg;
	CUcontext now;

	drv_ok(cuCtxGetCurrent, &now);
	ck_assert_ptr_null(now);
	add_check(j->img, j->stream, 8);
	drv_ok(cuCtxGetCurrent, &now);
	ck_assert_ptr_null(now);
	return NULL;
}

START_TEST(from_a_thread_without_a_context)
{
	struct job j;
	pthread_t t;

	test_child(seal_slow, NULL);
	j.img = load(_i ? FDRY_LOAD_OWN_CONTEXT : 0);
	j.stream = stream_make();
	ck_assert(!pthread_create(&t, NULL, add_in_thread, &j));
	ck_assert(!pthread_join(t, NULL));
	fdry_image_unload(j.img);
}
END_TEST

/* --- two devices, two images --- */

START_TEST(on_both_devices)
{
	struct fdry_image *first, *second;

	test_child(seal_slow, NULL);
	test_child(seal_elsewhere, "other");
	ok(setenv("FDRY_SIM_DEVICES", "2", 1));
	(void)load_store();
	drv = test_sim();
	first = load_on("img", _i, 0);
	second = load_on("other", 1, FDRY_LOAD_BACKGROUND);
	ok(fdry_image_launch(second, SLOW, NULL));
	add_check(first, NULL, 3);
	add_check(second, NULL, 4);
	add_check(first, NULL, 5);
	fdry_image_unload(first);
	add_check(second, NULL, 6);
	fdry_image_unload(second);
	second = load_on("img", 1, 0);
	add_check(second, NULL, 7);
	fdry_image_unload(second);
}
END_TEST

/* --- a context of the image's own --- */

START_TEST(in_the_order_of_the_stream)
{
	struct fdry_image *img;
	CUstream s[2];
	uint64_t x = 0;
	float v[N];

	test_child(seal_slow, NULL);
	img = load(FDRY_LOAD_OWN_CONTEXT);
	s[0] = stream_make();
	s[1] = NULL;
	/* Reads wait for the launch, and launches for earlier copies, on either stream. */
	ok(fdry_image_launch(img, SLOW, s[_i]));
	ok(fdry_image_launch(img, SLOW, s[_i]));
	ok(fdry_image_read(img, "x", &x, 8, s[_i]));
	ck_assert_uint_eq(x, step_result(step_result(0, 5, SPINS), 5, SPINS));
	vector_fill(v, 9);
	ok(fdry_image_launch(img, SLOW, s[_i]));
	add_check(img, s[!_i], 9); /* launches of one image follow each other */
	ok(fdry_image_restore(img, s[_i]));
	ok(fdry_image_read(img, "x", &x, 8, s[_i]));
	ck_assert_uint_eq(x, 0);
	fdry_image_unload(img);
}
END_TEST

START_TEST(the_private_context_is_destroyed_too)
{
	struct fdry_image *img;
	CUcontext now, before;
	long live;
	int i;

	test_child(seal_slow, NULL);
	fdry_image_unload(load(0));
	drv_ok(cuCtxGetCurrent, &before);
	live = live_objects();
	for (i = 0; i < 3; i++) {
		img = load(FDRY_LOAD_OWN_CONTEXT | (i == 1 ? FDRY_LOAD_BACKGROUND : 0) |
			   (i == 2 ? FDRY_LOAD_BUILD : 0));
		ck_assert_int_eq(test_sim_live("context"), 2);
		drv_ok(cuCtxGetCurrent, &now);
		ck_assert_ptr_eq(now, before);
		ok(fdry_image_launch(img, SLOW, NULL)); /* running when the image is unloaded */
		fdry_image_unload(img);
		ck_assert_int_eq(live_objects(), live);
	}
}
END_TEST

/* --- a context made and destroyed --- */

START_TEST(refreshed_beside_a_launch)
{
	struct fdry_image *img;
	CUcontext now, before;
	unsigned long made;
	uint64_t x = 0;
	long live;

	test_child(seal_slow, NULL);
	img = load(FDRY_LOAD_BUILD | (_i ? FDRY_LOAD_OWN_CONTEXT : 0));
	drv_ok(cuCtxGetCurrent, &before);
	live = test_sim_live(NULL);
	ok(fdry_image_launch(img, SLOW, NULL));
	made = test_sim_calls("cuCtxCreate_v4");
	ok(fdry_image_refresh(img));
	ck_assert_uint_eq(test_sim_calls("cuCtxCreate_v4"), made + 1);
	ck_assert_int_eq(test_sim_live(NULL), live);
	drv_ok(cuCtxGetCurrent, &now);
	ck_assert_ptr_eq(now, before);
	ok(fdry_image_launch(img, SLOW, NULL));
	ok(fdry_image_read(img, "x", &x, 8, NULL));
	ck_assert_uint_eq(x, step_result(step_result(0, 5, SPINS), 5, SPINS));
	fdry_image_unload(img);
}
END_TEST

START_TEST(no_memory_to_refresh)
{
	struct fdry_image *img;
	CUcontext now, before;
	long live;

	test_child(seal_slow, NULL);
	img = load(FDRY_LOAD_BUILD);
	drv_ok(cuCtxGetCurrent, &before);
	live = test_sim_live(NULL);
	test_sim_fail("cuCtxCreate_v4:1:2");
	ck_assert_int_eq(fdry_image_refresh(img), -FDRY_E_NODEVMEM);
	test_sim_fail(NULL);
	ck_assert_int_eq(test_sim_live(NULL), live);
	drv_ok(cuCtxGetCurrent, &now);
	ck_assert_ptr_eq(now, before);
	ck_assert_int_eq(fdry_image_refresh(NULL), -FDRY_E_INVAL);
	ok(fdry_image_refresh(img));
	fdry_image_unload(img);
}
END_TEST

/* --- launches that overlap --- */

static void CUDA_CB wait_for(void *sem)
{
	sem_wait(sem);
}

START_TEST(overlaps_are_found)
{
	struct fdry_image *img;
	CUstream a, b;
	CUevent e;
	sem_t go;

	test_child(seal_slow, NULL);
	if (_i)
		ok(setenv("FOUNDRY_DEBUG", "overlap", 1));
	img = load(_i ? 0 : FDRY_LOAD_CHECK_OVERLAP);
	a = stream_make();
	b = stream_make();
	drv_ok(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
	ck_assert(!sem_init(&go, 0, 0));
	ok(fdry_image_launch(img, ADD, a));
	drv_ok(cuLaunchHostFunc, a, wait_for, &go); /* so that it is in flight for certain */
	ok(fdry_image_launch(img, SLOW, a));
	fails(STATE,
	      "graph 3 'slow' is in flight on another stream, and nothing orders graph 1 'add' "
	      "after it",
	      fdry_image_launch(img, ADD, b));
	sem_post(&go);
	/* Ordered by an event. */
	drv_ok(cuEventRecord, e, a);
	drv_ok(cuStreamWaitEvent, b, e, 0);
	ok(fdry_image_launch(img, ADD, b));
	/* A graph follows itself. */
	ok(fdry_image_launch(img, SLOW, b));
	ok(fdry_image_launch(img, SLOW, a));
	/* Work that has ended cannot overlap. */
	ok(fdry_image_synchronize(img, a));
	ok(fdry_image_launch(img, ADD, b));
	fdry_image_unload(img);
}
END_TEST

struct held_up {
	struct fdry_image *img;
	sem_t go;
};

static void *launch_held_up(void *arg)
{
	struct held_up *h = arg;
	CUcontext ctx;

	drv_ok(cuDevicePrimaryCtxRetain, &ctx, 0);
	drv_ok(cuCtxSetCurrent, ctx);
	drv_ok(cuLaunchHostFunc, CU_STREAM_PER_THREAD, wait_for, &h->go);
	ok(fdry_image_launch(h->img, SLOW, CU_STREAM_PER_THREAD));
	return NULL;
}

/* One handle, and a stream for each thread. */
START_TEST(overlaps_of_per_thread_streams_are_found)
{
	struct held_up h;
	pthread_t t;

	test_child(seal_slow, NULL);
	h.img = load(FDRY_LOAD_CHECK_OVERLAP);
	ck_assert(!sem_init(&h.go, 0, 0));
	ck_assert(!pthread_create(&t, NULL, launch_held_up, &h));
	ck_assert(!pthread_join(t, NULL));
	fails(STATE, "graph 3 'slow' is in flight on another stream",
	      fdry_image_launch(h.img, ADD, CU_STREAM_PER_THREAD));
	sem_post(&h.go);
	fdry_image_unload(h.img);
}
END_TEST

/* A new stream with the handle of a destroyed one is a different stream. */
START_TEST(overlaps_of_streams_with_one_handle_are_found)
{
	struct fdry_image *img;
	CUstream s;
	sem_t go;
	int err;

	test_child(seal_slow, NULL);
	img = load(FDRY_LOAD_CHECK_OVERLAP);
	s = stream_make();
	ok(fdry_image_launch(img, ADD, s));
	ck_assert(!sem_init(&go, 0, 0));
	drv_ok(cuLaunchHostFunc, s, wait_for, &go);
	ok(fdry_image_launch(img, SLOW, s));
	drv_ok(cuStreamDestroy_v2, s);
	ck_assert_ptr_eq(stream_make(), s);
	err = fdry_image_launch(img, ADD, s);
	sem_post(&go);
	ck_assert_int_eq(err, -FDRY_E_STATE);
	fdry_image_unload(img);
}
END_TEST

START_TEST(debugging_is_asked_for_by_name)
{
	struct fdry_image *img;

	test_child(seal_slow, NULL);
	ok(setenv("FOUNDRY_DEBUG", "everything", 1));
	fails(ENV, "FOUNDRY_DEBUG is 'everything'",
	      fdry_image_load(load_store(), "img", NULL, &img));
	ok(setenv("FOUNDRY_DEBUG", "", 1));
	img = load(0);
	ok(fdry_image_launch(img, SLOW, stream_make()));
	ok(fdry_image_launch(img, ADD, stream_make()));
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_stream");
	TCase *tc = tcase_create("stream");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_stream_of_another_device, 0, 2);
	tcase_add_test(tc, a_stream_of_another_context);
	tcase_add_loop_test(tc, that_was_destroyed, 0, 2);
	tcase_add_loop_test(tc, that_captures, 0, 3);
	tcase_add_loop_test(tc, from_a_thread_without_a_context, 0, 2);
	tcase_add_loop_test(tc, on_both_devices, 0, 2);
	tcase_add_loop_test(tc, in_the_order_of_the_stream, 0, 2);
	tcase_add_test(tc, the_private_context_is_destroyed_too);
	tcase_add_loop_test(tc, refreshed_beside_a_launch, 0, 2);
	tcase_add_test(tc, no_memory_to_refresh);
	tcase_add_loop_test(tc, overlaps_are_found, 0, 2);
	tcase_add_test(tc, overlaps_of_per_thread_streams_are_found);
	tcase_add_test(tc, overlaps_of_streams_with_one_handle_are_found);
	tcase_add_test(tc, debugging_is_asked_for_by_name);
	suite_add_tcase(s, tc);
	return test_main(s);
}
