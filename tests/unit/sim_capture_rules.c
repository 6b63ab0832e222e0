// SPDX-License-Identifier: Apache-2.0
/* Stream capture in the software driver: calls that a capture forbids, and the state that they
 * leave. */
#include <pthread.h>

#include "tests/lib/sim_capture.h"

START_TEST(beginning_is_checked)
{
	CUgraph g;

	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuStreamBeginCapture)(NULL, GLOBAL));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	   CU(cuStreamBeginCapture)(CU_STREAM_LEGACY, GLOBAL));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuStreamBeginCapture)(fx.stream, (CUstreamCaptureMode)3));
	is(CUDA_ERROR_INVALID_HANDLE, CU(cuStreamBeginCapture)((CUstream)0x1230, GLOBAL));
	is(CUDA_ERROR_ILLEGAL_STATE, CU(cuStreamEndCapture)(fx.stream, &g));
	capture_begin(GLOBAL);
	is(CUDA_ERROR_ILLEGAL_STATE, CU(cuStreamBeginCapture)(fx.stream, GLOBAL));
	ok(CU(cuGraphDestroy)(capture_end()));
}
END_TEST

/* A call that waits for the capturing stream is refused in every mode. */
START_TEST(synchronising_invalidates)
{
	CUstreamCaptureMode mode;
	CUdeviceptr p;

	for (mode = GLOBAL; mode <= RELAXED; mode++) {
		capture_begin(mode);
		is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuStreamSynchronize)(fx.stream));
		ck_assert_int_eq(capture_status(fx.stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
		is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, step_launch(fx.stream, 0, 1));
		is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuMemAllocAsync)(&p, 64, fx.stream));
		is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamSynchronize)(fx.stream));
		capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		capture_begin(mode);
		is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuStreamQuery)(fx.stream));
		capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		ok(step_launch(fx.stream, 0, 1));
		capture_begin(mode);
		is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuCtxSynchronize)());
		capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	}
}
END_TEST

START_TEST(no_graph_is_launched_into_a_capture)
{
	CUgraph g = graph_new();
	CUgraphExec x;

	step_add(g, NULL, 0, 0, 1);
	x = exec_new(g);
	capture_begin(RELAXED);
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuGraphLaunch)(x, fx.stream));
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuGraphLaunch)(x, fx.stream));
	capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

/* The objects that the calls below need. */
static struct {
	CUgraph graph;
	CUgraphExec exec;
	CUdeviceptr mem;
	CUevent event;
	CUmodule module;
	void *cubin, *host;
	uint64_t word;
} u;

static CUresult unsafe_alloc(void) { return CU(cuMemAlloc)(&u.mem, 64); }
static CUresult unsafe_free(void) { return CU(cuMemFree)(fx.x); }
static CUresult unsafe_host(void) { return CU(cuMemAllocHost)(&u.host, 64); }
static CUresult unsafe_read(void) { return CU(cuMemcpyDtoH)(&u.word, fx.x, 8); }
static CUresult unsafe_write(void) { return CU(cuMemcpyHtoD)(fx.x, &u.word, 8); }
static CUresult unsafe_set(void) { return CU(cuMemsetD8)(fx.x, 0, 8); }
static CUresult unsafe_sync(void) { return CU(cuCtxSynchronize)(); }
static CUresult unsafe_query(void) { return CU(cuEventQuery)(u.event); }
static CUresult unsafe_wait(void) { return CU(cuEventSynchronize)(u.event); }
static CUresult unsafe_module(void)
{
	return CU(cuModuleLoadDataEx)(&u.module, u.cubin, 0, NULL, NULL);
}
static CUresult unsafe_instantiate(void) { return CU(cuGraphInstantiate)(&u.exec, u.graph, 0); }
static CUresult unsafe_upload(void) { return CU(cuGraphUpload)(u.exec, NULL); }
static CUresult unsafe_exec(void) { return CU(cuGraphExecDestroy)(u.exec); }

