/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upload.h - many pieces of host memory to the device, fast.
 *
 * Large pieces are registered with the driver where they lie, read-only, and copied by
 * DMA straight from there: from the page cache, where they are in a mapped file. What
 * cannot be registered, and small pieces, go through pinned memory. Everything is on one
 * stream. The pieces must stay where they are until fdry_upload_finish().
 *
 * Locking: one thread at a time; the device's context must be current.
 */
#ifndef FDRY_API_UPLOAD_H
#define FDRY_API_UPLOAD_H

#include "arch/threads.h"
#include "arch/buf.h"
#include "arch/driver.h"

struct fdry_upload;

/* @gate: NULL, or what the first copy waits for; memory is registered and pinned before. Outlives the upload. */
int fdry_upload_new(const struct fdry_driver *drv, CUdevice dev, CUstream stream, struct fdry_gate *gate,
		    struct fdry_upload **ret) __must_check;
/* Copy @bytes to @addr, some time before fdry_upload_finish() returns. */
int fdry_upload_add(struct fdry_upload *u, CUdeviceptr addr, struct fdry_span bytes) __must_check;
/* Wait until everything has arrived, and release what was registered. */
int fdry_upload_finish(struct fdry_upload *u) __must_check;
/* Also after a failure; waits for copies that are on their way. NULL is fine. */
void fdry_upload_free(struct fdry_upload *u);

#endif
