/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_rules.h - tests of the rules of device memory that the interposer relies on. They run on
 * the software driver (sim_memory_rules.c) and on a GPU (tests/gpu/memory_driver.c).
 */
#ifndef FDRY_TESTS_LIB_MEMORY_RULES_H
#define FDRY_TESTS_LIB_MEMORY_RULES_H

#include <check.h>

#include "tests/lib/drv.h"

/* Call the driver's function of this name. */
void *rules_symbol(const char *name);

#define RULES_NAME2(fn) #fn
#define RULES_NAME(fn) RULES_NAME2(fn)
#define CALL(fn, ...) (((__typeof__(&fn))rules_symbol(RULES_NAME(fn)))(__VA_ARGS__))
#define works(fn, ...) ck_assert_msg(!CALL(fn, __VA_ARGS__), "%s fails", RULES_NAME(fn))
#define gives(error, fn, ...) \
	do { \
		int gives_ = CALL(fn, __VA_ARGS__); \
		ck_assert_msg(gives_ == (int)(error), "%s gives %d, not " #error, RULES_NAME(fn), \
			      gives_); \
	} while (0)

#define RULES_MIB ((size_t)1 << 20)
#define PIECE (4 * RULES_MIB)

/* The context that the tests run in; the fixture sets it and drv. */
extern CUcontext rules_ctx;

void memory_rules_add(TCase *tc);

#endif
