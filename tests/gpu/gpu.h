/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - what the tests on a real GPU share: the driver, or a skip with the reason; the last line
 * of those that do without Check.
 */
#ifndef FDRY_TESTS_GPU_GPU_H
#define FDRY_TESTS_GPU_GPU_H

#include <stdio.h>
#include <stdlib.h>

#include "arch/driver.h"

/* The machine's own driver. Ends the program with status 77 where there is none, or no GPU. */
static inline const struct fdry_driver *gpu_driver(void)
{
	const struct fdry_driver *drv;
	int err = fdry_driver_open("libcuda.so.1", &drv);

	if (err == -FDRY_E_NODRIVER || err == -FDRY_E_NOGPU) {
		printf("SKIP: no GPU: %s\n", fdry_last_error());
		exit(77);
	}
	if (err || drv->software) {
		fprintf(stderr, "%s\n", err ? fdry_last_error() : "libcuda.so.1 is the software driver");
		exit(EXIT_FAILURE);
	}
	return drv;
}

/* What main() returns; says the result as tests/run wants it. A run without a check is no good one. */
static inline int gpu_end(unsigned long checks, unsigned long failures)
{
	printf("%lu%%: Checks: %lu, Failures: %lu, Errors: 0\n", failures < checks ? 100 * (checks - failures) / checks : 0,
	       checks, failures);
	return failures || !checks ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
