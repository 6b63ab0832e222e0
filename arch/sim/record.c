// SPDX-License-Identifier: Apache-2.0
/*
 * record.c - calls on streams that capture.
 *
 * Work becomes a node after the stream's dependencies; a wait for an event of the same capture adds
 * to these. The rest of this file handles calls that a capture forbids.
 */
#include "arch/sim/capture.h"

#include <stdlib.h>

/* Whether a kernel may start before the kernel before it has finished. */
static bool overlaps(const struct sim_op *op)
{
	bool yes = false;

	for (unsigned int i = 0; op->kind == SIM_OP_KERNEL && i < op->launch.nattrs; i++)
		if (op->launch.attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
			yes = op->launch.attrs[i].value.programmaticStreamSerializationAllowed;
	return yes;
}

/* Add the edges of the stream's dependencies to @n. */
static CUresult node_link(const struct capture_stream *cs, struct sim_node *n, bool early)
{
	const CUgraphEdgeData programmatic = { .from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
					       .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC };

	early = early && cs->deps.count == 1;
	for (size_t i = 0; i < cs->deps.count; i++) {
		struct sim_node *from = cs->deps.v[i].node;
		const CUgraphEdgeData *data = &cs->deps.v[i].data;

		if (early && sim_edge_plain(data))
			data = &programmatic;
		if (sim_edge_check(from, n, data))
			data = &sim_edge_none;
		SIM_TRY(sim_edge_add(from, n, data));
	}
	return CUDA_SUCCESS;
}

/* Add a node after the stream's dependencies; it becomes the only dependency. */
static CUresult node_append(struct sim_stream *s, CUgraphNodeType type, bool early,
			    struct sim_node **ret)
{
	struct capture_stream *cs = s->capture_data;
	struct sim_edges deps = { 0 };
	struct sim_node *n;
	CUresult res;

	SIM_TRY(sim_node_new(s->capture->graph, type, &n));
	res = node_link(cs, n, early);
	if (!res)
		res = sim_edges_put(&deps, n, &sim_edge_none);
	if (res) {
		sim_node_free(n);
		return res;
	}
	sim_edges_release(&cs->deps);
	cs->deps = deps;
	*ret = n;
	return CUDA_SUCCESS;
}

/* Record @ev in capture @c: it stands for @deps, which are consumed. */
static CUresult event_set(struct sim_event *ev, struct sim_capture *c, struct sim_edges *deps)
{
	struct sim_edges *kept = malloc(sizeof(*kept));

	if (!kept) {
		sim_edges_release(deps);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sim_capture_event_gone(ev);
	*kept = *deps;
	c->refs++;
	ev->capture = c;
	ev->capture_data = kept;
	return CUDA_SUCCESS;
}

/* The events that a launch itself records. */
static CUresult launch_events(struct sim_stream *s, struct sim_node *n, const CUlaunchAttribute *a)
{
	CUgraphEdgeData data = { .from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER };
	struct sim_edges deps = { 0 };
	struct sim_event *ev;
	CUevent handle;

	if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
		handle = a->value.programmaticEvent.event;
		data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
		if (!a->value.programmaticEvent.triggerAtBlockStart)
			data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
	} else if (a->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
		handle = a->value.launchCompletionEvent.event;
	} else {
		return CUDA_SUCCESS;
	}
	ev = sim_find(handle, SIM_EVENT);
	if (!ev)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_edges_put(&deps, n, &data));
	return event_set(ev, s->capture, &deps);
}

static CUresult capture_kernel(struct sim_stream *s, struct sim_op *op)
{
	struct sim_node *n;
	CUresult res;

	SIM_TRY(node_append(s, CU_GRAPH_NODE_TYPE_KERNEL, overlaps(op), &n));
	n->op = *op;
	for (unsigned int i = 0; i < op->launch.nattrs; i++) {
		res = launch_events(s, n, &op->launch.attrs[i]);
		if (res)
			break;
	}
	*op = (struct sim_op){ .kind = SIM_OP_NONE };
	return sim_attrs_settle(&n->op.launch, s->priority);
}

static CUresult capture_work(struct sim_stream *s, struct sim_op *op, CUgraphNodeType type)
{
	struct sim_node *n;

	SIM_TRY(node_append(s, type, false, &n));
	n->op = *op;
	*op = (struct sim_op){ .kind = SIM_OP_NONE };
	return CUDA_SUCCESS;
}

static CUresult capture_record(struct sim_stream *s, struct sim_event *ev)
{
	const struct capture_stream *cs = s->capture_data;
	struct sim_edges deps;

	SIM_TRY(sim_edges_copy(&cs->deps, &deps));
	return event_set(ev, s->capture, &deps);
}

