// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of the words in content that a seal counts as pointers: the memory that they point to,
 * their places, and numbers that are not pointers.
 */
#include "tests/lib/image.h"

static void word_set(CUdeviceptr at, uint64_t word)
{
	cuda_ok(cuMemcpyHtoD_v2, at, &word, sizeof(word));
}

static CUdeviceptr native(struct work *w, size_t size)
{
	CUdeviceptr p;

	ok(fdry_capture_pause(w->cap));
	cuda_ok(cuMemAlloc_v2, &p, size);
	ok(fdry_capture_resume(w->cap));
	return p;
}

/* A variable of a module none of whose kernels is captured. */
static CUdeviceptr variable(struct work *w, const char *name)
{
	static CUmodule other; /* each test is a process */
	CUdeviceptr p;
	size_t size;

	if (!other)
		cuda_ok(cuModuleLoadData, &other, w->cubin);
	cuda_ok(cuModuleGetGlobal_v2, &p, &size, other, name);
	return p;
}

static void refused(struct work *w, const char *what)
{
	fails(REFUSED, what, work_seal(w, NULL));
}

/* Check that the seal succeeds and counts @words. */
static void counted(struct work *w, uint64_t words)
{
	struct fdry_seal_report report = { .sz = sizeof(report) };

	ok(fdry_capture_seal(w->cap, w->store, NULL, NULL, &report));
	ck_assert_uint_eq(report.pointer_words, words);
}

/* --- pointers --- */

static const struct { const char *name; uint64_t offset; } variables[] = {
	{ "table", 0 }, { "table", 4 }, { "table", 60 }, { "counter", 0 },
};

START_TEST(module_variables)
{
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	word_set(w.b + 8, variable(&w, variables[_i].name) + variables[_i].offset);
	refused(&w, "the word at byte 8 of the allocation at 0x");
	refused(&w, "a module variable");
	word_set(w.b + 8, 0);
	counted(&w, 0);
	work_end(&w);
}
END_TEST

START_TEST(the_tensor_is_named)
{
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	tensor_add(&w, "queue", w.b, FDRY_USE_STATE, 0);
	word_set(w.b + 8, variable(&w, "table"));
	refused(&w, "(tensor 'queue')");
	work_end(&w);
}
END_TEST

/* The image has no content of memory that the loader fills, or that is proven scratch. */
START_TEST(not_in_external_memory)
{
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, FDRY_TENSOR_EXTERNAL);
	word_set(w.b + 8, variable(&w, "table"));
	counted(&w, 0);
	work_end(&w);
}
END_TEST

START_TEST(native_allocations)
{
	CUdeviceptr small, large;
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	small = native(&w, 4096);
	large = native(&w, 8 << 20);
	word_set(w.b, small + 12);
	refused(&w, "device memory outside the capture's region");
	word_set(w.b, large);
	refused(&w, "device memory outside the capture's region");
	word_set(w.b, large + 256 * 77);
	refused(&w, "device memory outside the capture's region");
	/* One word into the middle of something large may be a number; two side by side are not. */
	word_set(w.b, large + 1000);
	counted(&w, 1);
	word_set(w.b + 72, large + 2000);
	counted(&w, 2);
	word_set(w.b + 64, large + 3000);
	refused(&w, "the word at byte 64");
	work_end(&w);
}
END_TEST

START_TEST(host_and_managed_memory)
{
	CUdeviceptr managed;
	struct work w;
	void *host;

	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAllocHost_v2, &host, 4096);
	word_set(w.a + 16, (uint64_t)(uintptr_t)host + 4);
	refused(&w, "host memory");
	ok(fdry_capture_pause(w.cap));
	cuda_ok(cuMemAllocManaged, &managed, 4096, CU_MEM_ATTACH_GLOBAL);
	ok(fdry_capture_resume(w.cap));
	word_set(w.a + 16, managed);
	refused(&w, "managed memory");
	work_end(&w);
}
END_TEST

/* Host memory that the image brings back is content too. */
START_TEST(in_host_memory)
{
	struct work w;
	uint64_t *host;

	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAllocHost_v2, (void **)&host, BYTES);
	memset(host, 0, BYTES);
	tensor_add(&w, "table", (CUdeviceptr)(uintptr_t)host, FDRY_USE_CONST, FDRY_TENSOR_HOST);
	host[5] = variable(&w, "table");
	refused(&w, "host memory at 0x");
	refused(&w, "(tensor 'table')");
	host[5] = 0;
	counted(&w, 0);
	work_end(&w);
}
END_TEST

/* Pointers are found at the beginning and end of pieces, chunks and blocks of words. */
START_TEST(every_place)
{
	static const uint64_t places[] = { 0,
					   8,
					   504,
					   512,
					   4088,
					   4096,
					   (2 << 20) - 8,
					   2 << 20,
					   (4 << 20) + 8,
					   (16 << 20) - 8,
					   16 << 20,
					   (20 << 20) - 8 };
	CUdeviceptr p, v;
	struct work w;
	size_t i;

	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &p, 20 << 20);
	v = variable(&w, "table");
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char says[40];

		word_set(p + places[i], v);
		snprintf(says, sizeof(says), "the word at byte %llu of",
			 (unsigned long long)places[i]);
		refused(&w, says);
		word_set(p + places[i], 1);
	}
	counted(&w, 0);
	work_end(&w);
}
END_TEST

