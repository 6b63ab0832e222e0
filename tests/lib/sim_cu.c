// SPDX-License-Identifier: Apache-2.0
/* sim_cu.c - see sim_cu.h. */
#include "tests/lib/sim_cu.h"

void *cu_symbol(const char *name)
{
	void *p = dlsym(drv->handle, name);

	ck_assert_msg(p != NULL, "the driver lacks %s", name);
	return p;
}

struct fixture fx;

static void cu_open(void)
{
	size_t len;
	void *cubin;

	drv = test_sim();
	ok(CU(cuDeviceGet)(&fx.dev, 0));
	ok(CU(cuCtxGetCurrent)(&fx.ctx));
	ok(CU(cuStreamCreate)(&fx.stream, CU_STREAM_NON_BLOCKING));
	cubin = test_sim_cubin("kernels", &len);
	ok(CU(cuModuleLoadDataEx)(&fx.module, cubin, 0, NULL, NULL));
	free(cubin);
	ok(CU(cuModuleGetFunction)(&fx.step, fx.module, "step"));
	ok(CU(cuMemAlloc)(&fx.x, 8 * sizeof(uint64_t)));
	ok(CU(cuMemsetD8)(fx.x, 0, 8 * sizeof(uint64_t)));
	ok(CU(cuCtxSynchronize)()); /* that memset is the legacy stream's, which fx.stream does not
				       wait for */
}

/* A test must free everything that it made. */
static void cu_close(void)
{
	ok(CU(cuMemFree)(fx.x));
	ok(CU(cuModuleUnload)(fx.module));
	ok(CU(cuStreamDestroy)(fx.stream));
	ck_assert_int_eq(test_sim_live("graph"), 0);
	ck_assert_int_eq(test_sim_live("exec"), 0);
	ck_assert_int_eq(test_sim_live("event"), 0);
	ck_assert_int_eq(test_sim_live("userobject"), 0);
	ok(CU(cuDevicePrimaryCtxRelease)(fx.dev));
}

CUdeviceptr at(int i)
{
	return fx.x + (unsigned int)i * sizeof(uint64_t);
}

uint64_t number(int i)
{
	uint64_t v;

	ok(CU(cuStreamSynchronize)(fx.stream));
	ok(CU(cuMemcpyDtoH)(&v, at(i), sizeof(v)));
	return v;
}

void number_set(int i, uint64_t v)
{
	ok(CU(cuMemcpyHtoD)(at(i), &v, sizeof(v)));
}

CUresult step_launch(CUstream s, int i, uint64_t salt)
{
	CUdeviceptr x = at(i);
	uint32_t spins = 0;
	void *args[] = { &x, &salt, &spins };

	return CU(cuLaunchKernel)(fx.step, 1, 1, 1, 1, 1, 1, 0, s, args, NULL);
}

CUDA_KERNEL_NODE_PARAMS *step_params(int i, uint64_t salt_)
{
	static CUDA_KERNEL_NODE_PARAMS p;
	static CUdeviceptr x;
	static uint64_t salt;
	static uint32_t spins;
	static void *args[] = { &x, &salt, &spins };

	x = at(i);
	salt = salt_;
	p = (CUDA_KERNEL_NODE_PARAMS){ .func = fx.step, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
				       .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
				       .kernelParams = args };
	return &p;
}

uint64_t stepped(uint64_t x, const uint64_t *salts, int n)
{
	int i;

	for (i = 0; i < n; i++)
		x = x * STEP + salts[i];
	return x;
}

CUgraph graph_new(void)
{
	CUgraph g;

	ok(CU(cuGraphCreate)(&g, 0));
	return g;
}

CUgraphNode step_add(CUgraph g, const CUgraphNode *deps, size_t ndeps, int i, uint64_t salt)
{
	CUgraphNode n;

	ok(CU(cuGraphAddKernelNode)(&n, g, deps, ndeps, step_params(i, salt)));
	return n;
}

CUgraphExec exec_new(CUgraph g)
{
	CUgraphExec x;

	ok(CU(cuGraphInstantiate)(&x, g, 0));
	return x;
}

uint64_t exec_value(CUgraphExec x, int i)
{
	ok(CU(cuGraphLaunch)(x, fx.stream));
	return number(i);
}

uint64_t graph_value(CUgraph g, int i)
{
	CUgraphExec x = exec_new(g);
	uint64_t v = exec_value(x, i);

	ok(CU(cuGraphExecDestroy)(x));
	return v;
}

int cu_main(const char *name, const TTest *const *tests, size_t count)
{
	Suite *s = suite_create(name);
	TCase *tc = tcase_create(name);
	size_t i;

	tcase_add_checked_fixture(tc, cu_open, cu_close);
	for (i = 0; i < count; i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	return test_main(s);
}
