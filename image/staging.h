/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.h - copies between an image's tensors and other host memory through pinned memory. They
 * are used for writes that the caller does not wait for, and between arrays with different orders
 * of elements.
 *
 * Locking: any thread; img->staging_lock serialises the writes.
 */
#ifndef FDRY_IMAGE_STAGING_H
#define FDRY_IMAGE_STAGING_H

#include "image/image.h"
#include "image/strided.h"

struct fdry_staged {
	struct fdry_place tensor;
	void *data; /* address of element 0 in the caller's memory; a write only reads it */
	const struct fdry_strided *how;
	CUstream stream;
};

/* Write in the stream's order. The caller may reuse the data after the call. Waits if copies still
 * use all of the staging memory. The context must be current. */
int fdry_staging_write(struct fdry_image *img, const struct fdry_staged *w) __must_check;
/* Read a tensor in device memory, after the earlier work of the stream. The data is complete on
 * return. The context must be current. */
int fdry_staging_read(struct fdry_image *img, const struct fdry_staged *r) __must_check;
/* Wait for running copies, and free the staging memory. */
void fdry_staging_free(struct fdry_image *img);

#endif
