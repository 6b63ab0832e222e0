// SPDX-License-Identifier: Apache-2.0
/*
 * cudagraph.c - captures streams into graphs that callers hold; see foundry/run/cudagraph.h.
 *
 * End, reset and free all end the capture, so that its stream can be used again. It continues only
 * if the driver refuses to end it because it belongs to another thread.
 */
#include "run/cudagraph.h"

#include <stdlib.h>

#include "lib/opts.h"
#include "lib/live.h"
#include "arch/stream.h"

static _Thread_local CUstream current;

CUstream fdry_stream_current(void)
{
	return current;
}

CUstream fdry_stream_make_current(CUstream stream)
{
	CUstream was = current;

	current = stream;
	return was;
}

int fdry_cudagraph_check(const struct fdry_cudagraph *g)
{
	int err = g ? fdry_live_check(g, "the graph")
		    : fdry_fail(FDRY_E_INVAL,
				"no graph was given (NULL); fdry_cudagraph_new() makes one");

	return err ? err : fdry_primary_check(&g->on, "the graph");
}

int fdry_cudagraph_state_fail(const struct fdry_cudagraph *g, const char *what)
{
	static const char *const has[] = {
		[FDRY_CUDAGRAPH_EMPTY] = "nothing is captured; fdry_cudagraph_begin() captures",
		[FDRY_CUDAGRAPH_CAPTURING] =
			"a capture is in progress; fdry_cudagraph_end() ends it",
		[FDRY_CUDAGRAPH_CAPTURED] = ("it is captured but not instantiated; "
					     "fdry_cudagraph_instantiate() instantiates it, "
					     "fdry_cudagraph_reset() empties it"),
		[FDRY_CUDAGRAPH_READY] =
			"it is instantiated already; fdry_cudagraph_reset() empties it",
	};
	const char *why =
		g->state == FDRY_CUDAGRAPH_EMPTY && g->was_reset
			? "the graph was reset, and nothing was captured since; capture again"
			: has[g->state];

	return fdry_fail(FDRY_E_STATE, "cannot %s the graph: %s", what, why);
}

int fdry_cudagraph_new(const struct fdry_cudagraph_opts *opts, struct fdry_cudagraph **ret)
{
	struct fdry_cudagraph_opts o;
	struct fdry_cudagraph *g;
	int err = fdry_need(ret) ?: fdry_opts_take(opts, &o, sizeof(o));

	if (err)
		return err;
	g = calloc(1, sizeof(*g));
	if (!g)
		return fdry_nomem();
	err = fdry_primary_init(o.driver, o.device, &g->on);
	if (err)
		goto out_free;
	err = fdry_graphpool_new_private(&g->on, &g->private_pool);
	if (err)
		goto out_close;
	g->pool = g->private_pool;
	pthread_mutex_init(&g->lock, NULL);
	fdry_live_add(g);
	*ret = g;
	return 0;

out_close:
	fdry_primary_release(&g->on);
out_free:
	free(g);
	return err;
}

/* --- begin --- */

static const CUstreamCaptureMode modes[] = {
	[FDRY_CUDAGRAPH_MODE_DEFAULT] = CU_STREAM_CAPTURE_MODE_RELAXED,
	[FDRY_CUDAGRAPH_MODE_GLOBAL] = CU_STREAM_CAPTURE_MODE_GLOBAL,
	[FDRY_CUDAGRAPH_MODE_THREAD_LOCAL] = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
	[FDRY_CUDAGRAPH_MODE_RELAXED] = CU_STREAM_CAPTURE_MODE_RELAXED,
};

/* In the context. Begin the capture on the caller's stream, or on a borrowed one. */
static int stream_capture(struct fdry_cudagraph *g, const struct fdry_cudagraph_begin_opts *o)
{
	CUstream stream = o->stream;
	int err = stream ? fdry_primary_stream(&g->on, stream, "a capture")
			 : fdry_stream_borrow(g->on.drv, &stream);

	if (err)
		return err;
	err = fdry_call(g->on.drv, cuStreamBeginCapture_v2, stream, modes[o->mode]);
	if (err)
		goto out_return;
	g->stream = stream;
	g->side = !o->stream;
	g->bound = g->side || modes[o->mode] != CU_STREAM_CAPTURE_MODE_RELAXED;
	g->thread = pthread_self();
	return 0;
out_return:
	if (!o->stream)
		fdry_stream_return(g->on.drv, stream);
	return err;
}

