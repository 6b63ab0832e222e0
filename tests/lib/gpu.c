// SPDX-License-Identifier: Apache-2.0
/* gpu.c - see gpu.h. */
#include "tests/lib/gpu.h"

#include "tests/lib/need.h"

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

CUcontext gpu_context(const struct fdry_driver *drv)
{
	CUcontext ctx = NULL;

	must(fdry_call(drv, cuDevicePrimaryCtxRetain, &ctx, 0));
	must(fdry_call(drv, cuCtxSetCurrent, ctx));
	return ctx;
}

unsigned int gpu_capability(const struct fdry_driver *drv)
{
	int major = 0, minor = 0;

	must(fdry_call(drv, cuDeviceGetAttribute, &major,
		       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
	must(fdry_call(drv, cuDeviceGetAttribute, &minor,
		       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
	return (unsigned int)(10 * major + minor);
}

int gpu_end(unsigned long checks, unsigned long failures)
{
	printf("%lu%%: Checks: %lu, Failures: %lu, Errors: 0\n",
	       failures < checks ? 100 * (checks - failures) / checks : 0, checks, failures);
	return failures || !checks ? EXIT_FAILURE : EXIT_SUCCESS;
}
