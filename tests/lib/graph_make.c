// SPDX-License-Identifier: Apache-2.0
/* graph_make.c - see graph_make.h. */
#include "tests/lib/graph_make.h"

#include <string.h>

#include "tests/lib/test.h"

#define SLOT 128u        /* bytes of device memory that a node writes */
#define SLOTS 480u       /* in all graphs within a graph together */
#define WORDS 1024u      /* after them, of 4 bytes each: conditions are set from these */
#define HOST_HALF (GRAPH_HOST_BYTES / 2)
#define HOST_SLOTS (HOST_HALF / SLOT) /* copies to host memory; the same bytes before them are
					 copied from */
#define NODES_MAX 24u    /* of one graph */
#define DEPTH_MAX 3u
#define EVENTS GRAPH_EVENTS
#define BODIES_MAX 4u

enum kind {
	KIND_STEP, KIND_SHORT, KIND_NOTHING, KIND_SET, KIND_COPY, KIND_COPY_2D, KIND_FROM_HOST,
	KIND_TO_HOST, KIND_EMPTY, KIND_RECORD, KIND_WAIT, KIND_MEMOP, KIND_CALL, KIND_CHILD,
	KIND_CONDITIONAL, KIND_ALLOC, KINDS
};

struct one {
	enum kind kind;
	CUgraphNode node;
	CUdeviceptr slot;
	CUdeviceptr from; /* of a copy: the slot of a node before it, or its own */
};

/* The graph that is being made. */
static struct {
	struct graph_env env;
	CUgraph root;
	uint32_t slots, host_slots, nodes, words;
	bool recorded[EVENTS], awaited[EVENTS];
} r;

/* --- driver graphs --- */

static CUgraph graph_make(void)
{
	CUgraph g;

	ok(r.env.drv->cuGraphCreate(&g, 0));
	return g;
}

static CUDA_KERNEL_NODE_PARAMS kernel_params(CUfunction f, void **args)
{
	return (CUDA_KERNEL_NODE_PARAMS){ .func = f, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
					  .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
					  .kernelParams = args };
}

static CUgraphNode kernel_add(CUgraph g, const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUgraphNode n;

	ok(r.env.drv->cuGraphAddKernelNode_v2(&n, g, NULL, 0, p));
	return n;
}

static CUgraphNode memset_add(CUgraph g, const CUDA_MEMSET_NODE_PARAMS *p)
{
	CUgraphNode n;

	ok(r.env.drv->cuGraphAddMemsetNode(&n, g, NULL, 0, p, r.env.ctx));
	return n;
}

static CUgraphNode memcpy_add(CUgraph g, const CUDA_MEMCPY3D *p)
{
	CUgraphNode n;

	ok(r.env.drv->cuGraphAddMemcpyNode(&n, g, NULL, 0, p, r.env.ctx));
	return n;
}

static CUgraphNode empty_add(CUgraph g)
{
	CUgraphNode n;

	ok(r.env.drv->cuGraphAddEmptyNode(&n, g, NULL, 0));
	return n;
}

static void edge_add(CUgraph g, CUgraphNode from, CUgraphNode to)
{
	ok(r.env.drv->cuGraphAddDependencies_v2(g, &from, &to, NULL, 1));
}

static bool chance(uint64_t of)
{
	return !r.env.below(of);
}

/* --- nodes --- */

static void attributes_set(CUgraphNode n)
{
	CUlaunchAttributeValue v = { .priority = -(int)r.env.below(6) };

	/* A driver may refuse some of them. Then the node has the default. */
	if (chance(4))
		(void)r.env.drv->cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v);
	memset(&v, 0, sizeof(v));
	v.clusterSchedulingPolicyPreference = CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
	if (chance(4))
		(void)r.env.drv->cuGraphKernelNodeSetAttribute(
			n, CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, &v);
	memset(&v, 0, sizeof(v));
	v.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
	if (chance(8))
		(void)r.env.drv->cuGraphKernelNodeSetAttribute(
			n, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &v);
}

static CUgraphNode step_make(CUgraph g, const struct one *o)
{
	CUdeviceptr at = o->slot + 8 * r.env.below(SLOT / 8);
	uint64_t salt = r.env.below(UINT64_MAX);
	uint32_t spins = (uint32_t)r.env.below(3);
	void *args[] = { &at, &salt, &spins };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(r.env.step, args);

	p.gridDimX = 1 + (unsigned int)r.env.below(3);
	p.blockDimX = 1 + (unsigned int)r.env.below(64);
	return kernel_add(g, &p);
}

