// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of images placed among the allocations of a live capture: the memory that the process
 * keeps, and the memory that the image fills. image_place_compare.c tests allocations that differ.
 */
#include "tests/lib/flip.h"
#include "tests/lib/image_place.h"
#include "tests/lib/image_small.h"

START_TEST(a_prefix_keeps_its_bytes_and_the_rest_comes_from_the_image)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct work w;

	test_child(seal_into, NULL);
	into_begin(&w, _i, 40);
	opts = into(&w);
	ok(fdry_image_load(w.store, "img", &opts, &img));
	sum_is(img, 1, _i > 0 ? 40 : 7, _i > 1 ? 40 : 100);
	sum_is(img, 2, _i > 0 ? 40 : 7, 1000);
	tensor_is(img, "d", 1000);
	tensor_is(img, "end", 1000);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

static void CUDA_CB takes_long(void *arg)
{
	usleep(*(useconds_t *)arg);
}

/* The process' work there, in a context of its own, ends before content is written. */
START_TEST(nothing_is_kept_where_nothing_is_named)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct fdry_memory none;
	useconds_t us = 100000;
	CUcontext own;
	struct work w;

	test_child(seal_into, NULL);
	into_begin(&w, 3, 40);
	if (_i) {
		cuda_ok(cuCtxCreate_v4, &own, NULL, 0, 0);
		cuda_ok(cuLaunchHostFunc, NULL, takes_long, &us);
		cuda_ok(cuMemsetD8Async, w.b, 0x55, BYTES, NULL);
	}
	opts = into(&w);
	opts.keep = &none;
	ok(fdry_image_load(w.store, "img", &opts, &img));
	if (_i)
		cuda_ok(cuCtxSynchronize);
	sum_is(img, 1, 7, 100);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

