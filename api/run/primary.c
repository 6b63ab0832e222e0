// SPDX-License-Identifier: Apache-2.0
/* primary.c - see primary.h. */
#include "api/run/primary.h"

#include <unistd.h>

#include "api/standin.h"

static int retain(struct fdry_primary *p, int ordinal)
{
	int count, err = fdry_call(p->drv, cuDeviceGetCount, &count);

	if (!err && (ordinal < 0 || ordinal >= count))
		err = fdry_fail(FDRY_E_NOGPU, "there is no device %d; this process sees %d", ordinal, count);
	if (!err)
		err = fdry_call(p->drv, cuDeviceGet, &p->device, ordinal);
	return err ? err : fdry_call(p->drv, cuDevicePrimaryCtxRetain, &p->ctx, p->device);
}

int fdry_primary_open(const char *path, int ordinal, struct fdry_primary *ret)
{
	struct fdry_primary p = { .pid = getpid() };
	int err;

	if (!path && fdry_standin_peek())
		path = "libcuda.so.1"; /* it answers to that name */
	err = fdry_driver_open(path, &p.drv);
	if (!err)
		err = retain(&p, ordinal);
	if (!err)
		*ret = p;
	return err;
}

int fdry_primary_again(const struct fdry_primary *p, struct fdry_primary *ret)
{
	struct fdry_primary q = *p;
	int err = fdry_call(p->drv, cuDevicePrimaryCtxRetain, &q.ctx, p->device);

	if (!err)
		*ret = q;
	return err;
}

void fdry_primary_close(struct fdry_primary *p)
{
	if (p->ctx && p->pid == getpid())
		(void)fdry_call_raw(p->drv, cuDevicePrimaryCtxRelease_v2, p->device);
	p->ctx = NULL;
}

int fdry_primary_check(const struct fdry_primary *p, const char *what)
{
	if (p->pid == getpid())
		return 0;
	return fdry_fail(FDRY_E_FORKED, "%s was made before fork(), and CUDA does not work in the child; use it in the "
			 "process that made it", what);
}

int fdry_primary_enter(const struct fdry_primary *p, CUstreamCaptureMode *mode)
{
	return fdry_driver_enter(p->drv, p->ctx, mode);
}

void fdry_primary_leave(const struct fdry_primary *p, CUstreamCaptureMode *mode)
{
	fdry_driver_leave(p->drv, mode);
}

int fdry_primary_stream(const struct fdry_primary *p, CUstream stream, const char *what)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUcontext ctx = NULL;
	CUresult res = fdry_call_raw(p->drv, cuStreamGetCtx, stream, &ctx);
	int err;

	if (res == CUDA_ERROR_INVALID_HANDLE || res == CUDA_ERROR_INVALID_CONTEXT || res == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return fdry_fail(FDRY_E_INVAL, "the stream is not one that is alive; it was destroyed, or its context was");
	err = fdry_driver_result(p->drv, FDRY_DRV_cuStreamGetCtx, res);
	if (err)
		return err;
	if (ctx != p->ctx)
		return fdry_fail(FDRY_E_INVAL, "the stream belongs to another device or context than the primary one of device "
				 "%d; use a stream of that", p->device);
	err = fdry_call(p->drv, cuStreamIsCapturing, stream, &status);
	if (!err && status != CU_STREAM_CAPTURE_STATUS_NONE)
		err = fdry_fail(FDRY_E_STATE, "the stream captures, and %s cannot be a part of that; use another stream, or end "
				"the capture", what);
	return err;
}