/* The lock is held. */
static int capture_begin(struct fdry_cudagraph *g, const struct fdry_cudagraph_begin_opts *o)
{
	struct fdry_graphpool *pool = o->pool ? o->pool : g->private_pool;
	CUstreamCaptureMode mode;
	int err;

	if (g->state != FDRY_CUDAGRAPH_EMPTY)
		return fdry_cudagraph_state_fail(g, "begin a capture into");
	err = fdry_graphpool_join(pool, &g->on);
	if (err)
		return err;
	err = fdry_primary_enter(&g->on, &mode);
	if (err)
		goto out_pool;
	err = stream_capture(g, o);
	fdry_primary_leave(&g->on, &mode);
	if (err)
		goto out_pool;
	g->pool = pool;
	g->state = FDRY_CUDAGRAPH_CAPTURING;
	if (g->side)
		g->current = fdry_stream_make_current(g->stream);
	return 0;
out_pool:
	fdry_graphpool_captured(pool);
	fdry_graphpool_leave(pool);
	return err;
}

int fdry_cudagraph_begin(struct fdry_cudagraph *g, const struct fdry_cudagraph_begin_opts *opts)
{
	struct fdry_cudagraph_begin_opts o;
	int err = fdry_cudagraph_check(g);

	if (err)
		return err;
	err = fdry_opts_take(opts, &o, sizeof(o));
	if (err)
		return err;
	if (o.mode >= sizeof(modes) / sizeof(modes[0]))
		return fdry_fail(FDRY_E_INVAL,
				 "%u is no capture mode; see enum fdry_cudagraph_mode", o.mode);
	pthread_mutex_lock(&g->lock);
	err = capture_begin(g, &o);
	pthread_mutex_unlock(&g->lock);
	return err;
}

/* --- end --- */

static int thread_check(const struct fdry_cudagraph *g)
{
	if (!g->bound || pthread_equal(g->thread, pthread_self()))
		return 0;
	return fdry_fail(FDRY_E_STATE, "another thread began the capture, %s; end it there",
			 g->side ? "on a stream that only that thread may use"
				 : "and its mode is not relaxed");
}

/* Whether the stream has left the capture; true if the driver cannot report it. */
static bool stream_free(const struct fdry_cudagraph *g)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return fdry_call_raw(g->on.drv, cuStreamIsCapturing, g->stream, &status) ||
	       status == CU_STREAM_CAPTURE_STATUS_NONE;
}

/* End the capture of the stream; @ret is the graph. On failure the stream may still capture. In the
 * context. */
static int stream_end(struct fdry_cudagraph *g, CUgraph *ret)
{
	CUgraph graph = NULL;
	int err = fdry_call(g->on.drv, cuStreamEndCapture, g->stream, &graph);

	if (err) {
		err = fdry_fail_at(err, "the capture made no graph");
		if (!stream_free(g))
			return err;
	} else if (!graph) {
		err = fdry_fail(
			FDRY_E_STATE,
			"the capture made no graph, and the driver gave no reason; capture again");
	}
	if (g->side) {
		fdry_stream_return(g->on.drv, g->stream);
		(void)fdry_stream_make_current(g->current);
	}
	g->stream = NULL;
	*ret = graph;
	return err;
}

/* Make the graph empty, with its own pool. The lock is held. */
static void become_empty(struct fdry_cudagraph *g)
{
	g->state = FDRY_CUDAGRAPH_EMPTY;
	fdry_graphpool_leave(g->pool);
	g->pool = g->private_pool;
}

/* End the capture. On failure the graph is empty, or still captures. The lock is held. */
static int capture_end(struct fdry_cudagraph *g)
{
	CUstreamCaptureMode mode;
	int err;

	if (g->state != FDRY_CUDAGRAPH_CAPTURING)
		return fdry_fail(FDRY_E_STATE, "no capture is in progress in the graph; "
					       "fdry_cudagraph_begin() begins one");
	err = thread_check(g);
	if (err)
		return err;
	err = fdry_primary_enter(&g->on, &mode);
	if (err)
		return err;
	err = stream_end(g, &g->graph);
	fdry_primary_leave(&g->on, &mode);
	if (g->stream)
		return err;
	fdry_graphpool_captured(g->pool);
	if (err) {
		g->graph = NULL;
		become_empty(g);
		return err;
	}
	g->state = FDRY_CUDAGRAPH_CAPTURED;
	return 0;
}

int fdry_cudagraph_end(struct fdry_cudagraph *g)
{
	int err = fdry_cudagraph_check(g);

	if (err)
		return err;
	pthread_mutex_lock(&g->lock);
	err = capture_end(g);
	pthread_mutex_unlock(&g->lock);
	return err;
}

