// SPDX-License-Identifier: Apache-2.0
/*
 * cudagraph_exec.c - graphs that callers captured, instantiated and launched.
 *
 * The driver runs launches of one executable graph one after another, so an event after the last
 * launch says when all have ended. It is recorded at each launch, when the caller's stream exists;
 * at the end the stream may be destroyed.
 */
#include "run/cudagraph.h"

#include "lib/opts.h"
#include "arch/stream.h"

#define UPLOAD ((uint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)

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

static int launches_wait(struct fdry_cudagraph *g)
{
	int err = g->launched ? fdry_event_wait(g->on.drv, g->done) : 0;

	if (err)
		return err;
	g->launched = false;
	return 0;
}

int fdry_cudagraph_exec_wait_and_free(struct fdry_cudagraph *g)
{
	int err = launches_wait(g);

	if (err)
		return err;
	fdry_cudagraph_exec_free(g);
	return 0;
}

/* In the context, the lock held. */
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

static int instantiate(struct fdry_cudagraph *g, uint64_t flags)
{
	CUstreamCaptureMode mode;
	int err;

	if (g->state != FDRY_CUDAGRAPH_CAPTURED)
		return fdry_cudagraph_state_fail(g, "instantiate");
	err = fdry_primary_enter(&g->on, &mode);
	if (err)
		return err;
	err = exec_make(g, flags);
	fdry_primary_leave(&g->on, &mode);
	return err;
}

int fdry_cudagraph_instantiate(struct fdry_cudagraph *g, uint64_t flags)
{
	int err = fdry_cudagraph_check(g);

	if (err)
		return err;
	if (flags & UPLOAD)
		return fdry_fail(FDRY_E_INVAL, "the upload is a call of its own, which is told the "
					       "stream: fdry_cudagraph_upload()");
	pthread_mutex_lock(&g->lock);
	err = instantiate(g, flags);
	pthread_mutex_unlock(&g->lock);
	return err;
}

/* In the context: an upload that fails leaves nothing to launch. */
static int exec_upload(struct fdry_cudagraph *g, CUstream stream)
{
	int err = fdry_primary_stream(&g->on, stream, "an upload");

	if (err)
		return err;
	err = fdry_call(g->on.drv, cuGraphUpload, g->exec, stream);
	if (!err)
		return 0;
	err = fdry_fail_at(err, "the graph cannot be uploaded");
	if (!launches_wait(g)) {
		fdry_cudagraph_exec_free(g);
		g->state = FDRY_CUDAGRAPH_CAPTURED;
	}
	return err;
}

static int upload(struct fdry_cudagraph *g, CUstream stream)
{
	CUstreamCaptureMode mode;
	int err;

	if (g->state != FDRY_CUDAGRAPH_READY)
		return fdry_cudagraph_state_fail(g, "upload");
	err = fdry_primary_enter(&g->on, &mode);
	if (err)
		return err;
	err = exec_upload(g, stream);
	fdry_primary_leave(&g->on, &mode);
	return err;
}

int fdry_cudagraph_upload(struct fdry_cudagraph *g, CUstream stream)
{
	int err = fdry_cudagraph_check(g);

	if (err)
		return err;
	pthread_mutex_lock(&g->lock);
	err = upload(g, stream);
	pthread_mutex_unlock(&g->lock);
	return err;
}

/* In the context. A launch that no event stands behind is waited for. */
static int exec_launch(struct fdry_cudagraph *g, CUstream stream)
{
	int err = fdry_primary_stream(&g->on, stream, "a launch");

	if (err)
		return err;
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

static int launch(struct fdry_cudagraph *g, CUstream stream)
{
	CUstreamCaptureMode mode;
	int err;

	if (g->state != FDRY_CUDAGRAPH_READY)
		return fdry_cudagraph_state_fail(g, "launch");
	err = fdry_primary_enter(&g->on, &mode);
	if (err)
		return err;
	err = exec_launch(g, stream);
	fdry_primary_leave(&g->on, &mode);
	return err;
}

int fdry_cudagraph_launch(struct fdry_cudagraph *g, CUstream stream)
{
	int err = fdry_cudagraph_check(g);

	if (err)
		return err;
	pthread_mutex_lock(&g->lock);
	err = launch(g, stream);
	pthread_mutex_unlock(&g->lock);
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
	err = launches_wait(g);
	pthread_mutex_unlock(&g->lock);
	fdry_primary_leave(&g->on, &mode);
	return err;
}

int fdry_cudagraph_exec(struct fdry_cudagraph *g, CUgraphExec *ret)
{
	int err = fdry_cudagraph_check(g);

	if (err)
		return err;
	err = fdry_need(ret);
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
