// SPDX-License-Identifier: Apache-2.0
/*
 * exec.c - executable graphs.
 *
 * A launch is one operation of its stream. It waits for the end of the last launch of the same
 * executable graph, then runs the plan node by node on the stream's thread. The call of the
 * launch fixes the fences of the graph's event nodes, as cuEventRecord and cuStreamWaitEvent do.
 * A stream that captures refuses launches, and instantiating or destroying executable graphs is
 * unsafe during a capture.
 */
#include "arch/sim/graph.h"

#include <stdlib.h>
#include <string.h>

#define EXEC_FLAGS \
	((cuuint64_t)(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | \
		      CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | \
		      CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | \
		      CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY))

/* One launch in flight. */
struct launch {
	struct sim_plan *plan;    /* held */
	struct sim_fence *before; /* held, or NULL */
	struct sim_fence **events; /* fences of the event nodes in the order of the plan; held;
				      NULL: nothing to wait for */
	size_t nevents;
	unsigned int *values; /* of the conditions */
};

CUresult sim_exec_find(CUgraphExec handle, struct sim_exec **ret)
{
	struct sim_exec *x = sim_find(handle, SIM_EXEC);

	if (!x)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = x;
	return CUDA_SUCCESS;
}

static void exec_release(struct sim_obj *obj)
{
	struct sim_exec *x = (struct sim_exec *)obj;

	if (x->only) {
		x->only->nexecs--;
		sim_obj_put(&x->only->obj);
	}
	if (x->plan)
		sim_plan_put(x->plan);
	sim_fence_put(x->tail);
	free(x);
}

/* Device launch and upload need a real device. */
static CUresult flags_check(cuuint64_t flags)
{
	cuuint64_t both = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
			  CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;

	if (flags & ~EXEC_FLAGS || (flags & both) == both)
		return CUDA_ERROR_INVALID_VALUE;
	return flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH ? CUDA_ERROR_NOT_SUPPORTED
								 : CUDA_SUCCESS;
}

/* Whether the graph, or a child graph in it, allocates or frees. */
static bool has_memory(const struct sim_graph *g)
{
	bool yes = g->nmem;

	for (size_t i = 0; !yes && i < g->count; i++)
		yes = g->nodes[i]->child && has_memory(g->nodes[i]->child);
	return yes;
}

