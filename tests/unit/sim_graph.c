// SPDX-License-Identifier: Apache-2.0
/* Graphs of the software driver: nodes of every kind, their parameters and attributes, edges. */
#include "tests/lib/sim_cu.h"

START_TEST(kernel_params_belong_to_the_node)
{
	CUgraph g = graph_new();
	CUgraphNode n = step_add(g, NULL, 0, 1, 77);
	CUDA_KERNEL_NODE_PARAMS p, q;

	step_params(5, 99); /* this overwrites the parameters from which the node was made */
	ok(CU(cuGraphKernelNodeGetParams)(n, &p));
	ck_assert_ptr_eq(p.func, fx.step);
	ck_assert_ptr_null(p.kern);
	ck_assert_ptr_eq(p.ctx, fx.ctx);
	ck_assert_ptr_null(p.extra);
	ck_assert_uint_eq(p.gridDimX + p.gridDimY + p.gridDimZ, 3);
	ck_assert_uint_eq(*(CUdeviceptr *)p.kernelParams[0], at(1));
	ck_assert_uint_eq(*(uint64_t *)p.kernelParams[1], 77);
	ok(CU(cuGraphKernelNodeGetParams)(n, &q));
	ck_assert_ptr_eq(p.kernelParams, q.kernelParams);
	ok(CU(cuGraphKernelNodeSetParams)(n, step_params(2, 5)));
	ok(CU(cuGraphKernelNodeGetParams)(n, &q));
	ck_assert_uint_eq(*(uint64_t *)q.kernelParams[1], 5);
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(kernel_params_packed)
{
	struct {
		CUdeviceptr x;
		uint64_t salt;
		uint32_t spins;
	} buf = { at(0), 21, 0 };
	size_t size = offsetof(__typeof__(buf), spins) + sizeof(buf.spins);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &buf, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };
	CUDA_KERNEL_NODE_PARAMS p = *step_params(0, 0);
	CUgraph g = graph_new();
	CUgraphNode n;

	p.extra = extra;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddKernelNode)(&n, g, NULL, 0, &p));
	p.kernelParams = NULL;
	ok(CU(cuGraphAddKernelNode)(&n, g, NULL, 0, &p));
	buf.salt = 0;
	memset(&p, 0, sizeof(p));
	ok(CU(cuGraphKernelNodeGetParams)(n, &p));
	ck_assert_ptr_null(p.kernelParams);
	ck_assert_ptr_eq(p.extra[0], CU_LAUNCH_PARAM_BUFFER_POINTER);
	ck_assert_ptr_eq(p.extra[2], CU_LAUNCH_PARAM_BUFFER_SIZE);
	ck_assert_uint_eq(*(size_t *)p.extra[3], size);
	ck_assert_ptr_eq(p.extra[4], CU_LAUNCH_PARAM_END);
	ck_assert_uint_eq(((uint64_t *)p.extra[1])[1], 21);
	number_set(0, 4);
	ck_assert_uint_eq(graph_value(g, 0), 4 * STEP + 21);
	ok(CU(cuGraphKernelNodeSetParams)(n, step_params(0, 8)));
	ok(CU(cuGraphKernelNodeGetParams)(n, &p));
	ck_assert_ptr_null(p.extra);
	ck_assert_ptr_nonnull(p.kernelParams);
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(kernel_params_checked)
{
	CUDA_KERNEL_NODE_PARAMS p = *step_params(0, 0);
	CUgraph g = graph_new();
	CUgraphNode n;
	size_t count;

	p.gridDimY = 0;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddKernelNode)(&n, g, NULL, 0, &p));
	p = *step_params(0, 0);
	p.kernelParams = NULL;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddKernelNode)(&n, g, NULL, 0, &p));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddKernelNode)(&n, g, NULL, 0, NULL));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddKernelNode)(NULL, g, NULL, 0, step_params(0, 0)));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddKernelNode)(&n, g, NULL, 1, step_params(0, 0)));
	ok(CU(cuGraphGetNodes)(g, NULL, &count));
	ck_assert_uint_eq(count, 0);
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(attributes_of_a_fresh_node)
{
	static const struct {
		CUlaunchAttributeID id;
		CUkernelNodeAttrValue fresh;
	} all[] = {
		{ CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, { { 0 } } },
		{ CU_LAUNCH_ATTRIBUTE_COOPERATIVE, { { 0 } } },
		{ CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, { { 0 } } },
		{ CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, { { 0 } } },
		{ CU_LAUNCH_ATTRIBUTE_PRIORITY, { { 0 } } },
		{ CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, { .memSyncDomainMap = { 0, 1 } } },
		{ CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, { { 0 } } },
		{ CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, { { 0 } } },
		{ CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, { { 0 } } },
	};
	static const int none[] = { CU_LAUNCH_ATTRIBUTE_IGNORE,
				    CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
				    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
				    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
				    CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
				    15,
				    17,
				    -1 };
	CUgraph g = graph_new();
	CUgraphNode n = step_add(g, NULL, 0, 0, 0);
	CUkernelNodeAttrValue v, zero = { { 0 } };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++) {
		memset(&v, 0xee, sizeof(v));
		ok(CU(cuGraphKernelNodeGetAttribute)(n, all[i].id, &v));
		ck_assert_mem_eq(&v, &all[i].fresh, sizeof(v));
	}
	for (i = 0; i < sizeof(none) / sizeof(*none); i++) {
		is(CUDA_ERROR_INVALID_VALUE,
		   CU(cuGraphKernelNodeGetAttribute)(n, (CUkernelNodeAttrID)none[i], &v));
		is(CUDA_ERROR_INVALID_VALUE,
		   CU(cuGraphKernelNodeSetAttribute)(n, (CUkernelNodeAttrID)none[i], &zero));
	}
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(attributes_set_and_copied)
{
	CUkernelNodeAttrValue v, w;
	CUgraph g = graph_new(), clone;
	CUgraphNode a = step_add(g, NULL, 0, 0, 0), b = step_add(g, NULL, 0, 0, 0), c;

	memset(&v, 0xee, sizeof(v)); /* bytes behind the value must not be returned */
	v.priority = -3;
	ok(CU(cuGraphKernelNodeSetAttribute)(a, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	memset(&v, 0, sizeof(v));
	v.clusterDim.x = v.clusterDim.y = v.clusterDim.z = 1;
	ok(CU(cuGraphKernelNodeSetAttribute)(a, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v));
	ok(CU(cuGraphKernelNodeSetParams)(a, step_params(0, 1))); /* attributes stay */
	ok(CU(cuGraphKernelNodeCopyAttributes)(b, a));
	ok(CU(cuGraphClone)(&clone, g));
	ok(CU(cuGraphNodeFindInClone)(&c, b, clone));
	memset(&w, 0, sizeof(w));
	w.priority = -3;
	ok(CU(cuGraphKernelNodeGetAttribute)(c, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	ck_assert_mem_eq(&v, &w, sizeof(v));
	ok(CU(cuGraphKernelNodeGetAttribute)(c, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v));
	ck_assert_uint_eq(v.clusterDim.y, 1);
	v.clusterDim.y = 0;
	is(CUDA_ERROR_INVALID_VALUE,
	   CU(cuGraphKernelNodeSetAttribute)(a, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v));
	memset(&v, 0, sizeof(v));
	v.cooperative = 2;
	is(CUDA_ERROR_INVALID_VALUE,
	   CU(cuGraphKernelNodeSetAttribute)(a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	v.deviceUpdatableKernelNode.deviceUpdatable = 1;
	is(CUDA_ERROR_INVALID_VALUE,
	   CU(cuGraphKernelNodeSetAttribute)(a, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
					     &v));
	ok(CU(cuGraphDestroy)(g));
	ok(CU(cuGraphDestroy)(clone));
}
END_TEST

static const CUgraphEdgeData plain,
	programmatic = { .from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
			 .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC };

START_TEST(edges_with_data)
{
	CUgraph g = graph_new();
	CUgraphNode n[3] = { step_add(g, NULL, 0, 0, 1), step_add(g, NULL, 0, 0, 2),
			     step_add(g, NULL, 0, 0, 3) };
	CUgraphNode from[4], to[4], deps[4];
	CUgraphEdgeData data[4];
	size_t count = 4;

	ok(CU(cuGraphAddDependencies)(g, &n[0], &n[1], &programmatic, 1));
	ok(CU(cuGraphAddDependencies)(g, &n[1], &n[2], NULL, 1));
	ok(CU(cuGraphAddDependencies)(g, &n[0], &n[2], NULL, 0)); /* nothing */
	ok(CU(cuGraphGetEdges)(g, NULL, NULL, NULL, &count));
	ck_assert_uint_eq(count, 2);
	count = 4;
	is(CUDA_ERROR_LOSSY_QUERY, CU(cuGraphGetEdges)(g, from, to, NULL, &count));
	ok(CU(cuGraphGetEdges)(g, from, to, data, &count));
	ck_assert_uint_eq(count, 2);
	ck_assert_ptr_eq(from[0], n[0]);
	ck_assert_ptr_eq(to[0], n[1]);
	ck_assert_mem_eq(&data[0], &programmatic, sizeof(*data));
	ck_assert_ptr_eq(from[1], n[1]);
	ck_assert_ptr_eq(to[1], n[2]);
	ck_assert_mem_eq(&data[1], &plain, sizeof(*data));
	ck_assert_ptr_null(from[2]);
	count = 4;
	is(CUDA_ERROR_LOSSY_QUERY, CU(cuGraphNodeGetDependencies)(n[1], deps, NULL, &count));
	is(CUDA_ERROR_LOSSY_QUERY, CU(cuGraphNodeGetDependentNodes)(n[0], deps, NULL, &count));
	ok(CU(cuGraphNodeGetDependencies)(n[2], deps, NULL, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert_ptr_eq(deps[0], n[1]);
	count = 4;
	ok(CU(cuGraphNodeGetDependentNodes)(n[0], deps, data, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert_ptr_eq(deps[0], n[1]);
	ck_assert_uint_eq(data[0].type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
	/* Removing an edge requires its data, too. */
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphRemoveDependencies)(g, &n[0], &n[1], NULL, 1));
	ok(CU(cuGraphRemoveDependencies)(g, &n[0], &n[1], &programmatic, 1));
	is(CUDA_ERROR_INVALID_VALUE,
	   CU(cuGraphRemoveDependencies)(g, &n[0], &n[1], &programmatic, 1));
	ok(CU(cuGraphGetEdges)(g, from, to, NULL, &count));
	ck_assert_uint_eq(count, 1);
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(edges_refused)
{
	static const CUgraphEdgeData bad[] = {
		{ .from_port = 1 }, { .from_port = 3 },
		{ .to_port = 1 },   { .type = 1 },
		{ .type = 2 },	    { .from_port = 1, .type = 1, .reserved = { 0, 0, 0, 0, 1 } },
	};
	CUgraph g = graph_new(), other = graph_new();
	CUgraphNode a = step_add(g, NULL, 0, 0, 1), b = step_add(g, NULL, 0, 0, 2), empty, far,
		    pair[2];
	CUgraphNode froms[2], tos[2];
	size_t i, count;

	ok(CU(cuGraphAddEmptyNode)(&empty, g, NULL, 0));
	far = step_add(other, NULL, 0, 0, 1);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddDependencies)(g, &a, &b, &bad[i], 1));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddDependencies)(g, &a, &empty, &programmatic, 1));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddDependencies)(g, &empty, &a, &programmatic, 1));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddDependencies)(g, &a, &a, NULL, 1));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddDependencies)(g, &a, &far, NULL, 1));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddDependencies)(g, NULL, NULL, NULL, 1));
	/* The second edge is there already: the call adds neither. */
	ok(CU(cuGraphAddDependencies)(g, &a, &b, NULL, 1));
	froms[0] = b, tos[0] = empty, froms[1] = a, tos[1] = b;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddDependencies)(g, froms, tos, NULL, 2));
	ok(CU(cuGraphGetEdges)(g, NULL, NULL, NULL, &count));
	ck_assert_uint_eq(count, 1);
	pair[0] = pair[1] = a;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddEmptyNode)(&empty, g, pair, 2));
	ok(CU(cuGraphGetNodes)(g, NULL, &count));
	ck_assert_uint_eq(count, 3);
	ok(CU(cuGraphDestroy)(g));
	ok(CU(cuGraphDestroy)(other));
}
END_TEST

