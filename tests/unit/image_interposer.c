// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the path at which the library finds its interposer. */
#include "tests/lib/sim.h"

#include <limits.h>
#include <string.h>

#include "foundry.h"
#include "tests/lib/test.h"

START_TEST(the_path)
{
	char path[PATH_MAX] = "untouched", want[PATH_MAX];

	ck_assert(!setenv("FOUNDRY_HOOK", test_built("foundry/hook/libcuda.so.1"), 1));
	ok(fdry_hook_path(path, sizeof(path)));
	ck_assert_ptr_nonnull(realpath(test_built("foundry/hook/libcuda.so.1"), want));
	ck_assert_str_eq(path, want);
	/* nothing was loaded */
	ck_assert_ptr_null(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD));
	ok(fdry_hook_install(path));
	ck_assert_str_eq(fdry_last_error(), "");
	ok(fdry_hook_install(path)); /* it is in place */
	ck_assert_ptr_nonnull(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD));
	ck_assert_ptr_nonnull(dlopen("libcuda.so", RTLD_LAZY | RTLD_NOLOAD));
}
END_TEST

START_TEST(no_path)
{
	char path[PATH_MAX] = "untouched";

	ck_assert(!setenv("FOUNDRY_HOOK", "/nowhere/libcuda.so.1", 1));
	fails(NOHOOK, "the interposer is not there: /nowhere/libcuda.so.1",
	      fdry_hook_path(path, sizeof(path)));
	fails(NOHOOK, "the interposer is not there", fdry_hook_install(NULL));
	ck_assert(!setenv("FOUNDRY_HOOK", test_built("foundry/hook/libcuda.so.1"), 1));
	fails(INVAL, "given no path", fdry_hook_path(NULL, 10));
	fails(RANGE, "do not fit 10", fdry_hook_path(path, 10));
	ck_assert_str_eq(path, "untouched");
}
END_TEST

START_TEST(beside_the_library)
{
	char path[PATH_MAX] = "";
	int err;

	/* This program is linked statically, and there is no interposer beside it in tests/unit. */
	ck_assert(!unsetenv("FOUNDRY_HOOK"));
	err = fdry_hook_path(path, sizeof(path));
	ck_assert_int_eq(err, -FDRY_E_NOHOOK);
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "/tests/unit/foundry/hook/libcuda.so.1"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_interposer");
	TCase *tc = tcase_create("interposer");

	tcase_add_test(tc, the_path);
	tcase_add_test(tc, no_path);
	tcase_add_test(tc, beside_the_library);
	suite_add_tcase(s, tc);
	return test_main(s);
}