static CUresult exec_new(CUgraph graph, cuuint64_t flags, struct sim_exec **ret, uint64_t *bad)
{
	struct sim_graph *g;
	struct sim_exec *x;
	CUresult res;

	SIM_TRY(sim_graph_find(graph, &g));
	if (g->capture)
		return CUDA_ERROR_INVALID_VALUE;
	if (g->nexecs)
		return CUDA_ERROR_NOT_SUPPORTED;
	SIM_TRY(sim_handles_check(g));
	x = calloc(1, sizeof(*x));
	if (!x)
		return CUDA_ERROR_OUT_OF_MEMORY;
	x->flags = flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
	res = sim_plan_make(g, &x->plan, bad);
	if (!res)
		res = sim_obj_open(&x->obj, SIM_EXEC, exec_release);
	if (res) {
		exec_release(&x->obj);
		return res;
	}
	if (has_memory(g) || sim_bodies_any(g)) {
		x->only = (struct sim_graph *)sim_obj_get(&g->obj);
		g->nexecs++;
	}
	*ret = x;
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret, CUgraph graph, unsigned long long flags)
{
	struct sim_exec *x;

	SIM_ENTER(cuGraphInstantiateWithFlags);
	if (!ret || flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(flags_check(flags));
	SIM_TRY(sim_unsafe());
	SIM_TRY(exec_new(graph, flags, &x, NULL));
	*ret = SIM_HANDLE(CUgraphExec, x);
	return CUDA_SUCCESS;
}

static CUresult stream_check(CUstream stream, struct sim_stream **ret)
{
	SIM_TRY(sim_stream_find(stream, ret));
	return (*ret)->capture ? sim_capture_sync(*ret) : CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *ret, CUgraph graph,
				      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	struct sim_stream *s;
	struct sim_exec *x;
	uint64_t bad = 0;
	CUresult res;

	SIM_ENTER(cuGraphInstantiateWithParams);
	if (!ret || !params)
		return CUDA_ERROR_INVALID_VALUE;
	params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
	params->hErrNode_out = NULL;
	SIM_TRY(flags_check(params->flags));
	SIM_TRY(sim_unsafe());
	if (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		SIM_TRY(stream_check(params->hUploadStream, &s));
	res = exec_new(graph, params->flags, &x, &bad);
	if (bad) {
		params->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
		params->hErrNode_out = (CUgraphNode)(uintptr_t)bad;
	}
	if (res)
		return res;
	params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
	*ret = SIM_HANDLE(CUgraphExec, x);
	return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *ret)
{
	struct sim_exec *x;

	SIM_ENTER(cuGraphExecGetFlags);
	SIM_TRY(sim_exec_find(exec, &x));
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = x->flags;
	return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	struct sim_exec *x;

	SIM_ENTER(cuGraphExecDestroy);
	SIM_TRY(sim_exec_find(exec, &x));
	SIM_TRY(sim_unsafe());
	sim_obj_close(&x->obj);
	return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	struct sim_stream *s;
	struct sim_exec *x;

	SIM_ENTER(cuGraphUpload);
	SIM_TRY(sim_exec_find(exec, &x));
	SIM_TRY(sim_unsafe());
	return stream_check(stream, &s);
}

static bool is_event(const struct sim_op *op)
{
	return op->kind == SIM_OP_EVENT_RECORD || op->kind == SIM_OP_EVENT_WAIT;
}

static size_t events_count(const struct sim_plan *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->count; i++)
		n += p->steps[i].child ? events_count(p->steps[i].child)
				       : is_event(&p->steps[i].op);
	return n;
}

/* Work of an unloaded module cannot run. */
static CUresult step_ready(const struct sim_step *s)
{
	return s->op.kind == SIM_OP_KERNEL && !s->op.launch.func->module ? CUDA_ERROR_INVALID_HANDLE
									 : CUDA_SUCCESS;
}

/* Record and look up the events of a plan in the order in which it runs. */
static CUresult events_arm(struct launch *l, const struct sim_plan *p)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct sim_step *s = &p->steps[p->order[i]];

		SIM_TRY(step_ready(s));
		if (s->child)
			SIM_TRY(events_arm(l, s->child));
		for (unsigned int k = 0; k < s->nbodies; k++)
			SIM_TRY(events_arm(l, s->bodies[k])); /* it has kernels, and no events */
		if (!is_event(&s->op))
			continue;
		if (s->op.kind == SIM_OP_EVENT_WAIT) {
			l->events[l->nevents++] = s->op.event.event->fence
							  ? sim_fence_get(s->op.event.event->fence)
							  : NULL;
			continue;
		}
		l->events[l->nevents] = sim_event_arm(s->op.event.event);
		if (!l->events[l->nevents++])
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* Signal the fences of operations that did not run, so that no thread waits for them. */
static void events_drop(struct launch *l, const struct sim_plan *p, size_t *at)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct sim_step *s = &p->steps[p->order[i]];

		if (s->child)
			events_drop(l, s->child, at);
		if (!is_event(&s->op) || *at >= l->nevents)
			continue;
		if (s->op.kind == SIM_OP_EVENT_RECORD && l->events[*at] && !l->events[*at]->done)
			sim_fence_signal(l->events[*at]);
		sim_fence_put(l->events[(*at)++]);
	}
}

static void launch_release(void *data)
{
	struct launch *l = data;
	size_t at = 0;

	events_drop(l, l->plan, &at);
	sim_fence_put(l->before);
	sim_plan_put(l->plan);
	free(l->events);
	free(l->values);
	free(l);
}