/* One call for edges with different data sets the data of the first on all of them. */
static void bulk_edges(bool quirk)
{
	const CUgraphEdgeData data[2] = { programmatic, plain };
	CUgraph g = graph_new();
	CUgraphNode n[3] = { step_add(g, NULL, 0, 0, 1), step_add(g, NULL, 0, 0, 2),
			     step_add(g, NULL, 0, 0, 3) };
	CUgraphNode from[2], to[2];
	CUgraphEdgeData got[2];
	size_t count = 2;

	ok(CU(cuGraphAddDependencies)(g, n, n + 1, data, 2));
	ok(CU(cuGraphGetEdges)(g, from, to, got, &count));
	ck_assert_uint_eq(got[0].type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
	ck_assert_uint_eq(got[1].type, quirk ? CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
					     : CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
	ok(CU(cuGraphDestroy)(g));
}

START_TEST(bulk_edges_get_the_first_data)
{
	bulk_edges(true);
	setenv("FDRY_SIM_BULK_EDGE_QUIRK", "1", 1);
	bulk_edges(true);
	setenv("FDRY_SIM_BULK_EDGE_QUIRK", "0", 1);
	bulk_edges(false);
	unsetenv("FDRY_SIM_BULK_EDGE_QUIRK");
}
END_TEST

START_TEST(nodes_listed_and_destroyed)
{
	CUgraph g = graph_new();
	CUgraphNode a = step_add(g, NULL, 0, 0, 1), b = step_add(g, &a, 1, 0, 2),
		    c = step_add(g, &b, 1, 0, 3);
	CUgraphNode list[5];
	CUgraphNodeType type;
	size_t count = 5;

	ok(CU(cuGraphGetRootNodes)(g, list, &count));
	ck_assert_uint_eq(count, 1);
	count = 5;
	ok(CU(cuGraphGetNodes)(g, list, &count));
	ck_assert_uint_eq(count, 3);
	ck_assert_ptr_eq(list[0], a);
	ck_assert_ptr_eq(list[2], c);
	ck_assert_ptr_null(list[3]);
	count = 2;
	ok(CU(cuGraphGetNodes)(g, list, &count));
	ck_assert_uint_eq(count, 2);
	ok(CU(cuGraphDestroyNode)(b));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroyNode)(b));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphNodeGetType)(b, &type));
	count = 5;
	ok(CU(cuGraphGetRootNodes)(g, list, &count));
	ck_assert_uint_eq(count, 2);
	ck_assert_ptr_eq(list[0], a);
	ck_assert_ptr_eq(list[1], c);
	ok(CU(cuGraphGetEdges)(g, NULL, NULL, NULL, &count));
	ck_assert_uint_eq(count, 0);
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(cycles_are_refused)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = { 0 };
	CUgraph g = graph_new();
	CUgraphNode a = step_add(g, NULL, 0, 0, 1), b = step_add(g, &a, 1, 0, 2);
	CUgraphExec x = NULL;

	step_add(g, &b, 1, 0, 3);
	ok(CU(cuGraphAddDependencies)(g, &b, &a, NULL, 1));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphInstantiate)(&x, g, 0));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphInstantiateWithParams)(&x, g, &params));
	ck_assert_int_eq(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
	ck_assert_ptr_nonnull(params.hErrNode_out);
	ck_assert_ptr_null(x);
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(memset_and_memcpy)
{
	CUDA_MEMSET_NODE_PARAMS set = {
		.dst = at(0), .value = 0xab, .elementSize = 1, .width = 8, .height = 1
	};
	CUDA_MEMSET_NODE_PARAMS got;
	uint64_t src = 5, dst = 0;
	CUDA_MEMCPY3D in = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = &src,
			     .dstDevice = at(1), .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			     .WidthInBytes = 8, .Height = 1, .Depth = 1 };
	CUDA_MEMCPY3D out = { .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = &dst,
			      .srcDevice = at(1), .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .WidthInBytes = 8, .Height = 1, .Depth = 1 };
	CUDA_MEMCPY3D read;
	CUgraph g = graph_new();
	CUgraphNode a, b, c;
	CUgraphExec x;

	ok(CU(cuGraphAddMemsetNode)(&a, g, NULL, 0, &set, fx.ctx));
	ok(CU(cuGraphAddMemcpyNode)(&b, g, NULL, 0, &in, fx.ctx));
	ok(CU(cuGraphAddMemcpyNode)(&c, g, &b, 1, &out, fx.ctx));
	ok(CU(cuGraphMemsetNodeGetParams)(a, &got));
	ck_assert_uint_eq(got.dst, at(0));
	ck_assert_uint_eq(got.width, 8);
	ok(CU(cuGraphMemcpyNodeGetParams)(b, &read));
	ck_assert_ptr_eq(read.srcHost, &src);
	x = exec_new(g);
	src = 123; /* read when it is launched */
	ck_assert_uint_eq(exec_value(x, 0), 0xababababababababu);
	ck_assert_uint_eq(dst, 123);
	src = 124;
	exec_value(x, 0);
	ck_assert_uint_eq(dst, 124);
	set.elementSize = 3;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphMemsetNodeSetParams)(a, &set));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphMemcpyNodeSetParams)(a, &in));
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

