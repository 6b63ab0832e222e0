// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of allocation and free nodes under the interposer: which memory they get, and what
 * queries report about them. tests/lib/graph_rules_nodes.c has the driver's own rules.
 */
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

#define MIB (1ull << 20)
#define SIZE (256 * MIB)

static void begin(void)
{
	test_hook();
	hook_region_begin(SIZE);
}

static CUgraph graph_new(void)
{
	CUgraph g;

	cuda_ok(cuGraphCreate, &g, 0);
	return g;
}

static CUDA_MEM_ALLOC_NODE_PARAMS params(size_t size)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = size };
}

static CUgraphNode alloc(CUgraph g, size_t size, CUdeviceptr *ret)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = params(size);
	CUgraphNode n;

	ck_assert_msg(!cuda(cuGraphAddMemAllocNode, &n, g, NULL, 0, &p), "%s", hook->last_error());
	*ret = p.dptr;
	return n;
}

static CUgraphNode set(CUgraph g, const CUgraphNode *after, CUdeviceptr at, unsigned int value)
{
	CUDA_MEMSET_NODE_PARAMS p = { at, 0, value, 4, 64, 1 };
	CUcontext ctx;
	CUgraphNode n;

	cuda_ok(cuCtxGetCurrent, &ctx);
	cuda_ok(cuGraphAddMemsetNode, &n, g, after, after != NULL, &p, ctx);
	return n;
}

static CUgraphNodeType type_of(CUgraphNode n)
{
	CUgraphNodeType t = CU_GRAPH_NODE_TYPE_KERNEL;

	cuda_ok(cuGraphNodeGetType, n, &t);
	return t;
}

/* The type that the driver itself reports. */
static CUgraphNodeType native_type_of(CUgraphNode n)
{
	CUgraphNodeType t = CU_GRAPH_NODE_TYPE_KERNEL;

	ok(test_sim_open()->cuGraphNodeGetType(n, &t));
	return t;
}

static uint32_t word_at(CUdeviceptr p)
{
	uint32_t word;

	cuda_ok(cuMemcpyDtoH_v2, &word, p, sizeof(word));
	return word;
}

static size_t ledger(struct fdry_alloc **ret)
{
	CUdeviceptr base;
	uint64_t size;
	size_t n;

	ok(hook->region_ledger(&base, &size, ret, &n));
	return n;
}

START_TEST(memory_of_the_region)
{
	struct fdry_alloc *all;
	CUdeviceptr a, b, c;
	CUgraph g, other;

	begin();
	g = graph_new();
	other = graph_new();
	alloc(g, 1000, &a);
	alloc(g, 3 * MIB, &b);
	alloc(other, 1000, &c);
	ck_assert(hook_region_has(a) && hook_region_has(b) && hook_region_has(c));
	ck_assert(b >= a + 1000 && c >= b + 3 * MIB);
	ck_assert_uint_eq(word_at(b + 3 * MIB - 4), FDRY_STAMP);
	ck_assert_uint_eq(ledger(&all), 1);
	ck_assert(all[0].capturing && all[0].kind == FDRY_KIND_GRAPH && all[0].addr == a);
	free(all);
}
END_TEST