/* Ranges inside of allocations, unsorted, overlapping, empty, and beyond everything. */
START_TEST(ranges_are_kept_to_the_byte)
{
	struct fdry_memory keep[5];
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct work w;
	float v[N];
	int i;

	test_child(seal_into, NULL);
	into_begin(&w, 2, 40);
	opts = into(&w);
	keep[0] = (struct fdry_memory){ w.b + 8, 40 };
	keep[1] = (struct fdry_memory){ w.a + 400, 4 };
	keep[2] = (struct fdry_memory){ w.b + 24, 8 };
	keep[3] = (struct fdry_memory){ w.b + BYTES - 4, UINT64_MAX };
	keep[4] = (struct fdry_memory){ w.a, 0 };
	opts.keep = keep;
	opts.nkeep = 5;
	ok(fdry_image_load(w.store, "img", &opts, &img));
	cuda_ok(cuMemcpyDtoH_v2, v, w.a, BYTES);
	for (i = 0; i < N; i++)
		ck_assert_msg(v[i] == vector_value(i, i == 100 ? 40 : 7), "a[%d] is %g", i,
			      (double)v[i]);
	cuda_ok(cuMemcpyDtoH_v2, v, w.b, BYTES);
	for (i = 0; i < N; i++)
		ck_assert_msg(v[i] == vector_value(i, (i >= 2 && i < 12) || i == N - 1 ? 40 : 100),
			      "b[%d] is %g", i, (double)v[i]);

	/* Restoring respects them, too. */
	vector_fill(v, 5);
	cuda_ok(cuMemcpyHtoD_v2, w.a, v, BYTES);
	ok(fdry_image_restore(img, NULL));
	cuda_ok(cuMemcpyDtoH_v2, v, w.a, BYTES);
	for (i = 0; i < N; i++)
		ck_assert_msg(v[i] == vector_value(i, i == 100 ? 5 : 7), "a[%d] is %g then", i,
			      (double)v[i]);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

/* The process keeps a part of b, in the chunk of a and b. What the image fills is compared. */
START_TEST(a_chunk_that_is_kept_in_part_is_compared)
{
	struct fdry_memory keep;
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct meddle m = { 0 };
	struct work w;

	test_child(seal_into, NULL);
	into_begin(&w, 2, 40);
	keep = (struct fdry_memory){ w.b + 9, 40 };
	opts = into(&w);
	opts.keep = &keep;
	opts.nkeep = 1;
	opts.progress = meddle;
	opts.progress_arg = &m;
	m.addr = _i == 0 ? w.a + 5 : _i == 1 ? w.b + 8 : _i == 2 ? w.b + 49 : w.b + 9;
	if (_i < 3) {
		fails(CORRUPT, "is whole in the store, and other bytes arrived",
		      fdry_image_load(w.store, "img", &opts, &img));
	} else {
		ok(fdry_image_load(w.store, "img", &opts, &img));
		fdry_image_unload(img);
	}
	ck_assert(m.done);
	work_end(&w);
}
END_TEST

/* The same chunk is damaged in the store. */
START_TEST(a_chunk_that_is_kept_in_part_is_repaired)
{
	struct fdry_load_opts opts;
	struct fdry_memory keep;
	struct flip_chunk chunk;
	struct fdry_image *img;
	struct work w;

	test_child(seal_into, NULL);
	into_begin(&w, 2, 40);
	image_pack_put(w.store);
	keep = (struct fdry_memory){ w.b + 9, 40 };
	opts = into(&w);
	opts.keep = &keep;
	opts.nkeep = 1;
	ok(fdry_image_load(w.store, "img", &opts, &img));
	fdry_image_unload(img);
	flip_find(w.store, "img", "a", &chunk);
	flip_bit(&chunk, 4321);
	flip_trust(&chunk);
	flip_release(&chunk);
	ok(fdry_image_load(w.store, "img", &opts, &img));
	tensor_is(img, "a", 7);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

START_TEST(poison_spares_what_is_kept)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct work w;

	test_child(seal_into, NULL);
	into_begin(&w, 3, 40);
	opts = into(&w);
	opts.flags = FDRY_LOAD_POISON;
	ok(fdry_image_load(w.store, "img", &opts, &img));
	tensor_is(img, "c", 40);
	sum_is(img, 1, 40, 40);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

/* The claimed ranges are free again, and no others. */
START_TEST(unloading_releases_the_claims)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct work w;
	CUdeviceptr p, again;
	int round;
	float v[N];

	test_child(seal_into, NULL);
	into_begin(&w, 2, 40);
	opts = into(&w);
	for (round = 0; round < 3; round++) {
		ok(fdry_image_load(w.store, "img", &opts, &img));
		cuda_ok(cuMemAlloc_v2, &p, 64);
		sum_is(img, 1, 40, 40);
		cuda_ok(cuMemFree_v2, p);
		fdry_image_unload(img);
	}
	cuda_ok(cuMemcpyDtoH_v2, v, w.b, BYTES);
	ck_assert(v[1] == vector_value(1, 40));
	cuda_ok(cuMemAlloc_v2, &again, BYTES); /* where c was */
	ck_assert_uint_eq(again, w.b + (w.b - w.a));
	work_end(&w);
}
END_TEST

/* The capture may end before the image does, as the region lives as long as memory in it. */
START_TEST(the_capture_may_end_first)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct work w;

	test_child(seal_into, NULL);
	into_begin(&w, 2, 40);
	opts = into(&w);
	ok(fdry_image_load(w.store, "img", &opts, &img));
	fdry_capture_end(w.cap);
	w.cap = NULL;
	sum_is(img, 1, 40, 40);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

/* Begin a process with an aside area. With @work, it does the work there that a loading process
 * omits. */
static void aside_begin(struct work *w, bool work, CUdeviceptr *d)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts),
					  .base = TEST_CAPTURE_BASE + (1ull << 35),
					  .size = 1ull << 34, .aside = 1ull << 34 };
	CUdeviceptr gone;
	float v[N];

	fdry_capture_end(w->cap);
	ok(fdry_capture_begin(&opts, &w->cap));
	cuda_ok(cuMemAlloc_v2, &w->a, BYTES);
	vector_fill(v, 7);
	cuda_ok(cuMemcpyHtoD_v2, w->a, v, BYTES);
	if (work) {
		ok(fdry_capture_aside(w->cap, 1));
		cuda_ok(cuMemAlloc_v2, &gone, BIG);
		cuda_ok(cuMemAlloc_v2, d, BYTES);
		cuda_ok(cuMemFree_v2, gone);
		vector_fill(v, 1000);
		cuda_ok(cuMemcpyHtoD_v2, *d, v, BYTES);
		ok(fdry_capture_aside(w->cap, 0));
	}
	cuda_ok(cuMemAlloc_v2, &w->b, BYTES);
}