static void host_add(void *data)
{
	__atomic_fetch_add((int *)data, 1, __ATOMIC_SEQ_CST);
}

START_TEST(host_and_events)
{
	int calls = 0;
	CUDA_HOST_NODE_PARAMS host = { host_add, &calls }, got;
	CUgraph g = graph_new();
	CUgraphNode a, b, c;
	CUgraphExec x;
	CUevent ev, other, seen;
	CUstream s;

	ok(CU(cuEventCreate)(&ev, CU_EVENT_DISABLE_TIMING));
	ok(CU(cuEventCreate)(&other, CU_EVENT_DISABLE_TIMING));
	ok(CU(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
	ok(CU(cuGraphAddHostNode)(&a, g, NULL, 0, &host));
	ok(CU(cuGraphAddEventRecordNode)(&b, g, &a, 1, ev));
	ok(CU(cuGraphAddEventWaitNode)(&c, g, &b, 1, other));
	ok(CU(cuGraphHostNodeGetParams)(a, &got));
	ck_assert_ptr_eq(got.userData, &calls);
	ok(CU(cuGraphEventRecordNodeGetEvent)(b, &seen));
	ck_assert_ptr_eq(seen, ev);
	ok(CU(cuGraphEventWaitNodeGetEvent)(c, &seen));
	ck_assert_ptr_eq(seen, other);
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphEventWaitNodeGetEvent)(b, &seen));
	ok(CU(cuGraphEventWaitNodeSetEvent)(c, ev));
	ok(CU(cuGraphEventWaitNodeGetEvent)(c, &seen));
	ck_assert_ptr_eq(seen, ev);
	ok(CU(cuGraphEventWaitNodeSetEvent)(c, other));
	x = exec_new(g);
	ok(CU(cuGraphLaunch)(x, fx.stream));
	/* The event stands for the launch from now on, on any stream. */
	ok(CU(cuStreamWaitEvent)(s, ev, 0));
	ok(CU(cuStreamSynchronize)(s));
	ck_assert_int_eq(__atomic_load_n(&calls, __ATOMIC_SEQ_CST), 1);
	ok(CU(cuGraphLaunch)(x, fx.stream));
	ok(CU(cuEventSynchronize)(ev));
	ck_assert_int_eq(__atomic_load_n(&calls, __ATOMIC_SEQ_CST), 2);
	ok(CU(cuStreamSynchronize)(fx.stream));
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
	ok(CU(cuEventDestroy)(ev));
	ok(CU(cuEventDestroy)(other));
	ok(CU(cuStreamDestroy)(s));
}
END_TEST

