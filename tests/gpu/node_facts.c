// SPDX-License-Identifier: Apache-2.0
/*
 * How the machine's driver treats child graphs, host nodes and conditional nodes.
 * Lines that begin with "note" are facts about the driver, for people. The checks are the rules
 * that the software driver follows and that graph objects rely on.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "tests/lib/facts.h"

/* --- child graphs --- */

static void child_order(void)
{
	CUgraph g = facts_graph_new(), c = facts_graph_new(), got;
	CUgraphNode n[4], seen[8], child;
	CUlaunchAttributeValue v = { .priority = -3 }, w = { 0 };
	CUgraphEdgeData data = { .from_port = 1, .type = 1 }, back[4];
	CUgraphNode from[4], to[4];
	size_t i, count, edges = 4;

	n[0] = facts_add(c, NULL, 0, 1);
	MUST(cuGraphAddEmptyNode, &n[1], c, NULL, 0);
	n[2] = facts_add(c, NULL, 1, 1);
	MUST(cuGraphAddDependencies_v2, c, &n[2], &n[0], &data, 1);
	MUST(cuGraphKernelNodeSetAttribute, n[0], CU_LAUNCH_ATTRIBUTE_PRIORITY, &v);
	NOTE("add child graph node: %d\n",
	     (int)API(cuGraphAddChildGraphNode)(&child, g, NULL, 0, c));
	MUST(cuGraphChildGraphNodeGetGraph, child, &got);
	count = facts_nodes_of(got, seen, 8);
	NOTE("the child is %s; its %zu nodes have types", got == c ? "the graph" : "a clone",
	     count);
	for (i = 0; i < count; i++) {
		CUgraphNodeType t;

		MUST(cuGraphNodeGetType, seen[i], &t);
		printf(" %d", (int)t);
	}
	MUST(cuGraphKernelNodeGetAttribute, seen[0], CU_LAUNCH_ATTRIBUTE_PRIORITY, &w);
	printf("; priority of the first %d\n", w.priority);
	CHECK(w.priority == -3);
	MUST(cuGraphGetEdges_v2, got, from, to, back, &edges);
	CHECK(edges == 1 && from[0] == seen[2] && to[0] == seen[0]);
	CHECK(back[0].from_port == 1 && back[0].type == 1);
	NOTE("destroying a child: %d", (int)API(cuGraphDestroy)(got));
	printf(", destroying its node: %d\n", (int)API(cuGraphDestroyNode)(child));
	n[0] = facts_add(g, NULL, 0, 1);
	NOTE("a programmatic edge to a child graph: %d",
	     (int)API(cuGraphAddNode_v2)(&child, g, &n[0], &data, 1,
		&(CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = { .graph = c } }));
	MUST(cuGraphAddChildGraphNode, &child, g, NULL, 0, c);
	n[1] = facts_add(g, NULL, 0, 1);
	printf(", from one: %d\n",
	       (int)API(cuGraphAddDependencies_v2)(g, &child, &n[1], &data, 1));
	MUST(cuGraphDestroy, c);
	MUST(cuGraphDestroy, g);
}

/* Fill a child after it was added, and move one. */
static void child_fill(void)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUgraph g = facts_graph_new(), c = facts_graph_new(), got = NULL;
	CUgraphNode child, n;
	CUresult res;

	facts_words_set((uint32_t[]){ 0 }, 1);
	MUST(cuGraphAddChildGraphNode, &child, g, NULL, 0, c);
	MUST(cuGraphDestroy, c);
	MUST(cuGraphChildGraphNodeGetGraph, child, &got);
	n = facts_add(got, NULL, 0, 5);
	facts_add(got, &n, 0, 6);
	CHECK(!facts_run(g, 2, true));
	CHECK(facts_word(0) == 22);
	g = facts_graph_new();
	c = facts_graph_new();
	facts_add(c, NULL, 0, 7);
	p.graph.graph = c;
	p.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	res = facts_any_add(g, NULL, &p, &child);
	NOTE("moving a child: %d", (int)res);
	if (!res) {
		MUST(cuGraphChildGraphNodeGetGraph, child, &got);
		printf(", it is %s; run: %d", got == c ? "the same graph" : "another",
		       (int)facts_run(g, 1, true));
		CHECK(facts_word(0) == 29);
	}
	printf("\n");
}

