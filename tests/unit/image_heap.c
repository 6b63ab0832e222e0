// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of images with kernels that allocate from the device's heap: the limit of its size,
 * and pointers into it, which a seal refuses. The software driver has no such heap, so
 * tests/replace/heap.c says where it lies.
 */
#include "image/manifest.h"
#include "tests/lib/image.h"
#include "tests/replace/heap.h"

#define HEAP 0x200000000ull
#define HEAP_BYTES (16ull << 20)
#define BLOCK (HEAP + 0x123450)
#define WHAT "which points to the device's heap, which is empty in a loading process; "
#define CONTENT WHAT "let a kernel free the block, and clear the word before the seal"

static void word_set(CUdeviceptr at, uint64_t word)
{
	cuda_ok(cuMemcpyHtoD_v2, at, &word, sizeof(word));
}

static void heap_make(struct work *w)
{
	work_make(w);
	graph_add(w, 1);
	test_heap_used = true;
	test_heap = (struct fdry_heap){ HEAP, HEAP + HEAP_BYTES, false };
}

static void refused(struct work *w, const char *what)
{
	fails(REFUSED, what, work_seal(w, NULL));
}

START_TEST(in_content)
{
	struct fdry_tensor queue = { .name = "queue", .dtype = FDRY_I64, .use = FDRY_USE_STATE,
				     .rank = 1, .shape = { 4 }, .stride = { 1 } };
	struct work w;

	heap_make(&w);
	word_set(w.b + 8, BLOCK);
	refused(&w, "the word at byte 8 of the allocation at 0x");
	refused(&w, "is 0x200123450, " CONTENT);
	ck_assert_uint_eq(test_heap_found, 1); /* by two seals */
	queue.addr = w.b;
	ok(fdry_capture_tensor(w.cap, &queue));
	refused(&w, "(tensor 'queue') is 0x200123450, " CONTENT);
	word_set(w.b + 8, HEAP);
	refused(&w, CONTENT);
	word_set(w.b + 8, HEAP + HEAP_BYTES - 1);
	refused(&w, CONTENT);
	word_set(w.b + 8, HEAP - 1);
	ok(work_seal(&w, NULL));
	word_set(w.b + 8, HEAP + HEAP_BYTES);
	ok(work_seal(&w, NULL));
	word_set(w.b + 8, BLOCK); /* in content that earlier seals have kept */
	refused(&w, CONTENT);
	test_heap_used = false;
	test_heap_found = 0;
	ok(work_seal(&w, NULL));
	ck_assert_uint_eq(test_heap_found, 0);
	work_end(&w);
}
END_TEST

/* The word was a number while no kernel allocated, and the content did not change. */
START_TEST(in_content_that_was_sealed)
{
	struct work w;

	heap_make(&w);
	test_heap_used = false;
	word_set(w.b + 8, BLOCK);
	ok(work_seal(&w, NULL));
	test_heap_used = true;
	refused(&w, CONTENT);
	work_end(&w);
}
END_TEST

