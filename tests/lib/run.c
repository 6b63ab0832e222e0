// SPDX-License-Identifier: Apache-2.0
/* run.c - see run.h. */
#include "tests/lib/run.h"

static CUmodule modules[2];

void run_open(void)
{
	static const char *const names[] = { "kernels", "train" };
	size_t len;
	void *cubin;
	int i;

	ck_assert(!setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	drv = test_sim();
	for (i = 0; i < 2; i++) {
		cubin = test_sim_cubin(names[i], &len);
		cu(cuModuleLoadDataEx, &modules[i], cubin, 0, NULL, NULL);
		free(cubin);
	}
}

void run_close(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

	cu(cuThreadExchangeStreamCaptureMode, &mode);
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL); /* no call left it changed */
	ck_assert_ptr_null(fdry_stream_current());
	ck_assert_int_eq(test_sim_live("graph"), 0);
	ck_assert_int_eq(test_sim_live("exec"), 0);
	ck_assert_int_eq(test_sim_live("event"), 0);
	ck_assert_int_eq(test_sim_live("host"), 0);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
}

CUfunction kernel(const char *name)
{
	CUfunction f;
	int i;

	for (i = 0; i < 2; i++)
		if (!drv->cuModuleGetFunction(&f, modules[i], name))
			return f;
	ck_abort_msg("no kernel %s", name);
	return NULL;
}

CUdeviceptr mem(size_t bytes)
{
	CUdeviceptr p;

	cu(cuMemAlloc_v2, &p, bytes);
	cu(cuMemsetD8Async, p, 0, bytes, NULL);
	cu(cuCtxSynchronize);
	return p;
}

void mem_free(CUdeviceptr p)
{
	cu(cuMemFree_v2, p);
}

CUstream stream_new(void)
{
	CUstream s;

	cu(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	return s;
}

void floats_set(CUdeviceptr p, float v)
{
	float x[N];
	int i;

	for (i = 0; i < N; i++)
		x[i] = v;
	cu(cuMemcpyHtoD_v2, p, x, BYTES);
}

void floats_are(CUdeviceptr p, float v, CUstream stream)
{
	float x[N];
	int i;

	cu(cuStreamSynchronize, stream);
	cu(cuMemcpyDtoH_v2, x, p, BYTES);
	for (i = 0; i < N; i++)
		ck_assert_msg(x[i] == v, "[%d] is %g, not %g", i, (double)x[i], (double)v);
}

void add(CUstream stream, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c)
{
	int n = N;

	launch("vecadd", stream, &a, &b, &c, &n);
}

void step(CUstream stream, CUdeviceptr x, uint64_t salt, uint32_t spins)
{
	launch("step", stream, &x, &salt, &spins);
}

uint64_t word(CUdeviceptr p)
{
	uint64_t v;

	cu(cuMemcpyDtoH_v2, &v, p, sizeof(v));
	return v;
}

struct fdry_cudagraph *cudagraph_new(void)
{
	struct fdry_cudagraph *g = NULL;

	ok(fdry_cudagraph_new(NULL, &g));
	return g;
}

struct fdry_graphpool *pool_new(void)
{
	struct fdry_graphpool *p = NULL;

	ok(fdry_graphpool_new(NULL, &p));
	return p;
}

struct fdry_cudagraph_begin_opts begin_opts(CUstream stream, struct fdry_graphpool *pool,
					    uint32_t mode)
{
	return (struct fdry_cudagraph_begin_opts){ .sz = sizeof(struct fdry_cudagraph_begin_opts),
						   .stream = stream, .pool = pool, .mode = mode };
}
