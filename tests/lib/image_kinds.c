// SPDX-License-Identifier: Apache-2.0
/* image_kinds.c - graphs with nodes of one kind each; see image_kinds.h. */
#include "tests/lib/image_kinds.h"

int image_kind_calls;

static void called(void *arg)
{
	++*(int *)arg;
}

struct fdry_host_function image_kind_function(void)
{
	return (struct fdry_host_function){ "called", called, &image_kind_calls };
}

static CUgraphNode memset_add(CUgraph g, const CUgraphNode *after, CUdeviceptr to, unsigned int v)
{
	CUDA_MEMSET_NODE_PARAMS p = { to, 0, v, 4, 1, 1 };
	CUcontext ctx;
	CUgraphNode n;

	cuda_ok(cuCtxGetCurrent, &ctx);
	cuda_ok(cuGraphAddMemsetNode, &n, g, after, after != NULL, &p, ctx);
	return n;
}

/* c[0] becomes 7 through memory that the graph allocates and frees. */
static void allocation_add(CUgraph g, CUdeviceptr c)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = 512 };
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = c,
			       .WidthInBytes = 4, .Height = 1, .Depth = 1 };
	CUgraphNode n;
	CUcontext ctx;

	cuda_ok(cuCtxGetCurrent, &ctx);
	cuda_ok(cuGraphAddMemAllocNode, &n, g, NULL, 0, &p);
	n = memset_add(g, &n, p.dptr, 7);
	copy.srcDevice = p.dptr;
	cuda_ok(cuGraphAddMemcpyNode, &n, g, &n, 1, &copy, ctx);
	cuda_ok(cuGraphAddMemFreeNode, &n, g, &n, 1, p.dptr);
}

static void memop_add(CUgraph g, unsigned int operation, CUdeviceptr at)
{
	CUstreamBatchMemOpParams op = { .writeValue = { .operation = operation, .address = at,
							.value = 9 } };
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { .count = 1, .paramArray = &op };
	CUgraphNode n;

	cuda_ok(cuCtxGetCurrent, &p.ctx);
	cuda_ok(cuGraphAddBatchMemOpNode, &n, g, NULL, 0, &p);
}

static void host_add(CUgraph g)
{
	CUDA_HOST_NODE_PARAMS p = { called, &image_kind_calls };
	CUgraphNode n;

	cuda_ok(cuGraphAddHostNode, &n, g, NULL, 0, &p);
}

static void condition_add(CUgraph g, CUdeviceptr c)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUgraphNode n;

	p.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){ .type = CU_GRAPH_COND_TYPE_IF, .size = 1 };
	cuda_ok(cuCtxGetCurrent, &p.conditional.ctx);
	cuda_ok(cuGraphConditionalHandleCreate, &p.conditional.handle, g, p.conditional.ctx, 1,
		CU_GRAPH_COND_ASSIGN_DEFAULT);
	cuda_ok(cuGraphAddNode_v2, &n, g, NULL, NULL, 0, &p);
	memset_add(p.conditional.phGraph_out[0], NULL, c, 8);
}

static CUgraph kind_graph(enum image_kind kind, CUdeviceptr c)
{
	CUgraphNode n;
	CUgraph g, child;
	CUevent event;

	cuda_ok(cuGraphCreate, &g, 0);
	cuda_ok(cuGraphCreate, &child, 0);
	if (kind == KIND_ALLOCATION)
		allocation_add(g, c);
	if (kind == KIND_WRITE)
		memop_add(g, CU_STREAM_MEM_OP_WRITE_VALUE_32, c);
	if (kind == KIND_WAIT)
		memop_add(g, CU_STREAM_MEM_OP_WAIT_VALUE_32, c);
	if (kind == KIND_HOST)
		host_add(g);
	if (kind == KIND_CONDITION)
		condition_add(g, c);
	if (kind == KIND_EVENT) {
		cuda_ok(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
		cuda_ok(cuGraphAddEventRecordNode, &n, g, NULL, 0, event);
		cuda_ok(cuGraphAddEventWaitNode, &n, g, &n, 1, event);
	}
	if (kind == KIND_HOST_CHILD)
		host_add(child);
	if (kind == KIND_PARENT)
		memset_add(child, NULL, c, 6);
	if (kind == KIND_PARENT || kind == KIND_HOST_CHILD)
		cuda_ok(cuGraphAddChildGraphNode, &n, g, NULL, 0, child);
	return g;
}

void image_kinds_make(struct work *w)
{
	struct fdry_host_function f = image_kind_function();
	unsigned int i;

	work_make(w);
	ok(fdry_capture_host_function(w->cap, &f));
	for (i = 0; i < KINDS; i++)
		ok(fdry_capture_graph(w->cap, KIND_KEY + i, "kind", kind_graph(i, w->c)));
	tensor_add(w, "c", w->c, FDRY_USE_STATE, 0);
}
