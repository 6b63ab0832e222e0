// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of the interposer's notes about captures and launches of graphs: which allocations
 * belong to a capture, however it ends.
 */
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <string.h>

#define MIB (1ull << 20)
#define SIZE (64 * MIB)

static struct fdry_hook_live live(void)
{
	struct fdry_hook_live ret;

	hook->live(&ret);
	return ret;
}

static CUstream stream_new(void)
{
	CUstream s;

	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	return s;
}

static void begin(void)
{
	test_hook();
	hook_region_begin(SIZE);
}

static CUdeviceptr alloc(size_t size)
{
	CUdeviceptr p = 0;

	ck_assert_msg(!cuda(cuMemAlloc_v2, &p, size), "%s", hook->last_error());
	return p;
}

static bool was_capturing(CUdeviceptr p)
{
	struct fdry_alloc *all;
	bool ret = false;
	CUdeviceptr base;
	uint64_t size;
	size_t n, i;

	ck_assert_int_eq(hook->region_ledger(&base, &size, &all, &n), 0);
	for (i = 0; i < n; i++)
		if (all[i].addr == p)
			ret = all[i].capturing;
	free(all);
	return ret;
}

START_TEST(allocations_while_capturing)
{
	CUdeviceptr before, within, after;
	uint32_t word = 0;
	CUgraph graph;
	CUstream s;

	begin();
	s = stream_new();
	before = alloc(4096);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	ck_assert_uint_eq(live().captures, 1);
	within = alloc(4096);
	cuda_ok(cuMemsetD32Async, within, 7, 1, s);
	cuda_ok(cuStreamEndCapture, s, &graph);
	ck_assert_ptr_nonnull(graph);
	ck_assert_uint_eq(live().captures, 0);
	after = alloc(4096);
	ck_assert(!was_capturing(before));
	ck_assert(was_capturing(within));
	ck_assert(!was_capturing(after));
	cuda_ok(cuMemcpyDtoH_v2, &word, within + 4092, 4);
	ck_assert_uint_eq(word, FDRY_STAMP);
	cuda_ok(cuMemcpyDtoH_v2, &word, after, 4);
	ck_assert_uint_eq(word, 0);
}
END_TEST

START_TEST(every_way_to_begin)
{
	CUgraph graph;
	CUstream s;

	begin();
	s = stream_new();
	ck_assert_int_eq(cuda_ptsz(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED),
			 CUDA_SUCCESS);
	ck_assert_uint_eq(live().captures, 1);
	ck_assert_int_eq(cuda_ptsz(cuStreamEndCapture, s, &graph), CUDA_SUCCESS);
	ck_assert_uint_eq(live().captures, 0);
	cuda_ok(cuGraphCreate, &graph, 0);
	cuda_ok(cuStreamBeginCaptureToGraph, s, graph, NULL, NULL, 0,
		CU_STREAM_CAPTURE_MODE_RELAXED);
	ck_assert_uint_eq(live().captures, 1);
	cuda_ok(cuStreamEndCapture, s, &graph);
	ck_assert_uint_eq(live().captures, 0);
	ck_assert_int_eq(cuda_ptsz(cuStreamBeginCaptureToGraph, s, graph, NULL, NULL, 0,
				   CU_STREAM_CAPTURE_MODE_RELAXED),
			 CUDA_SUCCESS);
	ck_assert_uint_eq(live().captures, 1);
	ck_assert_int_eq(cuda_ptsz(cuStreamEndCapture, s, &graph), CUDA_SUCCESS);
	ck_assert_uint_eq(live().captures, 0);
}
END_TEST

START_TEST(two_captures)
{
	CUstream a, b;
	CUgraph graph;

	begin();
	a = stream_new();
	b = stream_new();
	cuda_ok(cuStreamBeginCapture_v2, a, CU_STREAM_CAPTURE_MODE_RELAXED);
	cuda_ok(cuStreamBeginCapture_v2, b, CU_STREAM_CAPTURE_MODE_RELAXED);
	ck_assert_int_ne(cuda(cuStreamBeginCapture_v2, b, CU_STREAM_CAPTURE_MODE_RELAXED),
			 CUDA_SUCCESS);
	ck_assert_uint_eq(live().captures, 2);
	cuda_ok(cuStreamEndCapture, a, &graph);
	ck_assert_uint_eq(live().captures, 1);
	ck_assert(was_capturing(alloc(16)));
	cuda_ok(cuStreamEndCapture, b, &graph);
	ck_assert_uint_eq(live().captures, 0);
	ck_assert_int_ne(cuda(cuStreamEndCapture, b, &graph), CUDA_SUCCESS);
	ck_assert_uint_eq(live().captures, 0);
}
END_TEST

