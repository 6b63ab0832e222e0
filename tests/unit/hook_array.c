// SPDX-License-Identifier: Apache-2.0
/* Unit tests of CUDA arrays through the interposer: which it knows, and why it refuses others. */
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

static const CUDA_ARRAY3D_DESCRIPTOR box = { .Width = 8, .Height = 4, .Depth = 2,
					     .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2,
					     .Flags = CUDA_ARRAY3D_LAYERED };

static CUarray array_new(void)
{
	CUarray a;

	cuda_ok(cuArray3DCreate_v2, &a, &box);
	return a;
}

static void refused(CUarray a, const char *why)
{
	struct fdry_hook_array ret;

	ck_assert_int_eq(hook->array(a, &ret), -FDRY_E_REFUSED);
	ck_assert_msg(strstr(hook->last_error(), why) != NULL, "%s", hook->last_error());
}

START_TEST(arrays_of_a_region)
{
	CUDA_ARRAY_DESCRIPTOR flat = { 100, 7, CU_AD_FORMAT_UNSIGNED_INT16, 4 };
	struct fdry_hook_array a, b;
	CUcontext ctx;
	CUarray x, y;

	test_hook();
	cuda_ok(cuCtxGetCurrent, &ctx);
	hook_region_begin(1 << 30);
	x = array_new();
	cuda_ok(cuArrayCreate_v2, &y, &flat);
	ck_assert_int_eq(hook->array(x, &a), 0);
	ck_assert_int_eq(hook->array(y, &b), 0);
	ck_assert_mem_eq(&a.desc, &box, sizeof(box));
	ck_assert_ptr_eq(a.ctx, ctx);
	ck_assert_uint_ne(a.serial, b.serial);
	ck_assert_uint_eq(b.desc.Width, 100);
	ck_assert_uint_eq(b.desc.Height, 7);
	ck_assert_uint_eq(b.desc.Depth, 0);
	ck_assert_uint_eq(b.desc.Flags, 0);
	ck_assert_int_eq(b.desc.Format, CU_AD_FORMAT_UNSIGNED_INT16);
	ck_assert_uint_eq(b.desc.NumChannels, 4);
	/* What the driver refuses changes nothing. */
	test_sim_fail("cuArrayDestroy:1");
	ck_assert_int_ne(cuda(cuArrayDestroy, x), CUDA_SUCCESS);
	ck_assert_int_eq(hook->array(x, &b), 0);
	ck_assert_uint_eq(b.serial, a.serial);
	test_sim_fail("cuArray3DCreate_v2:1");
	ck_assert_int_ne(cuda(cuArray3DCreate_v2, &y, &box), CUDA_SUCCESS);
	ck_assert_int_ne(cuda(cuArrayCreate_v2, &y, NULL), CUDA_SUCCESS);
	ck_assert_int_ne(cuda(cuArray3DCreate_v2, NULL, &box), CUDA_SUCCESS);
	ck_assert_int_ne(cuda(cuArrayDestroy, (CUarray)0x1230), CUDA_SUCCESS);
}
END_TEST

START_TEST(arrays_that_are_refused)
{
	CUarray before, paused, x, y, foreign;

	test_hook();
	before = array_new();
	hook_region_begin(1 << 30);
	refused(before, "was made before the capture began");
	ck_assert_int_eq(hook->region_pause(), 0);
	paused = array_new();
	ck_assert_int_eq(hook->region_resume(), 0);
	refused(paused, "while it was paused");
	ok(((__typeof__(&cuArray3DCreate_v2))test_sim_symbol("cuArray3DCreate_v2"))(&foreign,
										    &box));
	refused(foreign, "was not made by cuArrayCreate() or cuArray3DCreate()");
	x = array_new();
	cuda_ok(cuArrayDestroy, x);
	refused(x, "was destroyed; keep it until the seal");
	y = array_new();
	ck_assert_ptr_eq(x, y);
	refused(y, "has the handle of an array that was destroyed");
	x = array_new();
	ck_assert_int_eq(hook->region_end(), 0);
	refused(x, "was made before the capture began");
}
END_TEST

/* Notes are found among many. */
START_TEST(many)
{
	struct fdry_hook_array a;
	CUarray x[300];
	uint64_t last = 0;
	int i;

	test_hook();
	hook_region_begin(1 << 30);
	for (i = 0; i < 300; i++)
		x[i] = array_new();
	for (i = 0; i < 300; i++) {
		ck_assert_int_eq(hook->array(x[i], &a), 0);
		ck_assert_uint_gt(a.serial, last);
		last = a.serial;
	}
	for (i = 0; i < 300; i += 3)
		cuda_ok(cuArrayDestroy, x[i]);
	for (i = 0; i < 300; i++)
		ck_assert_int_eq(hook->array(x[i], &a), i % 3 ? 0 : -FDRY_E_REFUSED);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hook_array");
	TCase *tc = tcase_create("arrays");

	tcase_add_test(tc, arrays_of_a_region);
	tcase_add_test(tc, arrays_that_are_refused);
	tcase_add_test(tc, many);
	suite_add_tcase(s, tc);
	return test_main(s);
}
