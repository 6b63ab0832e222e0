// SPDX-License-Identifier: Apache-2.0
/*
 * device_get.c - makes, finds, cleans up and frees devices by number; see foundry/run/device.h.
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_device *all;

static int cap_read(const struct fdry_device *dev, int attribute, int32_t *ret)
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

static int caps_read(struct fdry_device *dev, int ordinal)
{
	struct fdry_device_caps *c = &dev->caps;
	size_t memory = 0;
	int err = fdry_call(dev->drv, cuDeviceGetName, c->name, (int)sizeof(c->name) - 1,
			    dev->device);

	if (err)
		return err;
	err = fdry_call(dev->drv, cuDeviceTotalMem_v2, &memory, dev->device);
	if (err)
		return err;
#define X(field, nr) \
	err = cap_read(dev, nr, &c->field); \
	if (err) \
		return err;
	FDRY_CAPS(X)
#undef X
	c->sz = sizeof(*c);
	c->memory = memory;
	c->ordinal = ordinal;
	c->driver = dev->drv->version;
	return 0;
}

static int parts_init(struct fdry_device *dev)
{
	int err, i;

	pthread_mutex_init(&dev->residents.lock, NULL);
	pthread_cond_init(&dev->residents.idle, NULL);
	for (i = 0; i < FDRY_SYNC_KINDS; i++) {
		err = fdry_syncs_init(&dev->syncs[i], dev, (enum fdry_sync_kind)i);
		if (err)
			return err;
	}
	for (i = 0; i < FDRY_TRANSIENT_KINDS; i++) {
		err = fdry_transient_init(&dev->pools[i], dev, (enum fdry_transient_kind)i);
		if (err)
			return err;
	}
	return 0;
}

static int device_find(struct fdry_device *dev, int ordinal)
{
	int count = 0, err = fdry_call(dev->drv, cuDeviceGetCount, &count);

	if (err)
		return err;
	if (ordinal < 0 || ordinal >= count)
		return fdry_fail(FDRY_E_NOGPU,
				 "there is no device %d; this process sees %d, numbered from 0 "
				 "(CUDA_VISIBLE_DEVICES selects them)",
				 ordinal, count);
	return fdry_call(dev->drv, cuDeviceGet, &dev->device, ordinal);
}

static int device_new(const struct fdry_driver *drv, int ordinal, struct fdry_device **ret)
{
	struct fdry_device *dev = calloc(1, sizeof(*dev));
	int err;

	if (!dev)
		return fdry_nomem();
	*dev = (struct fdry_device){ .drv = drv, .pid = getpid(), .refs = 1 };
	err = device_find(dev, ordinal);
	if (err)
		goto out_free;
	err = caps_read(dev, ordinal);
	if (err)
		goto out_free;
	err = parts_init(dev);
	if (err)
		goto out_free;
	err = fdry_call(drv, cuDevicePrimaryCtxRetain, &dev->ctx, dev->device);
	if (err)
		goto out_free;
	*ret = dev;
	return 0;
out_free:
	free(dev);
	return err;
}

static struct fdry_device *device_listed(const struct fdry_driver *drv, int ordinal)
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
	/* If the interposer is in place, it has this name: captures must see this memory. */
	int err = fdry_driver_open(fdry_interposer_loaded() ? "libcuda.so.1" : NULL, &drv);

	if (err)
		return err;
	dev = device_listed(drv, ordinal);
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

static void device_free(struct fdry_device *dev)
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

	if (!dev)
		return;
	pthread_mutex_lock(&lock);
	if (fdry_live_check(dev, "the device") || dev->pid != getpid())
		goto out_unlock;
	if (--dev->refs || fdry_live_end(dev, "the device"))
		goto out_unlock;
	for (p = &all; *p != dev; p = &(*p)->next)
		;
	*p = dev->next;
	pthread_mutex_unlock(&lock);
	device_free(dev);
	return;
out_unlock:
	pthread_mutex_unlock(&lock);
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
