// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the kinds of nodes that reading refuses, and of the messages. */
#include "tests/lib/semaphore.h"
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

/* Parameters of semaphores that are refused. The software driver's semaphores do not take all of
 * them, so it only pretends that the nodes have them. */
static CUexternalSemaphore semaphore;
static CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal_param;
static CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait_param;

static CUresult lying_signal(CUgraphNode node, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *ret)
{
	(void)node;
	*ret = (CUDA_EXT_SEM_SIGNAL_NODE_PARAMS){ &semaphore, &signal_param, 1 };
	return CUDA_SUCCESS;
}

static CUresult lying_wait(CUgraphNode node, CUDA_EXT_SEM_WAIT_NODE_PARAMS *ret)
{
	(void)node;
	*ret = (CUDA_EXT_SEM_WAIT_NODE_PARAMS){ &semaphore, &wait_param, 1 };
	return CUDA_SUCCESS;
}

static const struct {
	size_t at; /* the word of both parameters that is not 0 */
	bool wait;
	const char *says;
} semaphores[] = {
#define AT(type, member) offsetof(CUDA_EXTERNAL_SEMAPHORE_##type##_PARAMS, member)
	{ AT(SIGNAL, params.nvSciSync), false,
	  "node 0: signal: semaphore 's' has a fence or a flag of NvSciSync" },
	{ AT(WAIT, params.nvSciSync), true,
	  "node 0: await: semaphore 's' has a fence or a flag of NvSciSync" },
	{ AT(SIGNAL, flags), false, "semaphore 's' has a fence or a flag of NvSciSync" },
	{ AT(WAIT, flags), true, "semaphore 's' has a fence or a flag of NvSciSync" },
	{ AT(SIGNAL, params.reserved[11]), false, "semaphore 's' has parameters that this" },
	{ AT(WAIT, params.reserved[9]), true, "semaphore 's' has parameters that this version" },
	{ AT(SIGNAL, reserved[15]), false, "semaphore 's' has parameters that this version" },
	{ AT(WAIT, reserved[0]), true, "semaphore 's' has parameters that this version" },
};

START_TEST(semaphore_parameters)
{
	CUDA_EXT_SEM_SIGNAL_NODE_PARAMS p = { &semaphore, &signal_param, 1 };
	CUDA_EXT_SEM_WAIT_NODE_PARAMS w = { &semaphore, &wait_param, 1 };
	struct fdry_semaphore named = { .name = "s" };
	CUgraph g = graph_make();
	struct test_semaphore s;
	unsigned int one = 1;
	CUgraphNode n;

	named.semaphore = semaphore = test_semaphore_import(&s, true);
	gf.reader.semaphores = &named;
	gf.reader.nsemaphores = 1;
	if (semaphores[_i].wait)
		ok(gf.drv.cuGraphAddExternalSemaphoresWaitNode(&n, g, NULL, 0, &w));
	else
		ok(gf.drv.cuGraphAddExternalSemaphoresSignalNode(&n, g, NULL, 0, &p));
	memcpy((char *)&signal_param + semaphores[_i].at, &one, sizeof(one));
	memcpy((char *)&wait_param + semaphores[_i].at, &one, sizeof(one));
	gf.drv.cuGraphExternalSemaphoresSignalNodeGetParams = lying_signal;
	gf.drv.cuGraphExternalSemaphoresWaitNodeGetParams = lying_wait;
	graph_refused(g, semaphores[_i].says);
}
END_TEST

/* In a graph, in a child graph; the message names the node. */
START_TEST(semaphore_without_name)
{
	CUDA_EXT_SEM_SIGNAL_NODE_PARAMS p = { &semaphore, &signal_param, 1 };
	CUgraph g = graph_make();
	struct test_semaphore s;
	CUgraphNode n;

	semaphore = test_semaphore_import(&s, true);
	ok(gf.drv.cuGraphAddExternalSemaphoresSignalNode(&n, g, NULL, 0, &p));
	graph_refused(graph_with_child(g),
		      "the graph of node 1: node 0: signal: it uses the semaphore 0x");
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
	tcase_add_loop_test(tc, semaphore_parameters, 0,
			    sizeof(semaphores) / sizeof(semaphores[0]));
	tcase_add_test(tc, semaphore_without_name);
	tcase_add_loop_test(tc, node_types, 0, sizeof(types) / sizeof(types[0]));
	suite_add_tcase(s, tc);
	return test_main(s);
}