START_TEST(unsafe_calls_invalidate)
{
	CUresult (*const calls[])(void) = {
		unsafe_alloc, unsafe_free, unsafe_host, unsafe_read, unsafe_write,
		unsafe_set, unsafe_sync, unsafe_query, unsafe_wait, unsafe_module,
		unsafe_instantiate, unsafe_upload, unsafe_exec,
	};
	CUstreamCaptureMode mode;
	CUdeviceptr p = 0;
	size_t i, len;

	u.event = event_new();
	u.graph = graph_new();
	u.exec = exec_new(u.graph);
	u.cubin = test_sim_cubin("kernels", &len);
	for (mode = GLOBAL; mode <= THREAD_LOCAL; mode++)
		for (i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
			capture_begin(mode);
			ck_assert_msg(calls[i]() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
				      "call %zu, mode %d", i, mode);
			capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		}
	ok(CU(cuEventDestroy)(u.event));
	ok(CU(cuGraphExecDestroy)(u.exec));
	ok(CU(cuGraphDestroy)(u.graph));
	free(u.cubin);
	capture_begin(RELAXED);
	ok(CU(cuMemAlloc)(&p, 64));
	ok(CU(cuMemFree)(p));
	ok(CU(cuGraphDestroy)(capture_end()));
	/* A thread may permit such calls for itself. */
	mode = RELAXED;
	capture_begin(GLOBAL);
	ok(CU(cuThreadExchangeStreamCaptureMode)(&mode));
	ck_assert_int_eq(mode, GLOBAL);
	ok(CU(cuMemAlloc)(&p, 64));
	ok(CU(cuMemFree)(p));
	ok(CU(cuThreadExchangeStreamCaptureMode)(&mode));
	ck_assert_int_eq(mode, RELAXED);
	ok(CU(cuGraphDestroy)(capture_end()));
	mode = (CUstreamCaptureMode)3;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuThreadExchangeStreamCaptureMode)(&mode));
}
END_TEST

struct elsewhere {
	CUstreamCaptureMode mode;
	CUresult res;
	bool end;
};

static void *elsewhere(void *arg)
{
	struct elsewhere *e = arg;
	CUdeviceptr p;
	CUgraph g;

	CU(cuCtxSetCurrent)(fx.ctx);
	CU(cuThreadExchangeStreamCaptureMode)(&e->mode);
	if (e->end) {
		e->res = CU(cuStreamEndCapture)(fx.stream, &g);
		if (!e->res)
			CU(cuGraphDestroy)(g);
		return NULL;
	}
	e->res = CU(cuMemAlloc)(&p, 64);
	if (!e->res)
		CU(cuMemFree)(p);
	return NULL;
}

/* Return the result that another thread in this mode gets while this one captures. */
static CUresult from_elsewhere(CUstreamCaptureMode mode, bool finish)
{
	struct elsewhere e = { mode, CUDA_SUCCESS, finish };
	pthread_t t;

	ck_assert_int_eq(pthread_create(&t, NULL, elsewhere, &e), 0);
	pthread_join(t, NULL);
	return e.res;
}

START_TEST(other_threads)
{
	capture_begin(GLOBAL);
	ok(from_elsewhere(THREAD_LOCAL, false));
	ok(from_elsewhere(RELAXED, false));
	is(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, from_elsewhere(GLOBAL, true));
	ck_assert_int_eq(capture_status(fx.stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, from_elsewhere(GLOBAL, false));
	capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	capture_begin(THREAD_LOCAL);
	ok(from_elsewhere(GLOBAL, false));
	is(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, from_elsewhere(GLOBAL, true));
	ok(CU(cuGraphDestroy)(capture_end()));
	capture_begin(RELAXED);
	ok(from_elsewhere(GLOBAL, false));
	ok(from_elsewhere(GLOBAL, true));
	ck_assert_int_eq(capture_status(fx.stream), CU_STREAM_CAPTURE_STATUS_NONE);
}
END_TEST

START_TEST(legacy_stream)
{
	CUstreamCaptureStatus st;
	CUstream blocking;
	CUgraph g;

	ok(CU(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT));
	ok(CU(cuStreamBeginCapture)(blocking, RELAXED));
	is(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CU(cuStreamIsCapturing)(NULL, &st));
	ck_assert_int_eq(capture_status(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	is(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, step_launch(NULL, 0, 1));
	ck_assert_int_eq(capture_status(blocking), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamEndCapture)(blocking, &g));
	/* Non-blocking streams do not wait for the legacy stream. */
	capture_begin(RELAXED);
	ok(CU(cuStreamIsCapturing)(NULL, &st));
	ck_assert_int_eq(st, CU_STREAM_CAPTURE_STATUS_NONE);
	ok(step_launch(NULL, 0, 1));
	ok(CU(cuStreamSynchronize)(NULL));
	ok(CU(cuGraphDestroy)(capture_end()));
	ok(CU(cuStreamDestroy)(blocking));
}
END_TEST

START_TEST(events_across_the_border)
{
	CUevent outside = event_new(), inside = event_new(), never = event_new();
	CUstream other = capture_stream();
	CUgraph g;

	ok(CU(cuEventRecord)(outside, other));
	capture_begin(GLOBAL);
	ok(CU(cuStreamWaitEvent)(fx.stream, never, 0)); /* stands for no work at all */
	is(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CU(cuStreamWaitEvent)(fx.stream, outside, 0));
	capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	capture_begin(GLOBAL);
	ok(step_launch(fx.stream, 0, 1));
	ok(CU(cuEventRecord)(inside, fx.stream));
	is(CUDA_ERROR_CAPTURED_EVENT, CU(cuEventQuery)(inside));
	capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	is(CUDA_ERROR_CAPTURED_EVENT, CU(cuEventSynchronize)(inside));
	is(CUDA_ERROR_CAPTURED_EVENT, CU(cuStreamWaitEvent)(other, inside, 0));
	ok(CU(cuEventRecord)(inside, other)); /* an ordinary event again */
	ok(CU(cuEventSynchronize)(inside));
	capture_begin(RELAXED);
	ok(CU(cuEventRecord)(inside, fx.stream));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuStreamWaitEvent)(NULL, inside, 0));
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamWaitEvent)(other, inside, 0));
	capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	/* Two captures may not meet. */
	capture_begin(RELAXED);
	ok(CU(cuStreamBeginCapture)(other, RELAXED));
	ok(CU(cuEventRecord)(inside, fx.stream));
	is(CUDA_ERROR_STREAM_CAPTURE_MERGE, CU(cuStreamWaitEvent)(other, inside, 0));
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamEndCapture)(other, &g));
	capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ok(CU(cuStreamDestroy)(other));
	ok(CU(cuEventDestroy)(outside));
	ok(CU(cuEventDestroy)(inside));
	ok(CU(cuEventDestroy)(never));
}
END_TEST

