// SPDX-License-Identifier: Apache-2.0
/*
 * private_ctx.c - launches in a private context of the image, in the order of the caller's stream.
 *
 * All launches of the image use one stream of the private context. That stream waits for the
 * caller's stream by an event of the primary context, and the caller's stream waits for it by an
 * event of the private context. An event means its last record, so a lock covers the five calls of
 * a launch.
 */
#include "image/private_ctx.h"

#include <stdlib.h>

#include "arch/stream.h"

struct fdry_private_ctx {
	pthread_mutex_t lock;
	CUstream stream;
	CUevent begun; /* of the primary context */
	CUevent ended; /* of the private context */
};

/* Make the stream and the event of the private context. */
static int private_make(struct fdry_image *img, struct fdry_private_ctx *p)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(img, &mode);

	if (err)
		return err;
	err = fdry_call(img->drv, cuStreamCreate, &p->stream, CU_STREAM_NON_BLOCKING);
	if (err)
		goto out_leave;
	err = fdry_call(img->drv, cuEventCreate, &p->ended, CU_EVENT_DISABLE_TIMING);
out_leave:
	fdry_image_leave(img, &mode);
	return err;
}

static int primary_make(struct fdry_image *img, struct fdry_private_ctx *p)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter_primary(img, &mode);

	if (err)
		return err;
	err = fdry_call(img->drv, cuEventCreate, &p->begun, CU_EVENT_DISABLE_TIMING);
	fdry_image_leave(img, &mode);
	return err;
}

int fdry_private_ctx_new(struct fdry_image *img)
{
	struct fdry_private_ctx *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return fdry_nomem();
	pthread_mutex_init(&p->lock, NULL);
	img->private_ctx = p;
	err = private_make(img, p);
	return err ? err : primary_make(img, p);
}

/* The primary context must be current, since a NULL @stream is that context's default stream. */
static int stream_begun(struct fdry_image *img, CUstream stream)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter_primary(img, &mode);

	if (err)
		return err;
	err = fdry_call(img->drv, cuEventRecord, img->private_ctx->begun, stream);
	fdry_image_leave(img, &mode);
	return err;
}

static int stream_ends(struct fdry_image *img, CUstream stream)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter_primary(img, &mode);

	if (err)
		return err;
	err = fdry_call(img->drv, cuStreamWaitEvent, stream, img->private_ctx->ended, 0);
	fdry_image_leave(img, &mode);
	return err;
}

static int graph_launch(struct fdry_image *img, CUgraphExec exec, bool *launched)
{
	struct fdry_private_ctx *p = img->private_ctx;
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(img, &mode);

	if (err)
		return err;
	err = fdry_call(img->drv, cuStreamWaitEvent, p->stream, p->begun, 0);
	if (err)
		goto out_leave;
	err = fdry_call(img->drv, cuGraphLaunch, exec, p->stream);
	if (err)
		goto out_leave;
	*launched = true;
	err = fdry_call(img->drv, cuEventRecord, p->ended, p->stream);
out_leave:
	fdry_image_leave(img, &mode);
	return err;
}

/* The graph was launched, but the caller's stream could not be made to wait for it. So the host
 * waits here. */
static int launch_over(struct fdry_image *img)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(img, &mode);

	if (err)
		return err;
	err = fdry_stream_wait(img->drv, img->private_ctx->stream);
	fdry_image_leave(img, &mode);
	return err;
}

int fdry_private_ctx_launch(struct fdry_image *img, CUgraphExec exec, CUstream stream)
{
	struct fdry_private_ctx *p = img->private_ctx;
	bool launched = false;
	int err;

	pthread_mutex_lock(&p->lock);
	err = stream_begun(img, stream);
	if (err)
		goto out_unlock;
	err = graph_launch(img, exec, &launched);
	if (err)
		goto out_wait;
	err = stream_ends(img, stream);
	if (!err)
		goto out_unlock;
out_wait:
	if (launched)
		err = launch_over(img);
out_unlock:
	pthread_mutex_unlock(&p->lock);
	return err;
}

void fdry_private_ctx_free(struct fdry_image *img)
{
	struct fdry_private_ctx *p = img->private_ctx;

	if (!p)
		return;
	if (p->begun)
		(void)fdry_call_raw(img->drv, cuEventDestroy_v2, p->begun);
	if (p->ended)
		(void)fdry_call_raw(img->drv, cuEventDestroy_v2, p->ended);
	if (p->stream)
		(void)fdry_call_raw(img->drv, cuStreamDestroy_v2, p->stream);
	pthread_mutex_destroy(&p->lock);
	free(p);
	img->private_ctx = NULL;
}
