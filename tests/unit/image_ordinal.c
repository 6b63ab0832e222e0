// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of several devices: an image does not record the ordinal of its device, loads on any,
 * and images of several devices can be loaded in one process. On a software driver with two
 * devices.
 */
#include <pthread.h>
#include <sys/mman.h>

#include "tests/lib/image.h"

#define APART (1ull << 35)

static char *ids; /* shared with the processes of a test */

static void setup(void)
{
	dir_setup();
	ok(setenv("FDRY_SIM_DEVICES", "2", 1));
	ids = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(ids, MAP_FAILED);
}

/* Capture c = a + b with kernels, a memset and a copy, over two streams. */
static CUgraph mixed(struct work *w)
{
	CUstream side;
	CUevent fork, join;

	cuda_ok(cuStreamCreate, &side, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuEventCreate, &fork, CU_EVENT_DISABLE_TIMING);
	cuda_ok(cuEventCreate, &join, CU_EVENT_DISABLE_TIMING);
	capture_start(w);
	cuda_ok(cuEventRecord, fork, w->stream);
	cuda_ok(cuStreamWaitEvent, side, fork, 0);
	cuda_ok(cuMemsetD32Async, w->c + BYTES / 2, 1, N / 2, side);
	cuda_ok(cuMemcpyDtoDAsync_v2, w->c, w->a, BYTES / 2, w->stream);
	cuda_ok(cuEventRecord, join, side);
	cuda_ok(cuStreamWaitEvent, w->stream, join, 0);
	launch_add(w, w->a, w->b, w->c);
	return capture_stop(w);
}

static void seal_on(int device, CUdeviceptr base, const char *ref)
{
	struct work w;

	work_device = device;
	work_base = base;
	work_make(&w);
	graph_add(&w, 1);
	ok(fdry_capture_graph(w.cap, 2, "mixed", mixed(&w)));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(fdry_capture_seal(w.cap, w.store, ref, ids + 128 * device, NULL));
	work_end(&w);
}

static void seal_0(void *ref)
{
	seal_on(0, TEST_CAPTURE_BASE, ref);
}

static void seal_1(void *ref)
{
	seal_on(1, TEST_CAPTURE_BASE, ref);
}

static void seal_1_apart(void *ref)
{
	seal_on(1, TEST_CAPTURE_BASE + APART, ref);
}

static struct fdry_image *load_on(int device, const char *name)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .device = device,
				       .flags = FDRY_LOAD_POISON };
	struct fdry_image *img = NULL;

	ok(fdry_image_load(load_store(), name, &opts, &img));
	return img;
}

START_TEST(ids_do_not_know_the_ordinal)
{
	test_child(seal_0, "zero");
	test_child(seal_1, "one");
	ck_assert_uint_eq(strlen(ids), 64);
	ck_assert_str_eq(ids, ids + 128);
}
END_TEST

/* An image captured on either device is loaded on either device. */
START_TEST(any_ordinal)
{
	int captured = _i & 1, loaded = _i >> 1;
	const struct fdry_driver *drv;
	struct fdry_image *img;
	struct fdry_tensor t;
	int device = -1;

	test_child(captured ? seal_1 : seal_0, "img");
	img = load_on(loaded, "img");
	image_check(img, 1, 3, 100);
	image_check(img, 2, 4, 100);
	ok(fdry_image_restore(img, NULL));
	image_check(img, 1, 5, 100);
	drv = test_sim();
	ok(fdry_image_tensor_find(img, "c", &t));
	ck_assert_int_eq(
		drv->cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, t.addr),
		CUDA_SUCCESS);
	ck_assert_int_eq(device, loaded);
	fdry_image_unload(img);
}
END_TEST

/* A caller that works on the other device, with a stream of the image's. */
START_TEST(callers_context_stays)
{
	const struct fdry_driver *drv;
	struct fdry_image *img;
	CUcontext mine, image_ctx, now;
	CUstream stream;

	test_child(seal_0, "img");
	(void)load_store();
	drv = test_sim();
	ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&mine, 0), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&image_ctx, 1), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuCtxPushCurrent_v2(image_ctx), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuCtxPopCurrent_v2(&now), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuCtxSetCurrent(mine), CUDA_SUCCESS);
	img = load_on(1, "img");
	image_check(img, 2, 3, 100);
	ok(fdry_image_launch(img, 1, stream));
	ok(fdry_image_synchronize(img, stream));
	image_check(img, 1, 6, 100);
	fdry_image_unload(img);
	ck_assert_int_eq(drv->cuCtxGetCurrent(&now), CUDA_SUCCESS);
	ck_assert_ptr_eq(now, mine);
}
END_TEST

static void *launch_often(void *img)
{
	int i;

	for (i = 0; i < 20; i++)
		image_check(img, 1 + (uint64_t)i % 2, (float)i, 100);
	return NULL;
}

/* One image of each device in one process, at work at the same time; each also on the other's. */
START_TEST(two_devices_in_a_process)
{
	struct fdry_image *img[2], *again;
	pthread_t threads[2];
	long before;
	int i;

	test_child(seal_0, "zero");
	test_child(seal_1_apart, "one");
	(void)load_store();
	test_sim();
	before = live_before();
	img[0] = load_on(_i, "zero");
	img[1] = load_on(1 - _i, "one");
	for (i = 0; i < 2; i++)
		ck_assert(!pthread_create(&threads[i], NULL, launch_often, img[i]));
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	/* Addresses are one space for all devices. */
	fails(TAKEN, "of this process lies there",
	      fdry_image_load(load_store(), "zero",
			      &(struct fdry_load_opts){ .sz = sizeof(struct fdry_load_opts),
							.device = 1 - _i },
			      &again));
	fdry_image_unload(img[0]);
	image_check(img[1], 2, 7, 100);
	img[0] = load_on(1 - _i, "zero");
	image_check(img[0], 1, 8, 100);
	fdry_image_unload(img[1]);
	fdry_image_unload(img[0]);
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

/* Memory of the other device is not the image's. */
static void seal_peer(void *unused)
{
	struct work w;
	CUdeviceptr other;

	(void)unused;
	work_device = 0;
	work_make(&w);
	device_use(1);
	cuda_ok(cuMemAlloc_v2, &other, BYTES);
	device_use(0);
	capture_start(&w);
	launch_add(&w, w.a, other, w.c);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	ck_assert_int_eq(work_seal(&w, "img"), -FDRY_E_REFUSED);
	work_end(&w);
}

START_TEST(other_devices_memory_is_refused)
{
	test_child(seal_peer, NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_ordinal");
	TCase *tc = tcase_create("ordinal");

	tcase_add_checked_fixture(tc, setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, ids_do_not_know_the_ordinal);
	tcase_add_loop_test(tc, any_ordinal, 0, 4);
	tcase_add_test(tc, callers_context_stays);
	tcase_add_loop_test(tc, two_devices_in_a_process, 0, 2);
	tcase_add_test(tc, other_devices_memory_is_refused);
	suite_add_tcase(s, tc);
	return test_main(s);
}
