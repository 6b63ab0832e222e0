// SPDX-License-Identifier: Apache-2.0
/*
 * device.c - devices by number; see foundry/run/device.h.
 *
 * The first get makes a device, and it stays until every get has a put. The lock here is held while
 * a device is made, so that two threads make only one.
 */
#include "run/device.h"

#include <stdlib.h>
#include <unistd.h>

#include "lib/opts.h"
#include "image/capture/interposer.h"
#include "lib/live.h"
#include "arch/stream.h"
#include "lib/telemetry.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_device *all;

int fdry_device_check(const struct fdry_device *dev)
{
	int err = fdry_need(dev);

	if (err)
		return err;
	err = fdry_live_check(dev, "the device");
	if (err)
		return err;
	if (dev->pid != getpid())
		return fdry_fail(FDRY_E_FORKED, "the device was acquired before fork(), and CUDA "
						"does not work in the child; "
						"use it in the process that acquired it");
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

/* --- made and undone --- */

static int cap_ask(const struct fdry_device *dev, int attribute, int32_t *ret)
{
	int value = 0;
	CUresult res = fdry_call_raw(dev->drv, cuDeviceGetAttribute, &value,
				     (CUdevice_attribute)attribute, dev->device);

	if (res == CUDA_ERROR_INVALID_VALUE)
		value = 0; /* the driver is older than the attribute */
	else if (res)
		return fdry_driver_result(dev->drv, FDRY_DRV_cuDeviceGetAttribute, res);
	*ret = value;
	return 0;
}

static int caps_probe(struct fdry_device *dev, int ordinal)
{
	struct fdry_device_caps *c = &dev->caps;
	size_t memory = 0;
	int err = fdry_call(dev->drv, cuDeviceGetName, c->name, (int)sizeof(c->name) - 1,
			    dev->device);

	if (!err)
		err = fdry_call(dev->drv, cuDeviceTotalMem_v2, &memory, dev->device);
#define X(field, nr) \
	if (!err) \
		err = cap_ask(dev, nr, &c->field);
	FDRY_CAPS(X)
#undef X
	c->sz = sizeof(*c);
	c->memory = memory;
	c->ordinal = ordinal;
	c->driver = dev->drv->version;
	return err;
}

static int parts_begin(struct fdry_device *dev)
{
	int err = 0, i;

	pthread_mutex_init(&dev->residents.lock, NULL);
	pthread_cond_init(&dev->residents.idle, NULL);
	for (i = 0; i < FDRY_SYNC_KINDS && !err; i++)
		err = fdry_syncs_init(&dev->syncs[i], dev, (enum fdry_sync_kind)i);
	for (i = 0; i < FDRY_TRANSIENT_KINDS && !err; i++)
		err = fdry_transient_init(&dev->pools[i], dev, (enum fdry_transient_kind)i);
	return err;
}

static int device_find(struct fdry_device *dev, int ordinal)
{
	int count = 0, err = fdry_call(dev->drv, cuDeviceGetCount, &count);

	if (!err && (ordinal < 0 || ordinal >= count))
		err = fdry_fail(FDRY_E_NOGPU,
				"there is no device %d; this process sees %d, numbered from 0 "
				"(CUDA_VISIBLE_DEVICES says which)",
				ordinal, count);
	return err ? err : fdry_call(dev->drv, cuDeviceGet, &dev->device, ordinal);
}

static int device_new(const struct fdry_driver *drv, int ordinal, struct fdry_device **ret)
{
	struct fdry_device *dev = calloc(1, sizeof(*dev));
	int err;

	if (!dev)
		return fdry_nomem();
	*dev = (struct fdry_device){ .drv = drv, .pid = getpid(), .refs = 1 };
	err = device_find(dev, ordinal);
	if (!err)
		err = caps_probe(dev, ordinal);
	if (!err)
		err = parts_begin(dev);
	if (!err)
		err = fdry_call(drv, cuDevicePrimaryCtxRetain, &dev->ctx, dev->device);
	if (err) {
		free(dev);
		return err;
	}
	*ret = dev;
	return 0;
}

static struct fdry_device *device_known(const struct fdry_driver *drv, int ordinal)
{
	struct fdry_device *dev;

	for (dev = all; dev; dev = dev->next)
		if (dev->drv == drv && dev->caps.ordinal == ordinal && dev->pid == getpid())
			return dev;
	return NULL;
}

static int acquire(int ordinal, struct fdry_device **ret)
{
	const struct fdry_driver *drv;
	struct fdry_device *dev;
	/* By its SONAME, that is the interposer where it is in place: captures must see this
	 * memory.
	 */
	int err = fdry_driver_open(fdry_interposer_peek() ? "libcuda.so.1" : NULL, &drv);

	if (err)
		return err;
	dev = device_known(drv, ordinal);
	if (dev) {
		dev->refs++;
		*ret = dev;
		return 0;
	}
	err = device_new(drv, ordinal, &dev);
	if (err)
		return err;
	dev->next = all;
	all = *ret = dev;
	fdry_live_add(dev);
	return 0;
}

int fdry_device_get(int ordinal, struct fdry_device **ret)
{
	int err = fdry_need(ret);

	if (err)
		return err;
	err = fdry_jit_cache_set_up();
	if (err)
		return err;
	pthread_mutex_lock(&lock);
	err = acquire(ordinal, ret);
	pthread_mutex_unlock(&lock);
	return err;
}

static void device_end(struct fdry_device *dev)
{
	CUstreamCaptureMode mode;
	int i;

	if (!fdry_driver_enter(dev->drv, dev->ctx, &mode)) {
		for (i = 0; i < FDRY_TRANSIENT_KINDS; i++)
			fdry_transient_release(&dev->pools[i]);
		for (i = 0; i < FDRY_SYNC_KINDS; i++)
			fdry_syncs_release(&dev->syncs[i]);
		fdry_residents_release(&dev->residents);
		fdry_device_leave(dev, &mode);
		(void)fdry_call_raw(dev->drv, cuDevicePrimaryCtxRelease_v2, dev->device);
	}
	free(dev);
}

void fdry_device_put(struct fdry_device *dev)
{
	struct fdry_device **p;
	bool last;

	if (!dev)
		return;
	pthread_mutex_lock(&lock);
	if (fdry_live_check(dev, "the device") || dev->pid != getpid()) {
		pthread_mutex_unlock(&lock);
		return;
	}
	last = !--dev->refs && !fdry_live_end(dev, "the device");
	for (p = &all; last && *p != dev; p = &(*p)->next)
		;
	if (last)
		*p = dev->next;
	pthread_mutex_unlock(&lock);
	if (last)
		device_end(dev);
}

int fdry_device_caps(const struct fdry_device *dev, struct fdry_device_caps *ret)
{
	int err = fdry_need(dev);

	if (!err)
		err = fdry_live_check(dev, "the device");
	if (!err)
		err = fdry_need(ret);
	if (!err)
		err = fdry_report_check(ret);
	return err ? err : fdry_report_give(&dev->caps, sizeof(dev->caps), ret);
}

int fdry_device_warm_up(struct fdry_device *dev)
{
	size_t bytes, total;
	int err = fdry_device_check(dev);

	if (!err)
		err = fdry_call(dev->drv, cuCtxSetCurrent, dev->ctx);
	/* The cheapest call that a context which is lost answers with an error. */
	return err ? err : fdry_call(dev->drv, cuMemGetInfo_v2, &bytes, &total);
}

int fdry_device_clean_up(struct fdry_device *dev)
{
	CUstreamCaptureMode mode;
	int i, one, err = fdry_device_enter(dev, &mode);

	if (err)
		return err;
	for (i = 0; i < FDRY_TRANSIENT_KINDS; i++) {
		one = fdry_transient_trim(&dev->pools[i], 0);
		err = err ? err : one;
	}
	for (i = 0; i < FDRY_SYNC_KINDS; i++)
		fdry_syncs_trim(&dev->syncs[i]);
	fdry_device_leave(dev, &mode);
	return err;
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
				 "zero the struct, "
				 "then set sz",
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

/* All blocks at a time: the driver would only say that it is too large. */
static int cooperative_fits(const struct fdry_device *dev, const struct fdry_device_launch_opts *l)
{
	uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2], grid = 0;
	int each = 0, err;

	if (threads > INT32_MAX ||
	    __builtin_mul_overflow((uint64_t)l->grid[0] * l->grid[1], l->grid[2], &grid))
		return fdry_fail(
			FDRY_E_INVAL,
			"a block of %llu threads, or the grid, is larger than any device takes",
			(unsigned long long)threads);
	err = fdry_call(dev->drv, cuOccupancyMaxActiveBlocksPerMultiprocessor, &each, l->function,
			(int)threads, l->shared);
	if (err || grid <= (uint64_t)each * (uint64_t)dev->caps.multiprocessors)
		return err;
	return fdry_fail(FDRY_E_UNABLE,
			 "a cooperative launch of %llu blocks was asked for, and %llu of them fit "
			 "at a time (%d on each of "
			 "%d multiprocessors); use a smaller grid",
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
		return fdry_fail(
			FDRY_E_UNABLE,
			"device %d cannot launch cooperatively: its compute capability is "
			"%d.%d, and the driver says "
			"cooperative launch: %d; launch the kernel in the ordinary way, or "
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
