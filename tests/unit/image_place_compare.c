// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of images placed among allocations that differ from those of the sealing process.
 * Allocations that touch no memory of the image stay; the first one in the way is named in the
 * message.
 */
#include "tests/lib/image_place.h"

/* Differing allocations: their number, size and address. */
static const struct { int n; uint64_t more; const char *says; } other[] = {
	{ 0, BYTES + 512, "allocation 0 of this process has 4512 bytes" },
	{ 2, 8192, "allocation 2 of this process has 8192 bytes" },
	{ 3, BIG << 1, "allocation 3 of this process has 6291456 bytes" },
};

START_TEST(the_first_allocation_that_differs_is_named)
{
	struct fdry_load_opts opts;
	struct fdry_image *img = NULL;
	struct work w;
	CUdeviceptr p;
	uint64_t before, after;

	test_child(seal_into, NULL);
	into_begin(&w, other[_i].n, 40);
	cuda_ok(cuMemAlloc_v2, &p, other[_i].more);
	opts = into(&w);
	ok(fdry_capture_offset(w.cap, &before));
	fails(LAYOUT, other[_i].says, fdry_image_load(w.store, "img", &opts, &img));
	ck_assert_ptr_null(img);
	ok(fdry_capture_offset(w.cap, &after));
	ck_assert_uint_eq(after, before);
	work_end(&w);
}
END_TEST

/* Make the content of an allocation of @size bytes. The caller must free() it. */
static float *pattern(uint64_t size, float salt)
{
	float *v = malloc(size);
	uint64_t i;

	ck_assert_ptr_nonnull(v);
	for (i = 0; i < size / sizeof(*v); i++)
		v[i] = vector_value((int)(i % N), salt);
	return v;
}

static void fill_all(CUdeviceptr p, uint64_t size, float salt)
{
	float *v = pattern(size, salt);

	cuda_ok(cuMemcpyHtoD_v2, p, v, size);
	free(v);
}

static void all_is(CUdeviceptr p, uint64_t size, float salt)
{
	float *want = pattern(size, salt), *v = malloc(size);

	ck_assert_ptr_nonnull(v);
	cuda_ok(cuMemcpyDtoH_v2, v, p, size);
	ck_assert_msg(!memcmp(v, want, size), "the process' memory at %#llx was changed", p);
	free(v);
	free(want);
}

/* Seal with half of a hole used again. Graph 1: c = a + b; 2: c = a + the vector in that half. */
static void seal_half(void *unused)
{
	CUdeviceptr gone, big, late;
	struct work w;
	float v[N];

	(void)unused;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &gone, 2 * BIG);
	cuda_ok(cuMemAlloc_v2, &big, BIG);
	cuda_ok(cuMemFree_v2, gone);
	cuda_ok(cuMemAlloc_v2, &late, BIG);
	ck_assert_uint_eq(late, gone);
	vector_fill(v, 1000);
	cuda_ok(cuMemcpyHtoD_v2, late, v, BYTES);
	graph_add(&w, 1);
	capture_start(&w);
	launch_add(&w, w.a, late, w.c);
	ok(fdry_capture_graph(w.cap, 2, "late", capture_stop(&w)));
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

/* The process makes something of its own, which the image lacks, of 2 MiB or of BYTES. */
enum extra {
	BELOW,   /* at addresses that the sealing process had freed, below other allocations of the
		    image */
	REUSED,  /* in a hole of the image's process, which used another part of the hole again */
	BETWEEN, /* between allocations of the image */
	BEHIND,  /* behind all allocations */
};

static CUdeviceptr extra_make(enum extra which, uint64_t *size)
{
	CUdeviceptr gone, big, late, extra;

	*size = which == BETWEEN ? BYTES : 2u << 20;
	if (which == REUSED) {
		cuda_ok(cuMemAlloc_v2, &gone, 2 * BIG);
		cuda_ok(cuMemAlloc_v2, &big, BIG);
		cuda_ok(cuMemFree_v2, gone);
		cuda_ok(cuMemAlloc_v2, &late, BIG);
	} else if (which == BEHIND) {
		cuda_ok(cuMemAlloc_v2, &gone, BIG);
		cuda_ok(cuMemAlloc_v2, &big, BIG);
		cuda_ok(cuMemAlloc_v2, &late, BYTES);
		cuda_ok(cuMemFree_v2, gone);
		fill_all(late, BYTES, 1000);
		cuda_ok(cuMemAlloc_v2, &gone, BIG); /* so that there is no hole */
	}
	cuda_ok(cuMemAlloc_v2, &extra, *size);
	if (which == REUSED) {
		ck_assert(extra > gone && extra < big);
		cuda_ok(cuMemFree_v2, late);
	}
	return extra;
}

/* Memory of the process' own, made after the load, is apart from the image and stays as it is. */
static void later_are_apart(struct fdry_image *img)
{
	CUdeviceptr later[8];
	int i;

	for (i = 0; i < 8; i++) {
		cuda_ok(cuMemAlloc_v2, &later[i], i % 2 ? BIG : BYTES);
		fill_all(later[i], i % 2 ? BIG : BYTES, 80);
	}
	ok(fdry_image_restore(img, NULL));
	sum_is(img, 1, 40, 40);
	sum_is(img, 2, 40, 1000);
	for (i = 0; i < 8; i++) {
		all_is(later[i], i % 2 ? BIG : BYTES, 80);
		cuda_ok(cuMemFree_v2, later[i]);
	}
}

