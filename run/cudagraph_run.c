// SPDX-License-Identifier: Apache-2.0
/*
 * cudagraph_run.c - warms up, waits, captures one run of a function, and makes it launchable.
 *
 * It waits only for the two streams, never for the device: the driver refuses to wait for a context
 * in which another thread captures.
 */
#include "run/cudagraph.h"

#include "lib/opts.h"
#include "arch/stream.h"
#include "lib/threads.h"

static int fn_call(const struct fdry_cudagraph_run_opts *o, CUstream stream)
{
	int ret = o->fn(o->arg, stream);

	if (ret <= 0)
		return ret;
	return fdry_fail(FDRY_E_CALLBACK, "the function to capture failed with %d", ret);
}

/* No context is entered, so the function runs with the thread's own context and capture mode. */
static int warm_up(const struct fdry_cudagraph_run_opts *o, CUstream stream)
{
	uint32_t i;
	int err;

	for (i = 0; i < o->warmups; i++) {
		err = fn_call(o, stream);
		if (err)
			return fdry_fail_at(err, "warm-up run %u of %u", i + 1, o->warmups);
	}
	return 0;
}

/* Check that a stream can be captured; with @wait, wait for its work. */
static int stream_ready(struct fdry_cudagraph *g, CUstream stream, bool wait)
{
	CUstreamCaptureMode mode;
	int err = fdry_primary_enter(&g->on, &mode);

	if (err)
		return err;
	err = fdry_primary_stream(&g->on, stream, "a warm-up run");
	if (err)
		goto out_leave;
	if (wait)
		err = fdry_stream_wait(g->on.drv, stream);
out_leave:
	fdry_primary_leave(&g->on, &mode);
	return err;
}

static int capture_once(struct fdry_cudagraph *g, const struct fdry_cudagraph_run_opts *o,
			CUstream stream)
{
	struct fdry_cudagraph_begin_opts begin = {
		.sz = sizeof(begin), .stream = stream, .pool = o->pool, .mode = o->mode
	};
	struct fdry_saved_err saved_err = { 0 };
	int err = fdry_cudagraph_begin(g, &begin);

	if (err)
		return err;
	err = fn_call(o, stream);
	if (err)
		goto out_reset;
	return fdry_cudagraph_end(g);
out_reset:
	fdry_saved_err_set(&saved_err, err);
	(void)fdry_cudagraph_reset(g);
	return fdry_saved_err_restore(&saved_err);
}

static int make_ready(struct fdry_cudagraph *g, const struct fdry_cudagraph_run_opts *o,
		      CUstream stream)
{
	struct fdry_saved_err saved_err = { 0 };
	int err = fdry_cudagraph_instantiate(g, o->flags);

	if (err)
		goto out_reset;
	err = fdry_cudagraph_upload(g, stream);
	if (err)
		goto out_reset;
	return 0;
out_reset:
	fdry_saved_err_set(&saved_err, err);
	(void)fdry_cudagraph_reset(g);
	return fdry_saved_err_restore(&saved_err);
}

/* Wait for the stream after the warm-up runs, before the capture. */
static int run_on(struct fdry_cudagraph *g, const struct fdry_cudagraph_run_opts *o,
		  CUstream stream)
{
	/* If the stream captured already, the warm-up runs would become part of that capture. */
	int err = stream_ready(g, stream, false);

	if (err)
		return err;
	err = warm_up(o, stream);
	if (err)
		return err;
	err = stream_ready(g, stream, true);
	if (err)
		return err;
	err = capture_once(g, o, stream);
	if (err)
		return err;
	return make_ready(g, o, stream);
}

static int stream_borrow(struct fdry_cudagraph *g, CUstream *ret)
{
	CUstreamCaptureMode mode;
	int err = fdry_primary_enter(&g->on, &mode);

	if (err)
		return err;
	err = fdry_stream_borrow(g->on.drv, ret);
	fdry_primary_leave(&g->on, &mode);
	return err;
}

static void stream_return(struct fdry_cudagraph *g, CUstream stream)
{
	CUstreamCaptureMode mode;

	if (fdry_primary_enter(&g->on, &mode))
		return;
	(void)fdry_call_raw(g->on.drv, cuStreamSynchronize, stream);
	fdry_stream_return(g->on.drv, stream);
	fdry_primary_leave(&g->on, &mode);
}

static int run_aside(struct fdry_cudagraph *g, const struct fdry_cudagraph_run_opts *o)
{
	CUstream stream, was;
	int err = stream_ready(g, fdry_stream_current(), true);

	if (err)
		return err;
	err = stream_borrow(g, &stream);
	if (err)
		return err;
	was = fdry_stream_make_current(stream);
	err = run_on(g, o, stream);
	(void)fdry_stream_make_current(was);
	stream_return(g, stream);
	return err;
}

static int empty_check(struct fdry_cudagraph *g)
{
	int err = 0;

	pthread_mutex_lock(&g->lock);
	if (g->state != FDRY_CUDAGRAPH_EMPTY)
		err = fdry_cudagraph_state_fail(g, "capture into");
	pthread_mutex_unlock(&g->lock);
	return err;
}

int fdry_cudagraph_run(struct fdry_cudagraph *g, const struct fdry_cudagraph_run_opts *opts)
{
	struct fdry_cudagraph_run_opts o;
	int err = fdry_cudagraph_check(g) ?: fdry_need(opts);

	if (err)
		return err;
	err = fdry_opts_take(opts, &o, sizeof(o));
	if (err)
		return err;
	if (!o.fn)
		return fdry_fail(FDRY_E_INVAL, "no function to capture was given; set fn");
	err = empty_check(g);
	if (err)
		return err;
	return o.stream ? run_on(g, &o, o.stream) : run_aside(g, &o);
}
