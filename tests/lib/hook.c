// SPDX-License-Identifier: Apache-2.0
/* hook.c - see hook.h. */
#include "tests/lib/hook.h"

void *test_hook_handle;
const struct fdry_hook *hook;
static uint64_t region_size;

void *test_hook_symbol(const char *name)
{
	void *p = dlsym(test_hook_handle, name);

	ck_assert_msg(p != NULL, "no %s", name);
	return p;
}

void test_hook_open(void)
{
	fdry_hook_table_fn table;

	test_hook_handle = dlopen(test_built("foundry/hook/libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL);
	ck_assert_msg(test_hook_handle != NULL, "%s", dlerror());
	*(void **)&table = test_hook_symbol(FDRY_HOOK_SYMBOL);
	hook = table();
	ck_assert_uint_eq(hook->version, FDRY_HOOK_VERSION);
	ck_assert_uint_eq(hook->size, sizeof(*hook));
}

void test_hook_load(void)
{
	ck_assert(!setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	test_hook_open();
}

void test_hook(void)
{
	CUcontext ctx;

	test_hook_load();
	cuda_ok(cuInit, 0);
	cuda_ok(cuDevicePrimaryCtxRetain, &ctx, 0);
	cuda_ok(cuCtxSetCurrent, ctx);
}

void hook_region_begin(uint64_t size)
{
	ck_assert_msg(!hook->region_begin(TEST_BASE, size), "%s", hook->last_error());
	region_size = size;
}

bool hook_region_has(CUdeviceptr p)
{
	return p >= TEST_BASE && p < TEST_BASE + region_size;
}
