// SPDX-License-Identifier: Apache-2.0
/*
 * node.c - adding nodes of every kind, reading and changing their parameters.
 */
#include "arch/sim/graph.h"

#include <stdlib.h>
#include <string.h>

void sim_node_clear(struct sim_node *n)
{
	sim_op_release(&n->op);
	sim_gmem_node_clear(n);
	free(n->params);
	n->params = NULL;
}

/* @op, which is consumed, becomes the work of @n. */
static void node_set(struct sim_node *n, struct sim_op *op)
{
	sim_node_clear(n);
	n->op = *op;
}

static void child_adopt(struct sim_node *n, struct sim_graph *child)
{
	n->child = child;
	child->parent = n;
}

CUresult sim_node_copy_work(const struct sim_node *from, struct sim_node *to)
{
	struct sim_graph *child;

	if (!from->child)
		return sim_op_copy(&from->op, &to->op);
	SIM_TRY(sim_graph_clone(from->child, &child));
	child_adopt(to, child);
	return CUDA_SUCCESS;
}

/* Add a node with the work @op, which is consumed also on failure. */
static CUresult node_add(const struct sim_place *at, CUgraphNodeType type, struct sim_op *op,
		      CUgraphNode *ret)
{
	struct sim_node *n;
	CUresult res = ret ? sim_node_place(at, type, &n) : CUDA_ERROR_INVALID_VALUE;

	if (res) {
		sim_op_release(op);
		return res;
	}
	n->op = *op;
	*ret = SIM_HANDLE(CUgraphNode, n);
	return CUDA_SUCCESS;
}

static CUresult node_find_type(CUgraphNode node, CUgraphNodeType type, struct sim_node **ret)
{
	struct sim_node *n;

	SIM_TRY(sim_node_find(node, &n));
	if (n->type != type)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = n;
	return CUDA_SUCCESS;
}

