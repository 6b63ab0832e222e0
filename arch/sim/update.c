// SPDX-License-Identifier: Apache-2.0
/*
 * update.c - changes of an executable graph.
 *
 * A change needs a plan that no launch holds, so running launches keep their plan.
 * cuGraphExecUpdate pairs nodes in the order of their creation.
 */
#include "arch/sim/graph.h"

#include <string.h>

/* The node of @exec that was made of @node, in a plan that may be changed. */
static CUresult step_find(CUgraphExec exec, CUgraphNode node, struct sim_step **ret)
{
	struct sim_exec *x;
	struct sim_node *n;
	struct sim_step *s;

	SIM_TRY(sim_exec_find(exec, &x));
	SIM_TRY(sim_node_find(node, &n));
	if (!sim_plan_find(x->plan, n->obj.id))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_plan_own(&x->plan));
	s = sim_plan_find(x->plan, n->obj.id);
	*ret = s;
	return CUDA_SUCCESS;
}

static CUresult step_find_type(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type,
			       struct sim_step **ret)
{
	SIM_TRY(step_find(exec, node, ret));
	return (*ret)->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int cooperative(const struct sim_launch *l)
{
	CUlaunchAttributeValue v;

	sim_attr_get(l, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v);
	return v.cooperative;
}

static int priority(const struct sim_launch *l)
{
	CUlaunchAttributeValue v;

	sim_attr_get(l, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v);
	return v.priority;
}

static CUgraphExecUpdateResult kernel_change(const struct sim_launch *old,
					     const struct sim_launch *new, cuuint64_t flags)
{
	if (old->func->ctx != new->func->ctx)
		return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
	if (cooperative(old) != cooperative(new))
		return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY && priority(old) != priority(new))
		return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUgraphExecUpdateResult copy_change(const CUDA_MEMCPY3D *old, const CUDA_MEMCPY3D *new)
{
	return old->srcMemoryType != new->srcMemoryType || old->dstMemoryType != new->dstMemoryType
		       ? CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED
		       : CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* A change may set the address and the value, and the width if the memset has one row. */
static CUgraphExecUpdateResult set_change(const CUDA_MEMSET_NODE_PARAMS *old,
					  const CUDA_MEMSET_NODE_PARAMS *new)
{
	bool same = old->height == new->height && old->elementSize == new->elementSize;

	if (old->height > 1)
		same = same && old->pitch == new->pitch && old->width == new->width;
	return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

static CUgraphExecUpdateResult op_change(const struct sim_op *old, const struct sim_op *new,
					 cuuint64_t flags)
{
	switch (old->kind) {
	case SIM_OP_KERNEL:
		return kernel_change(&old->launch, &new->launch, flags);
	case SIM_OP_MEMCPY:
		return copy_change(&old->copy.p, &new->copy.p);
	case SIM_OP_MEMSET:
		return set_change(&old->set, &new->set);
	default:
		return CU_GRAPH_EXEC_UPDATE_SUCCESS;
	}
}

static void info_set(CUgraphExecUpdateResultInfo *info, CUgraphExecUpdateResult result,
		     uint64_t node, uint64_t from)
{
	info->result = result;
	info->errorNode = (CUgraphNode)(uintptr_t)node;
	info->errorFromNode = (CUgraphNode)(uintptr_t)from;
}

static bool deps_same(const struct sim_step *old, const struct sim_plan *plan,
		      const struct sim_step *new, CUgraphExecUpdateResultInfo *info)
{
	uint64_t from = 0;
	size_t i = 0;

	if (old->ndeps == new->ndeps) {
		while (i < old->ndeps && old->deps[i].from == new->deps[i].from &&
		       !memcmp(&old->deps[i].data, &new->deps[i].data, sizeof(old->deps[i].data)))
			i++;
		if (i == old->ndeps)
			return true;
		from = plan->steps[new->deps[i].from].node;
	}
	info_set(info, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, new->node, from);
	return false;
}

static bool plan_fits(const struct sim_plan *old, const struct sim_plan *new, cuuint64_t flags,
		      CUgraphExecUpdateResultInfo *info);

static bool step_fits(const struct sim_step *old, const struct sim_plan *plan,
		      const struct sim_step *new, cuuint64_t flags,
		      CUgraphExecUpdateResultInfo *info)
{
	CUgraphExecUpdateResult res;

	if (old->type != new->type) {
		info_set(info, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, new->node, 0);
		return false;
	}
	if (!deps_same(old, plan, new, info))
		return false;
	if (old->child)
		return plan_fits(old->child, new->child, flags, info);
	if (old->bodies) {
		info_set(info, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, new->node, 0);
		return false;
	}
	res = old->mem == new->mem ? op_change(&old->op, &new->op, flags)
				   : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	if (res)
		info_set(info, res, new->node, 0);
	return !res;
}

static bool plan_fits(const struct sim_plan *old, const struct sim_plan *new, cuuint64_t flags,
		      CUgraphExecUpdateResultInfo *info)
{
	if (old->count != new->count) {
		info_set(info, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0, 0);
		return false;
	}
	for (size_t i = 0; i < old->count; i++)
		if (!step_fits(&old->steps[i], new, &new->steps[i], flags, info))
			return false;
	return true;
}

/* Keep these when a plan replaces another: the nodes' handles, disabled nodes, the order. */
static void plan_inherit(const struct sim_plan *old, struct sim_plan *new)
{
	memcpy(new->order, old->order, old->count * sizeof(*old->order));
	for (size_t i = 0; i < old->count; i++) {
		new->steps[i].node = old->steps[i].node;
		new->steps[i].disabled = old->steps[i].disabled;
		if (old->steps[i].child)
			plan_inherit(old->steps[i].child, new->steps[i].child);
	}
}

/* Replace *@plan by a plan of @g. */
static CUresult plan_replace(struct sim_plan **plan, const struct sim_graph *g, cuuint64_t flags,
			     CUgraphExecUpdateResultInfo *info)
{
	struct sim_plan *new;

	SIM_TRY(sim_plan_make(g, &new, NULL));
	if (!plan_fits(*plan, new, flags, info)) {
		sim_plan_put(new);
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	plan_inherit(*plan, new);
	sim_plan_put(*plan);
	*plan = new;
	return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	struct sim_graph *g;
	struct sim_exec *x;

	SIM_ENTER(cuGraphExecUpdate_v2);
	if (!info)
		return CUDA_ERROR_INVALID_VALUE;
	info_set(info, CU_GRAPH_EXEC_UPDATE_ERROR, 0, 0);
	SIM_TRY(sim_exec_find(exec, &x));
	SIM_TRY(sim_graph_find(graph, &g));
	SIM_TRY(plan_replace(&x->plan, g, x->flags, info));
	info_set(info, CU_GRAPH_EXEC_UPDATE_SUCCESS, 0, 0);
	return CUDA_SUCCESS;
}

/* @op, which is consumed, becomes the work of @s. */
static CUresult step_set(struct sim_step *s, struct sim_op *op)
{
	sim_op_release(&s->op);
	s->op = *op;
	return CUDA_SUCCESS;
}

/* Set @op as the work of @s if the change is allowed. */
static CUresult step_change(struct sim_step *s, struct sim_op *op)
{
	if (op_change(&s->op, op, 0)) {
		sim_op_release(op);
		return CUDA_ERROR_INVALID_VALUE;
	}
	return step_set(s, op);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
					   const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct sim_step *s;
	struct sim_op op;

	SIM_ENTER(cuGraphExecKernelNodeSetParams_v2);
	SIM_TRY(step_find_type(exec, node, CU_GRAPH_NODE_TYPE_KERNEL, &s));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_kernel_make(params, &s->op.launch, &op));
	return step_change(s, &op);
}

static bool copy_flat(const CUDA_MEMCPY3D *p)
{
	return p->Height <= 1 && p->Depth <= 1;
}

static CUresult exec_memcpy(struct sim_step *s, const CUDA_MEMCPY3D *p, CUcontext ctx)
{
	struct sim_op op;

	if (!copy_flat(&s->op.copy.p) || !copy_flat(p) || !p->WidthInBytes)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_memcpy_make(p, ctx, &op));
	return step_change(s, &op);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
					const CUDA_MEMCPY3D *params, CUcontext ctx)
{
	struct sim_step *s;

	SIM_ENTER(cuGraphExecMemcpyNodeSetParams);
	SIM_TRY(step_find_type(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, &s));
	return params ? exec_memcpy(s, params, ctx) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
					const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
	struct sim_step *s;
	struct sim_ctx *c;
	struct sim_op op;

	SIM_ENTER(cuGraphExecMemsetNodeSetParams);
	SIM_TRY(step_find_type(exec, node, CU_GRAPH_NODE_TYPE_MEMSET, &s));
	if (!params || !params->width || !params->height)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_find(ctx, &c));
	SIM_TRY(sim_memset_make(params, &op));
	return step_change(s, &op);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
				      const CUDA_HOST_NODE_PARAMS *params)
{
	struct sim_step *s;
	struct sim_op op;

	SIM_ENTER(cuGraphExecHostNodeSetParams);
	SIM_TRY(step_find_type(exec, node, CU_GRAPH_NODE_TYPE_HOST, &s));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_host_make(params, &op));
	return step_set(s, &op);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	struct sim_step *s;
	struct sim_op op;