/* A packed buffer that ends before the parameters do. */
static CUgraphNode short_make(CUgraph g, const struct one *o)
{
	uint64_t words[2 + SLOT / 8] = { o->slot, 1 + r.env.below(SLOT / 8) }, i;
	size_t size = 16 + 8 * words[1];
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, words, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &size, CU_LAUNCH_PARAM_END };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(r.env.words, NULL);

	for (i = 0; i < words[1]; i++)
		words[2 + i] = r.env.below(2) ? o->slot + r.env.below(SLOT) : r.env.below(1000);
	p.extra = extra;
	return kernel_add(g, &p);
}

static CUgraphNode nothing_make(CUgraph g)
{
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(r.env.nothing, NULL);

	return kernel_add(g, &p);
}

static CUgraphNode set_make(CUgraph g, const struct one *o)
{
	unsigned int element = 1u << r.env.below(3);
	CUDA_MEMSET_NODE_PARAMS p = { .dst = o->slot,
				      .value = (unsigned int)r.env.below(1ull << 8 * element),
				      .elementSize = element };

	p.height = 1 + r.env.below(4);
	p.width = 1 + r.env.below(SLOT / 4 / element);
	p.pitch = p.height > 1 || r.env.below(2) ? SLOT / 4 : 0;
	return memset_add(g, &p);
}

static CUgraphNode copy_make(CUgraph g, const struct one *o)
{
	bool wide = o->kind == KIND_COPY_2D;
	CUDA_MEMCPY3D p = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = o->from,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = o->slot,
			    .WidthInBytes = 1 + r.env.below(SLOT / 8), .Height = 1, .Depth = 1 };

	if (o->from == o->slot)
		p.dstDevice += SLOT / 2; /* half of a slot into the other half */
	p.srcPitch = p.dstPitch = SLOT / 8;
	p.srcHeight = p.dstHeight = 2;
	if (wide) {
		p.Height = 1 + r.env.below(2);
		p.Depth = 1 + r.env.below(2);
	}
	return memcpy_add(g, &p);
}

static CUgraphNode host_copy_make(CUgraph g, const struct one *o)
{
	bool to = o->kind == KIND_TO_HOST;
	uint8_t *host = r.env.host;
	CUDA_MEMCPY3D p = { .WidthInBytes = 1 + r.env.below(SLOT), .Height = 1, .Depth = 1,
			    .srcPitch = SLOT, .dstPitch = SLOT };

	p.srcMemoryType = to ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	p.dstMemoryType = to ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	p.srcDevice = o->from;
	p.dstDevice = o->slot;
	p.srcHost = host + r.env.below(HOST_HALF - SLOT);
	p.dstHost = host + HOST_HALF + SLOT * (r.host_slots % HOST_SLOTS);
	if (to && r.host_slots++ >= HOST_SLOTS)
		return empty_add(g); /* two copies must not write one slot */
	return memcpy_add(g, &p);
}

static CUgraphNode event_make_node(CUgraph g, bool record)
{
	bool *done = record ? r.recorded : r.awaited;
	CUgraphNode n;
	uint32_t i;

	for (i = 0; i < EVENTS && done[i]; i++)
		;
	if (i == EVENTS)
		return empty_add(g);
	done[i] = true;
	ok(record ? r.env.drv->cuGraphAddEventRecordNode(&n, g, NULL, 0, r.env.event[i])
		  : r.env.drv->cuGraphAddEventWaitNode(&n, g, NULL, 0, r.env.event[i]));
	return n;
}

/* Write, and wait for the written value. */
static CUgraphNode memop_make(CUgraph g, const struct one *o)
{
	CUstreamBatchMemOpParams op[6];
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { r.env.ctx, 0, op, 0 };
	CUgraphNode n;
	uint64_t i;

	memset(op, (int)r.env.below(256), sizeof(op));
	for (i = r.env.below(3); i; i--) {
		bool wide = r.env.below(2);
		CUdeviceptr at = o->slot + 8 * r.env.below(SLOT / 8);
		uint64_t value = r.env.below(1ull << 16);
		CUstreamBatchMemOpParams *w = &op[p.count++];

		w->operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64
				    : CU_STREAM_MEM_OP_WRITE_VALUE_32;
		w->writeValue.address = at;
		w->writeValue.value64 = value;
		w->writeValue.flags = 0;
		w->writeValue.alias = 0;
		w[1] = w[0];
		w[1].operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64
				      : CU_STREAM_MEM_OP_WAIT_VALUE_32;
		w[1].waitValue.flags = (unsigned int)r.env.below(2); /* at least, or equal */
		p.count++;
	}
	op[p.count].operation = CU_STREAM_MEM_OP_BARRIER;
	op[p.count].memoryBarrier.flags = (unsigned int)r.env.below(2);
	p.count += (unsigned int)r.env.below(2);
	ok(r.env.drv->cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p));
	return n;
}