/* The array that GetParams shows: a pointer for each parameter, or the list of `extra`. */
static CUresult kernel_show(struct sim_node *n)
{
	const struct sim_launch *l = &n->op.launch;
	const struct sim_kernel_record *r = l->func->record;
	size_t count = l->packed ? 5 : r->nparams + 1;

	if (n->params)
		return CUDA_SUCCESS;
	n->params = calloc(count, sizeof(*n->params));
	if (!n->params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	n->extra_size = l->args_size;
	if (l->packed) {
		void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, l->args,
				  CU_LAUNCH_PARAM_BUFFER_SIZE, &n->extra_size,
				  CU_LAUNCH_PARAM_END };

		memcpy(n->params, extra, sizeof(extra));
		return CUDA_SUCCESS;
	}
	for (uint32_t i = 0; i < r->nparams; i++)
		n->params[i] = (char *)l->args + r->params[i].offset;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
				 size_t ndeps, const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct sim_op op;

	SIM_ENTER(cuGraphAddKernelNode_v2);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_kernel_make(params, NULL, &op));
	return node_add(&(struct sim_place){ graph, deps, NULL, ndeps },
			    CU_GRAPH_NODE_TYPE_KERNEL, &op, ret);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *ret)
{
	const struct sim_launch *l;
	struct sim_node *n;

	SIM_ENTER(cuGraphKernelNodeGetParams_v2);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_KERNEL, &n));
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(kernel_show(n));
	l = &n->op.launch;
	*ret = (CUDA_KERNEL_NODE_PARAMS){
		.func = l->kern ? NULL : SIM_HANDLE(CUfunction, l->func),
		.gridDimX = l->grid[0], .gridDimY = l->grid[1], .gridDimZ = l->grid[2],
		.blockDimX = l->block[0], .blockDimY = l->block[1], .blockDimZ = l->block[2],
		.sharedMemBytes = l->shared,
		.kernelParams = l->packed ? NULL : n->params,
		.extra = l->packed ? n->params : NULL,
		.kern = l->kern,
		.ctx = l->func->module ? (CUcontext)(uintptr_t)l->func->ctx->handle : NULL,
	};
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct sim_node *n;
	struct sim_op op;

	SIM_ENTER(cuGraphKernelNodeSetParams_v2);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_KERNEL, &n));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_kernel_make(params, &n->op.launch, &op));
	node_set(n, &op);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
			      size_t ndeps, const CUDA_MEMCPY3D *params, CUcontext ctx)
{
	struct sim_op op;

	SIM_ENTER(cuGraphAddMemcpyNode);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_memcpy_make(params, ctx, &op));
	return node_add(&(struct sim_place){ graph, deps, NULL, ndeps },
			    CU_GRAPH_NODE_TYPE_MEMCPY, &op, ret);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *ret)
{
	struct sim_node *n;

	SIM_ENTER(cuGraphMemcpyNodeGetParams);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_MEMCPY, &n));
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = n->op.copy.p;
	return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
	struct sim_node *n;
	struct sim_op op;

	SIM_ENTER(cuGraphMemcpyNodeSetParams);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_MEMCPY, &n));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_memcpy_make(params, n->op.copy.ctx, &op));
	node_set(n, &op);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
			      size_t ndeps, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
	struct sim_ctx *c;
	struct sim_op op;

	SIM_ENTER(cuGraphAddMemsetNode);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_find(ctx, &c));
	SIM_TRY(sim_memset_make(params, &op));
	return node_add(&(struct sim_place){ graph, deps, NULL, ndeps },
			    CU_GRAPH_NODE_TYPE_MEMSET, &op, ret);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *ret)
{
	struct sim_node *n;

	SIM_ENTER(cuGraphMemsetNodeGetParams);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_MEMSET, &n));
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = n->op.set;
	return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params)
{
	struct sim_node *n;
	struct sim_op op;

	SIM_ENTER(cuGraphMemsetNodeSetParams);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_MEMSET, &n));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_memset_make(params, &op));
	node_set(n, &op);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddHostNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t ndeps,
			    const CUDA_HOST_NODE_PARAMS *params)
{
	struct sim_op op;

	SIM_ENTER(cuGraphAddHostNode);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_host_make(params, &op));
	return node_add(&(struct sim_place){ graph, deps, NULL, ndeps },
			    CU_GRAPH_NODE_TYPE_HOST, &op, ret);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *ret)
{
	struct sim_node *n;

	SIM_ENTER(cuGraphHostNodeGetParams);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_HOST, &n));
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = n->op.host;
	return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
	struct sim_node *n;
	struct sim_op op;

	SIM_ENTER(cuGraphHostNodeSetParams);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_HOST, &n));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_host_make(params, &op));
	node_set(n, &op);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t ndeps)
{
	struct sim_op op = { .kind = SIM_OP_NONE };

	SIM_ENTER(cuGraphAddEmptyNode);
	return node_add(&(struct sim_place){ graph, deps, NULL, ndeps },
			    CU_GRAPH_NODE_TYPE_EMPTY, &op, ret);
}

static CUresult event_node_get(CUgraphNode node, CUgraphNodeType type, CUevent *ret)
{
	struct sim_node *n;

	SIM_TRY(node_find_type(node, type, &n));
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = SIM_HANDLE(CUevent, n->op.event.event);
	return CUDA_SUCCESS;
}