/* Seal c = a + d with d and c in the aside area; a is external. */
static void seal_aside(void *unused)
{
	CUdeviceptr d, gone;
	struct work w;

	(void)unused;
	work_make(&w);
	aside_begin(&w, true, &d);
	ok(fdry_capture_aside(w.cap, 1));
	capture_start(&w);
	cuda_ok(cuMemAlloc_v2, &w.c, BYTES);
	launch_add(&w, w.a, d, w.c);
	ok(fdry_capture_graph(w.cap, 1, "aside", capture_stop(&w)));
	cuda_ok(cuMemAlloc_v2, &gone, BIG);
	cuda_ok(cuMemFree_v2, gone);
	ok(fdry_capture_aside(w.cap, 0));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, FDRY_TENSOR_EXTERNAL);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	tensor_add(&w, "d", d, FDRY_USE_CONST, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

/* The image brings the memory of the aside area. The process' own addresses are unchanged. */
START_TEST(the_aside_area_is_the_images)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	CUdeviceptr p, none;
	struct work w;

	test_child(seal_aside, NULL);
	into_begin(&w, 0, 0);
	aside_begin(&w, false, &none);
	opts = into(&w);

	/* The process' own memory in the aside area is in the way. */
	ok(fdry_capture_aside(w.cap, 1));
	cuda_ok(cuMemAlloc_v2, &p, BIG + BIG);
	ok(fdry_capture_aside(w.cap, 0));
	ck_assert_int_eq(fdry_image_load(w.store, "img", &opts, &img), -FDRY_E_LAYOUT);
	cuda_ok(cuMemFree_v2, p);

	ok(fdry_image_load(w.store, "img", &opts, &img));
	ok(fdry_image_filled(img, NULL));
	sum_is(img, 1, 7, 1000);
	tensor_is(img, "d", 1000);
	cuda_ok(cuMemAlloc_v2, &p, BYTES);
	ck_assert_uint_eq(p, w.b + (w.b - w.a));
	cuda_ok(cuMemFree_v2, p);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

START_TEST(an_aside_area_needs_a_size)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts), .base = TEST_CAPTURE_BASE,
					  .aside = 1ull << 34 };
	struct fdry_capture *cap, *first;
	struct work w;

	into_begin(&w, 0, 0);
	first = w.cap;
	ck_assert_int_eq(fdry_capture_aside(first, 1), -FDRY_E_STATE);
	fdry_capture_end(first);
	ck_assert_int_eq(fdry_capture_begin(&opts, &cap), -FDRY_E_OPTS);
	opts.size = 1ull << 34;
	opts.aside = 1ull << 34 | 4096;
	ck_assert_int_eq(fdry_capture_begin(&opts, &cap), -FDRY_E_INVAL);
	opts.aside = 1ull << 34;
	ok(fdry_capture_begin(&opts, &w.cap)); /* nothing of those is left */
	opts.after = w.cap;
	ck_assert_int_eq(fdry_capture_begin(&opts, &cap), -FDRY_E_OPTS);
	work_end(&w);
}
END_TEST