static CUgraphNode call_make(CUgraph g)
{
	CUDA_HOST_NODE_PARAMS p = { .fn = r.env.call };
	CUgraphNode n;

	p.userData = &r.env.calls[r.env.below(2)];
	ok(r.env.drv->cuGraphAddHostNode(&n, g, NULL, 0, &p));
	return n;
}

/* Fill memory of the graph and copy it to the slot. Half of the graphs free it. */
static CUgraphNode alloc_make(CUgraph g, const struct one *o)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = { .bytesize = SLOT + r.env.below(1 << 16) };
	CUDA_MEMSET_NODE_PARAMS set = { .value = (unsigned int)r.env.below(256), .elementSize = 1,
					.width = SLOT, .height = 1 };
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = o->slot,
			       .WidthInBytes = SLOT, .Height = 1, .Depth = 1 };
	CUgraphNode a, b, n;

	p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	p.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	ok(r.env.alloc(&a, g, NULL, 0, &p));
	set.dst = copy.srcDevice = p.dptr + r.env.below(p.bytesize - SLOT + 1);
	b = memset_add(g, &set);
	n = memcpy_add(g, &copy);
	edge_add(g, a, b);
	edge_add(g, b, n);
	if (chance(2))
		ok(r.env.free(&a, g, &n, 1, p.dptr));
	return n;
}

/* A graph that is filled: @depth graphs hold it. */
struct place {
	CUgraph graph;
	uint32_t depth;
	bool in_child, in_body; /* a child graph or a body, or within one */
};

static void graph_fill(const struct place *at);

static CUgraphNode child_make(const struct place *at)
{
	struct place child = { graph_make(), at->depth + 1, true, at->in_body };
	CUgraphNode n;

	graph_fill(&child);
	ok(r.env.drv->cuGraphAddChildGraphNode(&n, at->graph, NULL, 0, child.graph));
	ok(r.env.drv->cuGraphDestroy(child.graph));
	return n;
}

/* --- conditional nodes --- */

static CUgraphNode word_set(CUgraph g, CUdeviceptr word, unsigned int value)
{
	CUDA_MEMSET_NODE_PARAMS p = { word, 0, value, 4, 1, 1 };

	return memset_add(g, &p);
}

/* A node that sets the condition of @h to a word less @down. */
static CUgraphNode condition_set(CUgraph g, CUgraphConditionalHandle h, CUdeviceptr word,
				 uint32_t down)
{
	void *args[] = { &h, &word, &down };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(r.env.condition, args);

	return kernel_add(g, &p);
}

/* The value comes from a word in memory, which a loop counts down, or is the handle's default. */
static CUgraphNode conditional_make(const struct place *at)
{
	CUdeviceptr word = r.env.mem + SLOT * SLOTS + 4 * (r.words++ % WORDS);
	unsigned int i, value = (unsigned int)r.env.below(BODIES_MAX), by_default = chance(2);
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUDA_CONDITIONAL_NODE_PARAMS *c = &p.conditional;
	CUgraphNode n, set, before = word_set(at->graph, word, value);

	ok(r.env.drv->cuGraphConditionalHandleCreate(
		&c->handle, r.env.body_handles && chance(2) ? at->graph : r.root, r.env.ctx,
		by_default ? value : 0, by_default));
	c->type = (CUgraphConditionalNodeType)r.env.below(3);
	c->size = c->type == CU_GRAPH_COND_TYPE_WHILE ? 1 : 1 + (unsigned int)r.env.below(2);
	if (c->type == CU_GRAPH_COND_TYPE_SWITCH)
		c->size = 1 + (unsigned int)r.env.below(BODIES_MAX);
	c->ctx = r.env.ctx;
	ok(r.env.drv->cuGraphAddNode_v2(&n, at->graph, NULL, NULL, 0, &p));
	if (by_default) {
		edge_add(at->graph, before, n);
	} else {
		set = condition_set(at->graph, c->handle, word, 0);
		edge_add(at->graph, before, set);
		edge_add(at->graph, set, n);
	}
	for (i = 0; i < c->size; i++) {
		struct place body = { c->phGraph_out[i], at->depth + 1, false, true };

		graph_fill(&body);
		if (c->type == CU_GRAPH_COND_TYPE_WHILE)
			condition_set(body.graph, c->handle, word, 1);
	}
	return n;
}

