// SPDX-License-Identifier: Apache-2.0
/*
 * cudagraph_exec.c - instantiates and launches graphs that callers captured.
 *
 * The driver runs launches of one executable graph one after another, so an event after the last
 * launch shows when all have ended. Each launch records it, because later the caller may have
 * destroyed the stream.
 */
#include "run/cudagraph.h"

#include "lib/opts.h"
#include "arch/stream.h"

#define UPLOAD ((uint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)

/* Lock a graph that is in state @state, and enter its context. @what names the call in the message:
 * "launch".
 */
static int exec_enter(struct fdry_cudagraph *g, enum fdry_cudagraph_state state, const char *what,
		      CUstreamCaptureMode *mode)
{
	int err = fdry_cudagraph_check(g);

	if (err)
		return err;
	pthread_mutex_lock(&g->lock);
	if (g->state != state) {
		err = fdry_cudagraph_state_fail(g, what);
		goto out_unlock;
	}
	err = fdry_primary_enter(&g->on, mode);
	if (!err)
		return 0;
out_unlock:
	pthread_mutex_unlock(&g->lock);
	return err;
}

static void exec_leave(struct fdry_cudagraph *g, CUstreamCaptureMode *mode)
{
	fdry_primary_leave(&g->on, mode);
	pthread_mutex_unlock(&g->lock);
}

/* Instantiate the graph. In the context, the lock held. */
static int exec_make(struct fdry_cudagraph *g, uint64_t flags)
{
	int err = fdry_call(g->on.drv, cuEventCreate, &g->done, CU_EVENT_DISABLE_TIMING);

	if (err) {
		g->done = NULL;
		return err;
	}
	err = fdry_call(g->on.drv, cuGraphInstantiateWithFlags, &g->exec, g->graph, flags);
	if (err) {
		g->exec = NULL;
		fdry_cudagraph_exec_free(g);
		return fdry_fail_at(err, "the graph cannot be instantiated");
	}
	g->state = FDRY_CUDAGRAPH_READY;
	return 0;
}

int fdry_cudagraph_instantiate(struct fdry_cudagraph *g, uint64_t flags)
{
	CUstreamCaptureMode mode;
	int err;

	if (flags & UPLOAD)
		return fdry_fail(FDRY_E_INVAL,
				 "the flag to upload is not allowed here, because the upload needs "
				 "a stream; call fdry_cudagraph_upload()");
	err = exec_enter(g, FDRY_CUDAGRAPH_CAPTURED, "instantiate", &mode);
	if (err)
		return err;
	err = exec_make(g, flags);
	exec_leave(g, &mode);
	return err;
}

/* In the context. If the upload fails, the graph is no longer instantiated. */
static int exec_upload(struct fdry_cudagraph *g, CUstream stream)
{
	int err = fdry_primary_stream(&g->on, stream, "an upload");

	if (err)
		return err;
	err = fdry_call(g->on.drv, cuGraphUpload, g->exec, stream);
	if (!err)
		return 0;
	err = fdry_fail_at(err, "the graph cannot be uploaded");
	if (!fdry_cudagraph_launches_wait(g)) {
		fdry_cudagraph_exec_free(g);
		g->state = FDRY_CUDAGRAPH_CAPTURED;
	}
	return err;
}

int fdry_cudagraph_upload(struct fdry_cudagraph *g, CUstream stream)
{
	CUstreamCaptureMode mode;
	int err = exec_enter(g, FDRY_CUDAGRAPH_READY, "upload", &mode);

	if (err)
		return err;
	err = exec_upload(g, stream);
	exec_leave(g, &mode);
	return err;
}

/* In the context. If no event can be recorded after the launch, wait for the launch here. */
static int exec_launch(struct fdry_cudagraph *g, CUstream stream)
{
	int err = fdry_primary_stream(&g->on, stream, "a launch");

	if (err)
		return err;
	fdry_stream_note_launch();
	err = fdry_call(g->on.drv, cuGraphLaunch, g->exec, stream);
	if (err)
		return err;
	fdry_count(FDRY_METRIC_LAUNCHES_CAPTURED, 1);
	if (!fdry_call_raw(g->on.drv, cuEventRecord, g->done, stream)) {
		g->launched = true;
		return 0;
	}
	return fdry_stream_wait(g->on.drv, stream);
}

int fdry_cudagraph_launch(struct fdry_cudagraph *g, CUstream stream)
{
	CUstreamCaptureMode mode;
	int err = exec_enter(g, FDRY_CUDAGRAPH_READY, "launch", &mode);

	if (err)
		return err;
	err = exec_launch(g, stream);
	exec_leave(g, &mode);
	return err;
}

int fdry_cudagraph_synchronize(struct fdry_cudagraph *g)
{
	CUstreamCaptureMode mode;
	int err = fdry_cudagraph_check(g);

	if (err)
		return err;
	err = fdry_primary_enter(&g->on, &mode);
	if (err)
		return err;
	pthread_mutex_lock(&g->lock);
	err = fdry_cudagraph_launches_wait(g);
	pthread_mutex_unlock(&g->lock);
	fdry_primary_leave(&g->on, &mode);
	return err;
}

int fdry_cudagraph_exec(struct fdry_cudagraph *g, CUgraphExec *ret)
{
	int err = fdry_cudagraph_check(g) ?: fdry_need(ret);

	if (err)
		return err;
	pthread_mutex_lock(&g->lock);
	if (g->exec)
		*ret = g->exec;
	else
		err = fdry_cudagraph_state_fail(g, "give the driver's executable handle of");
	pthread_mutex_unlock(&g->lock);
	return err;
}