/* --- reset, free --- */

void fdry_cudagraph_exec_free(struct fdry_cudagraph *g)
{
	if (g->exec)
		(void)fdry_call_raw(g->on.drv, cuGraphExecDestroy, g->exec);
	if (g->done)
		(void)fdry_call_raw(g->on.drv, cuEventDestroy_v2, g->done);
	g->exec = NULL;
	g->done = NULL;
	g->launched = false;
}

int fdry_cudagraph_launches_wait(struct fdry_cudagraph *g)
{
	int err = g->launched ? fdry_event_wait(g->on.drv, g->done) : 0;

	if (err)
		return err;
	g->launched = false;
	return 0;
}

/* The lock is held. */
static int graph_reset(struct fdry_cudagraph *g)
{
	CUstreamCaptureMode mode;
	int err;

	if (g->state == FDRY_CUDAGRAPH_CAPTURING) {
		err = capture_end(g);
		if (g->state == FDRY_CUDAGRAPH_CAPTURING)
			return err;
	}
	g->was_reset = true;
	if (g->state == FDRY_CUDAGRAPH_EMPTY)
		return 0; /* even if the capture failed, since its graph is discarded */
	err = fdry_primary_enter(&g->on, &mode);
	if (err)
		return err;
	err = fdry_cudagraph_launches_wait(g);
	if (err)
		goto out_leave;
	fdry_cudagraph_exec_free(g);
	(void)fdry_call_raw(g->on.drv, cuGraphDestroy, g->graph);
	g->graph = NULL;
	fdry_primary_leave(&g->on, &mode);
	become_empty(g);
	return 0;
out_leave:
	fdry_primary_leave(&g->on, &mode);
	return err;
}

int fdry_cudagraph_reset(struct fdry_cudagraph *g)
{
	int err = fdry_cudagraph_check(g);

	if (err)
		return err;
	pthread_mutex_lock(&g->lock);
	err = graph_reset(g);
	pthread_mutex_unlock(&g->lock);
	return err;
}

/* Free everything that a failed reset left. If a wait failed, the context and all its objects are
 * lost. */
static void rest_drop(struct fdry_cudagraph *g)
{
	CUstreamCaptureMode mode;

	if (g->state == FDRY_CUDAGRAPH_EMPTY)
		return;
	if (!fdry_primary_enter(&g->on, &mode)) {
		fdry_cudagraph_exec_free(g);
		if (g->graph)
			(void)fdry_call_raw(g->on.drv, cuGraphDestroy, g->graph);
		fdry_primary_leave(&g->on, &mode);
	}
	if (g->state == FDRY_CUDAGRAPH_CAPTURING)
		fdry_graphpool_captured(g->pool);
	fdry_graphpool_leave(g->pool);
}

void fdry_cudagraph_free(struct fdry_cudagraph *g)
{
	if (!g || fdry_live_end(g, "the graph"))
		return;
	if (!fdry_primary_check(&g->on, "the graph")) {
		(void)graph_reset(g);
		rest_drop(g);
		fdry_graphpool_put(g->private_pool);
		fdry_primary_release(&g->on);
	}
	pthread_mutex_destroy(&g->lock);
	free(g);
}

/* --- queries --- */

int fdry_cudagraph_stream(struct fdry_cudagraph *g, CUstream *ret)
{
	int err = fdry_cudagraph_check(g) ?: fdry_need(ret);

	if (err)
		return err;
	pthread_mutex_lock(&g->lock);
	if (g->state == FDRY_CUDAGRAPH_CAPTURING)
		*ret = g->stream;
	else
		err = fdry_fail(FDRY_E_STATE,
				"no capture is in progress in the graph, so it has no stream");
	pthread_mutex_unlock(&g->lock);
	return err;
}

int fdry_cudagraph_pool(struct fdry_cudagraph *g, struct fdry_graphpool **ret)
{
	int err = fdry_cudagraph_check(g) ?: fdry_need(ret);

	if (err)
		return err;
	pthread_mutex_lock(&g->lock);
	*ret = g->pool;
	pthread_mutex_unlock(&g->lock);
	return 0;
}

int fdry_cudagraph_graph(struct fdry_cudagraph *g, CUgraph *ret)
{
	int err = fdry_cudagraph_check(g) ?: fdry_need(ret);

	if (err)
		return err;
	pthread_mutex_lock(&g->lock);
	if (g->graph)
		*ret = g->graph;
	else
		err = fdry_cudagraph_state_fail(g, "give the driver's handle of");
	pthread_mutex_unlock(&g->lock);
	return err;
}
