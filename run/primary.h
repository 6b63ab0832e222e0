/* SPDX-License-Identifier: Apache-2.0 */
/*
 * primary.h - a device's primary context, held by an object that callers have: graphs,
 * pools, scalars.
 *
 * Such objects go through the stand-in where the process has one, since what they allocate
 * and capture may be sealed; otherwise to the driver.
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
 * fdry_primary_open() - Open the driver and retain the primary context of a device.
 * @path: of a driver; NULL: the stand-in where it is in place, else FOUNDRY_DRIVER, else libcuda.so.1
 *
 * Errors: FDRY_E_NODRIVER, FDRY_E_NOGPU (also where there is no such ordinal), FDRY_E_FORKED.
 */
int fdry_primary_open(const char *path, int ordinal, struct fdry_primary *ret) __must_check;
/* Does nothing in a forked child, where the driver does not work. */
void fdry_primary_close(struct fdry_primary *p);
/* Hold it once more: each needs a close. */
int fdry_primary_again(const struct fdry_primary *p, struct fdry_primary *ret) __must_check;

/* FDRY_E_FORKED in a child of the process that opened it; @what is "the graph". */
int fdry_primary_check(const struct fdry_primary *p, const char *what) __must_check;

/* Make it current, and the thread's capture mode relaxed, until leave: around launches and copies too, since asking whose
 * a stream is can break a capture elsewhere otherwise (seen on driver 580 of cuStreamGetId). */
int fdry_primary_enter(const struct fdry_primary *p, CUstreamCaptureMode *mode) __must_check;
void fdry_primary_leave(const struct fdry_primary *p, CUstreamCaptureMode *mode);

/**
 * fdry_primary_stream() - Look at a caller's stream; the context is entered.
 * @what: what is to be put on it, for the sentence: "a launch"
 *
 * FDRY_E_INVAL where it belongs to another context or, as far as the driver tells, is not
 * alive; FDRY_E_STATE where it captures.
 */
int fdry_primary_stream(const struct fdry_primary *p, CUstream stream, const char *what) __must_check;

#endif
