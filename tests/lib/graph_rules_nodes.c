// SPDX-License-Identifier: Apache-2.0
/*
 * graph_rules_nodes.c - the tests of graph_rules.h for nodes that hold graphs, and for other kinds
 * that few graphs have. The texts below must be equal on every driver.
 */
#include "tests/lib/graph_rules.h"

#include "tests/replace/graph_fixture.h"

/* --- child graphs --- */

static CUgraphNode child_add(CUgraph g, const CUgraphNode *after, CUgraph child)
{
	CUgraphNode n;

	ok(gf.drv.cuGraphAddChildGraphNode(&n, g, after, after != NULL, child));
	ok(gf.drv.cuGraphDestroy(child));
	return n;
}

#define STEPS(at) \
	"kernel 0 grid 1 1 1 block 1 1 1 shared 0 args 00005000000000" at " " \
	"0000000000000003 00000000\n"

/* A step, two child graphs, of which one holds another and the other is empty, and a step. An event
 * is recorded in a child and awaited outside. */
static CUgraph graph_of_children(void)
{
	CUgraph g = graph_make(), outer = graph_make(), inner = graph_make();
	CUevent event = event_make();
	CUgraphNode a, b, n;

	a = step_node(inner, NULL, 0, 3);
	memset_add(inner, &a, (CUDA_MEMSET_NODE_PARAMS){ gf.mem + 512, 0, 7, 4, 2, 1 });
	a = step_node(outer, NULL, 0, 3);
	b = step_node(outer, NULL, 1, 3);
	edge_add(outer, a, b, (CUgraphEdgeData){ .from_port = 1, .type = 1 });
	n = child_add(outer, &b, inner);
	ok(gf.drv.cuGraphAddEventRecordNode(&n, outer, &n, 1, event));
	a = step_node(g, NULL, 0, 3);
	n = child_add(g, &a, outer);
	child_add(g, &a, graph_make());
	ok(gf.drv.cuGraphAddEventWaitNode(&n, g, &n, 1, event));
	step_node(g, &n, 0, 3);
	return g;
}

START_TEST(children_in_the_order_of_their_nodes)
{
	reads_as(graph_of_children(), "node 0 " STEPS("00")
		 "node 1 child\nnode 2 child\nnode 3 wait 0\nnode 4 " STEPS("00")
		 "graph 1\nnode 5 " STEPS("00") "node 6 " STEPS("08")
		 "node 7 child\nnode 8 record 0\ngraph 2\ngraph 7\nnode 9 " STEPS("00")
		 "node 10 memset dst 0x500000000200 pitch 0 value 0x7 element 4 width 2 height 1\n"
		 "edge 0 1\nedge 0 2\nedge 1 3\nedge 3 4\n"
		 "edge 5 6 from_port 1 to_port 0 type 1\nedge 6 7\nedge 7 8\nedge 9 10\n");
}
END_TEST

START_TEST(children)
{
	round_trip(graph_of_children());
}
END_TEST

/* Nodes that are added to the driver's copy of a child belong to the child. */
START_TEST(child_is_a_copy)
{
	CUgraph g = graph_make(), child = graph_make(), copy;
	CUgraphNode n;

	ok(gf.drv.cuGraphAddChildGraphNode(&n, g, NULL, 0, child));
	step_node(child, NULL, 1, 3);
	ok(gf.drv.cuGraphDestroy(child));
	ok(gf.drv.cuGraphChildGraphNodeGetGraph(n, &copy));
	step_node(copy, NULL, 0, 3);
	reads_as(g, "node 0 child\ngraph 0\nnode 1 " STEPS("00"));
}
END_TEST

START_TEST(children_as_deep_as_they_may_be)
{
	CUgraph g = graph_make(), up;
	unsigned int i;

	step_node(g, NULL, 0, 3);
	for (i = 0; i < FDRY_GRAPH_DEPTH_MAX; i++, g = up) {
		up = graph_make();
		child_add(up, NULL, g);
	}
	round_trip(g);
}
END_TEST

