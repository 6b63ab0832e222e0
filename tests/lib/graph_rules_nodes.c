// SPDX-License-Identifier: Apache-2.0
/*
 * graph_rules_nodes.c - the tests of graph_rules.h for nodes that hold graphs, and for other kinds
 * that few graphs have. The texts below must be equal on every driver.
 */
#include "tests/lib/graph_rules.h"

#include "tests/replace/graph_fixture.h"

static void CUDA_CB add_one(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

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

/* --- conditional nodes --- */

#define WORD 1024u /* of the memory: the first of those that conditions are set from */

static CUDA_CONDITIONAL_NODE_PARAMS shape(int type, unsigned int size,
						CUgraphConditionalHandle h)
{
	return (CUDA_CONDITIONAL_NODE_PARAMS){ .handle = h,
					       .type = (CUgraphConditionalNodeType)type,
					       .size = size };
}

static CUgraphNode word_set(CUgraph g, const CUgraphNode *after, unsigned int word,
			    unsigned int value)
{
	return memset_add(g, after, (CUDA_MEMSET_NODE_PARAMS){ gf.mem + 4 * word, 0, value, 4, 1,
							       1 });
}

/* A loop of three rounds; its body has a step, and a condition of its own that holds in the first
 * round. Then a switch, one of whose bodies has a child graph. */
static CUgraph graph_of_conditions(void)
{
	CUgraph g = graph_make(), body[3], inner[2], child = graph_make();
	CUgraphConditionalHandle loop = handle_make(g, 1), of_body, of_switch;
	CUDA_CONDITIONAL_NODE_PARAMS p = shape(CU_GRAPH_COND_TYPE_WHILE, 1, loop);
	CUgraphNode n, last;

	n = word_set(g, NULL, WORD, 3);
	n = word_set(g, &n, WORD + 1, 0);
	last = conditional_add(g, &n, &p, body);
	of_body = handle_make(body[0], 1);
	p = shape(CU_GRAPH_COND_TYPE_IF, 2, of_body);
	n = step_node(body[0], NULL, 0, 3);
	n = conditional_add(body[0], &n, &p, inner);
	condition_set(body[0], &n, loop, WORD, 1);
	n = step_node(inner[0], NULL, 1, 3);
	condition_set(inner[0], &n, of_body, WORD + 1, 0);
	step_node(inner[1], NULL, 1, 3);
	of_switch = handle_make(g, 2);
	p = shape(CU_GRAPH_COND_TYPE_SWITCH, 3, of_switch);
	conditional_add(g, &last, &p, body);
	step_node(body[0], NULL, 0, 3);
	step_node(child, NULL, 2, 3);
	child_add(body[2], NULL, child);
	return g;
}

#define SETS(handle, word, down) \
	"kernel 5 grid 1 1 1 block 1 1 1 shared 0 args 000000000000000" handle " " \
	"000050000000100" word " 0000000" down "\n"

START_TEST(conditions_read)
{
	reads_as(graph_of_conditions(),
		 "node 0 memset dst 0x500000001000 pitch 0 value 0x3 element 4 width 1 height 1\n"
		 "node 1 memset dst 0x500000001004 pitch 0 value 0x0 element 4 width 1 height 1\n"
		 "node 2 conditional while 1 handle 1 of 0 default 1\n"
		 "node 3 conditional switch 3 handle 3 of 0 default 2\n"
		 "graph 2\nnode 4 " STEPS("00")
		 "node 5 conditional if 2 handle 2 of 1 default 1\n"
		 "node 6 " SETS("1", "0", "1")
		 "graph 3\nnode 7 " STEPS("00") "graph 3\ngraph 3\nnode 8 child\n"
		 "graph 5\nnode 9 " STEPS("08") "node 10 " SETS("2", "4", "0")
		 "graph 5\nnode 11 " STEPS("08") "graph 8\nnode 12 " STEPS("10")
		 "edge 0 1\nedge 1 2\nedge 2 3\nedge 4 5\nedge 5 6\nedge 9 10\n");
}
END_TEST

START_TEST(conditions)
{
	round_trip(graph_of_conditions());
}
END_TEST

/* The handle of a body has a node in another body, which the reader lists before. */
START_TEST(conditions_of_other_bodies)
{
	CUgraph g = graph_make(), body[2], more[1];
	CUDA_CONDITIONAL_NODE_PARAMS p = shape(CU_GRAPH_COND_TYPE_IF, 2, handle_make(g, 1));
	CUgraphConditionalHandle h[2];
	CUgraphNode n = step_node(g, NULL, 0, 3);

	conditional_add(g, &n, &p, body);
	h[0] = handle_make(body[1], 1);
	h[1] = handle_make(g, 0);
	p = shape(CU_GRAPH_COND_TYPE_IF, 1, h[0]);
	conditional_add(body[0], NULL, &p, more);
	step_node(more[0], NULL, 1, 3);
	p = shape(CU_GRAPH_COND_TYPE_WHILE, 1, h[1]);
	conditional_add(g, NULL, &p, more);
	step_node(more[0], NULL, 1, 3);
	round_trip(g);
}
END_TEST

/* The rules of the driver that graph objects rely on. */
START_TEST(conditions_of_the_driver)
{
	static const struct {
		int type;
		unsigned int size;
		CUresult res;
	} shapes[] = { { 0, 0, 1 }, { 0, 2, 0 }, { 0, 3, 1 }, { 1, 2, 1 }, { 2, 0, 1 },
		       { 2, 8, 0 }, { 3, 1, 1 } };
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUgraph g = graph_make(), other, body;
	CUgraphConditionalHandle h;
	CUgraphExec x, y;
	CUgraphNode n;
	size_t i;

	ck_assert_uint_eq(handle_make(g, 1), 1);
	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		p.conditional = shape(shapes[i].type, shapes[i].size, 1);
		p.conditional.ctx = gf.ctx;
		if (!shapes[i].res)
			p.conditional.handle = handle_make(g, 0);
		ck_assert_int_eq(gf.drv.cuGraphAddNode_v2(&n, g, NULL, NULL, 0, &p),
				 shapes[i].res);
	}
	ck_assert_int_eq(gf.drv.cuGraphAddNode_v2(&n, g, NULL, NULL, 0, &p), 1);
	p.conditional = shape(0, 1, 2); /* which has a node */
	p.conditional.ctx = gf.ctx;
	ck_assert_int_eq(gf.drv.cuGraphAddNode_v2(&n, g, NULL, NULL, 0, &p), 1);
	ck_assert_int_eq(gf.drv.cuGraphInstantiateWithFlags(&x, g, 0), 1); /* handle 1 has none */
	p.conditional.handle = 1;
	ok(gf.drv.cuGraphAddNode_v2(&n, g, NULL, NULL, 0, &p));
	body = p.conditional.phGraph_out[0];
	ck_assert_int_eq(gf.drv.cuGraphDestroy(body), 1);
	ok(gf.drv.cuGraphConditionalHandleCreate(&h, body, gf.ctx, 5, 0));
	ck_assert_uint_eq(h, 4);
	p.conditional = shape(1, 1, h);
	p.conditional.ctx = gf.ctx;
	ok(gf.drv.cuGraphAddNode_v2(&n, body, NULL, NULL, 0, &p));
	ok(gf.drv.cuGraphInstantiateWithFlags(&x, g, 0));
	ck_assert_int_eq(gf.drv.cuGraphInstantiateWithFlags(&y, g, 0), 801);
	ok(gf.drv.cuGraphExecDestroy(x));
	other = graph_make();
	ck_assert_int_eq(gf.drv.cuGraphAddChildGraphNode(&n, other, NULL, 0, g), 801);
	ok(gf.drv.cuGraphDestroy(other));
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

START_TEST(conditions_that_are_refused)
{
	CUDA_CONDITIONAL_NODE_PARAMS p = shape(CU_GRAPH_COND_TYPE_IF, 1, 0);
	CUgraph g = graph_make(), body[1], child = graph_make();
	CUDA_HOST_NODE_PARAMS call = { .fn = add_one };
	CUgraphNode n;

	p.handle = handle_make(g, 1);
	handle_make(g, 1);
	conditional_add(g, NULL, &p, body);
	graph_refused(g, "2 handles of conditions were created for it, and 1 conditional nodes "
			 "use them; give each handle one node");
	g = graph_make();
	p.handle = handle_make(g, 1);
	conditional_add(g, NULL, &p, body);
	ok(gf.drv.cuGraphAddHostNode(&n, body[0], NULL, 0, &call));
	graph_refused(g, "the graph of node 0: node 0: its kind is host, which a body of a "
			 "conditional node cannot hold");
	g = graph_make();
	child_add(g, NULL, child);
	ok(gf.drv.cuGraphGetNodes(g, &n, &(size_t){ 1 }));
	ok(gf.drv.cuGraphChildGraphNodeGetGraph(n, &child));
	p.handle = handle_make(child, 1);
	conditional_add(child, NULL, &p, body);
	graph_refused(g, "the graph of node 0: node 0: conditional: it lies in a child graph");
	g = graph_make();
	p.handle = handle_make(g, 1);
	conditional_add(g, NULL, &p, body);
	gf.reader.conditional = NULL;
	graph_refused(g, "node 0: conditional: no interposer saw how it was made");
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

/* The driver keeps the bytes that an operation's kind does not use. */
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

/* --- allocation and free nodes --- */

/* A function of the driver that the library's table lacks. */
#define MORE(f) ((__typeof__(&f))fdry_driver_lookup(gf.drv.handle, #f))

static CUgraphNode alloc_add(CUgraph g, CUdeviceptr *ret)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, gf.dev } },
		.bytesize = 4096 };
	CUgraphNode n;

	ok(MORE(cuGraphAddMemAllocNode)(&n, g, NULL, 0, &p));
	*ret = p.dptr;
	return n;
}