static void child_depth(void)
{
	CUgraph g = facts_graph_new(), up;
	CUgraphNode n;
	unsigned int depth;
	CUresult res = 0;

	facts_words_set((uint32_t[]){ 0 }, 1);
	facts_add(g, NULL, 0, 1);
	for (depth = 1; depth <= 200 && !res; depth++) {
		up = facts_graph_new();
		res = API(cuGraphAddChildGraphNode)(&n, up, NULL, 0, g);
		MUST(cuGraphDestroy, g);
		g = up;
		if (!res && (depth == 1 || depth == 8 || depth == 32 || depth == 100 ||
			     depth == 200))
			NOTE("children %u deep: run %d, word %u\n", depth,
			     (int)facts_run(g, 1, false), facts_word(0));
	}
	NOTE("depth %u: add %d\n", depth - 1, (int)res);
	MUST(cuGraphDestroy, g);
}

static void child_events(void)
{
	CUgraph g = facts_graph_new(), c = facts_graph_new();
	CUgraphNode n, w;
	CUevent e;

	facts_words_set((uint32_t[]){ 0 }, 1);
	MUST(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
	n = facts_add(c, NULL, 0, 1);
	MUST(cuGraphAddEventRecordNode, &w, c, &n, 1, e);
	MUST(cuGraphAddChildGraphNode, &n, g, NULL, 0, c);
	MUST(cuGraphAddEventWaitNode, &w, g, &n, 1, e);
	NOTE("an event recorded in a child and awaited in its parent: run %d\n",
	     (int)facts_run(g, 2, true));
	MUST(cuGraphDestroy, c);
	MUST(cuEventDestroy_v2, e);
}

/* --- host nodes --- */

static void CUDA_CB host_fn(void *arg)
{
	++*(int *)arg;
}

static void host(void)
{
	CUDA_HOST_NODE_PARAMS p = { .fn = host_fn }, q = { 0 };
	CUgraph g = facts_graph_new();
	CUgraphNode n;
	int count = 0;

	p.userData = &count;
	MUST(cuGraphAddHostNode, &n, g, NULL, 0, &p);
	MUST(cuGraphHostNodeGetParams, n, &q);
	CHECK(q.fn == p.fn && q.userData == p.userData);
	CHECK(!facts_run(g, 3, false));
	CHECK(count == 3);
	p.fn = NULL;
	NOTE("a host node without a function: %d\n",
	     (int)API(cuGraphAddHostNode)(&n, g, NULL, 0, &p));
	MUST(cuGraphDestroy, g);
}

/* --- conditional nodes --- */

static CUresult cond_add(CUgraph g, const CUgraphNode *dep, CUgraphConditionalHandle h, int type,
			 unsigned int size, CUgraph *bodies, CUgraphNode *ret)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUgraphNode n;
	CUresult res;
	unsigned int i;

	p.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){ .handle = h, .type = type, .size = size,
							.ctx = facts.ctx };
	res = facts_any_add(g, dep, &p, ret ? ret : &n);
	for (i = 0; !res && bodies && i < size; i++)
		bodies[i] = p.conditional.phGraph_out[i];
	return res;
}

static CUgraphConditionalHandle cond_new(CUgraph g, unsigned int value, unsigned int flags)
{
	CUgraphConditionalHandle h = 0;

	MUST(cuGraphConditionalHandleCreate, &h, g, facts.ctx, value, flags);
	return h;
}