	SIM_ENTER(cuGraphExecEventRecordNodeSetEvent);
	SIM_TRY(step_find_type(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &s));
	SIM_TRY(sim_event_make(event, SIM_OP_EVENT_RECORD, &op));
	return step_set(s, &op);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	struct sim_step *s;
	struct sim_op op;

	SIM_ENTER(cuGraphExecEventWaitNodeSetEvent);
	SIM_TRY(step_find_type(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &s));
	SIM_TRY(sim_event_make(event, SIM_OP_EVENT_WAIT, &op));
	return step_set(s, &op);
}

CUresult cuGraphExecExternalSemaphoresSignalNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
	struct sim_step *s;
	struct sim_op op;

	SIM_ENTER(cuGraphExecExternalSemaphoresSignalNodeSetParams);
	SIM_TRY(step_find_type(exec, node, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, &s));
	if (!params || params->numExtSems != s->op.semas.count)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_semas_make(SIM_OP_SEMAS_SIGNAL, params->extSemArray, params->paramsArray,
			       params->numExtSems, &op));
	return step_set(s, &op);
}

CUresult cuGraphExecExternalSemaphoresWaitNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
	struct sim_step *s;
	struct sim_op op;

	SIM_ENTER(cuGraphExecExternalSemaphoresWaitNodeSetParams);
	SIM_TRY(step_find_type(exec, node, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, &s));
	if (!params || params->numExtSems != s->op.semas.count)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_semas_make(SIM_OP_SEMAS_WAIT, params->extSemArray, params->paramsArray,
			       params->numExtSems, &op));
	return step_set(s, &op);
}

