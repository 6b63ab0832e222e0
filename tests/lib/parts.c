// SPDX-License-Identifier: Apache-2.0
/* parts.c - see parts.h. */
#include "tests/lib/parts.h"

CUcontext ctx;
unsigned int checks, failures;

bool check_(bool good, const char *what, const char *file, int line)
{
	checks++;
	if (good)
		return true;
	failures++;
	printf("%s:%d: %s; last error: %s\n", file, line, what, fdry_last_error());
	return false;
}

bool part_refused(int ret, int code, const char *words, const char *file, int line)
{
	bool good = ret == -code && strstr(fdry_last_error(), words);

	if (!good)
		printf("%s:%d: gave %s, wanted %s with '%s'\n", file, line, fdry_error_name(ret),
		       fdry_error_name(code), words);
	return check_(good, "refused by name", file, line);
}

CUdeviceptr part_mem(size_t bytes)
{
	CUdeviceptr p = 0;

	if (cu(cuMemAlloc_v2, &p, bytes)) {
		cu(cuMemsetD8Async, p, 0, bytes, NULL);
		cu(cuStreamSynchronize, NULL);
	}
	return p;
}

CUstream part_stream(void)
{
	CUstream s = NULL;

	cu(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	return s;
}

bool parts_begin(const char *path)
{
	CUdevice dev = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!path)
		drv = gpu_driver();
	else if (!ok(fdry_driver_open(path, &drv)))
		return false;
	return cu(cuDeviceGet, &dev, 0) && cu(cuDevicePrimaryCtxRetain, &ctx, dev) &&
	       cu(cuCtxSetCurrent, ctx);
}

void parts_run(const struct part *parts, size_t n)
{
	unsigned int before;
	size_t i;

	for (i = 0; i < n; i++) {
		before = failures;
		parts[i].fn();
		printf("%s: %s\n", parts[i].name, failures == before ? "as expected" : "FAILED");
	}
}