static CUresult event_node_set(CUgraphNode node, CUgraphNodeType type, CUevent event)
{
	struct sim_node *n;
	struct sim_op op;

	SIM_TRY(node_find_type(node, type, &n));
	SIM_TRY(sim_event_make(event, n->op.kind, &op));
	node_set(n, &op);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
				   size_t ndeps, CUevent event)
{
	struct sim_op op;

	SIM_ENTER(cuGraphAddEventRecordNode);
	SIM_TRY(sim_event_make(event, SIM_OP_EVENT_RECORD, &op));
	return node_add(&(struct sim_place){ graph, deps, NULL, ndeps },
			    CU_GRAPH_NODE_TYPE_EVENT_RECORD, &op, ret);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *ret)
{
	SIM_ENTER(cuGraphEventRecordNodeGetEvent);
	return event_node_get(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, ret);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
	SIM_ENTER(cuGraphEventRecordNodeSetEvent);
	return event_node_set(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
				 size_t ndeps, CUevent event)
{
	struct sim_op op;

	SIM_ENTER(cuGraphAddEventWaitNode);
	SIM_TRY(sim_event_make(event, SIM_OP_EVENT_WAIT, &op));
	return node_add(&(struct sim_place){ graph, deps, NULL, ndeps },
			    CU_GRAPH_NODE_TYPE_WAIT_EVENT, &op, ret);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *ret)
{
	SIM_ENTER(cuGraphEventWaitNodeGetEvent);
	return event_node_get(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, ret);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
	SIM_ENTER(cuGraphEventWaitNodeSetEvent);
	return event_node_set(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
				  size_t ndeps, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	struct sim_op op;

	SIM_ENTER(cuGraphAddBatchMemOpNode);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_memops_make(params, &op));
	return node_add(&(struct sim_place){ graph, deps, NULL, ndeps },
			CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &op, ret);
}

/* The array belongs to the node. */
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *ret)
{
	const struct sim_memops *m;
	struct sim_node *n;

	SIM_ENTER(cuGraphBatchMemOpNodeGetParams);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &n));
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	m = &n->op.memops;
	*ret = (CUDA_BATCH_MEM_OP_NODE_PARAMS){ m->ctx, m->count, m->list, 0 };
	return CUDA_SUCCESS;
}

CUresult cuGraphAddExternalSemaphoresSignalNode(CUgraphNode *ret, CUgraph graph,
						const CUgraphNode *deps, size_t ndeps,
						const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
	struct sim_op op;

	SIM_ENTER(cuGraphAddExternalSemaphoresSignalNode);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_semas_make(SIM_OP_SEMAS_SIGNAL, params->extSemArray, params->paramsArray,
			       params->numExtSems, &op));
	return node_add(&(struct sim_place){ graph, deps, NULL, ndeps },
			CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, &op, ret);
}

/* The arrays belong to the node. */
CUresult cuGraphExternalSemaphoresSignalNodeGetParams(CUgraphNode node,
						   CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *ret)
{
	const struct sim_semas *m;
	struct sim_node *n;

	SIM_ENTER(cuGraphExternalSemaphoresSignalNodeGetParams);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, &n));
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	m = &n->op.semas;
	*ret = (CUDA_EXT_SEM_SIGNAL_NODE_PARAMS){ m->handles, &m->params->signal, m->count };
	return CUDA_SUCCESS;
}

CUresult cuGraphExternalSemaphoresSignalNodeSetParams(CUgraphNode node,
						   const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
	struct sim_node *n;
	struct sim_op op;

	SIM_ENTER(cuGraphExternalSemaphoresSignalNodeSetParams);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, &n));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_semas_make(SIM_OP_SEMAS_SIGNAL, params->extSemArray, params->paramsArray,
			       params->numExtSems, &op));
	node_set(n, &op);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddExternalSemaphoresWaitNode(CUgraphNode *ret, CUgraph graph,
						const CUgraphNode *deps, size_t ndeps,
						const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
	struct sim_op op;

	SIM_ENTER(cuGraphAddExternalSemaphoresWaitNode);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_semas_make(SIM_OP_SEMAS_WAIT, params->extSemArray, params->paramsArray,
			       params->numExtSems, &op));
	return node_add(&(struct sim_place){ graph, deps, NULL, ndeps },
			CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, &op, ret);
}

/* The arrays belong to the node. */
CUresult cuGraphExternalSemaphoresWaitNodeGetParams(CUgraphNode node,
						   CUDA_EXT_SEM_WAIT_NODE_PARAMS *ret)
{
	const struct sim_semas *m;
	struct sim_node *n;

	SIM_ENTER(cuGraphExternalSemaphoresWaitNodeGetParams);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, &n));
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	m = &n->op.semas;
	*ret = (CUDA_EXT_SEM_WAIT_NODE_PARAMS){ m->handles, &m->params->wait, m->count };
	return CUDA_SUCCESS;
}

