// SPDX-License-Identifier: Apache-2.0
/* Executable graphs of the software driver: their results, the order of nodes, and updates. */
#include "tests/lib/sim_cu.h"

#include <pthread.h>

static const CUgraphEdgeData programmatic = { .from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
					      .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC };

START_TEST(chain_computes)
{
	const uint64_t salts[] = { 3, 5, 7 };
	CUgraph g = graph_new();
	CUgraphNode a = step_add(g, NULL, 0, 0, 3), b = step_add(g, &a, 1, 0, 5);
	CUgraphExec x;

	step_add(g, &b, 1, 0, 7);
	number_set(0, 11);
	x = exec_new(g);
	ok(CU(cuGraphUpload)(x, fx.stream));
	ck_assert_uint_eq(exec_value(x, 0), stepped(11, salts, 3));
	ck_assert_uint_eq(exec_value(x, 0), stepped(stepped(11, salts, 3), salts, 3));
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

/* a -> b -> c: without the edge b -> c the driver runs c first. */
START_TEST(missing_edge_shows)
{
	const uint64_t right[] = { 3, 5, 7 }, wrong[] = { 7, 3, 5 };
	CUgraph g = graph_new();
	CUgraphNode a = step_add(g, NULL, 0, 0, 3), b = step_add(g, &a, 1, 0, 5),
		    c = step_add(g, &b, 1, 0, 7);

	ok(CU(cuGraphRemoveDependencies)(g, &b, &c, NULL, 1));
	number_set(0, 1);
	ck_assert_uint_eq(graph_value(g, 0), stepped(1, wrong, 3));
	ok(CU(cuGraphAddDependencies)(g, &b, &c, NULL, 1));
	number_set(0, 1);
	ck_assert_uint_eq(graph_value(g, 0), stepped(1, right, 3));
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

/* Six independent nodes: each seed has an order, the same every time, and the orders differ. */
START_TEST(order_follows_seed)
{
	CUgraph g = graph_new();
	uint64_t seen[16], again;
	char seed[8];
	int i, distinct = 0;

	for (i = 0; i < 6; i++)
		step_add(g, NULL, 0, 0, (uint64_t)i + 1);
	for (i = 0; i < 16; i++) {
		snprintf(seed, sizeof(seed), "%d", i);
		setenv("FDRY_SIM_ORDER", seed, 1);
		number_set(0, 0);
		seen[i] = graph_value(g, 0);
		number_set(0, 0);
		again = graph_value(g, 0);
		ck_assert_uint_eq(again, seen[i]);
		distinct += !i || seen[i] != seen[i - 1];
	}
	unsetenv("FDRY_SIM_ORDER");
	ck_assert_int_gt(distinct, 8);
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

/* With all edges there, no seed changes the result of a diamond. */
START_TEST(order_respects_edges)
{
	CUgraph g = graph_new();
	CUgraphNode top = step_add(g, NULL, 0, 0, 1), sides[2], end;
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = at(0),
			       .dstDevice = at(1), .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .WidthInBytes = 8, .Height = 1, .Depth = 1 };
	char seed[8];
	int i;

	ok(CU(cuGraphAddMemcpyNode)(&sides[0], g, &top, 1, &copy, fx.ctx));
	copy.dstDevice = at(2);
	ok(CU(cuGraphAddMemcpyNode)(&sides[1], g, &top, 1, &copy, fx.ctx));
	end = step_add(g, sides, 2, 0, 9);
	step_add(g, &end, 1, 1, 4);
	for (i = 0; i < 16; i++) {
		snprintf(seed, sizeof(seed), "%d", i);
		setenv("FDRY_SIM_ORDER", seed, 1);
		number_set(0, 2);
		number_set(1, 0);
		number_set(2, 0);
		ck_assert_uint_eq(graph_value(g, 2), 2 * STEP + 1);
		ck_assert_uint_eq(number(1), (2 * STEP + 1) * STEP + 4);
		ck_assert_uint_eq(number(0), (2 * STEP + 1) * STEP + 9);
	}
	unsetenv("FDRY_SIM_ORDER");
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

static unsigned int dice(unsigned int n)
{
	static uint64_t state = 88172645463325252u;

	state = state * STEP + 1442695040888963407u;
	return (unsigned int)(state >> 33) % n;
}

/*
 * Test random graphs over eight numbers. Each node changes one number and follows the node that
 * changed it last; further edges are added. The result must equal that of the nodes in the order in
 * which they were made, for each seed.
 */
static void random_graph(int nodes)
{
	CUgraph g = graph_new();
	CUgraphNode all[64], last[8] = { NULL }, deps[2];
	uint64_t want[8] = { 0 };
	int i, k;

	for (i = 0; i < nodes; i++) {
		int x = (int)dice(8), n = 0;

		if (last[x])
			deps[n++] = last[x];
		if (i && all[k = (int)dice((unsigned int)i)] != last[x])
			deps[n++] = all[k];
		all[i] = last[x] = step_add(g, deps, (size_t)n, x, (uint64_t)i);
		want[x] = want[x] * STEP + (uint64_t)i;
	}
	for (i = 0; i < 8; i++)
		number_set(i, 0);
	ck_assert_uint_eq(graph_value(g, 0), want[0]);
	for (i = 1; i < 8; i++)
		ck_assert_uint_eq(number(i), want[i]);
	ok(CU(cuGraphDestroy)(g));
}

START_TEST(random_graphs)
{
	char seed[16];
	int i;

	for (i = 0; i < 40; i++) {
		snprintf(seed, sizeof(seed), "%d", i / 2);
		setenv("FDRY_SIM_ORDER", seed, 1);
		random_graph((int)dice(64) + 1);
	}
	unsetenv("FDRY_SIM_ORDER");
}
END_TEST

/* Threads that build, launch, change and destroy graphs of their own at the same time. */
static void *worker(void *arg)
{
	const int me = *(const int *)arg;
	uint64_t v = 0;
	CUstream s;
	int i;

	ok(CU(cuCtxSetCurrent)(fx.ctx));
	ok(CU(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
	for (i = 0; i < 50; i++) {
		CUgraph g = graph_new();
		CUDA_KERNEL_NODE_PARAMS p = {
			.func = fx.step, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL, NULL
		};
		CUdeviceptr x = at(me);
		uint64_t salt = (uint64_t)i;
		uint32_t spins = 0;
		void *args[] = { &x, &salt, &spins };
		CUgraphNode n;
		CUgraphExec e;

		p.kernelParams = args;
		ok(CU(cuGraphAddKernelNode)(&n, g, NULL, 0, &p));
		e = exec_new(g);
		ok(CU(cuGraphLaunch)(e, s));
		v = v * STEP + salt;
		salt += 1000;
		ok(CU(cuGraphExecKernelNodeSetParams)(e, n, &p));
		ok(CU(cuGraphLaunch)(e, s));
		v = v * STEP + salt;
		ok(CU(cuGraphExecDestroy)(e));
		ok(CU(cuGraphDestroy)(g));
	}
	ok(CU(cuStreamSynchronize)(s));
	ck_assert_uint_eq(number(me), v);
	ok(CU(cuStreamDestroy)(s));
	return NULL;
}

START_TEST(threads)
{
	static const int ids[4] = { 0, 1, 2, 3 };
	pthread_t t[4];
	int i;

	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, worker, (void *)&ids[i]), 0);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}
END_TEST

START_TEST(exec_keeps_its_own)
{
	CUgraph g = graph_new();
	CUgraphNode a = step_add(g, NULL, 0, 0, 1), b = step_add(g, &a, 1, 0, 2);
	CUgraphExec x = exec_new(g);

	ok(CU(cuGraphKernelNodeSetParams)(a, step_params(0, 100)));
	number_set(0, 1);
	ck_assert_uint_eq(exec_value(x, 0), (STEP + 1) * STEP + 2);
	ok(CU(cuGraphExecKernelNodeSetParams)(x, b, step_params(0, 7)));
	number_set(0, 1);
	ck_assert_uint_eq(exec_value(x, 0), (STEP + 1) * STEP + 7);
	ok(CU(cuGraphDestroyNode)(b));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecKernelNodeSetParams)(x, b, step_params(0, 7)));
	ok(CU(cuGraphDestroy)(g));
	number_set(0, 1);
	ck_assert_uint_eq(exec_value(x, 0), (STEP + 1) * STEP + 7);
	ok(CU(cuGraphExecDestroy)(x));
}
END_TEST

static void gate_wait(void *data)
{
	while (!__atomic_load_n((int *)data, __ATOMIC_ACQUIRE))
		;
}

/* A change or the destruction of the executable graph does not affect a running launch. */
START_TEST(launches_keep_their_parameters)
{
	int gate = 0;
	CUgraph g = graph_new();
	CUgraphNode n = step_add(g, NULL, 0, 0, 3);
	CUgraphExec x = exec_new(g);

	number_set(0, 1);
	ok(CU(cuLaunchHostFunc)(fx.stream, gate_wait, &gate));
	ok(CU(cuGraphLaunch)(x, fx.stream));
	ok(CU(cuGraphExecKernelNodeSetParams)(x, n, step_params(0, 4)));
	ok(CU(cuGraphLaunch)(x, fx.stream));
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphLaunch)(x, fx.stream));
	__atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
	ck_assert_uint_eq(number(0), (STEP + 3) * STEP + 4);
}
END_TEST

