// SPDX-License-Identifier: Apache-2.0
/*
 * How the machine's driver treats batch memory operations, graph memory, copies to arrays, and
 * kernel attributes that it does not report.
 * Lines that begin with "note" are facts about the driver, for people. The checks are the rules
 * that the software driver follows and that graph objects rely on.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "tests/lib/facts.h"

/* --- batch memory operations --- */

static void op_print(const CUstreamBatchMemOpParams *op)
{
	unsigned int i;

	for (i = 0; i < 6; i++)
		printf(" %" PRIx64, (uint64_t)op->pad[i]);
}

/* @runs: launching it cannot break the context. */
static void memop_try(const char *what, CUstreamBatchMemOpParams *ops, unsigned int count,
		      unsigned int flags, bool runs)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { facts.ctx, count, ops, flags }, q = { 0 };
	CUgraph g = facts_graph_new();
	CUgraphNode n;
	CUresult res = API(cuGraphAddBatchMemOpNode)(&n, g, NULL, 0, &p);
	unsigned int i;

	NOTE("batch of %u, %s, flags %u: add %d", count, what, flags, (int)res);
	if (!res) {
		MUST(cuGraphBatchMemOpNodeGetParams, n, &q);
		printf(", get: ctx %d count %u flags %u;", q.ctx == facts.ctx, q.count,
		       q.flags);
		for (i = 0; i < q.count && i < 2; i++)
			op_print(&q.paramArray[i]);
		if (runs)
			printf("; run %d", (int)facts_run(g, 1, false));
	}
	printf("\n");
	MUST(cuGraphDestroy, g);
}

static void memop_one(const char *what, CUstreamBatchMemOpParams *ops, unsigned int count,
		      unsigned int flags)
{
	memop_try(what, ops, count, flags, true);
}