START_TEST(child_graphs)
{
	const uint64_t salts[] = { 1, 2, 3, 4 };
	CUgraph inner = graph_new(), g = graph_new(), seen;
	CUgraphNode a = step_add(inner, NULL, 0, 0, 2), top = step_add(g, NULL, 0, 0, 1), child;
	size_t count;

	step_add(inner, &a, 1, 0, 3);
	ok(CU(cuGraphAddChildGraphNode)(&child, g, &top, 1, inner));
	step_add(g, &child, 1, 0, 4);
	ok(CU(cuGraphDestroy)(inner)); /* the node has a clone */
	ok(CU(cuGraphChildGraphNodeGetGraph)(child, &seen));
	ok(CU(cuGraphGetNodes)(seen, NULL, &count));
	ck_assert_uint_eq(count, 2);
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy)(seen));
	number_set(0, 5);
	ck_assert_uint_eq(graph_value(g, 0), stepped(5, salts, 4));
	ok(CU(cuGraphDestroy)(g));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphGetNodes)(seen, NULL, &count));
}
END_TEST

START_TEST(child_graph_moved)
{
	CUgraph inner = graph_new(), g = graph_new(), seen;
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUgraphNode n;

	step_add(inner, NULL, 0, 0, 9);
	p.graph.graph = inner;
	p.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	ok(CU(cuGraphAddNode)(&n, g, NULL, NULL, 0, &p));
	ok(CU(cuGraphChildGraphNodeGetGraph)(n, &seen));
	ck_assert_ptr_eq(seen, inner);
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy)(inner));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddNode)(&n, g, NULL, NULL, 0, &p));
	p.graph.graph = g; /* into itself, or into its child graph */
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddNode)(&n, g, NULL, NULL, 0, &p));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddNode)(&n, inner, NULL, NULL, 0, &p));
	number_set(0, 5);
	ck_assert_uint_eq(graph_value(g, 0), 5 * STEP + 9);
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(generic_nodes)
{
	CUgraph g = graph_new();
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
	CUDA_KERNEL_NODE_PARAMS k = *step_params(0, 6);
	CUgraphNode a, b;
	CUgraphEdgeData got;
	CUgraphExec x;
	size_t count = 1;

	memcpy(&p.kernel, &k, sizeof(k));
	ok(CU(cuGraphAddNode)(&a, g, NULL, NULL, 0, &p));
	ok(CU(cuGraphAddNode)(&b, g, &a, &programmatic, 1, &p));
	ok(CU(cuGraphNodeGetDependencies)(b, &a, &got, &count));
	ck_assert_uint_eq(got.from_port, 1);
	number_set(0, 1);
	ck_assert_uint_eq(graph_value(g, 0), (STEP + 6) * STEP + 6);
	step_params(0, 8); /* k's pointers lead there */
	ok(CU(cuGraphNodeSetParams)(b, &p));
	x = exec_new(g);
	step_params(0, 10);
	ok(CU(cuGraphExecNodeSetParams)(x, a, &p));
	number_set(0, 1);
	ck_assert_uint_eq(exec_value(x, 0), (STEP + 10) * STEP + 8);
	p.reserved2 = 1;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddNode)(&a, g, NULL, NULL, 0, &p));
	p.reserved2 = 0;
	p.type = CU_GRAPH_NODE_TYPE_MEMSET;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphNodeSetParams)(b, &p));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecNodeSetParams)(x, b, &p));
	p.type = (CUgraphNodeType)99;
	is(CUDA_ERROR_NOT_SUPPORTED, CU(cuGraphAddNode)(&a, g, NULL, NULL, 0, &p));
	memset(&p, 0, sizeof(p));
	p.type = CU_GRAPH_NODE_TYPE_EMPTY;
	ok(CU(cuGraphAddNode)(&a, g, &b, NULL, 1, &p));
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(clones_are_apart)
{
	CUgraph g = graph_new(), clone;
	CUgraphNode a = step_add(g, NULL, 0, 0, 1), b = step_add(g, NULL, 0, 0, 2), found, from[1],
		    to[1];
	CUgraphEdgeData data[1];
	size_t count = 1;

	ok(CU(cuGraphAddDependencies)(g, &a, &b, &programmatic, 1));
	ok(CU(cuGraphClone)(&clone, g));
	ok(CU(cuGraphGetEdges)(clone, from, to, data, &count));
	ck_assert_uint_eq(data[0].from_port, 1);
	ok(CU(cuGraphNodeFindInClone)(&found, a, clone));
	ck_assert_ptr_eq(found, from[0]);
	ck_assert_ptr_ne(found, a);
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphNodeFindInClone)(&found, from[0], clone));
	ok(CU(cuGraphKernelNodeSetParams)(a, step_params(0, 50)));
	ok(CU(cuGraphDestroyNode)(b));
	number_set(0, 1);
	ck_assert_uint_eq(graph_value(clone, 0), (STEP + 1) * STEP + 2);
	ok(CU(cuGraphDestroy)(g));
	ok(CU(cuGraphDestroy)(clone));
}
END_TEST

