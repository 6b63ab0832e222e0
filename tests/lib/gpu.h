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

/* Open the machine's own driver. Exits with status 77 if there is no driver or no GPU. */
const struct fdry_driver *gpu_driver(void);

/* Print the result in the form that tests/run reads, and return main()'s result. A run without a
 * check has failed.
 */
int gpu_end(unsigned long checks, unsigned long failures);

#endif
