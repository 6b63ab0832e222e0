/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.h - a test in parts, on a GPU. Each part stands alone: one that fails says what was found, and
 * the others go on.
 */
#ifndef FDRY_TESTS_GPU_PARTS_H
#define FDRY_TESTS_GPU_PARTS_H

#include <stdbool.h>
#include <string.h>

#include "foundry.h"
#include "tests/gpu/gpu.h"

static const struct fdry_driver *drv;
static CUcontext ctx; /* device 0's primary one, current to the first thread */
static unsigned int checks, failures;

struct part {
	const char *name;
	void (*fn)(void);
};

/* One check; what failed is said. */
static inline bool check_(bool good, const char *what, const char *file, int line)
{
	checks++;
	if (good)
		return true;
	failures++;
	printf("%s:%d: %s; last error: %s\n", file, line, what, fdry_last_error());
	return false;
}
#define check(cond) check_(cond, #cond, __FILE__, __LINE__)
#define ok(call) check_(!(call), #call, __FILE__, __LINE__)
#define cu(fn, ...) ok(fdry_call(drv, fn, __VA_ARGS__))
#define need(cond) do { if (!(cond)) return; } while (0)

static inline bool refused(int ret, int code, const char *words, const char *file, int line)
{
	bool good = ret == -code && strstr(fdry_last_error(), words);

	if (!good)
		printf("%s:%d: gave %s, wanted %s with '%s'\n", file, line, fdry_error_name(ret), fdry_error_name(code), words);
	return check_(good, "refused by name", file, line);
}
#define fails(code, words, call) refused(call, FDRY_E_##code, words, __FILE__, __LINE__)

/* Device memory, zeroed. */
static inline CUdeviceptr mem(size_t bytes)
{
	CUdeviceptr p = 0;

	if (cu(cuMemAlloc_v2, &p, bytes)) {
		cu(cuMemsetD8Async, p, 0, bytes, NULL);
		cu(cuStreamSynchronize, NULL);
	}
	return p;
}

static inline CUstream stream_new(void)
{
	CUstream s = NULL;

	cu(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	return s;
}

/* The driver at @path, NULL: the machine's own, and device 0's primary context. */
static inline bool parts_begin(const char *path)
{
	CUdevice dev = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!path)
		drv = gpu_driver();
	else if (!ok(fdry_driver_open(path, &drv)))
		return false;
	return cu(cuDeviceGet, &dev, 0) && cu(cuDevicePrimaryCtxRetain, &ctx, dev) && cu(cuCtxSetCurrent, ctx);
}

static inline void parts_run(const struct part *parts, size_t n)
{
	unsigned int before;
	size_t i;

	for (i = 0; i < n; i++) {
		before = failures;
		parts[i].fn();
		printf("%s: %s\n", parts[i].name, failures == before ? "as expected" : "FAILED");
	}
}

#endif
