// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the kinds of nodes that reading refuses, and of the messages. */
#include "tests/replace/graph_fixture.h"

static void CUDA_CB host_fn(void *arg)
{
	(void)arg;
}

START_TEST(host_node)
{
	CUDA_HOST_NODE_PARAMS p = { .fn = host_fn };
	CUgraph g = graph_make();
	CUgraphNode a = empty_add(g, NULL), n;

	ok(gf.drv.cuGraphAddHostNode(&n, g, &a, 1, &p));
	graph_refused(g, "node 1: host: it calls the function at 0x");
}
END_TEST

/* A graph that holds @child, which is destroyed, after an empty node. */
static CUgraph graph_with_child(CUgraph child)
{
	CUgraph g = graph_make();
	CUgraphNode a = empty_add(g, NULL), n;

	ok(gf.drv.cuGraphAddChildGraphNode(&n, g, &a, 1, child));
	ok(gf.drv.cuGraphDestroy(child));
	return g;
}

START_TEST(node_of_a_child)
{
	CUDA_HOST_NODE_PARAMS p = { .fn = host_fn };
	CUgraph child = graph_make();
	CUgraphNode n;

	ok(gf.drv.cuGraphAddHostNode(&n, child, NULL, 0, &p));
	graph_refused(graph_with_child(child), "the graph of node 1: node 0: host: it calls");
}
END_TEST

static const struct memop {
	CUstreamBatchMemOpParams op;
	const char *says;
} memops[] = {
	{ { .writeValue = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = 4096 } },
	  "node 1: memop: operation 1: the value's memory, 4 bytes at 0x1000, is no memory that" },
	{ { .waitValue = { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_64, .address = 1ull << 40 } },
	  "node 1: memop: operation 1: the value's memory, 8 bytes at 0x10000000000, is no" },
};

START_TEST(memops_outside)
{
	CUstreamBatchMemOpParams op[2] = { { .operation = CU_STREAM_MEM_OP_BARRIER },
					   memops[_i].op };
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { gf.ctx, 2, op, 0 };
	CUgraph g = graph_make();
	CUgraphNode a = empty_add(g, NULL), n;

	ok(gf.drv.cuGraphAddBatchMemOpNode(&n, g, &a, 1, &p));
	graph_refused(g, memops[_i].says);
}
END_TEST

static CUresult (*real_memops)(CUgraphNode, CUDA_BATCH_MEM_OP_NODE_PARAMS *);

static CUresult lying_memops(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	CUresult res = real_memops(node, p);

	p->ctx = (CUcontext)(uintptr_t)0x1234;
	return res;
}

/* A builder has one context for all nodes, so operations of another one would move to it. */
START_TEST(memops_of_another_context)
{
	CUstreamBatchMemOpParams op = { .writeValue = {
		.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = gf.mem } };
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { gf.ctx, 1, &op, 0 };
	CUgraph g = graph_make();
	CUgraphNode a = step_node(g, NULL, 0, 3), n;

	ok(gf.drv.cuGraphAddBatchMemOpNode(&n, g, &a, 1, &p));
	real_memops = gf.drv.cuGraphBatchMemOpNodeGetParams;
	gf.drv.cuGraphBatchMemOpNodeGetParams = lying_memops;
	graph_refused(g, "node 1: memop: it runs in another context than the nodes before it");
}
END_TEST

/* An address of pinned memory, as a value that kernels may follow. */
START_TEST(memop_writes_a_pointer)
{
	CUstreamBatchMemOpParams op = { .writeValue = {
		.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .address = gf.mem,
		.value64 = (uintptr_t)gf.pinned } };
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { gf.ctx, 1, &op, 0 };
	CUgraph g = graph_make();
	CUgraphNode n;

	ok(gf.drv.cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p));
	graph_refused(g, "use memory of the region");
}
END_TEST

START_TEST(children_too_deep)
{
	CUgraph g = graph_make();
	struct fdry_buf b = { 0 };
	unsigned int i;

	for (i = 0; i <= FDRY_GRAPH_DEPTH_MAX; i++)
		g = graph_with_child(g);
	fails(LIMIT, "it has graphs more than 64 deep", graph_read(g, &b));
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

static CUgraphNodeType lie_type;
static CUresult lying_type(CUgraphNode node, CUgraphNodeType *type)
{
	(void)node;
	*type = lie_type;
	return CUDA_SUCCESS;
}

static const struct {
	CUgraphNodeType type;
	const char *says;
} types[] = {
	{ CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, "node 0: its kind is external semaphore signal" },
	{ CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, "node 0: its kind is external semaphore wait" },
	{ CU_GRAPH_NODE_TYPE_MEM_ALLOC, "node 0: its kind is memory allocation" },
	{ CU_GRAPH_NODE_TYPE_MEM_FREE, "node 0: its kind is memory free" },
	{ CU_GRAPH_NODE_TYPE_CONDITIONAL, "node 0: conditional: it was not seen" },
	{ (CUgraphNodeType)99,
	  "node 0: it is a node of type 99, which this version does not know" },
};

START_TEST(node_types)
{
	CUgraph g = graph_make();

	empty_add(g, NULL);
	lie_type = types[_i].type;
	gf.drv.cuGraphNodeGetType = lying_type;
	graph_refused(g, types[_i].says);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_refuse_nodes");
	TCase *tc = tcase_create("nodes");

	tcase_add_checked_fixture(tc, graph_fixture_open, graph_fixture_close);
	tcase_add_test(tc, host_node);
	tcase_add_test(tc, node_of_a_child);
	tcase_add_test(tc, children_too_deep);
	tcase_add_loop_test(tc, memops_outside, 0, 2);
	tcase_add_test(tc, memops_of_another_context);
	tcase_add_test(tc, memop_writes_a_pointer);
	tcase_add_loop_test(tc, node_types, 0, sizeof(types) / sizeof(types[0]));
	suite_add_tcase(s, tc);
	return test_main(s);
}