START_TEST(two_images_share_a_region)
{
	struct fdry_load_opts opts;
	struct fdry_image *img, *again;
	CUdeviceptr p;
	struct work w;
	float v[N];

	test_child(seal_into, NULL);
	into_begin(&w, 2, 40);
	opts = into(&w);
	ok(fdry_image_load(w.store, "img", &opts, &img));
	ok(fdry_image_load(w.store, "img", &opts, &again));
	sum_is(img, 1, 40, 40);
	sum_is(again, 2, 40, 1000);
	fdry_image_unload(img); /* ranges that both images claimed stay */
	cuda_ok(cuMemAlloc_v2, &p, BIG);
	vector_fill(v, 3);
	cuda_ok(cuMemcpyHtoD_v2, p, v, BYTES);
	sum_is(again, 2, 40, 1000);
	tensor_is(again, "end", 1000);
	cuda_ok(cuMemFree_v2, p);
	fdry_image_unload(again);
	cuda_ok(cuMemAlloc_v2, &p, BYTES); /* where c was */
	ck_assert_uint_eq(p, w.b + (w.b - w.a));
	work_end(&w);
}
END_TEST

struct nested {
	struct work *w;
	uint32_t flags;
	int phase; /* in which the inner load is made */
	struct fdry_image *img;
};

static void load_within(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	struct nested *n = arg;
	struct fdry_load_opts opts;

	(void)done, (void)total, (void)ms;
	if (phase != n->phase || n->img)
		return;
	opts = into(n->w);
	opts.flags |= n->flags;
	ok(fdry_image_load(n->w->store, "img", &opts, &n->img));
}

/* A progress function loads an image into the same region. @_i: when the inner load is made, and
 * whether the outer and the inner load build all graphs, for which a thread may copy the
 * content. */
START_TEST(a_load_within_a_load)
{
	struct nested n = { .flags = _i & 1 ? FDRY_LOAD_BUILD : 0,
			    .phase = _i & 4 ? FDRY_PHASE_GRAPHS : FDRY_PHASE_CONTENT };
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct work w;

	test_child(seal_into, NULL);
	into_begin(&w, 2, 40);
	n.w = &w;
	opts = into(&w);
	opts.flags |= _i & 6 ? FDRY_LOAD_BUILD : 0;
	opts.progress = load_within;
	opts.progress_arg = &n;
	ok(fdry_image_load(w.store, "img", &opts, &img));
	ck_assert_ptr_nonnull(n.img);
	sum_is(img, 1, 40, 40);
	sum_is(n.img, 2, 40, 1000);
	fdry_image_unload(img);
	fdry_image_unload(n.img);
	work_end(&w);
}
END_TEST

/* Fill @late from 500 on, and capture graph 3: c = a + late. */
static void late_add(struct work *w, CUdeviceptr late)
{
	float v[N];

	vector_fill(v, 500);
	cuda_ok(cuMemcpyHtoD_v2, late, v, BYTES);
	capture_start(w);
	launch_add(w, w->a, late, w->c);
	ok(fdry_capture_graph(w->cap, 3, "late", capture_stop(w)));
	tensor_add(w, "c", w->c, FDRY_USE_OUTPUT, 0);
}

/* A first image, then more of the same process: an allocation of its own, graph 3: c = a + it, and
 * the second image. */
static void seal_twice(void *unused)
{
	CUdeviceptr gone, late;
	struct work w;

	(void)unused;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &gone, BIG);
	graph_add(&w, 1);
	ok(work_seal(&w, "img"));
	cuda_ok(cuMemFree_v2, gone);
	cuda_ok(cuMemAlloc_v2, &late, BYTES);
	late_add(&w, late);
	tensor_add(&w, "late", late, FDRY_USE_CONST, 0);
	ok(work_seal(&w, "more"));
	work_end(&w);
}

/* @_i: whether the process makes the late allocation as well, after it has loaded the first image.
 */
