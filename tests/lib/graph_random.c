// SPDX-License-Identifier: Apache-2.0
/* graph_random.c - see graph_random.h. */
#include "tests/lib/graph_random.h"

#include "tests/replace/graph_fixture.h"

#define SLOT 128u        /* bytes of device memory that a node writes */
#define SLOTS 512u       /* in all graphs within a graph together */
#define HOST_SLOTS 16u   /* copies to host memory; the same bytes before them are copied from */
#define HOST_HALF (HOST_SLOTS * SLOT)
#define NODES_MAX 24u    /* of one graph */
#define DEPTH_MAX 3u
#define EVENTS 8u

enum kind {
	KIND_STEP, KIND_SHORT, KIND_NOTHING, KIND_SET, KIND_COPY, KIND_COPY_2D, KIND_FROM_HOST,
	KIND_TO_HOST, KIND_EMPTY, KIND_RECORD, KIND_WAIT, KIND_MEMOP, KIND_CALL, KIND_CHILD, KINDS
};

struct one {
	enum kind kind;
	CUgraphNode node;
	CUdeviceptr slot;
	CUdeviceptr from; /* of a copy: the slot of a node before it, or its own */
};

static struct {
	uint64_t (*below)(uint64_t n);
	uint32_t slots, host_slots, nodes;
	CUevent event[EVENTS];
	bool recorded[EVENTS], awaited[EVENTS];
	int calls[2], built_calls[2];
} r;

static void CUDA_CB call(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static bool chance(uint64_t of)
{
	return !r.below(of);
}

/* --- nodes --- */

static void attributes_set(CUgraphNode n)
{
	CUlaunchAttributeValue v = { .priority = -(int)r.below(6) };

	/* A driver may not take some of them; then the node has the default. */
	if (chance(4))
		(void)gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v);
	memset(&v, 0, sizeof(v));
	v.clusterSchedulingPolicyPreference = CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
	if (chance(4))
		(void)gf.drv.cuGraphKernelNodeSetAttribute(
			n, CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, &v);
	memset(&v, 0, sizeof(v));
	v.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
	if (chance(8))
		(void)gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
							   &v);
}

static CUgraphNode step_make(CUgraph g, const struct one *o)
{
	CUdeviceptr at = o->slot + 8 * r.below(SLOT / 8);
	uint64_t salt = r.below(UINT64_MAX);
	uint32_t spins = (uint32_t)r.below(3);
	void *args[] = { &at, &salt, &spins };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(STEP, args);
	CUgraphNode n;

	p.gridDimX = 1 + (unsigned int)r.below(3);
	p.blockDimX = 1 + (unsigned int)r.below(64);
	ok(gf.drv.cuGraphAddKernelNode_v2(&n, g, NULL, 0, &p));
	return n;
}

/* A packed buffer that ends before the parameters do. */
static CUgraphNode short_make(CUgraph g, const struct one *o)
{
	uint64_t words[2 + SLOT / 8] = { o->slot, 1 + r.below(SLOT / 8) }, i;
	size_t size = 16 + 8 * words[1];
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, words, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &size, CU_LAUNCH_PARAM_END };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(WORDS, NULL);
	CUgraphNode n;

	for (i = 0; i < words[1]; i++)
		words[2 + i] = r.below(2) ? o->slot + r.below(SLOT) : r.below(1000);
	p.extra = extra;
	ok(gf.drv.cuGraphAddKernelNode_v2(&n, g, NULL, 0, &p));
	return n;
}

static CUgraphNode set_make(CUgraph g, const struct one *o)
{
	unsigned int element = 1u << r.below(3);
	CUDA_MEMSET_NODE_PARAMS p = { .dst = o->slot,
				      .value = (unsigned int)r.below(1ull << 8 * element),
				      .elementSize = element };

	p.height = 1 + r.below(4);
	p.width = 1 + r.below(SLOT / 4 / element);
	p.pitch = p.height > 1 || r.below(2) ? SLOT / 4 : 0;
	return memset_add(g, NULL, p);
}

static CUgraphNode copy_make(CUgraph g, const struct one *o)
{
	bool wide = o->kind == KIND_COPY_2D;
	CUDA_MEMCPY3D p = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = o->from,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = o->slot,
			    .WidthInBytes = 1 + r.below(SLOT / 8), .Height = 1, .Depth = 1 };

	if (o->from == o->slot)
		p.dstDevice += SLOT / 2; /* half of a slot into the other half */
	p.srcPitch = p.dstPitch = SLOT / 8;
	p.srcHeight = p.dstHeight = 2;
	if (wide) {
		p.Height = 1 + r.below(2);
		p.Depth = 1 + r.below(2);
	}
	return memcpy_add(g, NULL, p);
}