static void memops_at(CUdeviceptr at, const char *where)
{
	CUstreamBatchMemOpParams op[2];

	memset(op, 0xee, sizeof(op));
	op[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	op[0].writeValue.address = at;
	op[0].writeValue.value64 = 0x1122334455667788;
	op[0].writeValue.flags = 0;
	op[0].writeValue.alias = 0;
	NOTE("%s\n", where);
	memop_one("write 32", op, 1, 0);
	op[0].writeValue.flags = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
	memop_one("write 32 without barrier", op, 1, 0);
	op[0].writeValue.flags = 0;
	op[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	memop_one("write 64", op, 1, 0);
	op[0].writeValue.address = at + 4;
	memop_try("write 64, unaligned", op, 1, 0, false);
	op[0].writeValue.address = at;
	op[1] = op[0];
	op[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	op[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
	memop_one("write 64, wait 64", op, 2, 0);
	op[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ | CU_STREAM_WAIT_VALUE_FLUSH;
	memop_one("write 64, wait 64 with flush", op, 2, 0);
	op[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	op[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	op[1].waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
	memop_one("write 32, wait 32 and", op, 2, 0);
}

/* The nodes of captured operations; @op writes 32 bits. */
static void memops_captured(CUstreamBatchMemOpParams *op)
{
	CUgraphNode nodes[8];
	CUgraph g;
	size_t i, n;

	MUST(cuStreamBeginCapture_v2, facts.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	/* One call a line: a wait that is captured before its write never ends. */
	NOTE("captured: write %d",
	     (int)API(cuStreamWriteValue32_v2)(facts.stream, facts.mem, 7, 0));
	printf(", wait %d", (int)API(cuStreamWaitValue32_v2)(facts.stream, facts.mem, 7,
							     CU_STREAM_WAIT_VALUE_EQ));
	printf(", batch %d\n", (int)API(cuStreamBatchMemOp_v2)(facts.stream, 1, op, 0));
	MUST(cuStreamEndCapture, facts.stream, &g);
	n = g ? facts_nodes_of(g, nodes, 8) : 0;
	for (i = 0; i < n; i++) {
		CUDA_BATCH_MEM_OP_NODE_PARAMS q = { 0 };
		CUgraphNodeType t;

		MUST(cuGraphNodeGetType, nodes[i], &t);
		printf("  node of type %d", (int)t);
		if (t == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
			MUST(cuGraphBatchMemOpNodeGetParams, nodes[i], &q);
			printf(": ctx %d count %u flags %u;", q.ctx == facts.ctx, q.count,
			       q.flags);
			op_print(q.paramArray);
		}
		printf("\n");
	}
	if (g)
		NOTE("run %d\n", (int)facts_run(g, 1, true));
}

static void memops(void)
{
	CUstreamBatchMemOpParams op = { .operation = CU_STREAM_MEM_OP_BARRIER };
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc acc = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr va;
	void *pinned;
	size_t i;

	memops_at(facts.mem, "memory of cuMemAlloc");
	MUST(cuMemAddressReserve, &va, 2 << 20, 0, 0, 0);
	MUST(cuMemCreate, &h, 2 << 20, &prop, 0);
	MUST(cuMemMap, va, 2 << 20, 0, h, 0);
	MUST(cuMemSetAccess, va, 2 << 20, &acc, 1);
	memops_at(va, "mapped memory");
	MUST(cuMemHostAlloc, &pinned, 4096, 0);
	memops_at((CUdeviceptr)pinned, "pinned host memory");
	op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	op.writeValue.address = 0x123456000;
	memop_try("write 32 to no memory", &op, 1, 0, false);
	op.operation = CU_STREAM_MEM_OP_BARRIER;
	op.memoryBarrier.flags = CU_STREAM_MEMORY_BARRIER_TYPE_SYS;
	memop_one("system barrier", &op, 1, 0);
	op.memoryBarrier.flags = CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
	memop_one("GPU barrier", &op, 1, 0);
	op.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
	op.flushRemoteWrites.flags = 0;
	memop_one("flush", &op, 1, 0);
	op.operation = 99;
	memop_one("unknown", &op, 1, 0);
	memop_one("none", &op, 0, 0);
	op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	op.writeValue.address = facts.mem;
	memop_one("flags of the batch", &op, 1, 1);
	memops_captured(&op);
	for (i = 1; i <= 1u << 12; i *= 16) {
		CUstreamBatchMemOpParams *many = calloc(i, sizeof(*many));
		size_t k;

		for (k = 0; k < i; k++)
			many[k] = op;
		memop_one("many", many, (unsigned int)i, 0);
		free(many);
	}
}

/* --- graph memory --- */

static CUresult alloc_add(CUgraph g, const CUgraphNode *dep, size_t size, CUdeviceptr *ret,
			  CUgraphNode *node)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = size };
	CUresult res = API(cuGraphAddMemAllocNode)(node, g, dep, dep ? 1 : 0, &p);

	*ret = p.dptr;
	return res;
}

static void alloc_nodes(CUgraph *ret)
{
	static const size_t sizes[] = { 256, 4096, 65536, 3 << 20, 64 << 20 };
	CUgraph g = facts_graph_new(), other = facts_graph_new();
	CUgraphNode n = NULL, f;
	CUdeviceptr p;
	size_t i;

	for (i = 0; i < 5; i++) {
		facts_must(alloc_add(g, n ? &n : NULL, sizes[i], &p, &n), "alloc");
		NOTE("an allocation node of %zu bytes gets 0x%llx\n", sizes[i], p);
	}
	facts_must(alloc_add(other, NULL, 4096, &p, &f), "alloc");
	NOTE("another graph's gets 0x%llx\n", p);
	*ret = g;
}

/* The addresses of another process. */
static void addresses(void)
{
	CUgraph g;

	alloc_nodes(&g);
}

static void graph_memory(void)
{
	CUgraph g, c;
	CUgraphNode n, k, f;
	CUdeviceptr p, again = 0;
	CUgraphExec x, y = NULL;
	CUmemorytype type = 0;
	uint32_t five = 5;

	alloc_nodes(&g);
	facts_must(alloc_add(g, NULL, 4096, &p, &n), "alloc");
	NOTE("memory type of the address before a launch: %d",
	     (int)API(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	printf(" %d\n", (int)type);
	NOTE("clone of a graph with allocations: %d", (int)API(cuGraphClone)(&c, g));
	printf(", as a child: %d\n",
	       (int)API(cuGraphAddChildGraphNode)(&k, facts_graph_new(), NULL, 0, g));
	MUST(cuGraphDestroy, g);
	g = facts_graph_new();
	facts_must(alloc_add(g, NULL, 4096, &p, &n), "alloc");
	{
		void *args[] = { &p, &five };

		k = facts_kernel(g, &n, facts.add, args);
	}
	MUST(cuGraphInstantiateWithFlags, &x, g, 0);
	NOTE("without a free node: launch %d", (int)API(cuGraphLaunch)(x, facts.stream));
	printf(", again %d", (int)API(cuGraphLaunch)(x, facts.stream));
	printf(", exec twice %d", (int)API(cuGraphInstantiateWithFlags)(&y, g, 0));
	printf(", end %d\n", (int)API(cuStreamSynchronize)(facts.stream));
	NOTE("cuMemFree of it: %d", (int)API(cuMemFree_v2)(p));
	printf(", launch again %d\n", (int)API(cuGraphLaunch)(x, facts.stream));
	MUST(cuStreamSynchronize, facts.stream);
	MUST(cuGraphExecDestroy, x);
	NOTE("adding a free node afterwards: %d\n",
	     (int)API(cuGraphAddMemFreeNode)(&f, g, &k, 1, p));
	NOTE("reserving the address 0x%llx while the graph lives: %d", p,
	     (int)API(cuMemAddressReserve)(&again, 2 << 20, 0, p & ~0x1fffffull, 0));
	printf(" 0x%llx\n", again);
}

/* --- attributes --- */

/* The preferred cluster size of a node with each cluster size. */
static void preferred_clusters(void)
{
	static const struct { unsigned int cluster, preferred; } sizes[] = {
		{ 0, 1 }, { 0, 2 }, { 1, 1 }, { 1, 2 }, { 2, 2 }, { 2, 4 } };
	CUlaunchAttributeValue v;
	CUgraph g = facts_graph_new();
	CUgraphNode n;
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		n = facts_add(g, NULL, 0, 1);
		memset(&v, 0, sizeof(v));
		v.clusterDim.x = sizes[i].cluster;
		v.clusterDim.y = v.clusterDim.z = 1;
		NOTE("cluster %u:", sizes[i].cluster);
		if (sizes[i].cluster)
			printf(" %d,", (int)API(cuGraphKernelNodeSetAttribute)(
					       n, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v));
		v.preferredClusterDim.x = sizes[i].preferred;
		printf(" preferred %u: set %d\n", sizes[i].preferred,
		       (int)API(cuGraphKernelNodeSetAttribute)(
			       n, CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, &v));
	}
	MUST(cuGraphDestroy, g);
}

static void attributes(void)
{
	CUlaunchAttribute set[] = {
		{ .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
		  .value.clusterDim = { 1, 1, 1 } },
		{ .id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
		  .value.preferredClusterDim = { 2, 1, 1 } },
		{ .id = CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
		  .value.nvlinkUtilCentricScheduling = 1 },
	};
	CUlaunchConfig c = { .gridDimX = 2,
			     .gridDimY = 1,
			     .gridDimZ = 1,
			     .blockDimX = 1,
			     .blockDimY = 1,
			     .blockDimZ = 1,
			     .hStream = facts.stream,
			     .attrs = set };
	CUlaunchAttributeValue v;
	uint32_t one = 1;
	void *args[] = { &facts.mem, &one };
	CUgraph g = facts_graph_new();
	CUgraphNode n = facts_add(g, NULL, 0, 1), k;
	unsigned int i, id;

	for (i = 0; i < 3; i++) {
		NOTE("attribute %d: set %d", (int)set[i].id,
		     (int)API(cuGraphKernelNodeSetAttribute)(n, set[i].id, &set[i].value));
		memset(&v, 0, sizeof(v));
		printf(", get %d: %x %x %x\n",
		       (int)API(cuGraphKernelNodeGetAttribute)(n, set[i].id, &v),
		       fdry_get32((uint8_t *)&v), fdry_get32((uint8_t *)&v + 4),
		       fdry_get32((uint8_t *)&v + 8));
	}
	NOTE("run with them: %d\n", (int)facts_run(g, 1, false));
	MUST(cuGraphDestroy, g);
	for (i = 1; i <= 3; i++) {
		c.attrs = i == 3 ? set + 2 : set;
		c.numAttrs = i == 3 ? 1 : i;
		MUST(cuStreamBeginCapture_v2, facts.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
		NOTE("captured launch %u: %d", i,
		     (int)API(cuLaunchKernelEx)(&c, facts.add, args, NULL));
		MUST(cuStreamEndCapture, facts.stream, &g);
		if (!g || !facts_nodes_of(g, &k, 1)) {
			printf("\n");
			continue;
		}
		for (id = 1; id < 20; id++) {
			memset(&v, 0, sizeof(v));
			if (!API(cuGraphKernelNodeGetAttribute)(k, id, &v) &&
			    fdry_get32((uint8_t *)&v))
				printf(", %u: %x", id, fdry_get32((uint8_t *)&v));
		}
		printf("; run %d\n", (int)facts_run(g, 1, true));
	}
}

/* --- copies --- */

static void arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR d = { 16, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1 };
	CUDA_MEMCPY3D p = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = facts.mem,
			    .srcPitch = 16, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			    .WidthInBytes = 16, .Height = 4, .Depth = 1 }, q;
	CUgraph g = facts_graph_new();
	CUgraphNode n;
	CUarray a;

	MUST(cuArrayCreate_v2, &a, &d);
	p.dstArray = a;
	NOTE("a copy to an array: add %d",
	     (int)API(cuGraphAddMemcpyNode)(&n, g, NULL, 0, &p, facts.ctx));
	MUST(cuGraphMemcpyNodeGetParams, n, &q);
	printf(", get: types %d %d array %d pitch %zu height %zu, run %d\n", (int)q.srcMemoryType,
	       (int)q.dstMemoryType, q.dstArray == a, q.srcPitch, q.srcHeight,
	       (int)facts_run(g, 1, true));
	MUST(cuArrayDestroy, a);
}

int main(int argc, char **argv)
{
	static const struct facts_section sections[] = {
#define SECTION(name) { #name, name }
		SECTION(addresses),
		SECTION(attributes),
		SECTION(preferred_clusters),
		SECTION(arrays),
		SECTION(graph_memory),
		SECTION(memops),
#undef SECTION
	};

	return facts_main(argc, argv, sections, sizeof(sections) / sizeof(sections[0]));
}
