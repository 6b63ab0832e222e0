/* SPDX-License-Identifier: Apache-2.0 */
/*
 * primary.h - a device's primary context, which graphs, pools and scalars retain.
 *
 * If the process has the interposer, these objects call it instead of the driver, because a program
 * may seal their allocations and captures.
 */
#ifndef FDRY_RUN_PRIMARY_H
#define FDRY_RUN_PRIMARY_H

#include <sys/types.h>

#include "arch/driver.h"

struct fdry_primary {
	const struct fdry_driver *drv;
	CUdevice device;
	CUcontext ctx;
	pid_t pid; /* of the process that opened it */
};

/**
 * fdry_primary_init() - Open the driver and retain the primary context of a device.
 * @path: of a driver; NULL: the interposer if it is in place, else FOUNDRY_DRIVER, else
 *        libcuda.so.1
 *
 * Errors: FDRY_E_NODRIVER, FDRY_E_NOGPU (also: no such ordinal), FDRY_E_FORKED.
 */
int fdry_primary_init(const char *path, int ordinal, struct fdry_primary *ret) __must_check;
/* Does nothing in a forked child, where the driver does not work. */
void fdry_primary_release(struct fdry_primary *p);
/* Retain the context once more; each copy needs a release. */
int fdry_primary_copy(const struct fdry_primary *p, struct fdry_primary *ret) __must_check;

/* FDRY_E_FORKED in a child of the process that opened it; @what is "the graph". */
int fdry_primary_check(const struct fdry_primary *p, const char *what) __must_check;

/* Make the context current and relax the thread's capture mode until leave. Launches and copies
 * need this as well, because a query of a stream can break a capture elsewhere (cuStreamGetId of
 * driver 580 does). */
int fdry_primary_enter(const struct fdry_primary *p, CUstreamCaptureMode *mode) __must_check;
void fdry_primary_leave(const struct fdry_primary *p, CUstreamCaptureMode *mode);

/**
 * fdry_primary_stream() - Check a caller's stream, inside enter and leave.
 * @what: the work for the stream, for the message: "a launch"
 *
 * FDRY_E_INVAL if it belongs to another context or, as far as the driver reports it, was destroyed;
 * FDRY_E_STATE if it is capturing.
 */
int fdry_primary_stream(const struct fdry_primary *p, CUstream stream,
			const char *what) __must_check;

#endif