static CUgraphNode host_copy_make(CUgraph g, const struct one *o)
{
	bool to = o->kind == KIND_TO_HOST;
	uint8_t *host = (uint8_t *)(uintptr_t)gf.hosts[0].addr;
	CUDA_MEMCPY3D p = { .WidthInBytes = 1 + r.below(SLOT), .Height = 1, .Depth = 1,
			    .srcPitch = SLOT, .dstPitch = SLOT };

	p.srcMemoryType = to ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	p.dstMemoryType = to ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	p.srcDevice = o->from;
	p.dstDevice = o->slot;
	p.srcHost = host + r.below(HOST_HALF - SLOT);
	p.dstHost = host + HOST_HALF + SLOT * (r.host_slots % HOST_SLOTS);
	if (to && r.host_slots++ >= HOST_SLOTS)
		return empty_add(g, NULL); /* two copies must not write one slot */
	return memcpy_add(g, NULL, p);
}

static CUgraphNode event_make_node(CUgraph g, bool record)
{
	bool *done = record ? r.recorded : r.awaited;
	CUgraphNode n;
	uint32_t i;

	for (i = 0; i < EVENTS && done[i]; i++)
		;
	if (i == EVENTS)
		return empty_add(g, NULL);
	done[i] = true;
	ok(record ? gf.drv.cuGraphAddEventRecordNode(&n, g, NULL, 0, r.event[i])
		  : gf.drv.cuGraphAddEventWaitNode(&n, g, NULL, 0, r.event[i]));
	return n;
}

/* Writes, and waits for what was written. */
static CUgraphNode memop_make(CUgraph g, const struct one *o)
{
	CUstreamBatchMemOpParams op[6];
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { gf.ctx, 0, op, 0 };
	CUgraphNode n;
	uint64_t i;

	memset(op, (int)r.below(256), sizeof(op));
	for (i = r.below(3); i; i--) {
		bool wide = r.below(2);
		CUdeviceptr at = o->slot + 8 * r.below(SLOT / 8);
		uint64_t value = r.below(1ull << 16);
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
		w[1].waitValue.flags = (unsigned int)r.below(2); /* at least, or equal */
		p.count++;
	}
	op[p.count].operation = CU_STREAM_MEM_OP_BARRIER;
	op[p.count].memoryBarrier.flags = (unsigned int)r.below(2);
	p.count += (unsigned int)r.below(2);
	ok(gf.drv.cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p));
	return n;
}

static CUgraphNode call_make(CUgraph g)
{
	CUDA_HOST_NODE_PARAMS p = { .fn = call };
	CUgraphNode n;

	p.userData = &r.calls[r.below(2)];
	ok(gf.drv.cuGraphAddHostNode(&n, g, NULL, 0, &p));
	return n;
}

static CUgraph graph_fill(uint32_t depth);

static CUgraphNode child_make(CUgraph g, uint32_t depth)
{
	CUgraph child = graph_fill(depth + 1);
	CUgraphNode n;

	ok(gf.drv.cuGraphAddChildGraphNode(&n, g, NULL, 0, child));
	ok(gf.drv.cuGraphDestroy(child));
	return n;
}

static CUgraphNode node_make(CUgraph g, const struct one *o, uint32_t depth)
{
	switch (o->kind) {
	case KIND_STEP:
		return step_make(g, o);
	case KIND_SHORT:
		return short_make(g, o);
	case KIND_NOTHING:
		return kernel_add(g, NULL, NOTHING, NULL);
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
		return child_make(g, depth);
	default:
		return empty_add(g, NULL);
	}
}

/* --- graphs --- */

static bool is_kernel(const struct one *o)
{
	return o->kind == KIND_STEP || o->kind == KIND_SHORT || o->kind == KIND_NOTHING;
}

/* Choose kinds and slots, in an order in which nodes may depend on those before them. */
static void nodes_choose(struct one *o, uint32_t n, uint32_t depth, uint32_t *before)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		o[i].kind = (enum kind)r.below(depth < DEPTH_MAX ? KINDS : KIND_CHILD);
		o[i].slot = gf.mem + SLOT * (r.slots++ % SLOTS);
		before[i] = i ? (uint32_t)r.below(i) : 0;
		/* Half of the copies are from the slot of a node that they depend on. */
		o[i].from = i && chance(2) ? o[before[i]].slot : o[i].slot;
	}
}