static CUgraphNode node_make(const struct place *at, const struct one *o)
{
	CUgraph g = at->graph;

	switch (o->kind) {
	case KIND_STEP:
		return step_make(g, o);
	case KIND_SHORT:
		return short_make(g, o);
	case KIND_NOTHING:
		return nothing_make(g);
	case KIND_SET:
		return set_make(g, o);
	case KIND_COPY:
	case KIND_COPY_2D:
		return copy_make(g, o);
	case KIND_FROM_HOST:
	case KIND_TO_HOST:
		return host_copy_make(g, o);
	case KIND_RECORD:
	case KIND_WAIT:
		return event_make_node(g, o->kind == KIND_RECORD);
	case KIND_MEMOP:
		return memop_make(g, o);
	case KIND_CALL:
		return call_make(g);
	case KIND_CHILD:
		return child_make(at);
	case KIND_CONDITIONAL:
		return conditional_make(at);
	case KIND_ALLOC:
		return alloc_make(g, o);
	default:
		return empty_add(g);
	}
}

/* --- graphs --- */

static bool is_kernel(const struct one *o)
{
	return o->kind == KIND_STEP || o->kind == KIND_SHORT || o->kind == KIND_NOTHING;
}

/* Whether the graph may have such a node. */
static bool kind_ok(const struct place *at, enum kind kind)
{
	switch (kind) {
	case KIND_CHILD:
		return at->depth < DEPTH_MAX;
	case KIND_CONDITIONAL:
		return at->depth < DEPTH_MAX && !at->in_child;
	case KIND_ALLOC: /* graphs that allocate cannot be children or bodies */
		return r.env.alloc && !at->depth;
	case KIND_FROM_HOST:
	case KIND_TO_HOST:
	case KIND_RECORD:
	case KIND_WAIT:
	case KIND_MEMOP:
	case KIND_CALL:
		return !at->in_body;
	default:
		return true;
	}
}

/* Choose kinds and slots, in an order in which nodes may depend on those before them. */
static void nodes_choose(const struct place *at, struct one *o, uint32_t n, uint32_t *before)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		do
			o[i].kind = (enum kind)r.env.below(KINDS);
		while (!kind_ok(at, o[i].kind));
		o[i].slot = r.env.mem + SLOT * (r.slots++ % SLOTS);
		before[i] = i ? (uint32_t)r.env.below(i) : 0;
		/* Half of the copies are from the slot of a node that they depend on. */
		o[i].from = i && chance(2) ? o[before[i]].slot : o[i].slot;
	}
}

/* One edge to each node from the one that it may copy from, and some more. */
static void edges_make(const struct place *at, const struct one *o, uint32_t n,
		       const uint32_t *before)
{
	static const CUgraphEdgeData data[] = { { 1, 0, 1, { 0 } }, { 2, 0, 1, { 0 } },
						{ 2, 0, 0, { 0 } } };
	CUgraph g = at->graph;
	bool kernels;
	uint32_t i, j;

	for (i = 1; i < n; i++) {
		if (o[i].from != o[i].slot || chance(2))
			edge_add(g, o[before[i]].node, o[i].node);
		j = (uint32_t)r.env.below(i);
		kernels = is_kernel(&o[i]) && is_kernel(&o[j]) && !at->in_body;
		if (j == before[i] || chance(2))
			continue;
		/* A driver may refuse such data. Then the edge is left out. */
		(void)r.env.drv->cuGraphAddDependencies_v2(
			g, &o[j].node, &o[i].node,
			kernels && chance(2) ? &data[r.env.below(3)] : NULL, 1);
	}
}

static void graph_fill(const struct place *at)
{
	uint32_t i, k, t, before[NODES_MAX], order[NODES_MAX],
		n = (uint32_t)r.env.below(at->depth ? NODES_MAX / 4 : NODES_MAX);
	struct one o[NODES_MAX];

	nodes_choose(at, o, n, before);
	r.nodes += n;
	for (i = 0; i < n; i++)
		order[i] = i;
	for (i = n; chance(2) && i > 1; i--) { /* created in any order */
		k = (uint32_t)r.env.below(i);
		t = order[k];
		order[k] = order[i - 1];
		order[i - 1] = t;
	}
	for (i = 0; i < n; i++) {
		o[order[i]].node = node_make(at, &o[order[i]]);
		if (is_kernel(&o[order[i]]))
			attributes_set(o[order[i]].node);
	}
	edges_make(at, o, n, before);
}

/* Each event is recorded and awaited. */
static void events_finish(void)
{
	uint32_t i;

	for (i = 0; i < EVENTS; i++) {
		if (r.recorded[i] && !r.awaited[i])
			(void)event_make_node(r.root, false);
		if (r.awaited[i] && !r.recorded[i])
			(void)event_make_node(r.root, true);
	}
}

CUgraph graph_make_random(const struct graph_env *env, uint32_t *nodes)
{
	struct place at = { 0 };

	memset(&r, 0, sizeof(r));
	r.env = *env;
	at.graph = r.root = graph_make();
	graph_fill(&at);
	events_finish();
	*nodes = r.nodes;
	return r.root;
}
