/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.h - copies between an image's tensors and other host memory by way of pinned memory:
 * writes that the caller need not wait for, and copies between different orders of elements.
 *
 * Locking: any thread; img->staging_lock serialises the writes.
 */
#ifndef FDRY_IMAGE_STAGING_H
#define FDRY_IMAGE_STAGING_H

#include "image/image.h"
#include "image/strided.h"

struct fdry_staged {
	struct fdry_place tensor;
	void *data; /* of element 0 in the caller's memory; only read by a write */
	const struct fdry_strided *how;
	CUstream stream;
};

/* Write in the stream's order; the data is not needed after the call. Waits while all of the
 * staging memory is under way. The context is current. */
int fdry_staging_write(struct fdry_image *img, const struct fdry_staged *w) __must_check;
/* Read a tensor in device memory, after everything that the stream was given; complete on return.
 * The context is current. */
int fdry_staging_read(struct fdry_image *img, const struct fdry_staged *r) __must_check;
/* Wait for what is under way and release what was made. */
void fdry_staging_free(struct fdry_image *img);

#endif
