/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook.h - the interposer in place in a test, in front of the software driver.
 *
 * Each test must call test_hook() first, because the driver must not be loaded before the
 * interposer. Check forks a process for each test, so each has an interposer of its own.
 */
#ifndef FDRY_TESTS_LIB_HOOK_H
#define FDRY_TESTS_LIB_HOOK_H

#include "hook/hook.h"
#include "tests/lib/sim.h"

extern void *test_hook_handle;
extern const struct fdry_hook *hook; /* the table */
void *test_hook_symbol(const char *name);

/* Call the interposer's function of exactly that name, as a program would. */
#define cuda(symbol, ...) (((__typeof__(&symbol))test_hook_symbol(#symbol))(__VA_ARGS__))
/* The variant of @symbol for the per-thread default stream, which cuda.h does not declare. */
#define cuda_ptsz(symbol, ...) \
	(((__typeof__(&symbol))test_hook_symbol(#symbol "_ptsz"))(__VA_ARGS__))
#define cuda_ok(symbol, ...) ck_assert_int_eq(cuda(symbol, __VA_ARGS__), CUDA_SUCCESS)

/* Load the interposer, in front of any driver. */
void test_hook_open(void);

/* Load the interposer in front of the software driver, and do no more. */
void test_hook_load(void);

/* Load both, and make device 0's primary context current. */
void test_hook(void);

/* Begin a region of @size bytes at TEST_BASE. */
void hook_region_begin(uint64_t size);

/* Does @p lie where the last such region was begun? */
bool hook_region_has(CUdeviceptr p);

#endif