START_TEST(streams_that_go_away)
{
	CUevent ev = event_new();
	CUstream origin = capture_stream(), side = capture_stream();
	CUgraph g;

	ok(CU(cuStreamBeginCapture)(origin, GLOBAL));
	ok(step_launch(origin, 0, 1));
	ok(CU(cuEventRecord)(ev, origin));
	ok(CU(cuStreamWaitEvent)(side, ev, 0));
	ok(CU(cuStreamDestroy)(origin));
	ck_assert_int_eq(capture_status(side), CU_STREAM_CAPTURE_STATUS_NONE);
	capture_begin(GLOBAL);
	ok(CU(cuEventRecord)(ev, fx.stream));
	ok(CU(cuStreamWaitEvent)(side, ev, 0));
	ok(CU(cuStreamDestroy)(side));
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamEndCapture)(fx.stream, &g));
	ok(CU(cuEventDestroy)(ev));
}
END_TEST

/* If any call of a capture fails, the stream can capture again, and no object is left. */
START_TEST(calls_made_to_fail)
{
	static const char *const calls[] = {
		"cuStreamBeginCapture_v2:1:2",
		"cuLaunchKernel:1:2",
		"cuLaunchKernel:2:719",
		"cuStreamEndCapture:1:2",
		"cuGraphInstantiateWithFlags:1:2",
		"cuGraphLaunch:1:2",
		"cuGraphUpload:1:2",
		"cuGraphCreate:1:2",
	};
	size_t i;

	for (i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		CUgraphExec x = NULL;
		CUgraph g = NULL, made = NULL;
		CUresult bad = CUDA_SUCCESS;

		test_sim_fail(calls[i]);
		bad |= CU(cuGraphCreate)(&made, 0);
		bad |= CU(cuStreamBeginCapture)(fx.stream, GLOBAL);
		bad |= step_launch(fx.stream, 0, 1);
		bad |= step_launch(fx.stream, 0, 2);
		if (CU(cuStreamEndCapture)(fx.stream, &g)) {
			bad |= 1;
			CU(cuStreamEndCapture)(fx.stream, &g);
		}
		if (g)
			bad |= CU(cuGraphInstantiate)(&x, g, 0);
		if (x)
			bad |= CU(cuGraphUpload)(x, fx.stream) | CU(cuGraphLaunch)(x, fx.stream);
		ck_assert_msg(bad != CUDA_SUCCESS, "%s did not fail", calls[i]);
		ck_assert_uint_eq(test_sim_failed(), 1);
		test_sim_fail(NULL);
		if (x)
			ok(CU(cuGraphExecDestroy)(x));
		if (g)
			ok(CU(cuGraphDestroy)(g));
		if (made)
			ok(CU(cuGraphDestroy)(made));
		ok(CU(cuStreamSynchronize)(fx.stream));
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		beginning_is_checked,
		synchronising_invalidates,
		no_graph_is_launched_into_a_capture,
		unsafe_calls_invalidate,
		other_threads,
		legacy_stream,
		events_across_the_border,
		streams_that_go_away,
		calls_made_to_fail,
	};

	return cu_main("sim_capture_rules", tests, sizeof(tests) / sizeof(*tests));
}
