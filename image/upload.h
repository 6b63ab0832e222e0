/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upload.h - host memory to the device, through blocks of pinned memory.
 *
 * Threads fill a block together, each a part of it; the last of them passes it to the driver. The
 * block is taken again when the device has it. So the bytes that were copied into it may go away.
 * Everything is on one stream, in no particular order. Blocks can be filled before there is memory
 * to copy to: copies begin when the upload is opened.
 *
 * Locking: several threads at a time may call the functions of a batch, each with the device's
 * context current; the others are for one thread, when no thread is in there.
 */
#ifndef FDRY_IMAGE_UPLOAD_H
#define FDRY_IMAGE_UPLOAD_H

#include "lib/buf.h"
#include "image/pinned.h"

#define FDRY_UPLOAD_BLOCK FDRY_PINNED_SIZE

struct fdry_upload;

/* What goes into one block. In the caller's storage; zero, except @left. */
struct fdry_upload_batch {
	unsigned int left;          /* parts that are not filled yet */
	bool failed, preparing;     /* these and the block are the upload's */
	struct fdry_upload_block *block;
};

/**
 * fdry_upload_new() - Prepare an upload.
 * @blocks: the most blocks of FDRY_UPLOAD_BLOCK bytes in use at the same time, at least 1. Each is
 * made when it is first needed. If none is free, a thread waits.
 *
 * Errors: FDRY_E_NOMEM, those of the driver.
 */
int fdry_upload_new(const struct fdry_driver *drv, CUstream stream, unsigned int blocks,
		    struct fdry_upload **ret) __must_check;
/* Let copies begin. Any thread may call this at any time. */
void fdry_upload_open(struct fdry_upload *u);
/* There will be no copies: threads that wait get FDRY_E_STATE. Any thread. */
void fdry_upload_abandon(struct fdry_upload *u);

/* The block of a batch, FDRY_UPLOAD_BLOCK bytes, for each of its parts. The first call waits for a
 * free block. */
int fdry_upload_need(struct fdry_upload *u, struct fdry_upload_batch *batch,
		     uint8_t **ret) __must_check;
/* A part is filled, or failed. If it was the last one and none failed, the caller sends the batch,
 * and the result is true. Any failure takes the block back. */
bool fdry_upload_filled(struct fdry_upload *u, struct fdry_upload_batch *batch, bool whole);
/* Copy @len bytes, @at bytes into the block, some time before fdry_upload_finish() returns. Waits
 * until the upload is opened. */
int fdry_upload_copy(struct fdry_upload *u, struct fdry_upload_batch *batch, CUdeviceptr to,
		     size_t at, size_t len) __must_check;
/* All copies were begun, or one failed with @err: the block is free when the device has it. Returns
 * @err, unless that is 0 and something else failed. */
int fdry_upload_sent(struct fdry_upload *u, struct fdry_upload_batch *batch,
		     int err) __must_check;

/* Wait until all copies have ended. */
int fdry_upload_finish(struct fdry_upload *u) __must_check;
/* Wait for running copies and free the upload, also after a failure. @u may be NULL. */
void fdry_upload_free(struct fdry_upload *u);

#endif