START_TEST(not_in_external_memory)
{
	struct work w;

	heap_make(&w);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, FDRY_TENSOR_EXTERNAL);
	word_set(w.b + 8, BLOCK);
	ok(work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

/* Tensors of floats have no pointers. */
START_TEST(not_in_data)
{
	struct work w;

	heap_make(&w);
	tensor_add(&w, "b", w.b, FDRY_USE_STATE, 0);
	word_set(w.b + 8, BLOCK);
	ok(work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

START_TEST(in_a_variable)
{
	CUdeviceptr table;
	struct work w;
	size_t size;

	heap_make(&w);
	cuda_ok(cuModuleGetGlobal_v2, &table, &size, w.module, "table");
	ck_assert_uint_ge(size, 16);
	word_set(table + 8, BLOCK);
	refused(&w, "of the module variable table is 0x200123450, " WHAT
		    "keep such pointers out of variables");
	work_end(&w);
}
END_TEST

START_TEST(in_arguments)
{
	struct work w;

	heap_make(&w);
	test_heap_used = false;
	capture_start(&w);
	launch_add(&w, w.a, BLOCK, w.c);
	ok(fdry_capture_graph(w.cap, 2, "heap", capture_stop(&w)));
	ok(work_seal(&w, NULL)); /* a number */
	test_heap_used = true;
	refused(&w, "graph 2 'heap'");
	refused(&w, "byte 0 of its parameter 1 is 0x200123450, " WHAT
		    "pass memory of the region instead");
	ok(fdry_capture_graph_skip(w.cap, 2, true));
	ok(work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

static void heap_around(struct work *w, bool exact)
{
	heap_make(w);
	test_heap = (struct fdry_heap){ w->before & ~0xfffffull, w->before + HEAP_BYTES, exact };
	word_set(w->b + 8, w->before);
}

/* Inside of bounds that are not exact, memory that the driver knows is no heap. */
START_TEST(beside_other_memory)
{
	struct work w;

	heap_around(&w, false);
	refused(&w, "device memory outside the capture's region");
	work_end(&w);
}
END_TEST

START_TEST(inside_exact_bounds)
{
	struct work w;

	heap_around(&w, true);
	refused(&w, CONTENT);
	work_end(&w);
}
END_TEST

/* Words into the region are no pointers into the heap. */
START_TEST(beside_the_region)
{
	struct work w;

	heap_make(&w);
	test_heap = (struct fdry_heap){ w.a, w.a + HEAP_BYTES, false };
	word_set(w.b + 8, w.a);
	ok(work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

/* No kernel of the capture allocates, but another one has, and stored the pointer. */
START_TEST(by_a_kernel_that_is_not_captured)
{
	struct work w;

	heap_make(&w);
	test_heap_used = false;
	word_set(w.b + 8, BLOCK);
	ok(work_seal(&w, NULL));
	test_heap_exists = true;
	refused(&w, CONTENT);
	word_set(w.b + 8, 0);
	ok(work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

START_TEST(unknown_heap)
{
	struct work w;

	heap_make(&w);
	test_heap.end = test_heap.start;
	refused(&w, "the device's heap, from which kernels allocate: the heap is full");
	work_end(&w);
}
END_TEST

static size_t limit_now(void)
{
	size_t now;

	cuda_ok(cuCtxGetLimit, &now, CU_LIMIT_MALLOC_HEAP_SIZE);
	return now;
}

static void seal_limit(void *arg)
{
	struct work w;

	(void)arg;
	heap_make(&w);
	cuda_ok(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)HEAP_BYTES);
	ok(work_seal(&w, "img"));
	test_heap_used = false;
	ok(work_seal(&w, "plain"));
	work_end(&w);
}

static void limit_loads(struct fdry_store *store, const char *ref, bool raised)
{
	struct fdry_image *img;
	size_t before = limit_now();

	ck_assert_uint_lt(before, HEAP_BYTES);
	ok(fdry_image_load(store, ref, NULL, &img));
	ck_assert_uint_eq(limit_now(), raised ? HEAP_BYTES : before);
	fdry_image_unload(img);
}

START_TEST(limit)
{
	const struct fdry_mf_limit *l;
	struct fdry_image *img;
	struct fdry_store *store;
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;

	test_child(seal_limit, NULL);
	test_hook();
	image_manifest_read(&bytes, &m);
	ck_assert_uint_eq(m.n_limits, 2);
	l = &m.limits[1];
	ck_assert_uint_eq(l->limit, CU_LIMIT_MALLOC_HEAP_SIZE);
	ck_assert_uint_eq(l->value, HEAP_BYTES);
	fdry_buf_release(&bytes);
	store = load_store();
	limit_loads(store, "plain", false);
	test_sim_fail("cuCtxSetLimit:1:1"); /* as if a kernel had used the heap */
	fails(DRIVER,
	      "CU_LIMIT_MALLOC_HEAP_SIZE is 8388608 bytes, and the image needs 16777216; set it "
	      "before a kernel runs that relies on it, or load with FDRY_LOAD_OWN_CONTEXT",
	      fdry_image_load(store, "img", NULL, &img));
	test_sim_fail(NULL);
	limit_loads(store, "img", true);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_heap");
	TCase *tc = tcase_create("heap");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, in_content);
	tcase_add_test(tc, in_content_that_was_sealed);
	tcase_add_test(tc, not_in_external_memory);
	tcase_add_test(tc, not_in_data);
	tcase_add_test(tc, in_a_variable);
	tcase_add_test(tc, in_arguments);
	tcase_add_test(tc, beside_other_memory);
	tcase_add_test(tc, inside_exact_bounds);
	tcase_add_test(tc, beside_the_region);
	tcase_add_test(tc, by_a_kernel_that_is_not_captured);
	tcase_add_test(tc, unknown_heap);
	tcase_add_test(tc, limit);
	suite_add_tcase(s, tc);
	return test_main(s);
}