/* --- memory operations --- */

static CUgraphNode memops_add(CUgraph g, const CUgraphNode *after, CUstreamBatchMemOpParams *ops,
			      unsigned int n)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { gf.ctx, n, ops, 0 };
	CUgraphNode ret;

	ok(gf.drv.cuGraphAddBatchMemOpNode(&ret, g, after, after != NULL, &p));
	return ret;
}

/* What an operation's kind does not use has other bytes, which the driver keeps. */
static void memop_fill(CUstreamBatchMemOpParams *op, unsigned int operation, CUdeviceptr at,
		       cuuint64_t value, unsigned int flags)
{
	memset(op, 0xee, sizeof(*op));
	op->operation = operation;
	op->writeValue.address = at;
	op->writeValue.value64 = value;
	op->writeValue.flags = flags;
	op->writeValue.alias = 0;
}

static CUgraph graph_of_memops(void)
{
	CUgraph g = graph_make();
	CUstreamBatchMemOpParams op[5];
	CUgraphNode n = step_node(g, NULL, 0, 3);

	memop_fill(&op[0], CU_STREAM_MEM_OP_WRITE_VALUE_32, gf.mem + 512, 0x1122334455667788, 0);
	memop_fill(&op[1], CU_STREAM_MEM_OP_WAIT_VALUE_32, gf.mem + 512, 0x55667788,
		   CU_STREAM_WAIT_VALUE_EQ);
	memop_fill(&op[2], CU_STREAM_MEM_OP_BARRIER, 0, 0, 0);
	op[2].memoryBarrier.flags = CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
	memop_fill(&op[3], CU_STREAM_MEM_OP_WRITE_VALUE_64, gf.mem + 520, 0x1122334455667788, 0);
	memop_fill(&op[4], CU_STREAM_MEM_OP_WAIT_VALUE_64, gf.mem + 520, 0x1122334455667700,
		   CU_STREAM_WAIT_VALUE_GEQ);
	n = memops_add(g, &n, op, 5);
	n = memops_add(g, &n, op, 0);
	memop_fill(&op[0], CU_STREAM_MEM_OP_WAIT_VALUE_32, gf.mem + 520, 8,
		   CU_STREAM_WAIT_VALUE_AND);
	memop_fill(&op[1], CU_STREAM_MEM_OP_WAIT_VALUE_64, gf.mem + 520, 8,
		   CU_STREAM_WAIT_VALUE_NOR);
	n = memops_add(g, &n, op, 2);
	step_node(g, &n, 0, 3);
	return g;
}

START_TEST(memops_read)
{
	reads_as(graph_of_memops(),
		 "node 0 " STEPS("00")
		 "node 1 memop write32 0 0x500000000200 0x55667788 wait32 1 0x500000000200 "
		 "0x55667788 barrier 1 write64 0 0x500000000208 0x1122334455667788 "
		 "wait64 0 0x500000000208 0x1122334455667700\n"
		 "node 2 memop\n"
		 "node 3 memop wait32 2 0x500000000208 0x8 wait64 3 0x500000000208 0x8\n"
		 "node 4 " STEPS("00") "edge 0 1\nedge 1 2\nedge 2 3\nedge 3 4\n");
}
END_TEST

START_TEST(memops)
{
	round_trip(graph_of_memops());
}
END_TEST

