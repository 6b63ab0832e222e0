/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - helpers of tests on a real GPU: they open the driver, or skip with a reason, and print
 * the last line of tests that do not use Check.
 */
#ifndef FDRY_TESTS_LIB_GPU_H
#define FDRY_TESTS_LIB_GPU_H

#include <stdio.h>
#include <stdlib.h>

#include "arch/driver.h"

/* The machine's own driver. Ends the program with status 77 where there is none, or no GPU. */
const struct fdry_driver *gpu_driver(void);

/* What main() returns; says the result as tests/run wants it. A run without a check is no good one.
 */
int gpu_end(unsigned long checks, unsigned long failures);

#endif
