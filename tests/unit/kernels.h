/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - caches of kernels on the software driver: sources, a launch whose result is checked. */
#ifndef FDRY_TESTS_UNIT_KERNELS_H
#define FDRY_TESTS_UNIT_KERNELS_H

#include <pthread.h>
#include <string.h>

#include "foundry.h"
#include "tests/unit/sim.h"
#include "tests/unit/store_test.h"

#define N 64

static char *ptx;
static void *cubin;
static size_t ptx_len, cubin_len;
static const char cuda_text[] = "#pragma object kernels\nextern \"C\" __global__ void scale(float *x, float by, int n);\n";

/* What every test begins with; the driver is not started, so that children can be. */
static inline void kernels_setup(void)
{
	dir_setup_in("/dev/shm");
	ck_assert(!setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	ck_assert(!setenv("FOUNDRY_NVRTC", test_built("sim/libnvrtc.so"), 1));
	ptx = test_sim_ptx("kernels", &ptx_len);
	cubin = test_sim_cubin("kernels", &cubin_len);
}

static inline void kernels_teardown(void)
{
	free(ptx);
	free(cubin);
	dir_teardown();
}

static inline struct fdry_kernels_source code_of(const void *data, size_t len)
{
	return (struct fdry_kernels_source){ .sz = sizeof(struct fdry_kernels_source), .data = data, .len = len };
}

static inline struct fdry_kernels_source ptx_source(void)
{
	return code_of(ptx, ptx_len);
}

static inline struct fdry_kernels_source cuda_source(void)
{
	struct fdry_kernels_source s = code_of(cuda_text, sizeof(cuda_text));

	s.form = FDRY_KERNELS_SOURCE;
	return s;
}

static inline struct fdry_kernels *kernels_open(struct fdry_store *store)
{
	struct fdry_kernels_opts o = { .sz = sizeof(o), .store = store };
	struct fdry_kernels *k = NULL;

	ok(fdry_kernels_new(&o, &k));
	return k;
}

static inline struct fdry_kernels_stats stats_of(struct fdry_kernels *k)
{
	struct fdry_kernels_stats st = { .sz = sizeof(st) };

	ok(fdry_kernels_stats(k, &st));
	return st;
}

#define ARG(x) { &(x), sizeof(x) }

/* c = a + b by the kernel vecadd of tests/sim/kernels.c, and is. */
static inline void vecadd_check(struct fdry_kernels *k, CUfunction f)
{
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o), .grid = { 1 }, .block = { N } };
	const struct fdry_driver *drv = test_sim();
	float v[N], out[N];
	CUdeviceptr a, b, c;
	int i, n = N;
	struct fdry_kernels_arg args[] = { ARG(a), ARG(b), ARG(c), ARG(n) };

	for (i = 0; i < N; i++)
		v[i] = (float)i;
	ck_assert_int_eq(drv->cuMemAlloc_v2(&a, sizeof(v)), 0);
	ck_assert_int_eq(drv->cuMemAlloc_v2(&b, sizeof(v)), 0);
	ck_assert_int_eq(drv->cuMemAlloc_v2(&c, sizeof(v)), 0);
	ck_assert_int_eq(drv->cuMemcpyHtoD_v2(a, v, sizeof(v)), 0);
	ck_assert_int_eq(drv->cuMemcpyHtoD_v2(b, v, sizeof(v)), 0);
	ok(fdry_kernels_launch(k, f, &o, args, 4));
	ck_assert_int_eq(drv->cuCtxSynchronize(), 0);
	ck_assert_int_eq(drv->cuMemcpyDtoH_v2(out, c, sizeof(out)), 0);
	for (i = 0; i < N; i++)
		ck_assert_msg(out[i] == 2 * v[i], "c[%d] is %g", i, (double)out[i]);
	ck_assert_int_eq(drv->cuMemFree_v2(a), 0);
	ck_assert_int_eq(drv->cuMemFree_v2(b), 0);
	ck_assert_int_eq(drv->cuMemFree_v2(c), 0);
	drv->cuDevicePrimaryCtxRelease_v2(0);
}

/* Run @fn in a process of its own; a check that fails there fails the test. */
static inline void in_child(void (*fn)(void))
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		fn();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "the child ended with %#x", status);
}

#endif
