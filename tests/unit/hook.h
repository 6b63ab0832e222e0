/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook.h - the stand-in in place in a test, in front of the software driver.
 *
 * Call test_hook() inside each test and first of all: the driver must not be there before
 * the stand-in. Check forks one process a test, so each has a stand-in of its own.
 */
#ifndef FDRY_TESTS_UNIT_HOOK_H
#define FDRY_TESTS_UNIT_HOOK_H

#include "hook/hook.h"
#include "tests/unit/sim.h"

static void *test_hook_handle;
static const struct fdry_hook *hook; /* the table */

static inline void *test_hook_symbol(const char *name)
{
	void *p = dlsym(test_hook_handle, name);

	ck_assert_msg(p != NULL, "no %s", name);
	return p;
}

/* Call the stand-in's function of exactly that name, as a program would. */
#define cuda(symbol, ...) (((__typeof__(&symbol))test_hook_symbol(#symbol))(__VA_ARGS__))
/* The variant of @symbol for the per-thread default stream, which cuda.h does not declare. */
#define cuda_ptsz(symbol, ...) (((__typeof__(&symbol))test_hook_symbol(#symbol "_ptsz"))(__VA_ARGS__))
#define cuda_ok(symbol, ...) ck_assert_int_eq(cuda(symbol, __VA_ARGS__), CUDA_SUCCESS)

/* The stand-in loaded, whatever driver it will find. */
static inline void test_hook_open(void)
{
	fdry_hook_table_fn table;

	test_hook_handle = dlopen(test_built("foundry/hook/libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL);
	ck_assert_msg(test_hook_handle != NULL, "%s", dlerror());
	*(void **)&table = test_hook_symbol(FDRY_HOOK_SYMBOL);
	hook = table();
	ck_assert_uint_eq(hook->version, FDRY_HOOK_VERSION);
	ck_assert_uint_eq(hook->size, sizeof(*hook));
}

/* The stand-in loaded in front of the software driver, nothing else yet. */
static inline void test_hook_load(void)
{
	ck_assert(!setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	test_hook_open();
}

/* And device 0's primary context current. */
static inline void test_hook(void)
{
	CUcontext ctx;

	test_hook_load();
	cuda_ok(cuInit, 0);
	cuda_ok(cuDevicePrimaryCtxRetain, &ctx, 0);
	cuda_ok(cuCtxSetCurrent, ctx);
}

#endif
