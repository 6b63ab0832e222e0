// SPDX-License-Identifier: Apache-2.0
/* kernels.c - see kernels.h. */
#include "tests/lib/kernels.h"

char *ptx;
void *cubin;
size_t ptx_len, cubin_len;

void kernels_setup(void)
{
	dir_setup_in("/dev/shm");
	ck_assert(!setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	ck_assert(!setenv("FOUNDRY_NVRTC", test_built("sim/libnvrtc.so"), 1));
	ptx = test_sim_ptx("kernels", &ptx_len);
	cubin = test_sim_cubin("kernels", &cubin_len);
}

void kernels_teardown(void)
{
	free(ptx);
	free(cubin);
	dir_teardown();
}

struct fdry_kernels_source code_of(const void *data, size_t len)
{
	return (struct fdry_kernels_source){ .sz = sizeof(struct fdry_kernels_source), .data = data,
					     .len = len };
}

struct fdry_kernels_source ptx_source(void)
{
	return code_of(ptx, ptx_len);
}

struct fdry_kernels_source cuda_source(void)
{
	struct fdry_kernels_source s = code_of(cuda_text, sizeof(cuda_text));

	s.form = FDRY_KERNELS_SOURCE;
	return s;
}

struct fdry_kernels *kernels_open(struct fdry_store *store)
{
	struct fdry_kernels_opts o = { .sz = sizeof(o), .store = store };
	struct fdry_kernels *k = NULL;

	ok(fdry_kernels_new(&o, &k));
	return k;
}

struct fdry_kernels_stats stats_of(struct fdry_kernels *k)
{
	struct fdry_kernels_stats st = { .sz = sizeof(st) };

	ok(fdry_kernels_stats(k, &st));
	return st;
}

void vecadd_check(struct fdry_kernels *k, CUfunction f)
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
