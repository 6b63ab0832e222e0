/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upload.h - copies host memory to the device, through blocks of pinned memory.
 *
 * Several threads fill a block together, each a part of it, and the last of them passes it to the
 * driver. The source of those bytes may be freed then. The block is used again after the device has
 * copied from it. All copies are on one stream, in any order.
 *
 * Each step may come before what the next one needs: memory is made before there is a driver, and
 * blocks are filled before the memory to copy to exists.
 *
 * Locking: several threads may call fdry_upload_populate() at any time, and after
 * fdry_upload_begin() also fdry_upload_prepare() and the functions of batches, each with the
 * device's context current. The other functions are for one thread, while no thread calls those,
 * unless they say otherwise.
 */
#ifndef FDRY_IMAGE_UPLOAD_H
#define FDRY_IMAGE_UPLOAD_H

#include "lib/buf.h"
#include "image/pinned.h"

#define FDRY_UPLOAD_BLOCK ((size_t)8 << 20) /* bytes */

struct fdry_upload;

/* The parts that share one block. The caller owns it, and zeroes it except @left. */
struct fdry_upload_batch {
	unsigned int left;          /* parts that are not filled yet */
	bool failed, preparing;     /* these and the block are the upload's */
	struct fdry_upload_block *block;
};

/**
 * fdry_upload_new() - Get memory for an upload, unless some may be kept (pinned.h).
 * @blocks: the most blocks of FDRY_UPLOAD_BLOCK bytes in use at the same time; 0: nothing is copied
 * @bytes: all bytes to copy; if they are few, the blocks are small and not pinned. A single block
 * has no more than these.
 *
 * Needs no driver. FDRY_E_NOMEM.
 */
int fdry_upload_new(unsigned int blocks, uint64_t bytes, struct fdry_upload **ret) __must_check;
/* Make pages of the memory, together with other threads that call this at the same time. */
void fdry_upload_populate(struct fdry_upload *u);
/* Give the upload its driver, whose context is current, and a stream. Other threads may be in
 * fdry_upload_populate(). If it fails, only fdry_upload_abandon() and _free() may follow. Errors:
 * FDRY_E_NOMEM, those of the driver. */
int fdry_upload_begin(struct fdry_upload *u, const struct fdry_driver *drv,
		      CUstream stream) __must_check;
/* Make what is left to make: pages, and when no page is left, the memory's registration with the
 * driver. A thread should call it before it reads what it copies; fdry_upload_need() does, too. */
void fdry_upload_prepare(struct fdry_upload *u);
/* Let copies begin. Any thread may call it at any time. */
void fdry_upload_open(struct fdry_upload *u);
/* Stop the upload: no copies will begin, and waiting threads get FDRY_E_STATE. Any thread may call
 * it. */
void fdry_upload_abandon(struct fdry_upload *u);

/* Return the block of a batch: FDRY_UPLOAD_BLOCK bytes, or all bytes of the upload. Call it once
 * for each part; the first call waits for a free block. */
int fdry_upload_need(struct fdry_upload *u, struct fdry_upload_batch *batch,
		     uint8_t **ret) __must_check;
/* Report that a part is filled, or that it failed if @whole is false. Returns true if it was the
 * last part and none failed; then the caller must send the batch. If a part failed, the last report
 * frees the block. */
bool fdry_upload_filled(struct fdry_upload *u, struct fdry_upload_batch *batch, bool whole);
/* Copy @len bytes, which begin @at bytes into the block, to @to at some time before
 * fdry_upload_finish() returns. Waits until the upload is opened. */
int fdry_upload_copy(struct fdry_upload *u, struct fdry_upload_batch *batch, CUdeviceptr to,
		     size_t at, size_t len) __must_check;
/* Call it when all copies have begun, or one failed with @err. The block is free after the device
 * has copied from it. Returns @err, or if that is 0, the error of this call. */
int fdry_upload_sent(struct fdry_upload *u, struct fdry_upload_batch *batch,
		     int err) __must_check;

/* Wait until all copies have ended. */
int fdry_upload_finish(struct fdry_upload *u) __must_check;
/* Wait for running copies and free the upload, also after a failure. @u may be NULL. */
void fdry_upload_free(struct fdry_upload *u);

#endif
