// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the streams that all users of a context share. */
#include "arch/stream.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"

static CUstream shared(const struct fdry_driver *drv, enum fdry_stream_use use)
{
	CUstream s = NULL;

	ck_assert_msg(!fdry_stream_shared(drv, use, &s), "%s", fdry_last_error());
	ck_assert_ptr_nonnull(s);
	return s;
}

START_TEST(one_of_each_use)
{
	const struct fdry_driver *drv = test_sim();
	CUstream memory = shared(drv, FDRY_STREAM_MEMORY), graphs = shared(drv, FDRY_STREAM_GRAPHS);
	int i;

	ck_assert_ptr_ne(memory, graphs);
	for (i = 0; i < 20; i++) {
		ck_assert_ptr_eq(shared(drv, FDRY_STREAM_MEMORY), memory);
		ck_assert_ptr_eq(shared(drv, FDRY_STREAM_GRAPHS), graphs);
	}
	ck_assert_int_eq(test_sim_live("stream"), 2);
	ck_assert_int_eq(drv->cuStreamSynchronize(memory), CUDA_SUCCESS);
}
END_TEST

/* A primary context that was destroyed and made again is a new one with the same handle and no
 * streams. */
START_TEST(a_destroyed_context)
{
	const struct fdry_driver *drv = test_sim();
	CUstream s = shared(drv, FDRY_STREAM_MEMORY);
	CUcontext first, second;

	ck_assert_int_eq(drv->cuCtxGetCurrent(&first), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	ck_assert_int_eq(test_sim_live("stream"), 0);
	ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&second, 0), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuCtxSetCurrent(second), CUDA_SUCCESS);
	s = shared(drv, FDRY_STREAM_MEMORY);
	ck_assert_int_eq(test_sim_live("stream"), 1);
	ck_assert_int_eq(drv->cuStreamSynchronize(s), CUDA_SUCCESS);
}
END_TEST

/* Nothing is remembered of such a context, whether or not a new one has its handle. */
START_TEST(a_context_that_is_forgotten)
{
	const struct fdry_driver *drv = test_sim();
	CUstream s = shared(drv, FDRY_STREAM_MEMORY);
	CUcontext ctx;

	ck_assert_int_eq(drv->cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	fdry_stream_forget(drv, ctx);
	fdry_stream_forget(drv, ctx);
	ck_assert_ptr_ne(shared(drv, FDRY_STREAM_MEMORY), s);
	ck_assert_int_eq(test_sim_live("stream"), 2);
}
END_TEST

START_TEST(failures_leave_nothing)
{
	static const char *const calls[] = { "cuCtxGetCurrent:1:999", "cuCtxGetId:1:999",
					     "cuStreamCreate:1:999" };
	const struct fdry_driver *drv = test_sim();
	CUstream s = (CUstream)1;

	test_sim_fail(calls[_i]);
	ck_assert_int_eq(fdry_stream_shared(drv, FDRY_STREAM_MEMORY, &s), -FDRY_E_DRIVER);
	ck_assert_ptr_eq(s, (CUstream)1);
	ck_assert_uint_eq(test_sim_failed(), 1);
	test_sim_fail(NULL);
	ck_assert_int_eq(test_sim_live("stream"), 0);
	shared(drv, FDRY_STREAM_MEMORY);
}
END_TEST

START_TEST(no_context)
{
	const struct fdry_driver *drv = test_sim_open();
	CUstream s = NULL;

	ck_assert_int_lt(fdry_stream_shared(drv, FDRY_STREAM_MEMORY, &s), 0);
	ck_assert_ptr_null(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arch_stream");
	TCase *tc = tcase_create("shared");

	tcase_add_test(tc, one_of_each_use);
	tcase_add_test(tc, a_destroyed_context);
	tcase_add_test(tc, a_context_that_is_forgotten);
	tcase_add_loop_test(tc, failures_leave_nothing, 0, 3);
	tcase_add_test(tc, no_context);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