/* Launches of one executable graph on two streams never overlap: the second waits for the first. */
START_TEST(launches_never_overlap)
{
	int gate = 0;
	CUDA_HOST_NODE_PARAMS host = { gate_wait, &gate };
	CUgraph g = graph_new();
	CUgraphNode n;
	CUgraphExec x;
	CUstream s;

	ok(CU(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
	ok(CU(cuGraphAddHostNode)(&n, g, NULL, 0, &host));
	step_add(g, &n, 1, 0, 3);
	x = exec_new(g);
	number_set(0, 1);
	ok(CU(cuGraphLaunch)(x, fx.stream));
	ok(CU(cuGraphLaunch)(x, s));
	is(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(s));
	__atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
	ok(CU(cuStreamSynchronize)(s));
	is(CUDA_SUCCESS, CU(cuStreamQuery)(fx.stream));
	ck_assert_uint_eq(number(0), (STEP + 3) * STEP + 3);
	ok(CU(cuStreamDestroy)(s));
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(nodes_switched_off)
{
	CUgraph g = graph_new();
	CUgraphNode a = step_add(g, NULL, 0, 0, 1), b = step_add(g, &a, 1, 0, 2), empty;
	CUgraphExec x;
	unsigned int on = 7;

	ok(CU(cuGraphAddEmptyNode)(&empty, g, &b, 1));
	x = exec_new(g);
	ok(CU(cuGraphNodeSetEnabled)(x, a, 0));
	ok(CU(cuGraphNodeGetEnabled)(x, a, &on));
	ck_assert_uint_eq(on, 0);
	number_set(0, 1);
	ck_assert_uint_eq(exec_value(x, 0), STEP + 2);
	ok(CU(cuGraphNodeSetEnabled)(x, a, 1));
	number_set(0, 1);
	ck_assert_uint_eq(exec_value(x, 0), (STEP + 1) * STEP + 2);
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphNodeSetEnabled)(x, empty, 0));
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(instantiate_flags)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {
		.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
			 CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
	};
	CUgraph g = graph_new();
	CUgraphExec x = NULL;
	cuuint64_t flags;

	step_add(g, NULL, 0, 0, 1);
	is(CUDA_ERROR_INVALID_VALUE,
	   CU(cuGraphInstantiate)(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphInstantiate)(&x, g, 16));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphInstantiate)(&x, g, 5));
	is(CUDA_ERROR_NOT_SUPPORTED,
	   CU(cuGraphInstantiate)(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
	params.hUploadStream = fx.stream;
	ok(CU(cuGraphInstantiateWithParams)(&x, g, &params));
	ck_assert_int_eq(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
	ok(CU(cuGraphExecGetFlags)(x, &flags));
	ck_assert_uint_eq(flags, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

/* Instantiation detects an invalid launch. */
START_TEST(instantiate_checks_kernels)
{
	CUkernelNodeAttrValue v = { .clusterDim = { 1, 2, 1 } };
	CUDA_KERNEL_NODE_PARAMS p = *step_params(0, 1);
	CUgraph g = graph_new();
	CUfunction other;
	CUmodule module;
	CUgraphNode n;
	CUgraphExec x;
	size_t len;
	void *cubin;

	n = step_add(g, NULL, 0, 0, 1);
	ok(CU(cuGraphKernelNodeSetAttribute)(n, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v));
	is(CUDA_ERROR_INVALID_CLUSTER_SIZE, CU(cuGraphInstantiate)(&x, g, 0));
	v.clusterDim.y = 1;
	ok(CU(cuGraphKernelNodeSetAttribute)(n, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v));
	ok(CU(cuGraphExecDestroy)(exec_new(g)));
	cubin = test_sim_cubin("kernels", &len);
	ok(CU(cuModuleLoadDataEx)(&module, cubin, 0, NULL, NULL));
	free(cubin);
	ok(CU(cuModuleGetFunction)(&other, module, "step"));
	p.func = other;
	ok(CU(cuGraphAddKernelNode)(&n, g, NULL, 0, &p));
	x = exec_new(g);
	ok(CU(cuModuleUnload)(module));
	is(CUDA_ERROR_INVALID_HANDLE, CU(cuGraphLaunch)(x, fx.stream));
	ok(CU(cuGraphExecDestroy)(x));
	is(CUDA_ERROR_INVALID_HANDLE, CU(cuGraphInstantiate)(&x, g, 0));
	ok(CU(cuGraphKernelNodeGetParams)(n, &p));
	ck_assert_ptr_null(p.ctx);
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

/* Nodes made of a CUkernel name it, and not a function. */
START_TEST(kernels_of_libraries)
{
	CUDA_KERNEL_NODE_PARAMS p = *step_params(0, 1);
	CUgraph g = graph_new();
	CUlibrary lib;
	CUgraphNode n;
	CUkernel kern;
	size_t len;
	void *cubin = test_sim_cubin("kernels", &len);

	ok(CU(cuLibraryLoadData)(&lib, cubin, NULL, NULL, 0, NULL, NULL, 0));
	free(cubin);
	ok(CU(cuLibraryGetKernel)(&kern, lib, "step"));
	p.func = NULL;
	p.kern = kern;
	ok(CU(cuGraphAddKernelNode)(&n, g, NULL, 0, &p));
	memset(&p, 0, sizeof(p));
	ok(CU(cuGraphKernelNodeGetParams)(n, &p));
	ck_assert_ptr_null(p.func);
	ck_assert_ptr_eq(p.kern, kern);
	ck_assert_ptr_eq(p.ctx, fx.ctx);
	number_set(0, 2);
	ck_assert_uint_eq(graph_value(g, 0), 2 * STEP + 1);
	ok(CU(cuGraphDestroy)(g));
	ok(CU(cuLibraryUnload)(lib));
}
END_TEST

START_TEST(update_sets_new_parameters)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph g = graph_new(), h = graph_new();
	CUgraphNode a = step_add(g, NULL, 0, 0, 1), b = step_add(g, &a, 1, 0, 2), c;
	CUgraphExec x = exec_new(g);

	c = step_add(h, NULL, 0, 0, 11);
	step_add(h, &c, 1, 0, 12);
	ok(CU(cuGraphExecUpdate)(x, h, &info));
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
	number_set(0, 1);
	ck_assert_uint_eq(exec_value(x, 0), (STEP + 11) * STEP + 12);
	/* Its nodes still have the handles of the graph from which it was made. */
	ok(CU(cuGraphExecKernelNodeSetParams)(x, b, step_params(0, 13)));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecKernelNodeSetParams)(x, c, step_params(0, 13)));
	number_set(0, 1);
	ck_assert_uint_eq(exec_value(x, 0), (STEP + 11) * STEP + 13);
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
	ok(CU(cuGraphDestroy)(h));
}
END_TEST

static void update_fails(CUgraphExec x, CUgraph h, CUgraphExecUpdateResult why, CUgraphNode at_node)
{
	CUgraphExecUpdateResultInfo info;

	is(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CU(cuGraphExecUpdate)(x, h, &info));
	ck_assert_int_eq(info.result, why);
	ck_assert_ptr_eq(info.errorNode, at_node);
	number_set(0, 1);
	ck_assert_uint_eq(exec_value(x, 0), (STEP + 1) * STEP + 2); /* and nothing was changed */
	ok(CU(cuGraphDestroy)(h));
}

/* Make two independent nodes, and one that follows the first or second of them. */
static CUgraph fan_new(int which)
{
	CUgraph g = graph_new();
	CUgraphNode n[2] = { step_add(g, NULL, 0, 0, 1), step_add(g, NULL, 0, 1, 2) };

	step_add(g, &n[which], 1, 2, 3);
	return g;
}

START_TEST(update_refuses_another_shape)
{
	CUkernelNodeAttrValue v = { .cooperative = 1 };
	CUgraphExecUpdateResultInfo info;
	CUgraph g = graph_new(), h = graph_new();
	CUgraphNode a = step_add(g, NULL, 0, 0, 1), b, e;
	CUgraphExec x;

	step_add(g, &a, 1, 0, 2);
	x = exec_new(g);
	step_add(h, NULL, 0, 0, 11);
	update_fails(x, h, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL);
	h = graph_new();
	step_add(h, NULL, 0, 0, 11);
	b = step_add(h, NULL, 0, 0, 12);
	update_fails(x, h, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b);
	h = graph_new();
	a = step_add(h, NULL, 0, 0, 11);
	ok(CU(cuGraphAddEmptyNode)(&e, h, &a, 1));
	update_fails(x, h, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, e);
	h = graph_new();
	a = step_add(h, NULL, 0, 0, 11);
	b = step_add(h, NULL, 0, 0, 12);
	ok(CU(cuGraphAddDependencies)(h, &a, &b, &programmatic, 1));
	update_fails(x, h, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b);
	h = graph_new();
	a = step_add(h, NULL, 0, 0, 11);
	b = step_add(h, &a, 1, 0, 12);
	ok(CU(cuGraphKernelNodeSetAttribute)(b, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	update_fails(x, h, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, b);
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecUpdate)(x, h, &info));
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR);
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
	/* The graph has as many edges, but one begins at another node. */
	g = fan_new(0);
	x = exec_new(g);
	h = fan_new(1);
	is(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CU(cuGraphExecUpdate)(x, h, &info));
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	ck_assert_ptr_nonnull(info.errorFromNode);
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
	ok(CU(cuGraphDestroy)(h));
}
END_TEST

START_TEST(exec_set_params_rules)
{
	CUDA_MEMSET_NODE_PARAMS set = {
		.dst = at(0), .value = 1, .elementSize = 1, .width = 8, .height = 1
	};
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = at(0),
			       .dstDevice = at(1), .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .WidthInBytes = 8, .Height = 1, .Depth = 1 };
	CUgraph g = graph_new();
	CUgraphNode a, b;
	CUgraphExec x;
	uint64_t host;

	ok(CU(cuGraphAddMemsetNode)(&a, g, NULL, 0, &set, fx.ctx));
	ok(CU(cuGraphAddMemcpyNode)(&b, g, &a, 1, &copy, fx.ctx));
	x = exec_new(g);
	set.value = 2;
	ok(CU(cuGraphExecMemsetNodeSetParams)(x, a, &set, fx.ctx));
	copy.dstDevice = at(2);
	ok(CU(cuGraphExecMemcpyNodeSetParams)(x, b, &copy, fx.ctx));
	ck_assert_uint_eq(exec_value(x, 2), 0x0202020202020202u);
	set.height = 2;
	set.pitch = 8;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecMemsetNodeSetParams)(x, a, &set, fx.ctx));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecMemsetNodeSetParams)(x, b, &set, fx.ctx));
	copy.Height = 2;
	copy.srcPitch = copy.dstPitch = 8;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecMemcpyNodeSetParams)(x, b, &copy, fx.ctx));
	copy.Height = 1;
	copy.dstMemoryType = CU_MEMORYTYPE_HOST;
	copy.dstHost = &host;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecMemcpyNodeSetParams)(x, b, &copy, fx.ctx));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecKernelNodeSetParams)(x, b, step_params(0, 1)));
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		chain_computes,
		missing_edge_shows,
		order_follows_seed,
		order_respects_edges,
		random_graphs,
		threads,
		exec_keeps_its_own,
		launches_keep_their_parameters,
		launches_never_overlap,
		nodes_switched_off,
		instantiate_flags,
		instantiate_checks_kernels,
		kernels_of_libraries,
		update_sets_new_parameters,
		update_refuses_another_shape,
		exec_set_params_rules,
	};

	return cu_main("sim_exec", tests, sizeof(tests) / sizeof(*tests));
}