START_TEST(images_of_one_process_follow_each_other)
{
	struct fdry_load_opts opts;
	struct fdry_image *img, *more;
	CUdeviceptr late = 0;
	struct work w;
	float v[N];

	test_child(seal_twice, NULL);
	into_begin(&w, 1, 40);
	opts = into(&w);
	ok(fdry_image_load(w.store, "img", &opts, &img));
	if (_i) {
		cuda_ok(cuMemAlloc_v2, &late, BYTES);
		vector_fill(v, 60);
		cuda_ok(cuMemcpyHtoD_v2, late, v, BYTES);
	}
	ok(fdry_image_load(w.store, "more", &opts, &more));
	sum_is(more, 3, 40, _i ? 60 : 500);
	fdry_image_unload(img);
	sum_is(more, 3, 40, _i ? 60 : 500);
	fdry_image_unload(more);
	work_end(&w);
}
END_TEST

/* The same allocations twice, the last with other bytes at the second seal. */
static void seal_changed(void *unused)
{
	CUdeviceptr late;
	struct work w;
	float v[N];

	(void)unused;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &late, BYTES);
	late_add(&w, late);
	ok(work_seal(&w, "img"));
	vector_fill(v, 600);
	cuda_ok(cuMemcpyHtoD_v2, late, v, BYTES);
	ok(work_seal(&w, "more"));
	work_end(&w);
}

/* A range that an earlier image claimed is not an allocation of the process, which would be
 * kept. */
START_TEST(the_later_of_two_contents_counts)
{
	struct fdry_load_opts opts;
	struct fdry_image *img, *more;
	struct work w;

	test_child(seal_changed, NULL);
	into_begin(&w, 1, 40);
	opts = into(&w);
	ok(fdry_image_load(w.store, "img", &opts, &img));
	sum_is(img, 3, 40, 500);
	ok(fdry_image_load(w.store, "more", &opts, &more));
	sum_is(more, 3, 40, 600);
	fdry_image_unload(img);
	fdry_image_unload(more);
	work_end(&w);
}
END_TEST

/* Seal an allocation at freed addresses: it was made last, and has lower addresses than others. */
static void seal_reused(void *unused)
{
	CUdeviceptr gone, big, late;
	struct work w;

	(void)unused;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &gone, BIG);
	cuda_ok(cuMemAlloc_v2, &big, BIG);
	cuda_ok(cuMemFree_v2, gone);
	graph_add(&w, 1);
	ok(work_seal(&w, "first"));
	cuda_ok(cuMemAlloc_v2, &late, BIG);
	ck_assert_uint_eq(late, gone);
	late_add(&w, late);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

/* @_i: the number of allocations that the process makes itself, which equal those of the other
 * process. */