static void cond_handles(void)
{
	CUgraph g[3];
	CUgraphConditionalHandle h = 0;
	unsigned int i, k;

	for (i = 0; i < 3; i++) {
		g[i] = facts_graph_new();
		NOTE("condition handles of graph %u (%p):", i, (void *)g[i]);
		for (k = 0; k < 3; k++)
			printf(" 0x%" PRIx64, (uint64_t)cond_new(g[i], k, k > 0));
		printf("\n");
	}
	for (i = 0; i < 3; i++)
		MUST(cuGraphDestroy, g[i]);
	g[0] = facts_graph_new();
	NOTE("the next: 0x%" PRIx64 "\n", (uint64_t)cond_new(g[0], 0, 0));
	NOTE("flags 2: %d; ctx NULL: %d; value 5 without flag: %d",
	     (int)API(cuGraphConditionalHandleCreate)(&h, g[0], facts.ctx, 0, 2),
	     (int)API(cuGraphConditionalHandleCreate)(&h, g[0], NULL, 0, 1),
	     (int)API(cuGraphConditionalHandleCreate)(&h, g[0], facts.ctx, 5, 0));
	printf("; handles without nodes: run %d\n", (int)facts_run(g[0], 1, true));
}

static void cond_shapes(void)
{
	static const struct { int type; unsigned int size; } shapes[] = {
		{ 0, 0 }, { 0, 1 }, { 0, 2 }, { 0, 3 }, { 1, 0 }, { 1, 1 }, { 1, 2 }, { 2, 0 },
		{ 2, 1 }, { 2, 5 }, { 2, 300 }, { 3, 1 } };
	CUgraph g = facts_graph_new(), other = facts_graph_new(), body = NULL;
	CUgraphConditionalHandle h;
	CUgraphNode n;
	unsigned int i;

	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		NOTE("conditional of type %d, size %u: %d\n", shapes[i].type, shapes[i].size,
		     (int)cond_add(g, NULL, cond_new(g, 0, 1), shapes[i].type, shapes[i].size,
				   NULL, NULL));
	NOTE("empty bodies: run %d\n", (int)facts_run(g, 1, true));
	g = facts_graph_new();
	h = cond_new(g, 1, 1);
	NOTE("one handle for two nodes: %d",
	     (int)cond_add(g, NULL, h, 0, 1, &body, &n));
	printf(" %d, for a node of another graph: %d, a number that is no handle: %d\n",
	       (int)cond_add(g, NULL, h, 0, 1, NULL, NULL),
	       (int)cond_add(other, NULL, cond_new(g, 1, 1), 0, 1, NULL, NULL),
	       (int)cond_add(g, NULL, 12345, 0, 1, NULL, NULL));
	NOTE("run: %d; clone:", (int)facts_run(g, 1, false));
	printf(" %d; as a child: %d\n", (int)API(cuGraphClone)(&other, g),
	       (int)API(cuGraphAddChildGraphNode)(&n, facts_graph_new(), NULL, 0, g));
	NOTE("destroying a body: %d\n", (int)API(cuGraphDestroy)(body));
	NOTE("cuGraphNodeGetParams %s\n",
	     dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGraphNodeGetParams") ? "exists"
									     : "is missing");
}

/* Word 0 is the condition, words 8... count the runs of each body. */
static void cond_run(int type, unsigned int size, uint32_t value, bool gone)
{
	CUgraph g = facts_graph_new(), body[4];
	CUgraphConditionalHandle h = cond_new(g, 0, 0);
	CUgraphNode n = facts_cond_set(g, NULL, h, 0, false), last;
	CUresult res;
	unsigned int i;

	facts_words_set(&value, 1);
	res = cond_add(g, &n, h, type, size, body, &last);
	for (i = 0; !res && i < size; i++) {
		n = facts_add(body[i], NULL, 8 + i, 1);
		if (type == CU_GRAPH_COND_TYPE_WHILE)
			facts_cond_set(body[i], &n, h, 0, true);
	}
	if (!res)
		facts_add(g, &last, 7, 1);
	NOTE("conditional of type %d with %u bodies, value %u: add %d, run %d, bodies ran", type,
	     size, value, (int)res, res ? -1 : (int)facts_run(g, 2, gone));
	for (i = 0; i < size; i++)
		printf(" %u", facts_word(8 + i));
	printf(" times, what follows %u; word 0 is %u\n", facts_word(7), facts_word(0));
}