static CUresult exec_child(struct sim_step *s, CUgraph child)
{
	CUgraphExecUpdateResultInfo info;
	struct sim_graph *g;
	CUresult res;

	SIM_TRY(sim_graph_find(child, &g));
	res = plan_replace(&s->child, g, 0, &info);
	return res == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE ? CUDA_ERROR_INVALID_VALUE : res;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	struct sim_step *s;

	SIM_ENTER(cuGraphExecChildGraphNodeSetParams);
	SIM_TRY(step_find_type(exec, node, CU_GRAPH_NODE_TYPE_GRAPH, &s));
	return exec_child(s, child);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	struct sim_step *s;
	struct sim_op op;

	SIM_ENTER(cuGraphExecNodeSetParams);
	SIM_TRY(step_find(exec, node, &s));
	if (!sim_params_clean(params) || params->type != s->type)
		return CUDA_ERROR_INVALID_VALUE;
	if (s->child)
		return exec_child(s, params->graph.graph);
	if (s->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		return exec_memcpy(s, &params->memcpy.copyParams, params->memcpy.copyCtx);
	SIM_TRY(sim_params_make(params, s->op.kind == SIM_OP_KERNEL ? &s->op.launch : NULL, &op));
	return step_change(s, &op);
}

/* Only kernels, copies and memsets can be switched off. */
static bool can_disable(const struct sim_step *s)
{
	return s->type == CU_GRAPH_NODE_TYPE_KERNEL || s->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
	       s->type == CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
	struct sim_step *s;

	SIM_ENTER(cuGraphNodeSetEnabled);
	SIM_TRY(step_find(exec, node, &s));
	if (!can_disable(s))
		return CUDA_ERROR_INVALID_VALUE;
	s->disabled = !enabled;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
	struct sim_step *s;

	SIM_ENTER(cuGraphNodeGetEnabled);
	SIM_TRY(step_find(exec, node, &s));
	if (!enabled || !can_disable(s))
		return CUDA_ERROR_INVALID_VALUE;
	*enabled = !s->disabled;
	return CUDA_SUCCESS;
}
