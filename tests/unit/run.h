/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - what the tests of graphs, pools and scalars in one process share: the software
 * driver as the library opens it, device memory, kernels of tests/sim by name, launches.
 *
 * run_open() inside each test, run_close() at its end; what the library made must be gone by then.
 */
#ifndef FDRY_TESTS_UNIT_RUN_H
#define FDRY_TESTS_UNIT_RUN_H

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "foundry.h"
#include "tests/unit/sim.h"

#define ok(call) do { \
	int ret_ = (call); \
	ck_assert_msg(!ret_, "%s: %s: %s", #call, fdry_error_name(ret_), fdry_last_error()); \
} while (0)
/* Fails with this code and a sentence that holds @text. */
#define fails(code, text, call) do { \
	int ret_ = (call); \
	ck_assert_msg(ret_ == -FDRY_E_##code, "%s gave %s: %s", #call, fdry_error_name(ret_), fdry_last_error()); \
	ck_assert_msg(strstr(fdry_last_error(), text) != NULL, "%s says: %s", #call, fdry_last_error()); \
} while (0)
#define cu(fn, ...) ck_assert_int_eq(drv->fn(__VA_ARGS__), CUDA_SUCCESS)

#define N 64
#define BYTES (N * sizeof(float))

static const struct fdry_driver *drv;
static CUmodule modules[2];

static inline void run_open(void)
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

/* Streams that are lent stay with the context. */
static inline void run_close(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

	cu(cuThreadExchangeStreamCaptureMode, &mode);
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL); /* nothing left it changed */
	ck_assert_ptr_null(fdry_stream_current());
	ck_assert_int_eq(test_sim_live("graph"), 0);
	ck_assert_int_eq(test_sim_live("exec"), 0);
	ck_assert_int_eq(test_sim_live("event"), 0);
	ck_assert_int_eq(test_sim_live("host"), 0);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
}

static inline CUfunction kernel(const char *name)
{
	CUfunction f;
	int i;

	for (i = 0; i < 2; i++)
		if (!drv->cuModuleGetFunction(&f, modules[i], name))
			return f;
	ck_abort_msg("no kernel %s", name);
	return NULL;
}

#define launch(name, stream, ...) \
	do { \
		void *launch_args[] = { __VA_ARGS__ }; \
		cu(cuLaunchKernel, kernel(name), 1, 1, 1, N, 1, 1, 0, stream, launch_args, NULL); \
	} while (0)

static inline CUdeviceptr mem(size_t bytes)
{
	CUdeviceptr p;

	cu(cuMemAlloc_v2, &p, bytes);
	cu(cuMemsetD8Async, p, 0, bytes, NULL);
	cu(cuCtxSynchronize);
	return p;
}

static inline void mem_free(CUdeviceptr p)
{
	cu(cuMemFree_v2, p);
}

static inline CUstream stream_new(void)
{
	CUstream s;

	cu(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	return s;
}

static inline void floats_set(CUdeviceptr p, float v)
{
	float x[N];
	int i;

	for (i = 0; i < N; i++)
		x[i] = v;
	cu(cuMemcpyHtoD_v2, p, x, BYTES);
}

/* All N are @v once @stream is done. */
static inline void floats_are(CUdeviceptr p, float v, CUstream stream)
{
	float x[N];
	int i;

	cu(cuStreamSynchronize, stream);
	cu(cuMemcpyDtoH_v2, x, p, BYTES);
	for (i = 0; i < N; i++)
		ck_assert_msg(x[i] == v, "[%d] is %g, not %g", i, (double)x[i], (double)v);
}

/* c = a + b */
static inline void add(CUstream stream, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c)
{
	int n = N;

	launch("vecadd", stream, &a, &b, &c, &n);
}

/* x = x * 6364136223846793005 + salt; slow where @spins is large */
static inline void step(CUstream stream, CUdeviceptr x, uint64_t salt, uint32_t spins)
{
	launch("step", stream, &x, &salt, &spins);
}

static inline uint64_t word(CUdeviceptr p)
{
	uint64_t v;

	cu(cuMemcpyDtoH_v2, &v, p, sizeof(v));
	return v;
}

static inline struct fdry_cudagraph *graph_new(void)
{
	struct fdry_cudagraph *g = NULL;

	ok(fdry_cudagraph_new(NULL, &g));
	return g;
}

static inline struct fdry_graphpool *pool_new(void)
{
	struct fdry_graphpool *p = NULL;

	ok(fdry_graphpool_new(NULL, &p));
	return p;
}

static inline struct fdry_cudagraph_begin_opts begin_opts(CUstream stream, struct fdry_graphpool *pool, uint32_t mode)
{
	return (struct fdry_cudagraph_begin_opts){ .sz = sizeof(struct fdry_cudagraph_begin_opts), .stream = stream,
						   .pool = pool, .mode = mode };
}

/* Run @fn in a process of its own, where a driver may be missing; it exits by itself. */
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

static inline int run_main(const char *name, const TTest *const *tests, size_t count)
{
	Suite *s = suite_create(name);
	TCase *tc = tcase_create(name);
	SRunner *sr = srunner_create(s);
	size_t i;
	int failed;

	for (i = 0; i < count; i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
