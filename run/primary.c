// SPDX-License-Identifier: Apache-2.0
/* primary.c - opens the driver and retains primary contexts; see primary.h. */
#include "run/primary.h"

#include <unistd.h>

#include "image/capture/interposer.h"
#include "arch/stream.h"

static int retain(struct fdry_primary *p, int ordinal)
{
	int err = fdry_driver_device(p->drv, ordinal, &p->device);

	if (err)
		return err;
	return fdry_call(p->drv, cuDevicePrimaryCtxRetain, &p->ctx, p->device);
}

int fdry_primary_init(const char *path, int ordinal, struct fdry_primary *ret)
{
	struct fdry_primary p = { .pid = getpid() };
	int err;

	if (!path && fdry_interposer_loaded())
		path = "libcuda.so.1"; /* the name that the interposer has */
	err = fdry_driver_open(path, &p.drv);
	if (err)
		return err;
	err = retain(&p, ordinal);
	if (err)
		return err;
	*ret = p;
	return 0;
}

int fdry_primary_copy(const struct fdry_primary *p, struct fdry_primary *ret)
{
	struct fdry_primary q = *p;
	int err = fdry_call(p->drv, cuDevicePrimaryCtxRetain, &q.ctx, p->device);

	if (err)
		return err;
	*ret = q;
	return 0;
}

void fdry_primary_release(struct fdry_primary *p)
{
	if (p->ctx && p->pid == getpid())
		(void)fdry_call_raw(p->drv, cuDevicePrimaryCtxRelease_v2, p->device);
	p->ctx = NULL;
}

int fdry_primary_check(const struct fdry_primary *p, const char *what)
{
	if (p->pid == getpid())
		return 0;
	return fdry_fail(
		FDRY_E_FORKED,
		"%s was made before fork(), and CUDA does not work in the child; use it in the "
		"process that made it",
		what);
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
	CUcontext ctx = NULL;
	int err = fdry_stream_context(p->drv, stream, &ctx);

	if (err)
		return err;
	if (ctx != p->ctx)
		return fdry_fail(FDRY_E_INVAL,
				 "the stream does not belong to the primary context of device %d; "
				 "use a stream of that context",
				 p->device);
	return fdry_stream_not_capturing(p->drv, stream, what);
}
