// SPDX-License-Identifier: Apache-2.0
/* Launching on a GPU: on streams of the right context and of others, with builds in the background,
 * in a private context of the image. */
#include "tests/lib/vecadd.h"

#define ROUNDS 50

static struct fdry_store *store;

static struct fdry_image *load(uint32_t flags)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = flags };
	struct fdry_image *img = NULL;

	ok(fdry_image_load(store, "vecadd", &opts, &img));
	return img;
}

/* The sum that vecadd computes. */
static float sum(int i, float salt)
{
	return salt + (float)(i % 777) + 0.25f * (float)(i % 1000);
}

static void input_write(struct fdry_image *img, float salt, CUstream stream)
{
	static float a[N];
	int i;

	for (i = 0; i < N; i++)
		a[i] = salt + (float)(i % 777);
	ok(fdry_image_write(img, "a", a, BYTES, stream));
}

static void output_check(struct fdry_image *img, float salt, CUstream stream)
{
	static float out[N];
	int i;

	ok(fdry_image_read(img, "out", out, BYTES, stream));
	for (i = 0; i < N && out[i] == sum(i, salt); i++)
		;
	ck_assert_int_eq(i, N);
}

static CUstream stream_make(void)
{
	CUstream s = NULL;

	ck_assert_int_eq(fdry_call(drv, cuStreamCreate, &s, CU_STREAM_NON_BLOCKING), 0);
	return s;
}

static const uint32_t ways[] = { 0,
				 FDRY_LOAD_OWN_CONTEXT,
				 FDRY_LOAD_CHECK_OVERLAP,
				 FDRY_LOAD_BACKGROUND,
				 FDRY_LOAD_OWN_CONTEXT | FDRY_LOAD_BACKGROUND,
				 FDRY_LOAD_BUILD };
#define WAYS (sizeof(ways) / sizeof(ways[0]))

START_TEST(numbers_are_right)
{
	CUstream streams[3] = { NULL, stream_make(), stream_make() };
	struct fdry_image *img = load(ways[_i]);
	int i;

	for (i = 0; i < ROUNDS; i++) {
		input_write(img, (float)i, streams[i % 3]);
		ok(fdry_image_launch(img, KEY, streams[i % 3]));
		output_check(img, (float)i, streams[i % 3]);
	}
	/* Launch many times without a wait. */
	for (i = 0; i < 1000; i++)
		ok(fdry_image_launch(img, KEY, streams[1]));
	output_check(img, (float)(ROUNDS - 1), streams[1]);
	ok(fdry_image_wait(img));
	fdry_image_unload(img);
	ck_assert_int_eq(fdry_call(drv, cuStreamDestroy_v2, streams[1]), 0);
	ck_assert_int_eq(fdry_call(drv, cuStreamDestroy_v2, streams[2]), 0);
}
END_TEST

START_TEST(streams_of_another_context)
{
	struct fdry_image *img = load(0);
	CUcontext ctx, popped;
	CUstream s;

	ck_assert_int_eq(fdry_call(drv, cuCtxCreate_v4, &ctx, NULL, 0, 0), 0);
	s = stream_make();
	ck_assert_int_eq(fdry_call(drv, cuCtxPopCurrent_v2, &popped), 0);
	fails(INVAL, "another context of device 0", fdry_image_launch(img, KEY, s));
	ck_assert_int_eq(fdry_call(drv, cuCtxDestroy_v2, ctx), 0);
	input_write(img, 3, NULL);
	ok(fdry_image_launch(img, KEY, NULL));
	output_check(img, 3, NULL);
	fdry_image_unload(img);
}
END_TEST

START_TEST(streams_that_capture)
{
	struct fdry_image *img = load(_i ? FDRY_LOAD_OWN_CONTEXT : 0);
	CUstream s = stream_make(), other = stream_make();
	CUgraph graph = NULL;

	ck_assert_int_eq(fdry_call(drv, cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_GLOBAL),
			 0);
	fails(STATE, "captures", fdry_image_launch(img, KEY, s));
	input_write(img, 5, other);
	ok(fdry_image_launch(img, KEY, other)); /* built for it, beside the capture */
	output_check(img, 5, other);
	ck_assert_int_eq(fdry_call(drv, cuStreamEndCapture, s, &graph), 0);
	ck_assert_int_eq(fdry_call(drv, cuGraphDestroy, graph), 0);
	fdry_image_unload(img);
}
END_TEST

/* Streams are checked as far as the driver reports them, as seen on driver 580. */
START_TEST(streams_that_were_destroyed)
{
	struct fdry_image *img = load(0);
	CUstream s = stream_make();

	ck_assert_int_eq(fdry_call(drv, cuStreamDestroy_v2, s), 0);
	fails(INVAL, "is not alive", fdry_image_launch(img, KEY, s));
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("launch");
	TCase *tc = tcase_create("launch");

	if (!vecadd_make() || fdry_store_open(vecadd_dir, 0, &store))
		return EXIT_FAILURE;
	tcase_set_timeout(tc, 100);
	tcase_add_loop_test(tc, numbers_are_right, 0, WAYS);
	tcase_add_test(tc, streams_of_another_context);
	tcase_add_loop_test(tc, streams_that_capture, 0, 2);
	tcase_add_test(tc, streams_that_were_destroyed);
	suite_add_tcase(s, tc);
	return vecadd_run(s);
}
