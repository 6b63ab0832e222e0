// SPDX-License-Identifier: Apache-2.0
/* Stream capture in the software driver: the calls that become nodes, the dependencies of nodes,
 * and the streams that join. */
#include "tests/lib/sim_capture.h"

/* Launch and destroy @g, with the first number at @from. Returns the number's new value. */
static uint64_t run(CUgraph g, uint64_t from)
{
	CUgraphExec x;

	number_set(0, from);
	ok(CU(cuGraphInstantiate)(&x, g, 0));
	ok(CU(cuGraphDestroy)(g));
	ok(CU(cuGraphLaunch)(x, fx.stream));
	ok(CU(cuGraphExecDestroy)(x));
	return number(0);
}

static size_t node_count(CUgraph g)
{
	size_t n;

	ok(CU(cuGraphGetNodes)(g, NULL, &n));
	return n;
}

static CUgraphNodeType node_type(CUgraph g, size_t i)
{
	CUgraphNode nodes[16];
	CUgraphNodeType type;
	size_t n = 16;

	ok(CU(cuGraphGetNodes)(g, nodes, &n));
	ck_assert_uint_lt(i, n);
	ok(CU(cuGraphNodeGetType)(nodes[i], &type));
	return type;
}

START_TEST(chain_is_captured_not_run)
{
	const uint64_t salts[] = { 3, 5, 7 };
	CUgraph g;
	int i;

	number_set(0, 11);
	ck_assert_int_eq(capture_status(fx.stream), CU_STREAM_CAPTURE_STATUS_NONE);
	capture_begin(GLOBAL);
	ck_assert_int_eq(capture_status(fx.stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	for (i = 0; i < 3; i++)
		ok(step_launch(fx.stream, 0, salts[i]));
	g = capture_end();
	ck_assert_int_eq(capture_status(fx.stream), CU_STREAM_CAPTURE_STATUS_NONE);
	ck_assert_uint_eq(number(0), 11);
	ck_assert_uint_eq(node_count(g), 3);
	ck_assert_uint_eq(run(g, 2), stepped(2, salts, 3));
}
END_TEST

START_TEST(every_kind_of_work)
{
	static uint64_t src = 9, dst;
	CUgraph g;

	capture_begin(RELAXED);
	ok(CU(cuMemsetD8Async)(at(0), 1, 8, fx.stream));
	ok(CU(cuMemcpyHtoDAsync)(at(1), &src, 8, fx.stream));
	ok(CU(cuMemcpyDtoDAsync)(at(2), at(1), 8, fx.stream));
	ok(CU(cuMemcpyDtoHAsync)(&dst, at(2), 8, fx.stream));
	g = capture_end();
	ck_assert_int_eq(node_type(g, 0), CU_GRAPH_NODE_TYPE_MEMSET);
	ck_assert_int_eq(node_type(g, 1), CU_GRAPH_NODE_TYPE_MEMCPY);
	ck_assert_uint_eq(node_count(g), 4);
	src = 10; /* the source is read when the graph is launched */
	ck_assert_uint_eq(run(g, 5), 0x0101010101010101u);
	ck_assert_uint_eq(dst, 10);
}
END_TEST

static void host_add(void *data)
{
	++*(int *)data;
}

START_TEST(host_functions)
{
	int calls = 0;
	CUgraph g;

	capture_begin(RELAXED);
	ok(CU(cuLaunchHostFunc)(fx.stream, host_add, &calls));
	ok(step_launch(fx.stream, 0, 1));
	g = capture_end();
	ck_assert_int_eq(node_type(g, 0), CU_GRAPH_NODE_TYPE_HOST);
	run(g, 0);
	ck_assert_int_eq(calls, 1);
}
END_TEST

/* Two streams work side by side and meet again. */
START_TEST(fork_and_join)
{
	CUstream side = capture_stream();
	CUevent fork = event_new(), join = event_new();
	CUgraphNode from[8], to[8];
	CUgraphEdgeData data[8];
	size_t count = 8;
	CUgraph g;

	capture_begin(GLOBAL);
	ok(step_launch(fx.stream, 0, 1));
	ok(CU(cuEventRecord)(fork, fx.stream));
	ok(CU(cuStreamWaitEvent)(side, fork, 0));
	ck_assert_int_eq(capture_status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ok(CU(cuMemcpyDtoDAsync)(at(1), at(0), 8, side));
	ok(step_launch(side, 1, 2));
	ok(CU(cuEventRecord)(join, side));
	ok(CU(cuStreamWaitEvent)(fx.stream, join, 0));
	ok(step_launch(fx.stream, 0, 3));
	g = capture_end();
	ck_assert_int_eq(capture_status(side), CU_STREAM_CAPTURE_STATUS_NONE);
	ok(CU(cuGraphGetEdges)(g, from, to, data, &count));
	ck_assert_uint_eq(count, 4); /* 1-copy, copy-2, 1-3, 2-3 */
	ck_assert_uint_eq(run(g, 6), (6 * STEP + 1) * STEP + 3);
	ck_assert_uint_eq(number(1), (6 * STEP + 1) * STEP + 2);
	ok(step_launch(side, 0, 0)); /* an ordinary stream again */
	ok(CU(cuStreamDestroy)(side));
	ok(CU(cuEventDestroy)(fork));
	ok(CU(cuEventDestroy)(join));
}
END_TEST

START_TEST(unjoined_work)
{
	CUstream side = capture_stream();
	CUevent fork = event_new();
	CUgraph g;

	capture_begin(GLOBAL);
	ok(step_launch(fx.stream, 0, 1));
	ok(CU(cuEventRecord)(fork, fx.stream));
	ok(CU(cuStreamWaitEvent)(side, fork, 0));
	ok(step_launch(side, 1, 2));
	is(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, CU(cuStreamEndCapture)(side, &g));
	capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	ck_assert_int_eq(capture_status(side), CU_STREAM_CAPTURE_STATUS_NONE);
	/* Only forked, with no work of its own: nothing to join. */
	capture_begin(GLOBAL);
	ok(step_launch(fx.stream, 0, 1));
	ok(CU(cuEventRecord)(fork, fx.stream));
	ok(CU(cuStreamWaitEvent)(side, fork, 0));
	ok(CU(cuGraphDestroy)(capture_end()));
	ok(CU(cuStreamDestroy)(side));
	ok(CU(cuEventDestroy)(fork));
}
END_TEST

static CUresult step_early(CUstream s, int i, uint64_t salt)
{
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
				   .value = { .programmaticStreamSerializationAllowed = 1 } };
	CUlaunchConfig cfg = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
			       .blockDimY = 1, .blockDimZ = 1, .hStream = s, .attrs = &attr,
			       .numAttrs = 1 };
	CUdeviceptr x = at(i);
	uint32_t spins = 0;
	void *args[] = { &x, &salt, &spins };

	return CU(cuLaunchKernelEx)(&cfg, fx.step, args, NULL);
}

START_TEST(programmatic_launches)
{
	CUgraphNode from[4], to[4];
	CUgraphEdgeData data[4];
	size_t count = 4;
	CUgraph g;

	capture_begin(GLOBAL);
	ok(step_early(fx.stream, 0, 1)); /* nothing in front of it */
	ok(step_early(fx.stream, 0, 2));
	ok(step_launch(fx.stream, 0, 3));
	ok(CU(cuMemsetD8Async)(at(1), 1, 8, fx.stream));
	ok(step_early(fx.stream, 0, 4)); /* after a memset */
	g = capture_end();
	is(CUDA_ERROR_LOSSY_QUERY, CU(cuGraphGetEdges)(g, from, to, NULL, &count));
	ok(CU(cuGraphGetEdges)(g, from, to, data, &count));
	ck_assert_uint_eq(count, 4);
	ck_assert_uint_eq(data[0].type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
	ck_assert_uint_eq(data[0].from_port, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
	ck_assert_uint_eq(data[0].to_port, 0);
	ck_assert_uint_eq(data[1].type | data[1].from_port, 0);
	ck_assert_uint_eq(data[2].type | data[2].from_port, 0);
	ck_assert_uint_eq(data[3].type | data[3].from_port, 0);
	ck_assert_uint_eq(run(g, 1), stepped(1, (const uint64_t[]){ 1, 2, 3, 4 }, 4));
}
END_TEST

/* A launch records an event that triggers early, and another stream continues after it. */
START_TEST(programmatic_events)
{
	CUevent early = event_new(), join = event_new();
	CUstream side = capture_stream();
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT };
	CUlaunchConfig cfg = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
			       .blockDimY = 1, .blockDimZ = 1, .hStream = fx.stream, .attrs = &attr,
			       .numAttrs = 1 };
	const CUgraphNode *deps;
	const CUgraphEdgeData *data;
	CUstreamCaptureStatus st;
	size_t count;

	attr.value.programmaticEvent.event = early;
	capture_begin(RELAXED);
	ok(CU(cuLaunchKernelEx)(&cfg, fx.step, step_params(0, 1)->kernelParams, NULL));
	ok(CU(cuStreamWaitEvent)(side, early, 0));
	is(CUDA_ERROR_LOSSY_QUERY,
	   CU(cuStreamGetCaptureInfo)(side, &st, NULL, NULL, &deps, NULL, &count));
	ok(CU(cuStreamGetCaptureInfo)(side, &st, NULL, NULL, &deps, &data, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(data[0].from_port, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
	ck_assert_uint_eq(data[0].type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
	ok(step_launch(side, 1, 1));
	ok(CU(cuEventRecord)(join, side));
	ok(CU(cuStreamWaitEvent)(fx.stream, join, 0));
	run(capture_end(), 0);
	ok(CU(cuStreamDestroy)(side));
	ok(CU(cuEventDestroy)(early));
	ok(CU(cuEventDestroy)(join));
}
END_TEST

/* If a programmatic edge is impossible, an ordinary one is made: before a node that is no kernel,
 * and at a join.
 */
START_TEST(programmatic_only_where_it_can_be)
{
	CUevent early = event_new(), join = event_new();
	CUstream side = capture_stream();
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT };
	CUlaunchConfig cfg = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
			       .blockDimY = 1, .blockDimZ = 1, .hStream = fx.stream, .attrs = &attr,
			       .numAttrs = 1 };
	CUgraphNode from[8], to[8];
	CUgraphEdgeData data[8];
	size_t count = 8, i;
	CUgraph g;

	attr.value.launchCompletionEvent.event = early;
	capture_begin(RELAXED);
	ok(CU(cuLaunchKernelEx)(&cfg, fx.step, step_params(0, 1)->kernelParams, NULL));
	ok(CU(cuStreamWaitEvent)(side, early, 0));
	ok(CU(cuMemsetD8Async)(at(1), 1, 8, side));
	attr.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
	attr.value.programmaticEvent.event = early;
	attr.value.programmaticEvent.triggerAtBlockStart = 1;
	cfg.hStream = side;
	ok(CU(cuLaunchKernelEx)(&cfg, fx.step, step_params(1, 1)->kernelParams, NULL));
	ok(CU(cuMemsetD8Async)(at(2), 1, 8, side));
	ok(CU(cuStreamWaitEvent)(side, early, 0));
	ok(CU(cuMemsetD8Async)(at(2), 1, 8, side));
	ok(CU(cuEventRecord)(join, side));
	ok(CU(cuStreamWaitEvent)(fx.stream, join, 0));
	ok(step_early(fx.stream, 0, 2));
	g = capture_end();
	ok(CU(cuGraphGetEdges)(g, from, to, data, &count));
	ck_assert_uint_eq(count, 7);
	for (i = 0; i < count; i++)
		ck_assert_uint_eq(data[i].type, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
	ck_assert_uint_eq(data[0].from_port, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
	ck_assert_uint_eq(data[1].from_port, 0);
	ok(CU(cuGraphDestroy)(g));
	ok(CU(cuStreamDestroy)(side));
	ok(CU(cuEventDestroy)(early));
	ok(CU(cuEventDestroy)(join));
}
END_TEST

START_TEST(memory_in_stream_order)
{
	CUdeviceptr p, q;
	CUgraph g;

	ok(CU(cuMemAllocAsync)(&p, 64, fx.stream));
	ok(CU(cuMemsetD8Async)(p, 3, 8, fx.stream));
	ok(CU(cuMemcpyDtoDAsync)(at(0), p, 8, fx.stream));
	ok(CU(cuMemFreeAsync)(p, fx.stream));
	ck_assert_uint_eq(number(0), 0x0303030303030303u);
	is(CUDA_ERROR_INVALID_VALUE, CU(cuMemFreeAsync)(p, fx.stream));
	ck_assert_int_eq(test_sim_live("allocation"), 1);
	capture_begin(GLOBAL);
	ok(CU(cuMemAllocAsync)(&q, 64, fx.stream));
	ok(CU(cuMemsetD8Async)(q, 4, 8, fx.stream));
	ok(CU(cuMemcpyDtoDAsync)(at(0), q, 8, fx.stream));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuMemFreeAsync)(at(0), fx.stream));
	ok(CU(cuMemFreeAsync)(q, fx.stream));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuMemFreeAsync)(q, fx.stream));
	g = capture_end();
	ck_assert_int_eq(node_type(g, 0), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	ck_assert_int_eq(node_type(g, 3), CU_GRAPH_NODE_TYPE_MEM_FREE);
	ck_assert_uint_eq(run(g, 0), 0x0404040404040404u);
	is(CUDA_ERROR_INVALID_VALUE, CU(cuMemFreeAsync)(q, fx.stream)); /* freed with its graph */
}
END_TEST

START_TEST(external_events)
{
	CUevent a = event_new(), b = event_new();
	CUgraph g;

	is(CUDA_ERROR_INVALID_VALUE,
	   CU(cuEventRecordWithFlags)(a, fx.stream, CU_EVENT_RECORD_EXTERNAL));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuStreamWaitEvent)(fx.stream, a, CU_EVENT_WAIT_EXTERNAL));
	capture_begin(GLOBAL);
	ok(CU(cuStreamWaitEvent)(fx.stream, a, CU_EVENT_WAIT_EXTERNAL));
	ok(step_launch(fx.stream, 0, 1));
	ok(CU(cuEventRecordWithFlags)(b, fx.stream, CU_EVENT_RECORD_EXTERNAL));
	g = capture_end();
	ck_assert_int_eq(node_type(g, 0), CU_GRAPH_NODE_TYPE_WAIT_EVENT);
	ck_assert_int_eq(node_type(g, 2), CU_GRAPH_NODE_TYPE_EVENT_RECORD);
	ok(CU(cuEventSynchronize)(b));
	ck_assert_uint_eq(run(g, 2), 2 * STEP + 1);
	ok(CU(cuEventSynchronize)(b));
	ok(CU(cuEventDestroy)(a));
	ok(CU(cuEventDestroy)(b));
}
END_TEST

