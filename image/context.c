// SPDX-License-Identifier: Apache-2.0
/*
 * context.c - the contexts that an image lives in, and the streams that callers bring.
 *
 * Callers' streams belong to the device's primary context, which an image retains. Kernels and
 * graphs also belong to it, or to a private context of the image (FDRY_LOAD_OWN_CONTEXT). Memory is
 * mapped for the device, so both contexts can use it.
 */
#include <unistd.h>

#include "image/context.h"
#include "lib/opts.h"
#include "image/capture/interposer.h"
#include "lib/live.h"
#include "arch/stream.h"

int fdry_image_usable(const struct fdry_image *img)
{
	int err;

	if (!img)
		return fdry_need_fail("", "img");
	err = fdry_live_check(img, "the image");
	if (err)
		return err;
	if (img->pid != getpid())
		return fdry_fail(
			FDRY_E_FORKED,
			"the image was loaded before fork(), and CUDA does not work in the child; "
			"use it in the process that loaded it");
	return 0;
}

int fdry_image_enter(const struct fdry_image *img, CUstreamCaptureMode *mode)
{
	return fdry_driver_enter(img->drv, img->ctx, mode);
}

int fdry_image_enter_primary(const struct fdry_image *img, CUstreamCaptureMode *mode)
{
	return fdry_driver_enter(img->drv, img->primary, mode);
}

void fdry_image_leave(const struct fdry_image *img, CUstreamCaptureMode *mode)
{
	fdry_driver_leave(img->drv, mode);
}

/* --- making and destroying contexts --- */

int fdry_context_start(struct fdry_image *img, const struct fdry_load_opts *o)
{
	const struct fdry_hook *hook = fdry_interposer_loaded();
	const char *path = o->driver;
	int err;

	if (!path && hook)
		path = hook->real_path(); /* our own calls need not pass through the interposer */
	err = fdry_driver_open(path, &img->drv);
	if (err)
		return err;
	err = fdry_driver_device(img->drv, o->device, &img->device);
	if (err)
		return err;
	err = fdry_call(img->drv, cuDevicePrimaryCtxRetain, &img->primary, img->device);
	if (err)
		return err;
	img->ctx = img->primary;
	return 0;
}

static int context_make(const struct fdry_image *img, CUcontext *ret)
{
	CUcontext ctx, popped;
	int err = fdry_call(img->drv, cuCtxCreate_v4, &ctx, NULL, 0, img->device);

	if (err)
		return err;
	/* cuCtxCreate() made it current. */
	(void)fdry_call_raw(img->drv, cuCtxPopCurrent_v2, &popped);
	*ret = ctx;
	return 0;
}

int fdry_context_private(struct fdry_image *img)
{
	int err = context_make(img, &img->ctx);

	return err ? fdry_fail_at(err, "a private context of the image") : 0;
}

/* Making a context and destroying it makes the GPU switch contexts, which is enough. */
int fdry_image_refresh(struct fdry_image *img)
{
	CUstreamCaptureMode mode;
	CUcontext ctx;
	int err = fdry_image_usable(img);

	if (err)
		return err;
	err = fdry_image_enter_primary(img, &mode);
	if (err)
		return err;
	err = context_make(img, &ctx);
	if (err)
		goto out_leave;
	err = fdry_call(img->drv, cuCtxDestroy_v2, ctx);
out_leave:
	fdry_image_leave(img, &mode);
	return err ? fdry_fail_at(err, "a temporary context") : 0;
}

void fdry_context_end(struct fdry_image *img)
{
	if (img->ctx != img->primary) {
		fdry_stream_forget(img->drv, img->ctx);
		(void)fdry_call_raw(img->drv, cuCtxDestroy_v2, img->ctx);
	}
	(void)fdry_call_raw(img->drv, cuDevicePrimaryCtxRelease_v2, img->device);
}

