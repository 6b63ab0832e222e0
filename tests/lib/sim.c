// SPDX-License-Identifier: Apache-2.0
/* sim.c - see sim.h. */
#include "tests/lib/sim.h"

const char *test_built(const char *name)
{
	static char path[4096];
	const char *build = getenv("BUILD");

	snprintf(path, sizeof(path), "%s/%s", build && *build ? build : "build", name);
	return path;
}

const struct fdry_driver *test_sim_open(void)
{
	const char *path = getenv("FOUNDRY_TEST_SIM");
	const struct fdry_driver *drv;

	if (!path || !*path)
		path = test_built("foundry/sim/libcuda.so.1");
	ck_assert_msg(!fdry_driver_open(path, &drv), "%s", fdry_last_error());
	ck_assert(drv->software);
	return drv;
}

const struct fdry_driver *test_sim(void)
{
	const struct fdry_driver *drv = test_sim_open();
	CUcontext ctx;

	ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&ctx, 0), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuCtxSetCurrent(ctx), CUDA_SUCCESS);
	return drv;
}

void *test_sim_symbol(const char *name)
{
	void *p = dlsym(test_sim_open()->handle, name);

	ck_assert_msg(p != NULL, "no %s", name);
	return p;
}

void test_sim_fail(const char *spec)
{
	int (*arm)(const char *);

	*(void **)&arm = test_sim_symbol("fdry_sim_fail");
	ck_assert_msg(!arm(spec), "\"%s\" names no call", spec ? spec : "");
}

unsigned long test_sim_failed(void)
{
	unsigned long (*failed)(void);

	*(void **)&failed = test_sim_symbol("fdry_sim_failed");
	return failed();
}

unsigned long test_sim_calls(const char *function)
{
	unsigned long (*calls)(const char *);

	*(void **)&calls = test_sim_symbol("fdry_sim_calls");
	return calls(function);
}

long test_sim_live(const char *what)
{
	long (*live)(const char *);

	*(void **)&live = test_sim_symbol("fdry_sim_live");
	return live(what);
}

long test_sim_before(void)
{
	const struct fdry_driver *drv = test_sim_open();
	CUcontext ctx;
	CUstream s;
	int use;

	ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&ctx, 0), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuCtxPushCurrent_v2(ctx), CUDA_SUCCESS);
	for (use = 0; use < FDRY_STREAM_USES; use++)
		ck_assert_int_eq(fdry_stream_shared(drv, (enum fdry_stream_use)use, &s), 0);
	ck_assert_int_eq(drv->cuCtxPopCurrent_v2(&ctx), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	return test_sim_live(NULL);
}

/* Read a file of the build folder, and append a NUL that @len does not count. The caller must
 * free() it. */
static void *test_built_read(const char *name, size_t *len)
{
	FILE *f = fopen(test_built(name), "rb");
	char *data;
	long size;

	ck_assert_msg(f != NULL, "no %s", test_built(name));
	ck_assert(!fseek(f, 0, SEEK_END));
	size = ftell(f);
	ck_assert_int_gt(size, 0);
	rewind(f);
	data = calloc(1, (size_t)size + 1);
	ck_assert_ptr_nonnull(data);
	ck_assert_uint_eq(fread(data, 1, (size_t)size, f), (size_t)size);
	fclose(f);
	*len = (size_t)size;
	return data;
}

void *test_sim_cubin(const char *name, size_t *len)
{
	char file[256];

	snprintf(file, sizeof(file), "sim/%s.cubin", name);
	return test_built_read(file, len);
}

char *test_sim_ptx(const char *name, size_t *len)
{
	char file[256];

	snprintf(file, sizeof(file), "sim/%s.ptx", name);
	return test_built_read(file, len);
}
