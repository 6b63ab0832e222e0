// SPDX-License-Identifier: Apache-2.0
/* device.c - a device's checks, capabilities and cooperative launches; see foundry/run/device.h. */
#include "run/device.h"

#include <stdlib.h>
#include <unistd.h>

#include "lib/opts.h"
#include "image/capture/interposer.h"
#include "lib/live.h"
#include "arch/stream.h"
#include "lib/telemetry.h"

int fdry_device_check(const struct fdry_device *dev)
{
	int err = fdry_need(dev) ?: fdry_live_check(dev, "the device");

	if (err)
		return err;
	if (dev->pid != getpid())
		return fdry_fail(FDRY_E_FORKED,
				 "the device was acquired before fork(), and CUDA does not work in "
				 "the child; use it in the process that acquired it");
	return 0;
}

int fdry_device_check_kind(const struct fdry_device *dev, int kind, int kinds, const char *what)
{
	int err = fdry_device_check(dev);

	if (err)
		return err;
	if (kind < 0 || kind >= kinds)
		return fdry_fail(FDRY_E_INVAL, "%d is no kind of %s", kind, what);
	return 0;
}

int fdry_device_enter(const struct fdry_device *dev, CUstreamCaptureMode *mode)
{
	int err = fdry_device_check(dev);

	return err ? err : fdry_driver_enter(dev->drv, dev->ctx, mode);
}

void fdry_device_leave(const struct fdry_device *dev, CUstreamCaptureMode *mode)
{
	fdry_driver_leave(dev->drv, mode);
}

int fdry_device_not_capturing(const struct fdry_device *dev, CUstream stream, const char *what)
{
	bool captures;
	int err = fdry_stream_is_capturing(dev->drv, stream, &captures);

	if (err)
		return err;
	if (captures)
		return fdry_fail(FDRY_E_STATE, "the stream is capturing; %s", what);
	return 0;
}

int fdry_device_caps(const struct fdry_device *dev, struct fdry_device_caps *ret)
{
	int err = fdry_need(dev);

	if (err)
		return err;
	err = fdry_live_check(dev, "the device");
	if (err)
		return err;
	err = fdry_need(ret);
	if (err)
		return err;
	err = fdry_report_check(ret);
	if (err)
		return err;
	return fdry_report_give(&dev->caps, sizeof(dev->caps), ret);
}

int fdry_device_warm_up(struct fdry_device *dev)
{
	size_t bytes, total;
	int err = fdry_device_check(dev);

	if (err)
		return err;
	err = fdry_call(dev->drv, cuCtxSetCurrent, dev->ctx);
	if (err)
		return err;
	/* The cheapest call that fails if the context is lost. */
	return fdry_call(dev->drv, cuMemGetInfo_v2, &bytes, &total);
}

/* --- cooperative launches --- */

static int cooperative_args(const struct fdry_device_launch_opts *l)
{
	int i, err = fdry_need(l);

	if (err)
		return err;
	if (l->sz != sizeof(*l) || l->reserved)
		return fdry_fail(FDRY_E_OPTS,
				 "the launch has size %zu, not %zu, or a reserved field is set; "
				 "zero the struct, then set sz",
				 l->sz, sizeof(*l));
	if (!l->function)
		return fdry_fail(FDRY_E_INVAL,
				 "the launch has no function (NULL); give a CUfunction");
	for (i = 0; i < 3; i++)
		if (!l->grid[i] || !l->block[i])
			return fdry_fail(FDRY_E_INVAL,
					 "grid and block are %u x %u x %u and %u x %u x %u; none "
					 "of these may be 0",
					 l->grid[0], l->grid[1], l->grid[2], l->block[0],
					 l->block[1], l->block[2]);
	return 0;
}

/* Whether all blocks fit at a time. The driver would not report how many do. */
static int cooperative_fits(const struct fdry_device *dev, const struct fdry_device_launch_opts *l)
{
	uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2], grid = 0;
	int each = 0, err;

	if (threads > INT32_MAX ||
	    __builtin_mul_overflow((uint64_t)l->grid[0] * l->grid[1], l->grid[2], &grid))
		return fdry_fail(
			FDRY_E_INVAL,
			"a block of %llu threads, or the grid, is larger than any device allows",
			(unsigned long long)threads);
	err = fdry_call(dev->drv, cuOccupancyMaxActiveBlocksPerMultiprocessor, &each, l->function,
			(int)threads, l->shared);
	if (err || grid <= (uint64_t)each * (uint64_t)dev->caps.multiprocessors)
		return err;
	return fdry_fail(FDRY_E_UNABLE,
			 "a cooperative launch of %llu blocks does not fit: %llu fit at a time (%d "
			 "on each of %d multiprocessors); use a smaller grid",
			 (unsigned long long)grid,
			 (unsigned long long)each * (unsigned long long)dev->caps.multiprocessors,
			 each, dev->caps.multiprocessors);
}

static int launch(const struct fdry_device *dev, const struct fdry_device_launch_opts *l)
{
	int err = cooperative_fits(dev, l);

	if (err)
		return err;
	err = fdry_call(dev->drv, cuLaunchCooperativeKernel, l->function, l->grid[0], l->grid[1],
			l->grid[2], l->block[0], l->block[1], l->block[2], l->shared, l->stream,
			l->params);
	if (err)
		return err;
	fdry_count(FDRY_METRIC_LAUNCHES_COOPERATIVE, 1);
	return 0;
}

int fdry_device_launch_cooperative(struct fdry_device *dev, const struct fdry_device_launch_opts *l)
{
	CUstreamCaptureMode mode;
	int err = fdry_device_check(dev);

	if (err)
		return err;
	err = cooperative_args(l);
	if (err)
		return err;
	if (!dev->caps.cooperative_launch)
		return fdry_fail(FDRY_E_UNABLE,
				 "device %d cannot launch cooperatively: compute capability %d.%d, "
				 "cooperative launch %d; launch the kernel in the ordinary way, or "
				 "use another device",
				 dev->caps.ordinal, dev->caps.cc_major, dev->caps.cc_minor,
				 dev->caps.cooperative_launch);
	err = fdry_device_enter(dev, &mode);
	if (err)
		return err;
	err = launch(dev, l);
	fdry_device_leave(dev, &mode);
	return err;
}
