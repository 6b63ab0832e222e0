/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h - helpers of the tests of regions: the software driver, a region, access to its memory.
 *
 * The software driver's device memory is host memory at the same address, and fresh
 * memory of it is never zero, so tests read and write through plain pointers.
 */
#ifndef FDRY_TESTS_LIB_REGION_H
#define FDRY_TESTS_LIB_REGION_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "mm/region.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"
#include "tests/lib/drv.h"

#define MiB (1ull << 20)
#define BASE TEST_BASE
/* The size is small, since the thread sanitizer keeps notes on every byte. */
#define SIZE (256 * MiB)

extern struct fdry_region *region;
struct fdry_region *region_at(CUdeviceptr base, uint64_t size);
void region_up(void);
void region_down(void);

CUdeviceptr region_get_with(uint64_t size, unsigned int flags);

CUdeviceptr region_get(uint64_t size);

void region_put(CUdeviceptr addr);
struct fdry_region_stats region_stats(void);

/* Are all 32-bit words of [@addr, @addr + @size) equal to @word? */
bool region_all(CUdeviceptr addr, uint64_t size, uint32_t word);
void region_soil(CUdeviceptr addr, uint64_t size);

#endif