/* Allocated and freed in the graph: it can be launched again. */
START_TEST(launched_again)
{
	CUgraphExec x;
	CUdeviceptr p;
	CUgraphNode n, f;
	CUgraph g;
	int i;

	begin();
	g = graph_new();
	n = alloc(g, 4096, &p);
	n = set(g, &n, p, 5);
	cuda_ok(cuGraphAddMemFreeNode, &f, g, &n, 1, p);
	cuda_ok(cuGraphInstantiateWithFlags, &x, g, 0);
	for (i = 0; i < 3; i++)
		cuda_ok(cuGraphLaunch, x, NULL);
	cuda_ok(cuCtxSynchronize);
	ck_assert_uint_eq(word_at(p), 5);
	ck_assert_int_eq(cuda(cuMemFree_v2, p), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* Each launch allocates memory that the program frees, in either way. */
START_TEST(freed_by_the_program)
{
	struct fdry_alloc *all;
	CUdeviceptr p, start;
	CUgraphExec x;
	CUgraphNode n;
	CUgraph g;
	size_t size;
	int i;

	begin();
	g = graph_new();
	n = alloc(g, 4096, &p);
	set(g, &n, p, 5);
	cuda_ok(cuGraphInstantiateWithFlags, &x, g,
		CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	for (i = 0; i < 4; i++) {
		cuda_ok(cuGraphLaunch, x, NULL);
		cuda_ok(cuCtxSynchronize);
		cuda_ok(cuMemGetAddressRange_v2, &start, &size, p + 100);
		ck_assert(start == p && size == 4096);
		if (i % 2)
			cuda_ok(cuMemFree_v2, p);
		else
			cuda_ok(cuMemFreeAsync, p, NULL);
	}
	ck_assert_uint_eq(word_at(p), 5);
	ck_assert_uint_eq(ledger(&all), 1);
	free(all);
}
END_TEST

START_TEST(types_and_parameters)
{
	CUmemAccessDesc own = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	CUDA_MEM_ALLOC_NODE_PARAMS q;
	CUgraphNode a, f, e;
	CUdeviceptr at = 0;
	CUgraph g;

	begin();
	g = graph_new();
	p.alloc.poolProps = params(1).poolProps;
	p.alloc.bytesize = 700;
	p.alloc.accessDescs = &own;
	p.alloc.accessDescCount = 1;
	cuda_ok(cuGraphAddNode_v2, &a, g, NULL, NULL, 0, &p);
	ck_assert(hook_region_has(p.alloc.dptr));
	cuda_ok(cuGraphAddEmptyNode, &e, g, &a, 1);
	p = (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_MEM_FREE,
				 .free.dptr = p.alloc.dptr };
	cuda_ok(cuGraphAddNode_v2, &f, g, &e, &(CUgraphEdgeData){ 0 }, 1, &p);
	own.location.id = 7;
	ck_assert_int_eq(type_of(a), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	ck_assert_int_eq(type_of(f), CU_GRAPH_NODE_TYPE_MEM_FREE);
	ck_assert_int_eq(type_of(e), CU_GRAPH_NODE_TYPE_EMPTY);
	ck_assert_int_eq(native_type_of(a), CU_GRAPH_NODE_TYPE_EMPTY);
	ck_assert_int_eq(native_type_of(f), CU_GRAPH_NODE_TYPE_EMPTY);
	cuda_ok(cuGraphMemAllocNodeGetParams, a, &q);
	ck_assert(q.dptr == p.free.dptr && q.bytesize == 700 && q.accessDescCount == 1);
	ck_assert_int_eq(q.accessDescs[0].location.id, 0);
	cuda_ok(cuGraphMemFreeNodeGetParams, f, &at);
	ck_assert_uint_eq(at, p.free.dptr);
	ck_assert_int_eq(cuda(cuGraphMemAllocNodeGetParams, f, &q), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuGraphMemFreeNodeGetParams, e, &at), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuGraphMemAllocNodeGetParams, a, NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* The interposer refuses the calls that the driver refuses for its own nodes. */
START_TEST(refused_as_by_the_driver)
{
	CUgraphNodeParams child = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUgraph g, up, copy;
	CUdeviceptr p, plain;
	CUgraphNode a, f, n;

	begin();
	g = graph_new();
	up = graph_new();
	cuda_ok(cuMemAlloc_v2, &plain, 4096);
	a = alloc(g, 4096, &p);
	ck_assert_int_eq(cuda(cuGraphClone, &copy, g), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(cuda(cuGraphAddChildGraphNode, &n, up, NULL, 0, g),
			 CUDA_ERROR_NOT_SUPPORTED);
	child.graph.graph = g;
	ck_assert_int_eq(cuda(cuGraphAddNode_v2, &n, up, NULL, NULL, 0, &child),
			 CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(cuda(cuGraphDestroyNode, a), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(cuda(cuGraphAddMemFreeNode, &f, g, &a, 1, p + 512),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuGraphAddMemFreeNode, &f, g, &a, 1, plain),
			 CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuGraphAddMemFreeNode, &f, up, NULL, 0, p); /* another graph frees it */
	ck_assert_int_eq(cuda(cuGraphAddMemFreeNode, &f, g, &a, 1, p), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuGraphAddMemFreeNode, NULL, g, &a, 1, p),
			 CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuMemFree_v2, plain);
}
END_TEST

/* Another node may get the address of a node that was destroyed with its graph. */
START_TEST(notes_end_with_their_graph)
{
	CUgraphNode a, n;
	CUdeviceptr p;
	CUgraph g;
	int i;

	begin();
	for (i = 0; i < 20; i++) {
		g = graph_new();
		a = alloc(g, 4096, &p);
		cuda_ok(cuGraphDestroy, g);
		g = graph_new();
		cuda_ok(cuGraphAddEmptyNode, &n, g, NULL, 0);
		ck_assert_int_eq(type_of(n), CU_GRAPH_NODE_TYPE_EMPTY);
		if (n != a)
			ck_assert_int_ne(cuda(cuGraphNodeGetType, a, &(CUgraphNodeType){ 0 }), 0);
		cuda_ok(cuGraphDestroy, g);
	}
}
END_TEST

static CUgraph body_new(CUgraph g, CUgraphNode *ret)
{
	CUgraphNodeParams c = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };

	cuda_ok(cuCtxGetCurrent, &c.conditional.ctx);
	cuda_ok(cuGraphConditionalHandleCreate, &c.conditional.handle, g, c.conditional.ctx, 0, 0);
	c.conditional.size = 1;
	cuda_ok(cuGraphAddNode_v2, ret, g, NULL, NULL, 0, &c);
	return c.conditional.phGraph_out[0];
}

/* A node is destroyed with the bodies or the child that it holds, and these with their nodes. */
START_TEST(notes_end_with_the_node_that_holds_their_graph)
{
	CUgraphNodeParams child = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUgraphNode a, holder;
	CUdeviceptr p;
	CUgraph g;

	begin();
	g = graph_new();
	if (_i) {
		a = alloc(body_new(g, &holder), 4096, &p);
	} else {
		child.graph.graph = graph_new();
		child.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
		a = alloc(child.graph.graph, 4096, &p);
		cuda_ok(cuGraphAddNode_v2, &holder, g, NULL, NULL, 0, &child);
	}
	ck_assert_int_eq(type_of(a), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	cuda_ok(cuGraphDestroyNode, holder);
	ck_assert_int_eq(cuda(cuGraphDestroyNode, a), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* The driver destroys no graph that a node holds, and clones none that holds allocation nodes. */
START_TEST(notes_stay_if_the_driver_refuses)
{
	CUgraphNodeParams child = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUgraphNode a, holder, n;
	CUgraph g, up, copy;
	CUdeviceptr p;

	begin();
	g = graph_new();
	up = graph_new();
	child.graph.graph = graph_new();
	child.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	a = alloc(child.graph.graph, 4096, &p);
	cuda_ok(cuGraphAddNode_v2, &holder, g, NULL, NULL, 0, &child);
	ck_assert_int_eq(cuda(cuGraphDestroy, child.graph.graph), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(type_of(a), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	test_sim_fail("cuGraphDestroyNode:1");
	ck_assert_int_ne(cuda(cuGraphDestroyNode, holder), CUDA_SUCCESS);
	test_sim_fail("cuGraphDestroy:1");
	ck_assert_int_ne(cuda(cuGraphDestroy, g), CUDA_SUCCESS);
	test_sim_fail("");
	ck_assert_int_eq(type_of(a), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	ck_assert_int_eq(cuda(cuGraphClone, &copy, g), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(cuda(cuGraphAddChildGraphNode, &n, up, NULL, 0, g),
			 CUDA_ERROR_NOT_SUPPORTED);
	cuda_ok(cuGraphDestroyNode, holder);
	cuda_ok(cuGraphClone, &copy, g);
}
END_TEST

/* Memory that no region can hold is the driver's, in nodes of its own. */
START_TEST(left_to_the_driver)
{
	CUmemAccessDesc peer = { { CU_MEM_LOCATION_TYPE_DEVICE, 1 },
				 CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUDA_MEM_ALLOC_NODE_PARAMS p = params(4096);
	CUgraphConditionalHandle h;
	CUgraphNodeParams c = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUcontext ctx;
	CUgraphNode n;
	CUgraph g;

	setenv("FDRY_SIM_DEVICES", "2", 1);
	begin();
	g = graph_new();
	p.poolProps.location.id = 1;
	cuda_ok(cuGraphAddMemAllocNode, &n, g, NULL, 0, &p);
	ck_assert(!hook_region_has(p.dptr));
	ck_assert_int_eq(native_type_of(n), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	cuda_ok(cuGraphAddMemFreeNode, &n, g, &n, 1, p.dptr);
	ck_assert_int_eq(native_type_of(n), CU_GRAPH_NODE_TYPE_MEM_FREE);
	p = params(4096);
	p.accessDescs = &peer;
	p.accessDescCount = 1;
	cuda_ok(cuGraphAddMemAllocNode, &n, g, NULL, 0, &p);
	ck_assert(!hook_region_has(p.dptr));
	p = params(0);
	ck_assert_int_eq(cuda(cuGraphAddMemAllocNode, &n, g, NULL, 0, &p),
			 CUDA_ERROR_INVALID_VALUE);
	g = graph_new();
	cuda_ok(cuCtxGetCurrent, &ctx);
	cuda_ok(cuGraphConditionalHandleCreate, &h, g, ctx, 0, 0);
	c.conditional.handle = h;
	c.conditional.ctx = ctx;
	c.conditional.size = 1;
	cuda_ok(cuGraphAddNode_v2, &n, g, NULL, NULL, 0, &c);
	p = params(4096);
	alloc(c.conditional.phGraph_out[0], 4096, &p.dptr);
	ck_assert(hook_region_has(p.dptr)); /* in bodies as elsewhere */
	g = graph_new();
	ok(hook->region_pause());
	p = params(4096);
	cuda_ok(cuGraphAddMemAllocNode, &n, g, NULL, 0, &p);
	ck_assert(!hook_region_has(p.dptr));
}
END_TEST

/* A stream that captures frees the memory of a node, and a node frees that of a stream. */
START_TEST(between_nodes_and_captures)
{
	CUdeviceptr p, q;
	CUgraphNode f;
	CUgraph g, h;
	CUstream s;

	begin();
	g = graph_new();
	alloc(g, 4096, &p);
	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	cuda_ok(cuMemAllocAsync, &q, 4096, s);
	cuda_ok(cuMemFreeAsync, p, s);
	cuda_ok(cuStreamEndCapture, s, &h);
	ck_assert_int_eq(cuda(cuMemFreeAsync, p, s), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuMemFreeAsync, q, s);
	cuda_ok(cuGraphAddMemFreeNode, &f, g, NULL, 0, q);
	ck_assert_int_eq(cuda(cuMemFreeAsync, q, s), CUDA_ERROR_INVALID_VALUE);
	alloc(g, 4096, &q);
	ck_assert_uint_ne(p, q);
}
END_TEST

/* Every driver call of an addition fails in turn. */
START_TEST(fails_clean)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = params(40 * MIB);
	CUdeviceptr first = 0;
	char spec[32];
	CUgraphNode n;
	size_t nodes;
	CUgraph g;
	int i;

	begin();
	g = graph_new();
	for (i = 1;; i++) {
		snprintf(spec, sizeof(spec), "*:%d", i);
		test_sim_fail(spec);
		if (!cuda(cuGraphAddMemAllocNode, &n, g, NULL, 0, &p))
			break;
		test_sim_fail("");
		cuda_ok(cuGraphGetNodes, g, NULL, &nodes);
		ck_assert_uint_eq(nodes, 0);
	}
	test_sim_fail("");
	ck_assert_int_gt(i, 1);
	ck_assert(hook_region_has(p.dptr));
	first = p.dptr;
	test_sim_fail("cuGraphAddEmptyNode:1");
	ck_assert_int_ne(cuda(cuGraphAddMemFreeNode, &n, g, NULL, 0, first), CUDA_SUCCESS);
	test_sim_fail("");
	cuda_ok(cuGraphAddMemFreeNode, &n, g, NULL, 0, first);
	for (i = 0; i < 20; i++) { /* a failed addition takes no memory of the region */
		test_sim_fail("cuGraphAddEmptyNode:1");
		ck_assert_int_ne(cuda(cuGraphAddMemAllocNode, &n, g, NULL, 0, &p), CUDA_SUCCESS);
	}
	test_sim_fail("");
	cuda_ok(cuGraphAddMemAllocNode, &n, g, NULL, 0, &p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hook_graph_memory");
	TCase *tc = tcase_create("nodes");

	tcase_add_test(tc, memory_of_the_region);
	tcase_add_test(tc, launched_again);
	tcase_add_test(tc, freed_by_the_program);
	tcase_add_test(tc, types_and_parameters);
	tcase_add_test(tc, refused_as_by_the_driver);
	tcase_add_test(tc, notes_end_with_their_graph);
	tcase_add_loop_test(tc, notes_end_with_the_node_that_holds_their_graph, 0, 2);
	tcase_add_test(tc, notes_stay_if_the_driver_refuses);
	tcase_add_test(tc, left_to_the_driver);
	tcase_add_test(tc, between_nodes_and_captures);
	tcase_add_test(tc, fails_clean);
	suite_add_tcase(s, tc);
	return test_main(s);
}
