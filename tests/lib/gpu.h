/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - helpers of tests on a real GPU: they open the driver, or skip with a reason, make a
 * context, and print the last line of tests that do not use Check.
 */
#ifndef FDRY_TESTS_LIB_GPU_H
#define FDRY_TESTS_LIB_GPU_H

#include <stdio.h>
#include <stdlib.h>

#include "arch/driver.h"

/* Open the machine's own driver. Exits with status 77 if there is no driver or no GPU. */
const struct fdry_driver *gpu_driver(void);

/* Make the primary context of device 0 current, and return it. Exits on failure. */
CUcontext gpu_context(const struct fdry_driver *drv);

/* Device 0's compute capability, as 10 * major + minor. Exits on failure. */
unsigned int gpu_capability(const struct fdry_driver *drv);

/* Print the result in the form that tests/run reads, and return main()'s result. A run without a
 * check has failed.
 */
int gpu_end(unsigned long checks, unsigned long failures);

#endif
