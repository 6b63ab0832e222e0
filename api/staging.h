/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.h - writes that the caller need not wait for: bytes are kept in pinned memory until
 * the stream gets there.
 *
 * Locking: any thread; img->staging_lock serialises the writes.
 */
#ifndef FDRY_API_STAGING_H
#define FDRY_API_STAGING_H

#include "api/image.h"

struct fdry_staged {
	uint64_t addr;    /* where to */
	bool host;        /* it is host memory */
	const void *data; /* @len bytes, not needed after the call */
	size_t len;
	CUstream stream;
};

/* Write in the stream's order. Waits while all of the staging memory is under way. The context is current. */
int fdry_staging_write(struct fdry_image *img, const struct fdry_staged *w) __must_check;
/* Wait for what is under way and release what was made. */
void fdry_staging_free(struct fdry_image *img);

#endif