START_TEST(allocations_that_touch_nothing_stay_their_own)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct work w;
	CUdeviceptr extra;
	uint64_t size;
	int round;

	test_child(_i == REUSED ? seal_half : seal_into, NULL);
	into_begin(&w, 3, 40);
	extra = extra_make((enum extra)_i, &size);
	fill_all(extra, size, 70);
	opts = into(&w);
	opts.flags = FDRY_LOAD_POISON;
	for (round = 0; round < 2; round++) {
		ok(fdry_image_load(w.store, "img", &opts, &img));
		all_is(extra, size, 70);
		sum_is(img, 1, 40, 40);
		later_are_apart(img);
		all_is(extra, size, 70);
		fdry_image_unload(img);
		all_is(extra, size, 70);
	}
	work_end(&w);
}
END_TEST

/* The process has a and c, and freed the memory between them. With @_i, it uses part of that
 * itself. */
START_TEST(a_hole_in_the_middle_is_filled)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct work w;
	CUdeviceptr p;

	test_child(seal_into, NULL);
	into_begin(&w, 3, 40);
	cuda_ok(cuMemFree_v2, w.b);
	opts = into(&w);
	if (_i) {
		cuda_ok(cuMemAlloc_v2, &p, 100);
		ck_assert_uint_eq(p, w.b);
		fails(LAYOUT, "allocation 2 of this process has 100 bytes",
		      fdry_image_load(w.store, "img", &opts, &img));
		cuda_ok(cuMemFree_v2, p);
	}
	ok(fdry_image_load(w.store, "img", &opts, &img));
	sum_is(img, 1, 40, 100);
	sum_is(img, 2, 40, 1000);
	cuda_ok(cuMemAlloc_v2, &p, BYTES);
	ck_assert_uint_ne(p, w.b);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

static void seal_big(void *unused)
{
	CUdeviceptr big;
	struct work w;

	(void)unused;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &big, BIG);
	graph_add(&w, 1);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

/* The allocation has the same size and address, but memory behind it belongs to the pool: the image
 * would overwrite it. */
START_TEST(an_allocation_of_a_pool_has_less_capacity)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	CUdeviceptr p, next;
	struct work w;

	test_child(seal_big, NULL);
	into_begin(&w, 3, 40);
	cuda_ok(cuMemAllocAsync, &p, BIG, w.stream);
	cuda_ok(cuMemAllocAsync, &next, 1 << 20, w.stream);
	ck_assert_uint_eq(next, p + BIG);
	cuda_ok(cuMemFreeAsync, next, w.stream);
	opts = into(&w);
	fails(LAYOUT, "has only 3145728 bytes with padding, fewer than in",
	      fdry_image_load(w.store, "img", &opts, &img));
	ck_assert_ptr_nonnull(
		strstr(fdry_last_error(), "allocation 3 of this process (3145728 bytes at"));
	cuda_ok(cuMemFreeAsync, p, w.stream);
	work_end(&w);
}
END_TEST

START_TEST(an_allocation_in_the_way_is_named)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct work w;
	CUdeviceptr p[4];

	test_child(seal_into, NULL);
	into_begin(&w, 3, 40);
	cuda_ok(cuMemAlloc_v2, &p[0], BIG);
	cuda_ok(cuMemAlloc_v2, &p[1], BIG);
	cuda_ok(cuMemAlloc_v2, &p[2], BYTES);
	cuda_ok(cuMemFree_v2, p[0]);
	opts = into(&w);
	ok(fdry_image_load(w.store, "img", &opts, &img)); /* the process has all of them */
	sum_is(img, 1, 40, 40);
	fdry_image_unload(img);
	cuda_ok(cuMemFree_v2, p[1]);
	cuda_ok(cuMemAlloc_v2, &p[3],
		BIG * 2); /* it reaches from a hole into the image's next allocation */
	ck_assert_uint_eq(p[3], p[0]);
	fails(LAYOUT, "allocation 4 of this process has 6291456 bytes",
	      fdry_image_load(w.store, "img", &opts, &img));
	work_end(&w);
}
END_TEST
/* Memory that an unload could not free is the image's for the next load, which writes it. */
START_TEST(a_load_after_an_unload_that_failed)
{
	struct fdry_load_opts opts;
	struct fdry_image *img;
	struct fdry_tensor t;
	struct work w;
	float v[N];
	char spec[64];

	test_child(seal_into, NULL);
	into_begin(&w, 2, 40);
	opts = into(&w);
	ok(fdry_image_load(w.store, "img", &opts, &img));
	ok(fdry_image_tensor_find(img, "d", &t));
	vector_fill(v, 5);
	cuda_ok(cuMemcpyHtoD_v2, t.addr, v, BYTES);
	snprintf(spec, sizeof(spec), "cuCtxSynchronize:%d:2", _i);
	test_sim_fail(spec);
	fdry_image_unload(img);
	test_sim_fail(NULL);
	ok(fdry_image_load(w.store, "img", &opts, &img));
	tensor_is(img, "d", 1000);
	sum_is(img, 2, 40, 1000);
	fdry_image_unload(img);
	work_end(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_place_compare");
	TCase *tc = tcase_create("compare");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, the_first_allocation_that_differs_is_named, 0, 3);
	tcase_add_loop_test(tc, allocations_that_touch_nothing_stay_their_own, 0, 4);
	tcase_add_loop_test(tc, a_hole_in_the_middle_is_filled, 0, 2);
	tcase_add_test(tc, an_allocation_of_a_pool_has_less_capacity);
	tcase_add_test(tc, an_allocation_in_the_way_is_named);
	tcase_add_loop_test(tc, a_load_after_an_unload_that_failed, 1, 6);
	suite_add_tcase(s, tc);
	return test_main(s);
}
