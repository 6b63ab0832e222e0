// SPDX-License-Identifier: Apache-2.0
/* region.c - see region.h. */
#include "tests/lib/region.h"
#include "tests/lib/check_mm.h"

struct fdry_region *region;

struct fdry_region *region_at(CUdeviceptr base, uint64_t size)
{
	struct fdry_region *r = NULL;

	ck_assert_msg(!fdry_region_new(drv, 0, base, size, &r), "%s", fdry_last_error());
	return r;
}

void region_up(void)
{
	drv = test_sim_open();
	region = region_at(BASE, SIZE);
}

void region_down(void)
{
	ck_assert_msg(!check_region(region), "%s", fdry_last_error());
	fdry_region_free(region);
	ck_assert_int_eq(test_sim_live("memory"), 0);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
	ck_assert_int_eq(test_sim_live("stream"), 0);
	ck_assert_int_eq(test_sim_live("context"), 0);
}

CUdeviceptr region_get_with(uint64_t size, unsigned int flags)
{
	CUdeviceptr addr = 0;

	ck_assert_msg(!fdry_region_alloc(region, size, flags, &addr), "%s", fdry_last_error());
	return addr;
}

CUdeviceptr region_get(uint64_t size)
{
	return region_get_with(size, 0);
}

void region_put(CUdeviceptr addr)
{
	ck_assert_msg(!fdry_region_dealloc(region, addr, 0), "%s", fdry_last_error());
}

struct fdry_region_stats region_stats(void)
{
	struct fdry_region_stats s;

	fdry_region_stats(region, &s);
	return s;
}

bool region_all(CUdeviceptr addr, uint64_t size, uint32_t word)
{
	const volatile uint32_t *p = (const volatile uint32_t *)(uintptr_t)addr;
	uint64_t i;

	for (i = 0; i < size / 4; i++)
		if (p[i] != word)
			return false;
	return true;
}

void region_soil(CUdeviceptr addr, uint64_t size)
{
	memset((void *)(uintptr_t)addr, 0xc3, size);
}