START_TEST(addresses_that_were_freed_and_used_again)
{
	struct fdry_load_opts opts;
	CUdeviceptr gone, big;
	struct fdry_image *first, *img;
	struct work w;

	test_child(seal_reused, NULL);
	into_begin(&w, _i, 40);
	if (_i > 3) {
		cuda_ok(cuMemAlloc_v2, &gone, BIG);
		cuda_ok(cuMemAlloc_v2, &big, BIG);
		cuda_ok(cuMemFree_v2, gone);
	}
	opts = into(&w);
	ok(fdry_image_load(w.store, "first", &opts, &first));
	ok(fdry_image_load(w.store, "img", &opts, &img));
	sum_is(img, 3, _i > 0 ? 40 : 7, 500);
	fdry_image_unload(first);
	fdry_image_unload(img);
	ok(fdry_image_load(w.store, "img", &opts, &img));
	sum_is(img, 3, _i > 0 ? 40 : 7, 500);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST
START_TEST(another_region_is_refused)
{
	struct fdry_capture_opts c = { .sz = sizeof(c), .base = TEST_CAPTURE_BASE + (1ull << 36),
				       .size = 1ull << 30 };
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct work w;

	test_child(seal_into, NULL);
	into_begin(&w, 0, 0);
	fdry_capture_end(w.cap);
	ok(fdry_capture_begin(&c, &w.cap));
	opts = into(&w);
	fails(LAYOUT, "use the same base", fdry_image_load(w.store, "img", &opts, &img));
	fdry_capture_end(w.cap);
	c.base = TEST_CAPTURE_BASE;
	c.size = 4u << 20;
	ok(fdry_capture_begin(&c, &w.cap));
	opts = into(&w);
	fails(LAYOUT, "make it as large", fdry_image_load(w.store, "img", &opts, &img));
	work_end(&w);
}
END_TEST

START_TEST(options_that_make_no_sense_are_refused)
{
	struct fdry_external external = { 0 };
	struct fdry_load_opts opts;
	struct fdry_memory keep = { 0 };
	struct fdry_image *img;
	struct work w;

	ok(setenv("FDRY_SIM_DEVICES", "2", 1));
	test_child(seal_into, NULL);
	into_begin(&w, 3, 40);
	opts = into(&w);
	opts.nkeep = 2;
	fails(OPTS, "nkeep is 2, but keep is NULL", fdry_image_load(w.store, "img", &opts, &img));
	opts = into(&w);
	opts.externals = &external;
	opts.nexternals = 1;
	fails(OPTS, "have the size that they were captured with",
	      fdry_image_load(w.store, "img", &opts, &img));
	opts = into(&w);
	opts.device = 1;
	fails(OPTS, "use one device", fdry_image_load(w.store, "img", &opts, &img));
	opts = into(&w);
	opts.into = NULL;
	opts.keep = &keep;
	fails(OPTS, "needs a capture that the image is loaded into",
	      fdry_image_load(w.store, "img", &opts, &img));
	opts = into(&w);
	capture_start(&w);
	fails(STATE, "capturing", fdry_image_load(w.store, "img", &opts, &img));
	work_end(&w);
}
END_TEST

/* If any call fails, nothing is claimed afterwards and the process has its bytes. */
START_TEST(every_driver_call_fails_in_turn)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct work w;
	uint64_t before, after;
	char spec[32];
	float v[N];
	int n, failed = 0, err = 1;

	test_child(seal_into, NULL);
	into_begin(&w, 2, 40);
	opts = into(&w);
	ok(fdry_capture_offset(w.cap, &before));
	for (n = 1; err && n < 500; n++) {
		snprintf(spec, sizeof(spec), "*:%d:%d", n, CUDA_ERROR_OUT_OF_MEMORY);
		test_sim_fail(spec);
		err = fdry_image_load(w.store, "img", &opts, &img);
		failed += err != 0;
		if (!err && test_sim_failed()) /* a failure that a load does without */
			err = 1, fdry_image_unload(img);
		test_sim_fail(NULL);
		if (!err)
			break;
		cuda_ok(cuMemcpyDtoH_v2, v, w.b, BYTES);
		ck_assert(v[1] == vector_value(1, 40));
	}
	ck_assert_int_eq(err, 0);
	ck_assert_int_gt(failed, 10);
	sum_is(img, 2, 40, 1000);
	fdry_image_unload(img);
	ok(fdry_capture_set_offset(w.cap, before)); /* no live allocation follows it */
	ok(fdry_capture_offset(w.cap, &after));
	ck_assert_uint_eq(after, before);
	work_end(&w);
}
END_TEST

START_TEST(a_capture_tells_its_allocations)
{
	struct fdry_memory *m = NULL;
	struct work w;
	size_t n = 7;

	into_begin(&w, 0, 0);
	ok(fdry_capture_allocs(w.cap, &m, &n));
	ck_assert(!m && !n);
	fails(INVAL, "", fdry_capture_allocs(w.cap, NULL, &n));
	work_end(&w);
	into_begin(&w, 3, 1);
	cuda_ok(cuMemFree_v2, w.b);
	cuda_ok(cuMemAlloc_v2, &w.b, 100); /* it has a lower address than c, and was allocated
					      later */
	ok(fdry_capture_allocs(w.cap, &m, &n));
	ck_assert_uint_eq(n, 3);
	ck_assert(m[0].addr == w.a && m[1].addr == w.c && m[2].addr == w.b);
	ck_assert(m[0].bytes == BYTES && m[2].bytes == 100);
	free(m);
	work_end(&w);
}
END_TEST

