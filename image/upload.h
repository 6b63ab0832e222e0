/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upload.h - host memory to the device, by as many threads as there are.
 *
 * A thread copies its pieces into a block of pinned memory and passes that to the driver;
 * the block is taken again when the device has it. So bytes may go away when the call that
 * was given them returns. Everything is on one stream, in no particular order. Blocks can be
 * filled before there is memory to copy to: copies begin when the upload is opened.
 *
 * Locking: fdry_upload_put() may be called by several threads at a time, each with the
 * device's context current; the others by one, when no thread is in there.
 */
#ifndef FDRY_IMAGE_UPLOAD_H
#define FDRY_IMAGE_UPLOAD_H

#include "lib/buf.h"
#include "image/pinned.h"

#define FDRY_UPLOAD_BLOCK FDRY_PINNED_SIZE

struct fdry_upload;

struct fdry_piece {
	CUdeviceptr addr; /* where it goes */
	struct fdry_span bytes;
};

/**
 * fdry_upload_new() - Get ready to copy.
 * @blocks: of FDRY_UPLOAD_BLOCK bytes that may be in use at the same time, at least 1; each is made
 * when it is needed. A thread that finds none free waits.
 *
 * Errors: FDRY_E_NOMEM, those of the driver.
 */
int fdry_upload_new(const struct fdry_driver *drv, CUstream stream, unsigned int blocks,
		    struct fdry_upload **ret) __must_check;
/* Copies may begin. Any thread. */
void fdry_upload_open(struct fdry_upload *u);
/* There will be no copies: threads that wait for them, or put more, get FDRY_E_STATE. Any thread.
 */
void fdry_upload_abandon(struct fdry_upload *u);
/* Copy @n pieces, FDRY_UPLOAD_BLOCK bytes together at most, some time before fdry_upload_finish()
 * returns. Waits until the upload is opened. */
int fdry_upload_put(struct fdry_upload *u, const struct fdry_piece *pieces, size_t n) __must_check;
/* Wait until everything has arrived. */
int fdry_upload_finish(struct fdry_upload *u) __must_check;
/* Also after a failure; waits for copies that are on their way. NULL is fine. */
void fdry_upload_free(struct fdry_upload *u);

#endif
