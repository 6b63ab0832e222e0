/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pinned.h - blocks of pinned host memory, through which a load copies content to the device.
 *
 * Making and freeing a block takes longer than copying its bytes. A process loads many images into
 * the region of one capture, one after the other. So blocks are kept for the next load as long as
 * such an image is loaded. A context that ends also ends the registration of its blocks, so only
 * blocks of the holders' context are kept.
 *
 * Locking: a lock guards the kept blocks. A child of fork() has none of them. The context in which
 * a block is used must be current in the functions for blocks.
 */
#ifndef FDRY_IMAGE_PINNED_H
#define FDRY_IMAGE_PINNED_H

#include "arch/driver.h"

#define FDRY_PINNED_SIZE ((size_t)4 << 20)

struct fdry_pinned {
	uint8_t *bytes;  /* FDRY_PINNED_SIZE bytes; NULL: no block */
	bool registered; /* with the driver; otherwise the driver copies through its own memory */
	bool asked;      /* whether the driver was asked to register it */
};

/* Get a kept block, or a new one, which has no pages yet and is not registered. FDRY_E_NOMEM. */
int fdry_pinned_get(const struct fdry_driver *drv, struct fdry_pinned *ret) __must_check;
/* Register a block if that was not tried yet. Call it when the block is filled: the system makes
 * pages for the threads that fill them at the same time, but one after the other here. */
void fdry_pinned_register(const struct fdry_driver *drv, struct fdry_pinned *block);
/* Keep the block for another load, or free it. No copy may still use it. */
void fdry_pinned_put(const struct fdry_driver *drv, const struct fdry_pinned *block);

/* From the first hold until the last release, fdry_pinned_put() keeps some blocks of @ctx. The last
 * fdry_pinned_release() frees them; a context of the device must be current there. Meanwhile a hold
 * of another context keeps none. */
void fdry_pinned_hold(const struct fdry_driver *drv, CUcontext ctx);
void fdry_pinned_release(const struct fdry_driver *drv, CUcontext ctx);

#endif
