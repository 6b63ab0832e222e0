// SPDX-License-Identifier: Apache-2.0
/*
 * capture.c - turns the work of streams into a graph.
 *
 * A capture begins on one stream and spreads to every stream that waits for an event recorded in
 * it. Each stream keeps the nodes that its next node will depend on. An event keeps those of its
 * stream at the time of the record. A call that breaks the rules invalidates every capture that it
 * touches; the streams leave an invalidated capture only when it ends.
 */
#include "arch/sim/capture.h"

#include <stdlib.h>
#include <string.h>

struct sim_capture *sim_captures;
static unsigned long long next_nr = 1;
_Thread_local CUstreamCaptureMode sim_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* Identifies the calling thread, since the variable has another address in each thread. */
const void *sim_capture_thread(void)
{
	return &sim_capture_mode;
}

void sim_capture_put(struct sim_capture *c)
{
	if (!--c->refs)
		free(c);
}

void sim_capture_invalidate(struct sim_capture *c)
{
	if (c->status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		c->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

/* The result of a call that breaks the rules: @error the first time. */
CUresult sim_capture_spoil(struct sim_capture *c, CUresult error)
{
	if (c->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	sim_capture_invalidate(c);
	return error;
}

/* Make @s a stream of @c, depending on @deps, which are consumed. */
CUresult sim_capture_enter(struct sim_capture *c, struct sim_stream *s, struct sim_edges *deps)
{
	struct capture_stream *cs = calloc(1, sizeof(*cs));

	if (!cs) {
		sim_edges_release(deps);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	cs->stream = s;
	cs->deps = *deps;
	cs->next = c->streams;
	c->streams = cs;
	s->capture = c;
	s->capture_data = cs;
	return CUDA_SUCCESS;
}

void sim_capture_leave(struct sim_stream *s)
{
	struct capture_stream *cs = s->capture_data, **p = &s->capture->streams;

	while (*p != cs)
		p = &(*p)->next;
	*p = cs->next;
	s->capture = NULL;
	s->capture_data = NULL;
	sim_edges_release(&cs->deps);
	free(cs->nodes);
	free(cs->data);
	free(cs);
}

/* Remove every stream from the capture; the graph stays. Events hold references to @c. */
static void capture_end(struct sim_capture *c)
{
	struct sim_capture **p = &sim_captures;

	while (c->streams)
		sim_capture_leave(c->streams->stream);
	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	c->status = CU_STREAM_CAPTURE_STATUS_NONE;
	c->graph->capture = NULL;
	c->graph = NULL;
	c->origin = NULL;
	sim_capture_put(c);
}

void sim_capture_abort(struct sim_capture *c)
{
	struct sim_graph *g = c->owns_graph ? c->graph : NULL;

	capture_end(c);
	if (g)
		sim_graph_free(g);
}

static CUresult begin_check(const struct sim_stream *s, CUstreamCaptureMode mode)
{
	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (s == s->ctx->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return s->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}

/* Capture @s into @g; @deps are consumed. */
static CUresult capture_begin(struct sim_stream *s, CUstreamCaptureMode mode, struct sim_graph *g,
			      struct sim_edges *deps)
{
	struct sim_capture *c = calloc(1, sizeof(*c));
	CUresult res;

	if (!c) {
		sim_edges_release(deps);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	res = sim_capture_enter(c, s, deps);
	if (res) {
		free(c);
		return res;
	}
	c->refs = 1;
	c->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	c->mode = mode;
	c->nr = next_nr++;
	c->thread = sim_capture_thread();
	c->graph = g;
	c->origin = s;
	c->next = sim_captures;
	sim_captures = c;
	g->capture = c;
	return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	struct sim_edges none = { 0 };
	struct sim_stream *s;
	struct sim_graph *g;
	CUresult res;

	SIM_ENTER(cuStreamBeginCapture_v2);
	SIM_TRY(sim_stream_find(stream, &s));
	SIM_TRY(begin_check(s, mode));
	SIM_TRY(sim_graph_new(&g));
	res = capture_begin(s, mode, g, &none);
	if (res)
		sim_graph_free(g);
	else
		s->capture->owns_graph = true;
	return res;
}

/* Read dependencies from the caller's arrays. */
static CUresult deps_read(const struct sim_graph *g, const CUgraphNode *nodes,
			  const CUgraphEdgeData *data, size_t count, struct sim_edges *ret)
{
	struct sim_edges deps = { 0 };
	struct sim_node *n;
	CUresult res = count && !nodes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

	for (size_t i = 0; !res && i < count; i++) {
		res = sim_node_find(nodes[i], &n);
		if (!res && n->graph != g)
			res = CUDA_ERROR_INVALID_VALUE;
		if (!res)
			res = sim_edges_put(&deps, n, data ? &data[i] : &sim_edge_none);
	}
	if (res) {
		sim_edges_release(&deps);
		return res;
	}
	*ret = deps;
	return CUDA_SUCCESS;
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
				     const CUgraphEdgeData *data, size_t count,
				     CUstreamCaptureMode mode)
{
	struct sim_edges deps;
	struct sim_stream *s;
	struct sim_graph *g;

	SIM_ENTER(cuStreamBeginCaptureToGraph);
	SIM_TRY(sim_stream_find(stream, &s));
	SIM_TRY(sim_graph_find(graph, &g));
	SIM_TRY(begin_check(s, mode));
	if (g->capture)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(deps_read(g, nodes, data, count, &deps));
	return capture_begin(s, mode, g, &deps);
}

/* Mark @n and all that it waits for. */
static void mark_back(const struct sim_node *n, bool *marks, const struct sim_node **pending)
{
	size_t count = 0;

	if (marks[n->index])
		return;
	marks[n->index] = true;
	pending[count++] = n;
	while (count) {
		n = pending[--count];
		for (size_t i = 0; i < n->in.count; i++) {
			const struct sim_node *up = n->in.v[i].node;

			if (marks[up->index])
				continue;
			marks[up->index] = true;
			pending[count++] = up;
		}
	}
}

/* Check that the origin waits, directly or not, for the newest nodes of every other stream. */
static CUresult joined(const struct sim_capture *c)
{
	const struct capture_stream *cs, *origin = c->origin->capture_data;
	const struct sim_node **pending = calloc(c->graph->count + 1, sizeof(*pending));
	bool *marks = calloc(c->graph->count + 1, sizeof(*marks));
	CUresult res = pending && marks ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (size_t i = 0; !res && i < origin->deps.count; i++)
		mark_back(origin->deps.v[i].node, marks, pending);
	for (cs = c->streams; !res && cs; cs = cs->next)
		for (size_t i = 0; i < cs->deps.count; i++)
			if (!marks[cs->deps.v[i].node->index])
				res = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	free(pending);
	free(marks);
	return res;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *ret)
{
	struct sim_capture *c;
	struct sim_stream *s;
	struct sim_graph *g;
	CUresult res;

	SIM_ENTER(cuStreamEndCapture);
	SIM_TRY(sim_stream_find(stream, &s));
	c = s->capture;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (!c)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (c->origin != s)
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != sim_capture_thread())
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	*ret = NULL;
	res = c->status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? joined(c)
							   : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (res) {
		sim_capture_abort(c);
		return res;
	}
	g = c->graph;
	capture_end(c);
	*ret = SIM_HANDLE(CUgraph, g);
	return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode old = sim_capture_mode;

	SIM_ENTER(cuThreadExchangeStreamCaptureMode);
	if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	sim_capture_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

/* A capture that has a stream of @ctx which is ordered with the legacy stream. */
struct sim_capture *sim_capture_blocking(const struct sim_ctx *ctx)
{
	for (struct sim_capture *c = sim_captures; c; c = c->next)
		for (const struct capture_stream *cs = c->streams; cs; cs = cs->next)
			if (cs->stream->ctx == ctx && !(cs->stream->flags & CU_STREAM_NON_BLOCKING))
				return c;
	return NULL;
}

/* Find the stream of a query. The legacy stream cannot be queried while a blocking stream
 * captures. */
static CUresult query_find(CUstream stream, struct sim_stream **ret)
{
	struct sim_stream *s;

	SIM_TRY(sim_stream_find(stream, &s));
	if (s == s->ctx->legacy && sim_capture_blocking(s->ctx))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	*ret = s;
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret)
{
	struct sim_stream *s;

	SIM_ENTER(cuStreamIsCapturing);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(query_find(stream, &s));
	*ret = s->capture ? s->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

/* Make the arrays of dependencies for cuStreamGetCaptureInfo. The stream keeps them. */
static CUresult deps_show(struct capture_stream *cs)
{
	CUgraphNode *nodes = calloc(cs->deps.count + 1, sizeof(*nodes));
	CUgraphEdgeData *data = calloc(cs->deps.count + 1, sizeof(*data));

	if (!nodes || !data) {
		free(nodes);
		free(data);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t i = 0; i < cs->deps.count; i++) {
		nodes[i] = SIM_HANDLE(CUgraphNode, cs->deps.v[i].node);
		data[i] = cs->deps.v[i].data;
	}
	free(cs->nodes);
	free(cs->data);
	cs->nodes = nodes;
	cs->data = data;
	return CUDA_SUCCESS;
}

static bool deps_plain(const struct sim_edges *deps)
{
	for (size_t i = 0; i < deps->count; i++)
		if (!sim_edge_plain(&deps->v[i].data))
			return false;
	return true;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
				   CUgraph *graph, const CUgraphNode **nodes,
				   const CUgraphEdgeData **data, size_t *count)
{
	struct capture_stream *cs;
	struct sim_stream *s;

	SIM_ENTER(cuStreamGetCaptureInfo_v3);
	if (!status || (data && !nodes))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(query_find(stream, &s));
	cs = s->capture_data;
	*status = s->capture ? s->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
	if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_SUCCESS;
	if (nodes && !data && !deps_plain(&cs->deps))
		return CUDA_ERROR_LOSSY_QUERY;
	SIM_TRY(deps_show(cs));
	if (id)
		*id = s->capture->nr;
	if (graph)
		*graph = SIM_HANDLE(CUgraph, s->capture->graph);
	if (nodes)
		*nodes = cs->nodes;
	if (data)
		*data = cs->data;
	if (count)
		*count = cs->deps.count;
	return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes,
					      const CUgraphEdgeData *data, size_t count,
					      unsigned int flags)
{
	struct capture_stream *cs;
	struct sim_edges deps;
	struct sim_stream *s;
	CUresult res;

	SIM_ENTER(cuStreamUpdateCaptureDependencies_v2);
	SIM_TRY(sim_stream_find(stream, &s));
	if (flags & ~(unsigned int)CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		return CUDA_ERROR_INVALID_VALUE;
	if (!s->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (s->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	SIM_TRY(deps_read(s->capture->graph, nodes, data, count, &deps));
	cs = s->capture_data;
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
		sim_edges_release(&cs->deps);
		cs->deps = deps;
		return CUDA_SUCCESS;
	}
	res = sim_edges_merge(&cs->deps, &deps);
	sim_edges_release(&deps);
	return res;
}
