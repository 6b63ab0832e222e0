/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h - what the tests of regions share: the software driver, a region, looks at memory.
 *
 * The software driver's device memory is host memory at the same address, and fresh
 * memory of it is never zero, so tests read and write through plain pointers.
 */
#ifndef TESTS_UNIT_REGION_H
#define TESTS_UNIT_REGION_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "mm/region.h"
#include "tests/unit/sim.h"

#define MiB (1ull << 20)
#define BASE TEST_BASE
/* Small, since the thread sanitizer keeps notes of all of it. */
#define SIZE (256 * MiB)

static const struct fdry_driver *drv;
static struct fdry_region *region;

static inline struct fdry_region *region_at(CUdeviceptr base, uint64_t size)
{
	struct fdry_region *r = NULL;

	ck_assert_msg(!fdry_region_new(drv, 0, base, size, &r), "%s", fdry_last_error());
	return r;
}

static inline void region_up(void)
{
	drv = test_sim_open();
	region = region_at(BASE, SIZE);
}

static inline void region_down(void)
{
	ck_assert_msg(!fdry_region_check(region), "%s", fdry_last_error());
	fdry_region_free(region);
	ck_assert_int_eq(test_sim_live("memory"), 0);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
	ck_assert_int_eq(test_sim_live("stream"), 0);
	ck_assert_int_eq(test_sim_live("context"), 0);
}

static inline CUdeviceptr get_with(uint64_t size, unsigned int flags)
{
	CUdeviceptr addr = 0;

	ck_assert_msg(!fdry_region_alloc(region, size, flags, &addr), "%s", fdry_last_error());
	return addr;
}

static inline CUdeviceptr get(uint64_t size)
{
	return get_with(size, 0);
}

static inline void put(CUdeviceptr addr)
{
	ck_assert_msg(!fdry_region_dealloc(region, addr, 0), "%s", fdry_last_error());
}

static inline void ok(int ret)
{
	ck_assert_msg(!ret, "%s", fdry_last_error());
}

static inline struct fdry_region_stats stats(void)
{
	struct fdry_region_stats s;

	fdry_region_stats(region, &s);
	return s;
}

/* Are all 32-bit words of [@addr, @addr + @size) equal to @word? */
static inline bool all(CUdeviceptr addr, uint64_t size, uint32_t word)
{
	const volatile uint32_t *p = (const volatile uint32_t *)(uintptr_t)addr;
	uint64_t i;

	for (i = 0; i < size / 4; i++)
		if (p[i] != word)
			return false;
	return true;
}

static inline void soil(CUdeviceptr addr, uint64_t size)
{
	memset((void *)(uintptr_t)addr, 0xc3, size);
}

#endif