static void cond_nested(void)
{
	CUgraph g = facts_graph_new(), body = NULL, inner = NULL, other = NULL;
	CUgraphConditionalHandle h = cond_new(g, 1, 1), hi, hr, hc;
	CUgraphNode n, c;
	CUresult res = cond_add(g, NULL, h, 0, 1, &body, &n);

	facts_words_set((uint32_t[]){ 0 }, 1);
	NOTE("nested: outer %d", (int)res);
	res = API(cuGraphConditionalHandleCreate)(&hi, body, facts.ctx, 1, 1);
	printf(", handle of the body %d 0x%" PRIx64, (int)res, (uint64_t)hi);
	if (!res) {
		printf(", inner with it %d", (int)cond_add(body, NULL, hi, 0, 1, &inner, &c));
		if (inner)
			facts_add(inner, NULL, 8, 1);
	}
	hr = cond_new(g, 1, 1);
	res = cond_add(body, NULL, hr, 0, 1, &other, NULL);
	printf(", inner with a handle of the root %d", (int)res);
	if (!res)
		facts_add(other, NULL, 9, 1);
	printf(", run %d:", (int)facts_run(g, 1, true));
	printf(" %u %u\n", facts_word(8), facts_word(9));
	g = facts_graph_new();
	MUST(cuGraphAddChildGraphNode, &c, g, NULL, 0, facts_graph_new());
	MUST(cuGraphChildGraphNodeGetGraph, c, &other);
	hc = cond_new(g, 1, 1);
	NOTE("in a child: handle %d",
	     (int)API(cuGraphConditionalHandleCreate)(&hi, other, facts.ctx, 1, 1));
	printf(", node with it %d, node with one of the root %d\n",
	       (int)cond_add(other, NULL, hi, 0, 1, NULL, NULL),
	       (int)cond_add(other, NULL, hc, 0, 1, NULL, NULL));
}

/* A loop of two rounds around an inner condition with a default, which its body sets to 0: does
 * each round set the default again? @of_body: the inner handle is one of the body. */
static void cond_default_run(bool of_body)
{
	CUgraph g = facts_graph_new(), body = NULL, inner = NULL;
	CUgraphConditionalHandle h = cond_new(g, 1, 1), hi;
	CUgraphNode n;

	facts_words_set((uint32_t[]){ 2, 0 }, 2);
	facts_must(cond_add(g, NULL, h, CU_GRAPH_COND_TYPE_WHILE, 1, &body, NULL), "while");
	hi = cond_new(of_body ? body : g, 1, 1);
	facts_must(cond_add(body, NULL, hi, CU_GRAPH_COND_TYPE_IF, 1, &inner, &n), "if");
	facts_cond_set(body, &n, h, 0, true);
	n = facts_add(inner, NULL, 8, 1);
	facts_cond_set(inner, &n, hi, 1, false);
	NOTE("default of a handle of the %s: run %d,", of_body ? "body" : "root",
	     (int)facts_run(g, 1, true));
	printf(" the inner body ran %u times in 2 rounds\n", facts_word(8));
}

static void cond_default(void)
{
	cond_default_run(false);
	cond_default_run(true);
}