static CUresult step_run(const struct sim_step *s, struct sim_fence *event, struct sim_ctx *ctx)
{
	struct sim_op op = s->op;

	if (s->disabled || s->op.kind == SIM_OP_NONE)
		return CUDA_SUCCESS;
	if (s->op.kind == SIM_OP_KERNEL)
		ctx = s->op.launch.func->ctx;
	if (!is_event(&s->op))
		return sim_op_run(&s->op, ctx);
	if (!event)
		return CUDA_SUCCESS;
	op.event.fence = event;
	return sim_op_run(&op, ctx);
}

static CUresult plan_run(const struct launch *l, const struct sim_plan *p, size_t *at,
			 struct sim_ctx *ctx);

static CUresult bodies_run(const struct launch *l, const struct sim_step *s, size_t *at,
			   struct sim_ctx *ctx)
{
	const unsigned int *value = &l->values[s->cond - 1];
	unsigned int body = *value;

	if (s->cond_type == CU_GRAPH_COND_TYPE_WHILE) {
		while (*value)
			SIM_TRY(plan_run(l, s->bodies[0], at, ctx));
		return CUDA_SUCCESS;
	}
	if (s->cond_type == CU_GRAPH_COND_TYPE_IF)
		body = !*value;
	return body < s->nbodies ? plan_run(l, s->bodies[body], at, ctx) : CUDA_SUCCESS;
}

static CUresult plan_run(const struct launch *l, const struct sim_plan *p, size_t *at,
			 struct sim_ctx *ctx)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct sim_step *s = &p->steps[p->order[i]];

		if (s->child)
			SIM_TRY(plan_run(l, s->child, at, ctx));
		else if (s->bodies)
			SIM_TRY(bodies_run(l, s, at, ctx));
		else
			SIM_TRY(step_run(s, is_event(&s->op) ? l->events[(*at)++] : NULL, ctx));
	}
	return CUDA_SUCCESS;
}

/* Run a launch, on the stream's thread, without the lock. */
static CUresult launch_run(void *data, struct sim_ctx *ctx)
{
	const struct launch *l = data;
	size_t at = 0;
	CUresult res;

	if (l->before) {
		sim_lock();
		sim_fence_wait(l->before);
		sim_unlock();
	}
	sim_op_conditions(l->values, l->plan->nvalues);
	res = plan_run(l, l->plan, &at, ctx);
	sim_op_conditions(NULL, 0);
	return res;
}

static CUresult launch_new(struct sim_exec *x, struct launch **ret)
{
	struct launch *l = calloc(1, sizeof(*l));
	size_t nevents = events_count(x->plan);
	CUresult res;

	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	l->plan = x->plan;
	l->plan->refs++;
	l->before = x->tail ? sim_fence_get(x->tail) : NULL;
	l->events = calloc(nevents + 1, sizeof(*l->events));
	l->values = calloc(l->plan->nvalues + 1, sizeof(*l->values));
	res = l->events && l->values ? events_arm(l, l->plan) : CUDA_ERROR_OUT_OF_MEMORY;
	if (!res)
		memcpy(l->values, l->plan->values, l->plan->nvalues * sizeof(*l->values));
	if (res) {
		launch_release(l);
		return res;
	}
	*ret = l;
	return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	struct sim_op op = { .kind = SIM_OP_CALL,
			     .call = { .run = launch_run, .release = launch_release } };
	struct sim_fence *done;
	struct sim_stream *s;
	struct sim_exec *x;
	struct launch *l;

	SIM_ENTER(cuGraphLaunch);
	SIM_TRY(sim_exec_find(exec, &x));
	SIM_TRY(sim_stream_find(stream, &s));
	if (s->capture)
		return sim_capture_sync(s);
	SIM_TRY(sim_gmem_launch(x->plan,
				x->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	SIM_TRY(launch_new(x, &l));
	op.call.data = l;
	SIM_TRY(sim_stream_submit(s, &op, &done));
	sim_fence_put(x->tail);
	x->tail = done;
	return CUDA_SUCCESS;
}