static CUresult free_add(CUgraph g, const CUgraphNode *after, CUdeviceptr p, CUgraphNode *ret)
{
	return MORE(cuGraphAddMemFreeNode)(ret, g, after, after != NULL, p);
}

static CUgraphExec exec_make(CUgraph g, cuuint64_t flags)
{
	CUgraphExec x;

	ok(gf.drv.cuGraphInstantiateWithFlags(&x, g, flags));
	return x;
}

/* hook/graph_memory.c returns the same for nodes of the interposer. */
START_TEST(allocations_of_the_driver)
{
	CUgraph g = graph_make(), other = graph_make(), copy;
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUgraphNodeType type;
	CUdeviceptr p, q, at;
	CUgraphNode a, n, f;

	a = alloc_add(g, &p);
	alloc_add(g, &q);
	ck_assert_int_eq(MORE(cuGraphClone)(&copy, g), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(gf.drv.cuGraphAddChildGraphNode(&n, other, NULL, 0, g),
			 CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(free_add(g, &a, p + 512, &f), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(free_add(g, &a, gf.mem, &f), CUDA_ERROR_INVALID_VALUE);
	ok(free_add(g, &a, p, &f));
	ck_assert_int_eq(free_add(g, &a, p, &n), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(free_add(other, NULL, p, &n), CUDA_ERROR_INVALID_VALUE);
	ok(free_add(other, NULL, q, &n));
	ck_assert_int_eq(MORE(cuGraphDestroyNode)(f), CUDA_ERROR_NOT_SUPPORTED);
	ok(gf.drv.cuGraphNodeGetType(f, &type));
	ck_assert_int_eq(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
	ok(MORE(cuGraphMemFreeNodeGetParams)(f, &at));
	ck_assert_uint_eq(at, p);
	ok(MORE(cuGraphMemAllocNodeGetParams)(a, &params));
	ck_assert(params.dptr == p && params.bytesize == 4096);
	ck_assert_int_eq(MORE(cuGraphMemAllocNodeGetParams)(f, &params), CUDA_ERROR_INVALID_VALUE);
	ok(gf.drv.cuGraphDestroy(other));
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

START_TEST(launches_that_allocate)
{
	CUgraph g = graph_make();
	CUgraphExec x, y;
	CUdeviceptr p;
	CUgraphNode a;

	a = alloc_add(g, &p);
	memset_add(g, &a, (CUDA_MEMSET_NODE_PARAMS){ p, 0, 7, 4, 2, 1 });
	x = exec_make(g, 0);
	ck_assert_int_eq(gf.drv.cuGraphInstantiateWithFlags(&y, g, 0), CUDA_ERROR_NOT_SUPPORTED);
	ok(gf.drv.cuGraphLaunch(x, gf.stream));
	ck_assert_int_eq(gf.drv.cuGraphLaunch(x, gf.stream), CUDA_ERROR_INVALID_VALUE);
	ok(gf.drv.cuStreamSynchronize(gf.stream));
	ok(gf.drv.cuMemFree_v2(p));
	ok(gf.drv.cuGraphLaunch(x, gf.stream));
	ok(MORE(cuMemFreeAsync)(p, gf.stream));
	ok(gf.drv.cuStreamSynchronize(gf.stream));
	ok(gf.drv.cuGraphExecDestroy(x));
	x = exec_make(g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	ok(gf.drv.cuGraphLaunch(x, gf.stream));
	ok(gf.drv.cuGraphLaunch(x, gf.stream));
	ok(gf.drv.cuStreamSynchronize(gf.stream));
	ok(gf.drv.cuMemFree_v2(p));
	ok(gf.drv.cuGraphExecDestroy(x));
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* A stream that captures frees the memory of another graph. */
START_TEST(captures_free_for_other_graphs)
{
	CUgraph g = graph_make(), h;
	CUdeviceptr p;
	CUgraphNode f;

	alloc_add(g, &p);
	ok(gf.drv.cuStreamBeginCapture_v2(gf.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(MORE(cuMemFreeAsync)(p, gf.stream));
	ok(gf.drv.cuStreamEndCapture(gf.stream, &h));
	ck_assert_int_eq(free_add(g, NULL, p, &f), CUDA_ERROR_INVALID_VALUE);
	ok(gf.drv.cuGraphDestroy(h));
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

START_TEST(allocations_in_bodies)
{
	CUDA_CONDITIONAL_NODE_PARAMS c = shape(CU_GRAPH_COND_TYPE_IF, 1, 0);
	CUgraph g = graph_make(), body[1];
	CUdeviceptr p;

	c.handle = handle_make(g, 0);
	conditional_add(g, NULL, &c, body);
	alloc_add(body[0], &p);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* --- host functions --- */

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
	tcase_add_test(tc, conditions_read);
	tcase_add_test(tc, conditions);
	tcase_add_test(tc, conditions_of_other_bodies);
	tcase_add_test(tc, conditions_of_the_driver);
	tcase_add_test(tc, conditions_that_are_refused);
	tcase_add_test(tc, memops_read);
	tcase_add_test(tc, memops);
	tcase_add_loop_test(tc, memops_refused_by_the_driver, 0, 5);
	tcase_add_test(tc, allocations_of_the_driver);
	tcase_add_test(tc, launches_that_allocate);
	tcase_add_test(tc, captures_free_for_other_graphs);
	tcase_add_test(tc, allocations_in_bodies);
	tcase_add_test(tc, functions_by_name);
	tcase_add_test(tc, functions_that_are_not_bound);
}
