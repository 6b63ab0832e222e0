// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of arguments in an image: packed buffers that are shorter than the parameters, as
 * NCCL's are, and parameters of up to 32 KB.
 */
#include "tests/lib/image.h"

#define SHORT_WORDS 46u /* NCCL's 384 bytes, of 32,760 here */
#define ALL_WORDS 4093u

enum { SHORT = 1, WHOLE };

static struct {
	uint64_t dst, n;
	uint64_t w[ALL_WORDS];
} args;

static void args_set(CUdeviceptr dst, uint64_t n)
{
	uint64_t i;

	args.dst = dst;
	args.n = n;
	for (i = 0; i < ALL_WORDS; i++)
		args.w[i] = 0x0102030405060708 + i;
}

/* A graph of one node that passes @bytes of the arguments. */
static void words_add(struct work *w, CUfunction f, uint64_t key, size_t bytes)
{
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };

	capture_start(w);
	cuda_ok(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, w->stream, NULL, extra);
	ok(fdry_capture_graph(w->cap, key, "words", capture_stop(w)));
}

static void seal_words(void *arg)
{
	struct fdry_tensor t = { .name = "x", .dtype = FDRY_U64, .use = FDRY_USE_STATE, .rank = 1,
				 .shape = { ALL_WORDS }, .stride = { 1 } };
	CUfunction f;
	struct work w;

	(void)arg;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &t.addr, ALL_WORDS * 8);
	cuda_ok(cuMemsetD8_v2, t.addr, 0, ALL_WORDS * 8);
	cuda_ok(cuModuleGetFunction, &f, w.module, "words");
	args_set(t.addr, SHORT_WORDS);
	words_add(&w, f, SHORT, 16 + 8 * SHORT_WORDS);
	args_set(t.addr, ALL_WORDS);
	words_add(&w, f, WHOLE, sizeof(args));
	ok(fdry_capture_tensor(w.cap, &t));
	ok(work_seal(&w, "img"));
	work_end(&w);
}

static void words_check(struct fdry_image *img, uint64_t key, uint64_t n)
{
	static uint64_t got[ALL_WORDS], zero[ALL_WORDS];

	ok(fdry_image_launch(img, key, NULL));
	ok(fdry_image_read(img, "x", got, sizeof(got), NULL));
	args_set(0, n);
	ck_assert_mem_eq(got, args.w, n * 8);
	ck_assert_mem_eq(got + n, zero, (ALL_WORDS - n) * 8);
}

START_TEST(words_are_passed)
{
	struct fdry_image *img = NULL;

	test_child(seal_words, NULL);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	words_check(img, SHORT, SHORT_WORDS);
	words_check(img, WHOLE, ALL_WORDS);
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_args");
	TCase *tc = tcase_create("args");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_test(tc, words_are_passed);
	suite_add_tcase(s, tc);
	return test_main(s);
}
