// SPDX-License-Identifier: Apache-2.0
/*
 * memory_fingerprint.c - fingerprints of device memory that belongs to no image.
 *
 * A program that wants to know whether its parameters are those of an image has no image yet. The
 * caller's stream orders the work, so the memory may be written on it just before.
 */
#include <stdlib.h>

#include "arch/stream.h"
#include "foundry/image.h"
#include "foundry/tensor.h"
#include "image/capture/interposer.h"
#include "image/shared_fingerprinter.h"
#include "lib/opts.h"

struct prints {
	CUstream stream;
	const struct fdry_fingerprint_range *ranges;
	size_t n;
	struct fdry_fingerprint *ret;
};

/* Compute fingerprints in the current context. */
static int prints_compute(const struct prints *p, const struct fdry_driver *drv, CUdevice device)
{
	struct fdry_shared_fingerprinter *f;
	int err = fdry_stream_not_capturing(drv, p->stream, "a fingerprint");

	if (err)
		return err;
	err = fdry_shared_fingerprinter_get(drv, device, NULL, &f);
	if (err)
		return err;
	err = fdry_shared_fingerprinter_run(f, p->stream, p->ranges, p->n, p->ret);
	fdry_shared_fingerprinter_put(f);
	return err;
}

/* Compute fingerprints in the primary context of the device. */
static int device_compute(const struct prints *p, int ordinal)
{
	const struct fdry_hook *hook = fdry_interposer_loaded();
	const struct fdry_driver *drv;
	CUstreamCaptureMode mode;
	CUdevice device;
	CUcontext ctx;
	int err = fdry_driver_open(hook ? hook->real_path() : NULL, &drv);

	if (err)
		return err;
	err = fdry_driver_device(drv, ordinal, &device);
	if (err)
		return err;
	err = fdry_call(drv, cuDevicePrimaryCtxRetain, &ctx, device);
	if (err)
		return err;
	err = fdry_driver_enter(drv, ctx, &mode);
	if (err)
		goto out_release;
	err = prints_compute(p, drv, device);
	fdry_driver_leave(drv, &mode);
out_release:
	(void)fdry_call_raw(drv, cuDevicePrimaryCtxRelease_v2, device);
	return err;
}

int fdry_memory_fingerprint(int device, CUstream stream, const struct fdry_memory *ranges, size_t n,
			    uint64_t (*ret)[2])
{
	struct fdry_fingerprint_range *asked;
	struct fdry_fingerprint *found;
	size_t i;
	int err = n ? fdry_need(ranges) ?: fdry_need(ret) : 0;

	if (err)
		return err;
	asked = calloc(n + 1, sizeof(*asked));
	found = calloc(n + 1, sizeof(*found));
	if (!asked || !found) {
		err = fdry_nomem();
		goto out_free;
	}
	if (!n)
		goto out_free;
	for (i = 0; i < n; i++)
		asked[i] = (struct fdry_fingerprint_range){ ranges[i].addr, ranges[i].bytes };
	err = device_compute(&(struct prints){ stream, asked, n, found }, device);
	for (i = 0; i < n && !err; i++) {
		ret[i][0] = found[i].a;
		ret[i][1] = found[i].b;
	}
out_free:
	free(asked);
	free(found);
	return err;
}