/* The order in which the driver lists the nodes of a root and a body with conditional nodes. */
static void cond_listed(void)
{
	CUgraph g = facts_graph_new(), body = NULL;
	CUgraphNode n[4], seen[8];
	size_t i, k, count;

	n[0] = facts_add(g, NULL, 0, 1);
	facts_must(cond_add(g, NULL, cond_new(g, 1, 1), 0, 1, &body, &n[1]), "if");
	n[2] = facts_add(g, NULL, 1, 1);
	facts_must(cond_add(g, &n[2], cond_new(g, 1, 1), 0, 1, NULL, &n[3]), "if");
	count = facts_nodes_of(g, seen, 8);
	NOTE("nodes in the order of their listing:");
	for (i = 0; i < count; i++)
		for (k = 0; k < 4; k++)
			if (seen[i] == n[k])
				printf(" %zu", k);
	printf("\n");
	MUST(cuGraphDestroy, g);
}

/* Find the kinds of nodes that a driver accepts in a body. */
static void cond_bodies(void)
{
	CUgraphNodeType kinds[] = { CU_GRAPH_NODE_TYPE_HOST, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
				    CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
				    CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_GRAPH,
				    CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY };
	CUstreamBatchMemOpParams op = { .writeValue = {
		.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = facts.mem } };
	CUgraph g, body = NULL, empty = facts_graph_new();
	CUgraphNode n;
	CUresult res = 0;
	int count = 0;
	CUevent e;
	size_t i;

	MUST(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		CUgraphNodeParams p = { .type = kinds[i] };

		if (kinds[i] == CU_GRAPH_NODE_TYPE_HOST) {
			p.host.fn = host_fn;
			p.host.userData = &count;
		} else if (kinds[i] == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
			p.eventRecord.event = e;
		} else if (kinds[i] == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
			p.memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){ facts.ctx, 1, &op, 0 };
		} else if (kinds[i] == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
			p.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
			p.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
			p.alloc.bytesize = 4096;
		} else if (kinds[i] == CU_GRAPH_NODE_TYPE_GRAPH) {
			p.graph.graph = empty;
		} else if (kinds[i] == CU_GRAPH_NODE_TYPE_MEMSET) {
			p.memset =
				(CUDA_MEMSET_NODE_PARAMS_v2){ facts.mem, 0, 1, 1, 4, 1, facts.ctx };
		} else if (kinds[i] == CU_GRAPH_NODE_TYPE_MEMCPY) {
			p.memcpy.copyCtx = facts.ctx;
			p.memcpy.copyParams = (CUDA_MEMCPY3D){
				.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = facts.mem,
				.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = facts.mem + 128,
				.WidthInBytes = 16, .Height = 1, .Depth = 1 };
		}
		g = facts_graph_new();
		facts_must(cond_add(g, NULL, cond_new(g, 1, 1), 0, 1, &body, NULL), "conditional");
		res = facts_any_add(body, NULL, &p, &n);
		NOTE("a node of type %d in a body: add %d, run %d\n", (int)kinds[i], (int)res,
		     (int)facts_run(g, 1, true));
	}
	MUST(cuEventDestroy_v2, e);
	MUST(cuGraphDestroy, empty);
}

/* Two execs of one graph, and a launch of each. */
static void cond_twice(void)
{
	CUgraph g = facts_graph_new(), body = NULL;
	CUgraphConditionalHandle h = cond_new(g, 0, 0);
	CUgraphNode n = facts_cond_set(g, NULL, h, 0, false);
	CUgraphExec a = NULL, b = NULL;
	CUresult res;

	facts_words_set((uint32_t[]){ 1 }, 1);
	facts_must(cond_add(g, &n, h, 0, 1, &body, NULL), "conditional");
	facts_add(body, NULL, 8, 1);
	res = API(cuGraphInstantiateWithFlags)(&a, g, 0);
	NOTE("two execs: %d", (int)res);
	res = API(cuGraphInstantiateWithFlags)(&b, g, 0);
	printf(" %d", (int)res);
	MUST(cuGraphLaunch, a, facts.stream);
	if (b)
		printf(", launch %d", (int)API(cuGraphLaunch)(b, facts.stream));
	printf(", end %d", (int)API(cuStreamSynchronize)(facts.stream));
	printf(": the body ran %u times\n", facts_word(8));
}