START_TEST(priority_comes_from_the_stream)
{
	CUkernelNodeAttrValue v;
	CUgraphNode n;
	CUstream s;
	CUgraph g;
	size_t count = 1;

	ok(CU(cuStreamCreateWithPriority)(&s, CU_STREAM_NON_BLOCKING, -2));
	ok(CU(cuStreamBeginCapture)(s, GLOBAL));
	ok(step_early(s, 0, 1));
	ok(CU(cuStreamEndCapture)(s, &g));
	ok(CU(cuGraphGetNodes)(g, &n, &count));
	ok(CU(cuGraphKernelNodeGetAttribute)(n, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	ck_assert_int_eq(v.priority, -2);
	ok(CU(cuGraphDestroy)(g));
	ok(CU(cuStreamDestroy)(s));
}
END_TEST

START_TEST(capture_info)
{
	cuuint64_t first = 0, second = 0;
	CUstreamCaptureStatus st;
	const CUgraphNode *deps;
	const CUgraphEdgeData *data;
	CUgraphNode node;
	CUgraph g, got;
	size_t count = 7;

	ok(CU(cuStreamGetCaptureInfo)(fx.stream, &st, NULL, NULL, NULL, NULL, NULL));
	ck_assert_int_eq(st, CU_STREAM_CAPTURE_STATUS_NONE);
	capture_begin(GLOBAL);
	ok(CU(cuStreamGetCaptureInfo)(fx.stream, &st, &first, &g, &deps, &data, &count));
	ck_assert_int_eq(st, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_assert_uint_eq(count, 0);
	ok(step_launch(fx.stream, 0, 1));
	ok(CU(cuStreamGetCaptureInfo)(fx.stream, &st, &second, NULL, &deps, NULL, &count));
	ck_assert_uint_eq(first, second);
	ck_assert_uint_eq(count, 1);
	/* The next node depends on a node that the test added. */
	ok(CU(cuGraphAddKernelNode)(&node, g, deps, count, step_params(0, 2)));
	ok(CU(cuStreamUpdateCaptureDependencies)(fx.stream, &node, NULL, 1,
						 CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	ok(CU(cuStreamGetCaptureInfo)(fx.stream, &st, NULL, NULL, &deps, &data, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert_ptr_eq(deps[0], node);
	ok(step_launch(fx.stream, 0, 3));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroyNode)(node));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy)(g));
	got = capture_end();
	ck_assert_ptr_eq(got, g);
	ck_assert_uint_eq(run(got, 1), stepped(1, (const uint64_t[]){ 1, 2, 3 }, 3));
	is(CUDA_ERROR_ILLEGAL_STATE,
	   CU(cuStreamUpdateCaptureDependencies)(fx.stream, NULL, NULL, 0, 0));
	capture_begin(GLOBAL);
	ok(CU(cuStreamGetCaptureInfo)(fx.stream, &st, &second, NULL, NULL, NULL, NULL));
	ck_assert_uint_ne(first, second);
	ok(CU(cuGraphDestroy)(capture_end()));
}
END_TEST

START_TEST(added_dependencies)
{
	CUstreamCaptureStatus st;
	CUgraphNode node, foreign;
	CUgraph g, other;
	size_t count;

	capture_begin(GLOBAL);
	ok(step_launch(fx.stream, 0, 1));
	ok(CU(cuStreamGetCaptureInfo)(fx.stream, &st, NULL, &g, NULL, NULL, NULL));
	ok(CU(cuGraphAddEmptyNode)(&node, g, NULL, 0));
	ok(CU(cuStreamUpdateCaptureDependencies)(fx.stream, &node, NULL, 1,
						 CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	ok(CU(cuStreamGetCaptureInfo)(fx.stream, &st, NULL, NULL, NULL, NULL, &count));
	ck_assert_uint_eq(count, 2);
	is(CUDA_ERROR_INVALID_VALUE,
	   CU(cuStreamUpdateCaptureDependencies)(fx.stream, &node, NULL, 1, 2));
	is(CUDA_ERROR_INVALID_VALUE,
	   CU(cuStreamUpdateCaptureDependencies)(fx.stream, NULL, NULL, 1, 0));
	other = graph_new();
	foreign = step_add(other, NULL, 0, 0, 1);
	is(CUDA_ERROR_INVALID_VALUE,
	   CU(cuStreamUpdateCaptureDependencies)(fx.stream, &foreign, NULL, 1, 0));
	ok(CU(cuGraphDestroy)(other));
	ok(CU(cuGraphDestroy)(capture_end()));
}
END_TEST

START_TEST(into_a_graph)
{
	CUgraph g, got;
	CUgraphNode first;
	CUgraphExec x;

	ok(CU(cuGraphCreate)(&g, 0));
	ok(CU(cuGraphAddKernelNode)(&first, g, NULL, 0, step_params(0, 1)));
	ok(CU(cuStreamBeginCaptureToGraph)(fx.stream, g, &first, NULL, 1, RELAXED));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphInstantiate)(&x, g, 0));
	ok(step_launch(fx.stream, 0, 2));
	got = capture_end();
	ck_assert_ptr_eq(got, g);
	ck_assert_uint_eq(run(got, 1), stepped(1, (const uint64_t[]){ 1, 2 }, 2));
	/* A failure does not change the caller's graph. */
	ok(CU(cuGraphCreate)(&g, 0));
	ok(CU(cuStreamBeginCaptureToGraph)(fx.stream, g, NULL, NULL, 0, GLOBAL));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuStreamSynchronize)(fx.stream));
	capture_end_fails(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		chain_is_captured_not_run,
		every_kind_of_work,
		host_functions,
		fork_and_join,
		unjoined_work,
		programmatic_launches,
		programmatic_events,
		programmatic_only_where_it_can_be,
		memory_in_stream_order,
		external_events,
		priority_comes_from_the_stream,
		capture_info,
		added_dependencies,
		into_a_graph,
	};

	return cu_main("sim_capture", tests, sizeof(tests) / sizeof(*tests));
}
