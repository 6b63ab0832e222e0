// SPDX-License-Identifier: Apache-2.0
/* Unit tests of images with stream-ordered memory, placed among a process' allocations: it has made
 * them itself, in part, or not at all. */
#include "tests/lib/image.h"

#define BIG (3u << 20)
#define PIECES 4

static void pieces_make(struct work *w, int n, CUdeviceptr p[PIECES])
{
	static const size_t size[PIECES] = { 100, BIG, BIG, 40u << 20 };
	int i;

	for (i = 0; i < n; i++)
		cuda_ok(cuMemAllocAsync, &p[i], size[i], w->stream);
}

/* A pool returns addresses that separate allocations never have: c = (a + b) + b, with sums between
 * in large pieces. */
static void seal_pool(void *unused)
{
	CUdeviceptr p[PIECES];
	struct work w;

	(void)unused;
	work_make(&w);
	pieces_make(&w, PIECES, p);
	cuda_ok(cuMemcpyDtoD_v2, p[3] + (8u << 20), w.b, BYTES);
	capture_start(&w);
	launch_add(&w, w.a, p[3] + (8u << 20), p[1]);
	cuda_ok(cuMemcpyDtoDAsync_v2, p[2] + 512, p[1], BYTES, w.stream);
	launch_add(&w, p[2] + 512, w.b, w.c);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

static void sum_check(struct fdry_image *img)
{
	float a[N], c[N];
	int i;

	vector_fill(a, 3);
	ok(fdry_image_write(img, "a", a, BYTES, NULL));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_read(img, "c", c, BYTES, NULL));
	for (i = 0; i < N; i++)
		ck_assert(c[i] == (a[i] + vector_value(i, 100)) + vector_value(i, 100));
}

/* @_i: how many of them the process makes. The load claims the others, in the process' own slab or
 * outside of it. The process gets them after the image is unloaded, and no others. */
START_TEST(pieces_of_the_process_and_claims)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts) };
	CUdeviceptr p[PIECES], more[PIECES], again[PIECES];
	struct fdry_image *img = NULL;
	struct fdry_memory none;
	struct work w;
	int round, i, k;

	test_child(seal_pool, NULL);
	work_make(&w);
	opts.into = w.cap;
	opts.keep = &none;
	pieces_make(&w, _i, p);
	for (round = 0; round < 2; round++) {
		ok(fdry_image_load(w.store, "img", &opts, &img));
		sum_check(img);
		pieces_make(&w, PIECES, more);
		for (i = 0; i < PIECES; i++)
			cuda_ok(cuMemsetD8_v2, more[i], 0x55, 100);
		sum_check(img);
		for (i = 0; i < PIECES; i++)
			cuda_ok(cuMemFree_v2, more[i]);
		fdry_image_unload(img);
	}
	pieces_make(&w, PIECES - _i, again);
	for (i = 0; i < PIECES - _i; i++)
		for (k = 0; k < _i; k++)
			ck_assert_uint_ne(again[i], p[k]);
	work_end(&w);
}
END_TEST

/* Another allocation lies where the image has a piece. */
START_TEST(pieces_in_the_way)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts) };
	struct fdry_image *img = NULL;
	CUdeviceptr small, other;
	struct work w;

	test_child(seal_pool, NULL);
	work_make(&w);
	opts.into = w.cap;
	cuda_ok(cuMemAllocAsync, &small, 100, w.stream);
	cuda_ok(cuMemAllocAsync, &other, BIG / 2, w.stream);
	fails(LAYOUT, "allocation 4 of this process has 1572864 bytes at 0x",
	      fdry_image_load(w.store, "img", &opts, &img));
	ck_assert_ptr_null(img);
	work_end(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_place_pool");
	TCase *tc = tcase_create("pool");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, pieces_of_the_process_and_claims, 0, PIECES + 1);
	tcase_add_test(tc, pieces_in_the_way);
	suite_add_tcase(s, tc);
	return test_main(s);
}