/* A capture into a body, and a conditional node added to a capture. */
static void cond_capture(void)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUstreamCaptureStatus status;
	CUgraphConditionalHandle h;
	const CUgraphNode *deps;
	const CUgraphEdgeData *data;
	CUdeviceptr at = facts.mem, eight = facts.mem + 32;
	uint32_t one = 1;
	void *set[] = { &h, &at }, *inc[] = { &eight, &one };
	CUgraph g, body = NULL;
	CUgraphNode n, in;
	cuuint64_t id;
	CUstream s;
	size_t count;
	CUresult res;

	facts_words_set((uint32_t[]){ 1 }, 1);
	MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	MUST(cuStreamBeginCapture_v2, facts.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuStreamGetCaptureInfo_v3, facts.stream, &status, &id, &g, &deps, &data, &count);
	h = cond_new(g, 0, 0);
	MUST(cuLaunchKernel, facts.set, 1, 1, 1, 1, 1, 1, 0, facts.stream, set, NULL);
	MUST(cuStreamGetCaptureInfo_v3, facts.stream, &status, &id, &g, &deps, &data, &count);
	p.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){ .handle = h, .size = 1, .ctx = facts.ctx };
	res = API(cuGraphAddNode_v2)(&n, g, deps, data, count, &p);
	NOTE("in a capture: add %d", (int)res);
	body = p.conditional.phGraph_out[0];
	MUST(cuStreamBeginCaptureToGraph, s, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuLaunchKernel, facts.add, 1, 1, 1, 1, 1, 1, 0, s, inc, NULL);
	MUST(cuStreamEndCapture, s, &body);
	MUST(cuStreamUpdateCaptureDependencies_v2, facts.stream, &n, NULL, 1,
	     CU_STREAM_SET_CAPTURE_DEPENDENCIES);
	MUST(cuStreamEndCapture, facts.stream, &g);
	printf(", body has %zu nodes", facts_nodes_of(body, &in, 1));
	printf(", run %d:", (int)facts_run(g, 2, true));
	printf(" %u\n", facts_word(8));
	MUST(cuStreamDestroy_v2, s);
}

static void cond_if(void)
{
	uint32_t value;

	for (value = 0; value < 2; value++) {
		cond_run(CU_GRAPH_COND_TYPE_IF, 1, value, false);
		cond_run(CU_GRAPH_COND_TYPE_IF, 2, value, false);
	}
}

static void cond_while(void)
{
	cond_run(CU_GRAPH_COND_TYPE_WHILE, 1, 1, false);
	cond_run(CU_GRAPH_COND_TYPE_WHILE, 1, 3, false);
}

static void cond_switch(void)
{
	uint32_t value;

	for (value = 0; value < 5; value++)
		cond_run(CU_GRAPH_COND_TYPE_SWITCH, 3, value, false);
}

/* The handles of another process. */
static void cond_again(void)
{
	cond_handles();
}

/* The graph is destroyed before its exec is launched. */
static void cond_gone(void)
{
	cond_run(CU_GRAPH_COND_TYPE_IF, 2, 1, true);
	cond_run(CU_GRAPH_COND_TYPE_WHILE, 1, 2, true);
}

int main(int argc, char **argv)
{
	static const struct facts_section sections[] = {
#define SECTION(name) { #name, name }
		SECTION(child_order),
		SECTION(child_fill),
		SECTION(child_depth),
		SECTION(child_events),
		SECTION(host),
		SECTION(cond_handles),
		SECTION(cond_again),
		SECTION(cond_if),
		SECTION(cond_while),
		SECTION(cond_switch),
		SECTION(cond_gone),
		SECTION(cond_shapes),
		SECTION(cond_nested),
		SECTION(cond_default),
		SECTION(cond_listed),
		SECTION(cond_bodies),
		SECTION(cond_twice),
		SECTION(cond_capture),
#undef SECTION
	};

	return facts_main(argc, argv, sections, sizeof(sections) / sizeof(sections[0]));
}
