// SPDX-License-Identifier: Apache-2.0
/* Unit tests of images with stream-ordered memory, placed among a process' allocations that lack
 * it. */
#include "tests/lib/image.h"

#define BIG (3u << 20)

/* A pool returns addresses that separate allocations never have. */
static void seal_pool(void *unused)
{
	CUdeviceptr small, big;
	struct work w;

	(void)unused;
	work_make(&w);
	cuda_ok(cuMemAllocAsync, &small, 100, w.stream);
	cuda_ok(cuMemAllocAsync, &big, BIG, w.stream);
	capture_start(&w);
	launch_add(&w, w.a, big, w.c);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

/* If the process makes the same allocations, the load accepts them. Without the last one, its
 * message names it. */
START_TEST(pools_are_the_process_own)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts) };
	struct fdry_image *img = NULL;
	CUdeviceptr small, big;
	struct work w;

	test_child(seal_pool, NULL);
	work_make(&w);
	opts.into = w.cap;
	cuda_ok(cuMemAllocAsync, &small, 100, w.stream);
	if (_i) {
		fails(LAYOUT, "allocation 4 of the image (3145728 bytes at 0x",
		      fdry_image_load(w.store, "img", &opts, &img));
		ck_assert_ptr_nonnull(strstr(fdry_last_error(), "from a pool"));
	}
	cuda_ok(cuMemAllocAsync, &big, BIG, w.stream);
	ok(fdry_image_load(w.store, "img", &opts, &img));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_synchronize(img, NULL));
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_place_pool");
	TCase *tc = tcase_create("pool");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, pools_are_the_process_own, 0, 2);
	suite_add_tcase(s, tc);
	return test_main(s);
}