/* After an end that fails, the capture may continue or not: the driver's state decides. */
START_TEST(ends_that_fail)
{
	CUstream s, other;
	CUgraph graph;
	CUevent e;

	begin();
	s = stream_new();
	other = stream_new();
	cuda_ok(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	test_sim_fail("cuStreamEndCapture:1");
	ck_assert_int_eq(cuda(cuStreamEndCapture, s, &graph), CUDA_ERROR_UNKNOWN);
	ck_assert_uint_eq(live().captures, 1);
	cuda_ok(cuStreamEndCapture, s, &graph);
	ck_assert_uint_eq(live().captures, 0);

	/* a fork that never joins */
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	cuda_ok(cuEventRecord, e, s);
	cuda_ok(cuStreamWaitEvent, other, e, 0);
	cuda_ok(cuMemsetD32Async, alloc(512), 7, 1, other);
	ck_assert_int_eq(cuda(cuStreamEndCapture, other, &graph),
			 CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	ck_assert_uint_eq(live().captures, 1);
	ck_assert_int_ne(cuda(cuStreamEndCapture, s, &graph), CUDA_SUCCESS);
	ck_assert_uint_eq(live().captures, 0);
	test_sim_fail("cuStreamBeginCapture_v2:1");
	ck_assert_int_ne(cuda(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED),
			 CUDA_SUCCESS);
	ck_assert_uint_eq(live().captures, 0);
}
END_TEST

START_TEST(a_capture_ends_with_its_stream)
{
	CUstream s, t;

	begin();
	s = stream_new();
	t = stream_new();
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	cuda_ok(cuStreamDestroy_v2, t);
	ck_assert_uint_eq(live().captures, 1);
	cuda(cuStreamDestroy_v2, s);
	ck_assert_uint_eq(live().captures, 0);
}
END_TEST

/* --- attributes of nodes whose capture failed --- */

/* A node that a captured launch adds, with an attribute that the driver does not report. */
static CUgraphNode launch_captured(CUstream s, CUfunction f)
{
	CUlaunchAttribute a = { .id = CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
				.value.nvlinkUtilCentricScheduling = 1 };
	CUlaunchConfig c = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
			     .blockDimY = 1, .blockDimZ = 1, .hStream = s, .attrs = &a,
			     .numAttrs = 1 };
	CUstreamCaptureStatus status;
	const CUgraphEdgeData *data;
	const CUgraphNode *nodes;
	uint64_t x = 0, salt = 3;
	uint32_t spins = 0;
	void *args[] = { &x, &salt, &spins };
	size_t n;

	cuda_ok(cuLaunchKernelEx, &c, f, args, NULL);
	cuda_ok(cuStreamGetCaptureInfo_v3, s, &status, NULL, NULL, &nodes, &data, &n);
	ck_assert_uint_eq(n, 1);
	return nodes[0];
}

static bool is_noted(CUgraphNode node)
{
	struct fdry_unreported_attrs a;

	hook->attributes(node, &a);
	return a.set[0] || a.set[1];
}

static CUfunction step_load(void)
{
	CUfunction ret;
	CUmodule m;
	size_t len;
	void *cubin = test_sim_cubin("kernels", &len);

	cuda_ok(cuModuleLoadData, &m, cubin);
	cuda_ok(cuModuleGetFunction, &ret, m, "step");
	free(cubin);
	return ret;
}

/* The driver destroys the graph, so later nodes may have the addresses of its nodes. */
START_TEST(attributes_end_with_a_capture_that_fails)
{
	CUgraphNode kept, lost, gone, own;
	CUstream s, t, other;
	CUgraph graph;
	CUfunction f;
	CUevent e;

	begin();
	f = step_load();
	s = stream_new();
	t = stream_new();
	other = stream_new();
	cuda_ok(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	cuda_ok(cuStreamBeginCapture_v2, t, CU_STREAM_CAPTURE_MODE_RELAXED);
	kept = launch_captured(t, f);
	lost = launch_captured(s, f);
	cuda_ok(cuEventRecord, e, s);
	cuda_ok(cuStreamWaitEvent, other, e, 0);
	gone = launch_captured(other, f);
	ck_assert(is_noted(kept) && is_noted(lost) && is_noted(gone));
	ck_assert_int_ne(cuda(cuStreamEndCapture, s, &graph), CUDA_SUCCESS);
	ck_assert(is_noted(kept) && !is_noted(lost) && !is_noted(gone));
	cuda_ok(cuStreamEndCapture, t, &graph);
	ck_assert(is_noted(kept));

	cuda_ok(cuStreamBeginCapture_v2, t, CU_STREAM_CAPTURE_MODE_RELAXED);
	lost = launch_captured(t, f);
	cuda(cuStreamDestroy_v2, t);
	ck_assert(is_noted(kept) && !is_noted(lost));

	/* A graph of the program stays. */
	cuda_ok(cuGraphCreate, &graph, 0);
	cuda_ok(cuStreamBeginCaptureToGraph, s, graph, NULL, NULL, 0,
		CU_STREAM_CAPTURE_MODE_RELAXED);
	own = launch_captured(s, f);
	cuda(cuStreamDestroy_v2, s);
	ck_assert(is_noted(own));

	/* Notes end with the node, unless the driver refuses to destroy it. */
	test_sim_fail("cuGraphDestroyNode:1");
	ck_assert_int_ne(cuda(cuGraphDestroyNode, own), CUDA_SUCCESS);
	test_sim_fail("cuGraphDestroy:1");
	ck_assert_int_ne(cuda(cuGraphDestroy, graph), CUDA_SUCCESS);
	test_sim_fail("");
	ck_assert(is_noted(own));
	cuda_ok(cuGraphDestroyNode, own);
	ck_assert(!is_noted(own) && is_noted(kept));
}
END_TEST

static pthread_barrier_t barrier;

static void *capture_own_stream(void *ctx)
{
	CUgraph graph = NULL;

	cuda_ok(cuCtxSetCurrent, ctx);
	ck_assert_int_eq(cuda_ptsz(cuStreamBeginCapture_v2, CU_STREAM_PER_THREAD,
				   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
			 CUDA_SUCCESS);
	pthread_barrier_wait(&barrier);
	ck_assert_uint_ge(live().captures, 1);
	pthread_barrier_wait(&barrier);
	cuda_ok(cuStreamEndCapture, CU_STREAM_PER_THREAD, &graph);
	return NULL;
}

/* The per-thread default stream is one handle, and a stream of each thread. */
START_TEST(per_thread_streams)
{
	CUgraph graph = NULL;
	pthread_t t[2];
	CUcontext ctx;
	int i;

	begin();
	cuda_ok(cuCtxGetCurrent, &ctx);
	pthread_barrier_init(&barrier, NULL, 3);
	for (i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, capture_own_stream, ctx);
	pthread_barrier_wait(&barrier);
	ck_assert_uint_eq(live().captures, 2);
	pthread_barrier_wait(&barrier);
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(live().captures, 0);
	/* a thread without a capture cannot end that of the other */
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&t[0], NULL, capture_own_stream, ctx);
	pthread_barrier_wait(&barrier);
	ck_assert_int_ne(cuda(cuStreamEndCapture, CU_STREAM_PER_THREAD, &graph), CUDA_SUCCESS);
	ck_assert_uint_eq(live().captures, 1);
	pthread_barrier_wait(&barrier);
	pthread_join(t[0], NULL);
	ck_assert_uint_eq(live().captures, 0);
}
END_TEST

/* Unmapping would break a capture: memory freed during it is unmapped at its end. */
START_TEST(frees_while_capturing)
{
	CUdeviceptr a, b;
	CUgraph graph;
	CUstream s;
	long held;

	begin();
	s = stream_new();
	held = test_sim_live("memory");
	a = alloc(8 * MIB);
	b = alloc(8 * MIB);
	ck_assert_int_gt(test_sim_live("memory"), held);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	cuda_ok(cuMemFree_v2, a);
	cuda_ok(cuMemFree_v2, b);
	ck_assert_int_gt(test_sim_live("memory"), held);
	cuda_ok(cuStreamEndCapture, s, &graph);
	ck_assert_int_eq(test_sim_live("memory"), held);
}
END_TEST

START_TEST(a_region_that_ends_while_capturing)
{
	CUdeviceptr a;
	CUgraph graph;
	CUstream s;

	begin();
	s = stream_new();
	a = alloc(8 * MIB);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	ck_assert_int_eq(hook->region_end(), 0);
	cuda_ok(cuMemFree_v2, a);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	cuda_ok(cuStreamEndCapture, s, &graph);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
}
END_TEST

START_TEST(launches_are_counted)
{
	CUgraphExec exec;
	CUgraph graph;
	CUstream s;

	test_hook();
	s = stream_new();
	cuda_ok(cuGraphCreate, &graph, 0);
	cuda_ok(cuGraphInstantiateWithFlags, &exec, graph, 0);
	ck_assert_uint_eq(live().graph_launches, 0);
	cuda_ok(cuGraphLaunch, exec, s);
	ck_assert_int_eq(cuda_ptsz(cuGraphLaunch, exec, s), CUDA_SUCCESS);
	ck_assert_uint_eq(live().graph_launches, 2);
	cuda_ok(cuStreamSynchronize, s);
}
END_TEST

static void *launch(void *exec)
{
	return (void *)(uintptr_t)cuda(cuGraphLaunch, exec, CU_STREAM_PER_THREAD);
}

/* Held launches do nothing, but only in the thread that holds them. */
START_TEST(launches_can_be_held)
{
	CUdeviceptr p;
	CUgraphExec exec;
	uint32_t word = 0;
	CUgraph graph;
	pthread_t t;
	CUstream s;
	void *res;

	test_hook();
	s = stream_new();
	cuda_ok(cuMemAlloc_v2, &p, 64);
	cuda_ok(cuMemsetD32_v2, p, 1, 16);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	cuda_ok(cuMemsetD32Async, p, 2, 16, s);
	cuda_ok(cuStreamEndCapture, s, &graph);
	cuda_ok(cuGraphInstantiateWithFlags, &exec, graph, 0);
	hook->launches_hold(1);
	cuda_ok(cuGraphLaunch, exec, s);
	ck_assert_int_eq(cuda_ptsz(cuGraphLaunch, exec, s), CUDA_SUCCESS);
	pthread_create(&t, NULL, launch,
		       (void *)0x999); /* no such graph: the call reaches the driver */
	pthread_join(t, &res);
	ck_assert_ptr_nonnull(res);
	ck_assert_uint_eq(live().graph_launches, 1);
	cuda_ok(cuStreamSynchronize, s);
	cuda_ok(cuMemcpyDtoH_v2, &word, p, 4);
	ck_assert_uint_eq(word, 1);
	hook->launches_hold(0);
	cuda_ok(cuGraphLaunch, exec, s);
	cuda_ok(cuStreamSynchronize, s);
	cuda_ok(cuMemcpyDtoH_v2, &word, p, 4);
	ck_assert_uint_eq(word, 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hook_capture");
	TCase *tc = tcase_create("capture");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, allocations_while_capturing);
	tcase_add_test(tc, every_way_to_begin);
	tcase_add_test(tc, two_captures);
	tcase_add_test(tc, ends_that_fail);
	tcase_add_test(tc, a_capture_ends_with_its_stream);
	tcase_add_test(tc, attributes_end_with_a_capture_that_fails);
	tcase_add_test(tc, per_thread_streams);
	tcase_add_test(tc, frees_while_capturing);
	tcase_add_test(tc, a_region_that_ends_while_capturing);
	suite_add_tcase(s, tc);
	tc = tcase_create("live");
	tcase_add_test(tc, launches_are_counted);
	tcase_add_test(tc, launches_can_be_held);
	suite_add_tcase(s, tc);
	return test_main(s);
}