CUresult cuGraphExternalSemaphoresWaitNodeSetParams(CUgraphNode node,
						   const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
	struct sim_node *n;
	struct sim_op op;

	SIM_ENTER(cuGraphExternalSemaphoresWaitNodeSetParams);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, &n));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_semas_make(SIM_OP_SEMAS_WAIT, params->extSemArray, params->paramsArray,
			       params->numExtSems, &op));
	node_set(n, &op);
	return CUDA_SUCCESS;
}

/* Whether @g is the graph of @handle, or has that graph in it as a child graph. */
static bool encloses(const struct sim_graph *g, CUgraph handle)
{
	const struct sim_graph *in = sim_find(handle, SIM_GRAPH);

	while (in && in != g)
		in = in->parent ? in->parent->graph : NULL;
	return in != NULL;
}

/* Add a child graph node. @move: the node owns @child itself, otherwise a clone. */
static CUresult child_add(const struct sim_place *at, CUgraph child, bool move, CUgraphNode *ret)
{
	struct sim_graph *g;
	struct sim_node *n;
	CUresult res;

	SIM_TRY(sim_graph_find(child, &g));
	if (!ret || (move && (g->parent || g->capture || encloses(g, at->graph))))
		return CUDA_ERROR_INVALID_VALUE;
	if (!move)
		SIM_TRY(sim_graph_clone(g, &g));
	res = sim_node_place(at, CU_GRAPH_NODE_TYPE_GRAPH, &n);
	if (res) {
		if (!move)
			sim_graph_free(g);
		return res;
	}
	child_adopt(n, g);
	*ret = SIM_HANDLE(CUgraphNode, n);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
				  size_t ndeps, CUgraph child)
{
	SIM_ENTER(cuGraphAddChildGraphNode);
	return child_add(&(struct sim_place){ graph, deps, NULL, ndeps }, child, false, ret);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *ret)
{
	struct sim_node *n;

	SIM_ENTER(cuGraphChildGraphNodeGetGraph);
	SIM_TRY(node_find_type(node, CU_GRAPH_NODE_TYPE_GRAPH, &n));
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = SIM_HANDLE(CUgraph, n->child);
	return CUDA_SUCCESS;
}

static CUresult alloc_add(const struct sim_place *at, CUDA_MEM_ALLOC_NODE_PARAMS_v2 *p,
			  CUgraphNode *ret)
{
	CUDA_MEM_ALLOC_NODE_PARAMS narrow = { p->poolProps, p->accessDescs, p->accessDescCount,
					      p->bytesize, 0 };

	SIM_TRY(sim_gmem_alloc_add(at, &narrow, ret));
	p->dptr = narrow.dptr;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddNode_v2(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
			   const CUgraphEdgeData *data, size_t ndeps, CUgraphNodeParams *params)
{
	struct sim_place at = { graph, deps, data, ndeps };
	struct sim_op op = { .kind = SIM_OP_NONE };

	SIM_ENTER(cuGraphAddNode_v2);
	if (!sim_params_clean(params))
		return CUDA_ERROR_INVALID_VALUE;
	if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
		return child_add(&at, params->graph.graph,
				 params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE,
				 ret);
	if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return sim_bodies_add(&at, &params->conditional, ret);
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return alloc_add(&at, &params->alloc, ret);
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return sim_gmem_free_add(&at, params->free.dptr, ret);
	if (params->type != CU_GRAPH_NODE_TYPE_EMPTY)
		SIM_TRY(sim_params_make(params, NULL, &op));
	return node_add(&at, params->type, &op, ret);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
	struct sim_node *n;
	struct sim_op op;

	SIM_ENTER(cuGraphNodeSetParams);
	SIM_TRY(sim_node_find(node, &n));
	if (!sim_params_clean(params) || params->type != n->type)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_params_make(params, n->op.kind == SIM_OP_KERNEL ? &n->op.launch : NULL, &op));
	node_set(n, &op);
	return CUDA_SUCCESS;
}