/* Content begins at an odd address behind an external tensor: words keep their alignment. */
START_TEST(behind_an_odd_end)
{
	struct fdry_tensor t = { .name = "odd", .dtype = FDRY_U8, .rank = 1, .shape = { 4093 },
				 .stride = { 1 },
				 .flags = FDRY_TENSOR_EXTERNAL };
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &t.addr, 8192);
	ok(fdry_capture_tensor(w.cap, &t));
	word_set(t.addr + 4096, variable(&w, "table"));
	refused(&w, "the word at byte 4096 of");
	/* No word at a multiple of 8: no pointer that a compiler would have stored. */
	word_set(t.addr + 4096, 0);
	word_set(t.addr + 4100, variable(&w, "table"));
	counted(&w, 0);
	work_end(&w);
}
END_TEST

/* --- numbers --- */

START_TEST(into_the_region)
{
	CUdeviceptr freed;
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &freed, BYTES);
	word_set(w.b, w.a);
	word_set(w.b + 8, w.c + 4096);
	word_set(w.b + 16, freed);
	cuda_ok(cuMemFree_v2, freed);
	counted(&w, 0);
	work_end(&w);
}
END_TEST

START_TEST(addresses_that_are_none)
{
	CUdeviceptr freed;
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	freed = native(&w, 8 << 20);
	cuda_ok(cuMemFree_v2, freed);
	word_set(w.b, freed);
	word_set(w.b + 8, (uint64_t)(uintptr_t)&w);        /* the host's own memory */
	word_set(w.b + 16, (uint64_t)(uintptr_t)work_make);
	word_set(w.b + 24, 0x7fffffffffffull);
	word_set(w.b + 32, 0x800000000000ull);
	word_set(w.b + 40, 0xffffffffffffffffull);
	word_set(w.b + 48, 0xffffffff);
	counted(&w, 0);
	work_end(&w);
}
END_TEST

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Fill memory with weights or other numbers, beside many gigabytes at which they might point. */
static void numbers_fill(uint64_t *words, size_t n, int kind)
{
	uint64_t state = 88172645463325252ull;
	size_t i, j;

	for (i = 0; i < n; i++) {
		uint64_t r = random_next(&state), word = 0;

		for (j = 0; j < 4; j++) {
			uint32_t sixteen = (uint32_t)(r >> 16 * j) & 0xffff;

			if (kind ==
			    0) /* bf16 of less than 2 in size: sign, exponent up to 127, fraction */
				sixteen &= 0xbfff;
			else if (kind == 1) /* fp16 that is finite */
				sixteen &= (sixteen & 0x7c00) == 0x7c00 ? 0x83ff : 0xffff;
			word |= (uint64_t)sixteen << 16 * j;
		}
		if (kind == 2) /* int32: 0, 1, 2, ... */
			word = (uint64_t)(2 * i + 1) << 32 | 2 * i;
		if (kind == 3) /* any bits at all */
			word = r;
		words[i] = word;
	}
}

START_TEST(weights_and_indices)
{
	const size_t bytes = 8 << 20;
	uint64_t *words;
	CUdeviceptr p;
	struct work w;

	/* Under the thread sanitizer, 1, 2, 3, ... can be valid addresses.
	 */
	if (TEST_SANITIZED_THREAD && _i == 2)
		return;
	words = malloc(bytes);
	work_make(&w);
	graph_add(&w, 1);
	native(&w, 1ull << 32);
	cuda_ok(cuMemAlloc_v2, &p, bytes);
	numbers_fill(words, bytes / 8, _i);
	cuda_ok(cuMemcpyHtoD_v2, p, words, bytes);
	/* A few of the numbers 0, 1, 2, ... are addresses in use in the first 4 GiB. They are no
	 * pointers. */
	if (_i == 2)
		ok(work_seal(&w, NULL));
	else
		counted(&w, 0);
	work_end(&w);
	free(words);
}
END_TEST

/* The seal asks the driver if a word could be a pointer; if the driver fails, the seal fails. */
START_TEST(the_driver_does_not_answer)
{
	char fail[40];
	struct work w;
	int n, err = 0;

	work_make(&w);
	graph_add(&w, 1);
	word_set(w.b, native(&w, 8 << 20) + 1000);
	test_sim();
	counted(&w, 1);
	test_sim();
	/* Under the address sanitizer, more words lie in mappings, so the driver is asked about
	 * arguments first. These questions are asked again if they fail. */
	for (n = 1; n <= 8 && !err; n++) {
		snprintf(fail, sizeof(fail), "cuPointerGetAttribute:%d", n);
		test_sim_fail(fail);
		err = work_seal(&w, NULL);
		ck_assert_uint_eq(test_sim_failed(), 1);
	}
	ck_assert_int_eq(err, -FDRY_E_DRIVER);
	test_sim_fail(NULL);
	work_end(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_pointers");
	TCase *tc = tcase_create("pointers");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, module_variables, 0, sizeof(variables) / sizeof(variables[0]));
	tcase_add_test(tc, the_tensor_is_named);
	tcase_add_test(tc, not_in_external_memory);
	tcase_add_test(tc, native_allocations);
	tcase_add_test(tc, host_and_managed_memory);
	tcase_add_test(tc, in_host_memory);
	tcase_add_test(tc, every_place);
	tcase_add_test(tc, behind_an_odd_end);
	tcase_add_test(tc, into_the_region);
	tcase_add_test(tc, addresses_that_are_none);
	tcase_add_loop_test(tc, weights_and_indices, 0, 4);
	tcase_add_test(tc, the_driver_does_not_answer);
	suite_add_tcase(s, tc);
	return test_main(s);
}