/* One edge to each node from the one that it may copy from, and some more. */
static void edges_make(CUgraph g, const struct one *o, uint32_t n, const uint32_t *before)
{
	static const CUgraphEdgeData data[] = { { 1, 0, 1, { 0 } }, { 2, 0, 1, { 0 } },
						{ 2, 0, 0, { 0 } } };
	bool kernels;
	uint32_t i, j;

	for (i = 1; i < n; i++) {
		if (o[i].from != o[i].slot || chance(2))
			edge_add(g, o[before[i]].node, o[i].node, (CUgraphEdgeData){ 0 });
		j = (uint32_t)r.below(i);
		kernels = is_kernel(&o[i]) && is_kernel(&o[j]);
		if (j == before[i] || chance(2))
			continue;
		/* A driver may not take such data; then there is no edge. */
		(void)gf.drv.cuGraphAddDependencies_v2(
			g, &o[j].node, &o[i].node,
			kernels && chance(2) ? &data[r.below(3)] : &(CUgraphEdgeData){ 0 }, 1);
	}
}

static CUgraph graph_fill(uint32_t depth)
{
	uint32_t i, k, t, before[NODES_MAX], order[NODES_MAX],
		n = (uint32_t)r.below(depth ? NODES_MAX / 4 : NODES_MAX);
	struct one o[NODES_MAX];
	CUgraph g = graph_make();

	nodes_choose(o, n, depth, before);
	r.nodes += n;
	for (i = 0; i < n; i++)
		order[i] = i;
	for (i = n; chance(2) && i > 1; i--) { /* created in any order */
		k = (uint32_t)r.below(i);
		t = order[k];
		order[k] = order[i - 1];
		order[i - 1] = t;
	}
	for (i = 0; i < n; i++) {
		o[order[i]].node = node_make(g, &o[order[i]], depth);
		if (is_kernel(&o[order[i]]))
			attributes_set(o[order[i]].node);
	}
	edges_make(g, o, n, before);
	return g;
}

/* Each event is recorded and awaited. */
static void events_finish(CUgraph g)
{
	uint32_t i;

	for (i = 0; i < EVENTS; i++) {
		if (r.recorded[i] && !r.awaited[i])
			(void)event_make_node(g, false);
		if (r.awaited[i] && !r.recorded[i])
			(void)event_make_node(g, true);
	}
}

static void host_fill(void)
{
	uint32_t i, k;

	for (k = 0; k < 2; k++)
		for (i = 0; i < 2 * HOST_HALF; i++)
			((uint8_t *)(uintptr_t)(k ? gf.moved : gf.hosts)[0].addr)[i] =
				(uint8_t)(i * 7 + i / 256);
}

static void results_compare(CUgraph a, CUgraph b)
{
	static uint8_t before[65536], after[65536];

	host_fill();
	run_on_seed(a, before);
	run_on_seed(b, after);
	ck_assert_mem_eq(before, after, sizeof(before));
	ck_assert_mem_eq((void *)(uintptr_t)gf.hosts[0].addr,
			 (void *)(uintptr_t)gf.moved[0].addr, 2 * HOST_HALF);
	ck_assert_mem_eq(r.calls, r.built_calls, sizeof(r.calls));
}

uint32_t graph_random_check(uint64_t (*below)(uint64_t n))
{
	const struct fdry_host_function named[] = { { "a", call, &r.calls[0] },
						    { "b", call, &r.calls[1] } },
					bound[] = { { "b", call, &r.built_calls[1] },
						    { "a", call, &r.built_calls[0] } };
	struct fdry_buf object, again;
	struct fdry_graph_built b;
	uint32_t i;
	CUgraph g;

	memset(&r, 0, sizeof(r));
	r.below = below;
	for (i = 0; i < EVENTS; i++)
		ok(gf.drv.cuEventCreate(&r.event[i], CU_EVENT_DISABLE_TIMING));
	g = graph_fill(0);
	events_finish(g);
	gf.reader.functions = named;
	gf.builder.functions = bound;
	gf.reader.nfunctions = gf.builder.nfunctions = 2;
	object = graph_object(g);
	built_of(&object, &b);
	for (i = 0; i < 2; i++) { /* the copy is read with the names of its own functions */
		gf.reader.functions = i ? named : bound;
		again = graph_object(i ? g : b.graph);
		same_bytes(&object, &again);
		fdry_buf_release(&again);
	}
	results_compare(g, b.graph);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
	for (i = 0; i < EVENTS; i++)
		ok(gf.drv.cuEventDestroy_v2(r.event[i]));
	return r.nodes;
}