/* A stream that captures waits for an event. */
static CUresult capture_wait(struct sim_stream *s, struct sim_event *ev)
{
	struct capture_stream *cs = s->capture_data;

	if (ev->capture == s->capture)
		return sim_edges_merge(&cs->deps, ev->capture_data);
	if (!ev->capture && !ev->fence)
		return CUDA_SUCCESS;
	sim_capture_invalidate(s->capture);
	if (!ev->capture || ev->capture->status == CU_STREAM_CAPTURE_STATUS_NONE)
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	sim_capture_invalidate(ev->capture);
	return CUDA_ERROR_STREAM_CAPTURE_MERGE;
}

static CUresult capture_any(struct sim_stream *s, struct sim_op *op)
{
	if (s->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	switch (op->kind) {
	case SIM_OP_KERNEL:
		return capture_kernel(s, op);
	case SIM_OP_MEMCPY:
		return capture_work(s, op, CU_GRAPH_NODE_TYPE_MEMCPY);
	case SIM_OP_MEMSET:
		return capture_work(s, op, CU_GRAPH_NODE_TYPE_MEMSET);
	case SIM_OP_HOST:
		return capture_work(s, op, CU_GRAPH_NODE_TYPE_HOST);
	case SIM_OP_MEMOPS:
		return capture_work(s, op, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
	case SIM_OP_SEMAS_SIGNAL:
		return capture_work(s, op, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL);
	case SIM_OP_SEMAS_WAIT:
		return capture_work(s, op, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT);
	case SIM_OP_EVENT_RECORD:
		return op->event.external ? capture_work(s, op, CU_GRAPH_NODE_TYPE_EVENT_RECORD) :
					    capture_record(s, op->event.event);
	case SIM_OP_EVENT_WAIT:
		return op->event.external ? capture_work(s, op, CU_GRAPH_NODE_TYPE_WAIT_EVENT) :
					    capture_wait(s, op->event.event);
	default:
		return sim_capture_spoil(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
}

CUresult sim_capture_op(struct sim_stream *s, struct sim_op *op)
{
	CUresult res = capture_any(s, op);

	sim_op_release(op);
	return res;
}

CUresult sim_capture_memory(struct sim_stream *s, CUgraphNodeType type, struct sim_gmem *m)
{
	struct sim_node *n;
	CUresult res = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

	if (s->capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		res = node_append(s, type, false, &n);
	if (res)
		sim_gmem_put(m);
	else
		sim_gmem_attach(n, m);
	return res;
}

CUresult sim_capture_join(struct sim_stream *s, struct sim_event *ev)
{
	struct sim_capture *c = ev->capture;
	struct sim_edges deps;

	if (c->status == CU_STREAM_CAPTURE_STATUS_NONE)
		return CUDA_ERROR_CAPTURED_EVENT;
	if (c->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (s == s->ctx->legacy)
		return sim_capture_spoil(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	SIM_TRY(sim_edges_copy(ev->capture_data, &deps));
	return sim_capture_enter(c, s, &deps);
}

/* Whether @c forbids unsafe calls on this thread. */
static bool forbids(const struct sim_capture *c)
{
	bool mine = c->thread == sim_capture_thread() && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;

	if (sim_capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	return mine || (sim_capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
			c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult sim_unsafe(void)
{
	CUresult res = CUDA_SUCCESS;

	for (struct sim_capture *c = sim_captures; c; c = c->next)
		if (forbids(c)) {
			sim_capture_invalidate(c);
			res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	return res;
}

CUresult sim_capture_sync_ctx(const struct sim_ctx *ctx)
{
	CUresult res = CUDA_SUCCESS;

	for (struct sim_capture *c = sim_captures; c; c = c->next)
		for (const struct capture_stream *cs = c->streams; cs; cs = cs->next)
			if (cs->stream->ctx == ctx) {
				sim_capture_invalidate(c);
				res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
			}
	return res;
}

CUresult sim_capture_sync(struct sim_stream *s)
{
	return sim_capture_spoil(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult sim_capture_event(struct sim_event *ev)
{
	sim_capture_invalidate(ev->capture);
	return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult sim_capture_legacy(struct sim_ctx *ctx)
{
	struct sim_capture *c = sim_capture_blocking(ctx);

	if (!c)
		return CUDA_SUCCESS;
	sim_capture_invalidate(c);
	return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

void sim_capture_stream_gone(struct sim_stream *s)
{
	struct sim_capture *c = s->capture;

	if (!c)
		return;
	sim_capture_invalidate(c);
	if (c->origin == s)
		sim_capture_abort(c);
	else
		sim_capture_leave(s);
}

void sim_capture_event_gone(struct sim_event *ev)
{
	if (!ev->capture)
		return;
	sim_edges_release(ev->capture_data);
	free(ev->capture_data);
	sim_capture_put(ev->capture);
	ev->capture = NULL;
	ev->capture_data = NULL;
}

void sim_capture_ctx_gone(struct sim_ctx *ctx)
{
	struct sim_capture *c = sim_captures;

	while (c) {
		struct sim_capture *next = c->next;

		if (c->origin->ctx == ctx)
			sim_capture_abort(c);
		c = next;
	}
}
