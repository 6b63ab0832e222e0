// SPDX-License-Identifier: Apache-2.0
/* The driver table on the machine's own driver. */
#include <check.h>

#include <string.h>

#include "tests/lib/gpu.h"
#include "tests/lib/test.h"

static const struct fdry_driver *drv;

START_TEST(every_function_of_its_version_is_there)
{
#define FDRY_DRIVER_FN(symbol, name, since) \
	ck_assert_msg(drv->symbol || drv->version < since, "%s is missing in driver %d", #symbol, \
		      drv->version);
#include "arch/driver.def"
#undef FDRY_DRIVER_FN
}
END_TEST

/* Two results that a wrong version of a function would not return. */
START_TEST(counts_and_sizes_are_sane)
{
	CUdevice dev;
	size_t total = 0;
	int count = 0;

	ck_assert_int_eq(fdry_call(drv, cuDeviceGetCount, &count), 0);
	ck_assert_int_gt(count, 0);
	ck_assert_int_eq(fdry_call(drv, cuDeviceGet, &dev, 0), 0);
	ck_assert_int_eq(fdry_call(drv, cuDeviceTotalMem_v2, &total, dev), 0);
	ck_assert_uint_gt(total, 1u << 30);
}
END_TEST

START_TEST(a_refused_call_names_function_and_error)
{
	CUdevice dev;

	ck_assert_int_eq(fdry_call(drv, cuDeviceGet, &dev, 100000), -FDRY_E_DRIVER);
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "cuDeviceGet"));
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "CUDA_ERROR_INVALID_DEVICE"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("arch_driver");
	TCase *tc = tcase_create("driver");

	drv = gpu_driver();
	tcase_add_test(tc, every_function_of_its_version_is_there);
	tcase_add_test(tc, counts_and_sizes_are_sane);
	tcase_add_test(tc, a_refused_call_names_function_and_error);
	suite_add_tcase(s, tc);
	return test_main_nofork(s);
}