/* Operations that nodes of this driver do not have. */
START_TEST(memops_refused_by_the_driver)
{
	static const struct {
		unsigned int operation, flags;
		uint64_t at;
		CUresult res;
	} no[] = {
		{ CU_STREAM_MEM_OP_WRITE_VALUE_32, 1, 0, CUDA_ERROR_INVALID_VALUE },
		{ CU_STREAM_MEM_OP_WRITE_VALUE_64, 0, 4, CUDA_ERROR_INVALID_VALUE },
		{ CU_STREAM_MEM_OP_WAIT_VALUE_64, CU_STREAM_WAIT_VALUE_FLUSH, 0,
		  CUDA_ERROR_NOT_SUPPORTED },
		{ CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, 0, 0, CUDA_ERROR_NOT_SUPPORTED },
		{ 99, 0, 0, CUDA_ERROR_INVALID_VALUE },
	};
	CUgraph g = graph_make();
	CUstreamBatchMemOpParams op;
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { gf.ctx, 1, &op, 0 };
	CUgraphNode n;

	memop_fill(&op, no[_i].operation, gf.mem + no[_i].at, 0, no[_i].flags);
	if (no[_i].operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES)
		op.flushRemoteWrites.flags = 0;
	ck_assert_int_eq(gf.drv.cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p), no[_i].res);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* --- host functions --- */

static void CUDA_CB add_one(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static void CUDA_CB add_ten(void *arg)
{
	__atomic_add_fetch((int *)arg, 10, __ATOMIC_SEQ_CST);
}

/* The graph calls add_one() with two arguments. The loader binds other functions and data. */
START_TEST(functions_by_name)
{
	int count[2] = { 0 }, other[2] = { 0 };
	const struct fdry_host_function named[] = { { "first", add_one, &count[0] },
						    { "second", add_one, &count[1] } },
					moved[] = { { "unused", add_one, &other[0] },
						    { "second", add_ten, &other[1] },
						    { "first", add_one, &other[0] } };
	CUDA_HOST_NODE_PARAMS p = { .fn = add_one };
	struct fdry_graph_built b;
	CUgraph g = graph_make();
	struct fdry_buf o;
	CUgraphNode n;
	int i;

	for (i = 0; i < 3; i++) {
		p.userData = &count[i / 2];
		ok(gf.drv.cuGraphAddHostNode(&n, g, i ? &n : NULL, i != 0, &p));
	}
	gf.reader.functions = named;
	gf.reader.nfunctions = 2;
	gf.builder.functions = moved;
	gf.builder.nfunctions = 3;
	o = graph_object(g);
	built_of(&o, &b);
	graph_run(b.graph);
	ck_assert_int_eq(count[0] + count[1], 0);
	ck_assert_int_eq(other[0], 2);
	ck_assert_int_eq(other[1], 10);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&o);
	reads_as(g, "node 0 host first\nnode 1 host first\nnode 2 host second\n"
		    "edge 0 1\nedge 1 2\n");
}
END_TEST

START_TEST(functions_that_are_not_bound)
{
	const struct fdry_host_function named = { "first", add_one, NULL };
	CUDA_HOST_NODE_PARAMS p = { .fn = add_one };
	struct fdry_graph_built b;
	struct fdry_graph_view v;
	CUgraph g = graph_make();
	struct fdry_buf o;
	CUgraphNode n;

	ok(gf.drv.cuGraphAddHostNode(&n, g, NULL, 0, &p));
	gf.reader.functions = &named;
	gf.reader.nfunctions = 1;
	o = graph_object(g);
	ok(fdry_graph_view_init(span_of(&o), &v));
	fails(NOKEY, "it calls host function 'first', which the load does not name",
	      fdry_graph_build(&gf.builder, &v, &b));
	fdry_buf_release(&o);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

void graph_rules_nodes_add(TCase *tc)
{
	tcase_add_test(tc, children_in_the_order_of_their_nodes);
	tcase_add_test(tc, children);
	tcase_add_test(tc, child_is_a_copy);
	tcase_add_test(tc, children_as_deep_as_they_may_be);
	tcase_add_test(tc, memops_read);
	tcase_add_test(tc, memops);
	tcase_add_loop_test(tc, memops_refused_by_the_driver, 0, 5);
	tcase_add_test(tc, functions_by_name);
	tcase_add_test(tc, functions_that_are_not_bound);
}