START_TEST(a_graph_that_is_dropped_is_not_sealed)
{
	struct fdry_seal_report report = { .sz = sizeof(report) };
	struct fdry_rng_use draw = { .generator = "g", .increment = 4 };
	CUgraph gone;
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	capture_start(&w);
	launch_add(&w, w.a, w.b, w.c);
	gone = capture_stop(&w);
	ok(fdry_capture_graph(w.cap, 2, "gone", gone));
	draw.seed = w.a;
	draw.offset = w.a + 8;
	ok(fdry_capture_rng_use(w.cap, 2, &draw));
	fails(NOKEY, "no graph with key 3", fdry_capture_graph_remove(w.cap, 3));
	ok(fdry_capture_graph_remove(w.cap, 2));
	fails(NOKEY, "no graph with key 2", fdry_capture_graph_remove(w.cap, 2));
	cuda_ok(cuGraphDestroy, gone);
	ok(fdry_capture_seal(w.cap, w.store, NULL, NULL, &report));
	ck_assert_uint_eq(report.graphs, 1);
	graph_add(&w, 2); /* its key is free */
	ok(fdry_capture_seal(w.cap, w.store, NULL, NULL, &report));
	ck_assert_uint_eq(report.graphs, 2);
	work_end(&w);
}
END_TEST

START_TEST(memory_is_mapped_ahead_and_freed)
{
	struct work w;

	into_begin(&w, 1, 1);
	fails(STATE, "no preallocated memory", fdry_capture_free_preallocated(w.cap));
	ok(fdry_capture_preallocate(w.cap, 64u << 20));
	ok(fdry_capture_free_preallocated(w.cap));
	fails(RANGE, "reserve a larger one", fdry_capture_preallocate(w.cap, 1ull << 40));
	work_end(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_place");
	TCase *tc = tcase_create("into");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_prefix_keeps_its_bytes_and_the_rest_comes_from_the_image, 0, 4);
	tcase_add_loop_test(tc, nothing_is_kept_where_nothing_is_named, 0, 2);
	tcase_add_test(tc, ranges_are_kept_to_the_byte);
	tcase_add_loop_test(tc, a_chunk_that_is_kept_in_part_is_compared, 0, 4);
	tcase_add_test(tc, a_chunk_that_is_kept_in_part_is_repaired);
	tcase_add_test(tc, poison_spares_what_is_kept);
	tcase_add_test(tc, unloading_releases_the_claims);
	tcase_add_test(tc, the_capture_may_end_first);
	tcase_add_test(tc, the_aside_area_is_the_images);
	tcase_add_test(tc, an_aside_area_needs_a_size);
	tcase_add_test(tc, two_images_share_a_region);
	tcase_add_loop_test(tc, a_load_within_a_load, 0, 6);
	tcase_add_loop_test(tc, images_of_one_process_follow_each_other, 0, 2);
	tcase_add_test(tc, the_later_of_two_contents_counts);
	tcase_add_loop_test(tc, addresses_that_were_freed_and_used_again, 0, 5);
	tcase_add_test(tc, another_region_is_refused);
	tcase_add_test(tc, options_that_make_no_sense_are_refused);
	tcase_add_test(tc, every_driver_call_fails_in_turn);
	tcase_add_test(tc, a_capture_tells_its_allocations);
	tcase_add_test(tc, a_graph_that_is_dropped_is_not_sealed);
	tcase_add_test(tc, memory_is_mapped_ahead_and_freed);
	suite_add_tcase(s, tc);
	return test_main(s);
}