START_TEST(destroyed_handles)
{
	CUgraph g = graph_new(), r;
	CUgraphNode n = step_add(g, NULL, 0, 0, 1), m;
	CUgraphExec x = exec_new(g), y;
	CUDA_KERNEL_NODE_PARAMS p;
	CUkernelNodeAttrValue v;
	CUgraphExecUpdateResultInfo info;
	cuuint64_t flags;
	size_t count;

	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy)(g));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecDestroy)(x));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphGetNodes)(g, NULL, &count));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphClone)(&r, g));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphInstantiate)(&y, g, 0));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddEmptyNode)(&m, g, NULL, 0));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphKernelNodeGetParams)(n, &p));
	is(CUDA_ERROR_INVALID_VALUE,
	   CU(cuGraphKernelNodeGetAttribute)(n, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphLaunch)(x, fx.stream));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphUpload)(x, fx.stream));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecUpdate)(x, g, &info));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecGetFlags)(x, &flags));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy)(NULL));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy)((CUgraph)&g));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy)((CUgraph)n));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		kernel_params_belong_to_the_node,
		kernel_params_packed,
		kernel_params_checked,
		attributes_of_a_fresh_node,
		attributes_set_and_copied,
		edges_with_data,
		edges_refused,
		bulk_edges_get_the_first_data,
		nodes_listed_and_destroyed,
		cycles_are_refused,
		memset_and_memcpy,
		host_and_events,
		child_graphs,
		child_graph_moved,
		generic_nodes,
		clones_are_apart,
		destroyed_handles,
	};

	return cu_main("sim_graph", tests, sizeof(tests) / sizeof(*tests));
}