/* Raise a limit of the current context. *was: its value before, if it was raised. */
static int limit_raise(const struct fdry_driver *drv, const struct fdry_mf_limit *l, size_t *was)
{
	static const char *const names[FDRY_MF_LIMITS] = {
		[CU_LIMIT_STACK_SIZE] = "CU_LIMIT_STACK_SIZE",
		[CU_LIMIT_PRINTF_FIFO_SIZE] = "CU_LIMIT_PRINTF_FIFO_SIZE",
		[CU_LIMIT_MALLOC_HEAP_SIZE] = "CU_LIMIT_MALLOC_HEAP_SIZE",
	};
	size_t now;
	int err = fdry_call(drv, cuCtxGetLimit, &now, (CUlimit)l->limit);

	if (err || now >= l->value)
		return err;
	err = fdry_call(drv, cuCtxSetLimit, (CUlimit)l->limit, (size_t)l->value);
	if (err)
		return fdry_fail_at(err,
				    "the context's limit %s is %zu bytes, and the image needs "
				    "%llu; set it before a kernel runs that relies on it, or load "
				    "with FDRY_LOAD_OWN_CONTEXT",
				    names[l->limit], now, (unsigned long long)l->value);
	*was = now;
	return 0;
}

/* Limits stay raised after an unload, since other code in the process may rely on them by then. */
int fdry_context_limits(struct fdry_image *img)
{
	const struct fdry_mf_limit *l = img->m.limits;
	uint32_t i;
	int err = 0;

	for (i = 0; i < img->m.n_limits && !err; i++, l++)
		err = limit_raise(img->drv, l, &img->limit_was[l->limit]);
	return err;
}

void fdry_context_limits_undo(struct fdry_image *img)
{
	const struct fdry_mf_limit *l = img->m.limits;
	size_t now;
	uint32_t i;

	for (i = 0; i < img->m.n_limits; i++, l++)
		if (img->limit_was[l->limit] &&
		    !fdry_call_raw(img->drv, cuCtxGetLimit, &now, (CUlimit)l->limit) &&
		    now == l->value)
			(void)fdry_call_raw(img->drv, cuCtxSetLimit, (CUlimit)l->limit,
					    img->limit_was[l->limit]);
}

/* --- streams --- */

/* Refuse a stream that does not belong to the primary context. */
static int stranger(const struct fdry_image *img, CUcontext ctx)
{
	CUdevice dev = -1;
	CUcontext popped;

	if (!fdry_call_raw(img->drv, cuCtxPushCurrent_v2, ctx)) {
		(void)fdry_call_raw(img->drv, cuCtxGetDevice, &dev);
		(void)fdry_call_raw(img->drv, cuCtxPopCurrent_v2, &popped);
	}
	if (dev >= 0 && dev != img->device)
		return fdry_fail(FDRY_E_INVAL,
				 "the stream belongs to device %d and the image to device %d; use "
				 "a stream of "
				 "the image's device",
				 dev, img->device);
	return fdry_fail(
		FDRY_E_INVAL,
		"the stream belongs to another context of device %d than its primary one; use a "
		"stream of the primary context",
		img->device);
}

int fdry_image_stream_check(const struct fdry_image *img, CUstream stream)
{
	CUcontext ctx = NULL;
	int err = fdry_stream_context(img->drv, stream, &ctx);

	if (err)
		return err;
	if (ctx != img->primary)
		return stranger(img, ctx);
	return fdry_stream_not_capturing(img->drv, stream, "an image's work");
}

int fdry_image_synchronize(struct fdry_image *img, CUstream stream)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_usable(img);

	if (err)
		return err;
	err = fdry_image_enter_primary(img, &mode);
	if (err)
		return err;
	err = fdry_image_stream_check(img, stream);
	if (err)
		goto out_leave;
	err = fdry_stream_wait(img->drv, stream);
out_leave:
	fdry_image_leave(img, &mode);
	return err;
}

int fdry_image_fail(const struct fdry_image *img, int err)
{
	char hex[FDRY_OID_HEX_SIZE];

	return err ? fdry_fail_at(err, "image '%.100s' (%.12s)", img->name,
				  fdry_oid_hex(&img->id, hex))
		   : 0;
}
