// SPDX-License-Identifier: Apache-2.0
/* gpu.c - see gpu.h. */
#include "tests/lib/gpu.h"

const struct fdry_driver *gpu_driver(void)
{
	const struct fdry_driver *drv;
	int err = fdry_driver_open("libcuda.so.1", &drv);

	if (err == -FDRY_E_NODRIVER || err == -FDRY_E_NOGPU) {
		printf("SKIP: no GPU: %s\n", fdry_last_error());
		exit(77);
	}
	if (err || drv->software) {
		fprintf(stderr, "%s\n",
			err ? fdry_last_error() : "libcuda.so.1 is the software driver");
		exit(EXIT_FAILURE);
	}
	return drv;
}

int gpu_end(unsigned long checks, unsigned long failures)
{
	printf("%lu%%: Checks: %lu, Failures: %lu, Errors: 0\n",
	       failures < checks ? 100 * (checks - failures) / checks : 0, checks, failures);
	return failures || !checks ? EXIT_FAILURE : EXIT_SUCCESS;
}
