/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pinned.h - pinned host memory, through which a load copies content to the device.
 *
 * Making and freeing pinned memory takes longer than copying its bytes. A process loads many images
 * into the region of one capture, one after the other. So part of it is kept for the next load, as
 * long as such an image is loaded. A context that ends also ends the registration of its pinned
 * memory, so only that of the holders' context is kept.
 *
 * Locking: a lock guards what is kept. A child of fork() has none of it. The context in which
 * pinned memory is used must be current in fdry_pinned_get() and _register(), and in _put() if the
 * memory was registered.
 */
#ifndef FDRY_IMAGE_PINNED_H
#define FDRY_IMAGE_PINNED_H

#include "arch/driver.h"

#define FDRY_PINNED_PAGE ((size_t)2 << 20)  /* a huge page */
#define FDRY_PINNED_KEPT ((size_t)48 << 20) /* bytes that are kept at most, those of one load */

struct fdry_pinned {
	uint8_t *bytes;  /* NULL: none */
	size_t size;
	bool registered; /* with the driver; otherwise the driver copies through its own memory */
	bool asked;      /* whether the driver was asked to register it */
};

/* Get new memory of @size bytes, without pages and not registered. @size: a multiple of
 * FDRY_PINNED_PAGE. Needs no context. FDRY_E_NOMEM. */
int fdry_pinned_new(size_t size, struct fdry_pinned *ret) __must_check;
/* Get pinned memory of @size bytes or more: some that was kept, or new memory. */
int fdry_pinned_get(const struct fdry_driver *drv, size_t size,
		    struct fdry_pinned *ret) __must_check;
/* Make the pages of [@at, @at + @len) of new memory, before anything writes there. Several threads
 * do that faster than one; fdry_pinned_register() makes missing ones, one after the other. */
void fdry_pinned_populate(const struct fdry_pinned *memory, size_t at, size_t len);
/* Register the memory if that was not tried yet. */
void fdry_pinned_register(const struct fdry_driver *drv, struct fdry_pinned *memory);
/* Keep the memory for another load, or free it. No copy may still use it. */
void fdry_pinned_put(const struct fdry_driver *drv, const struct fdry_pinned *memory);

/* From the first hold until the last release, fdry_pinned_put() keeps some memory of @ctx. The last
 * fdry_pinned_release() frees it; a context of the device must be current there. Meanwhile a hold
 * of another context keeps none. */
void fdry_pinned_hold(const struct fdry_driver *drv, CUcontext ctx);
void fdry_pinned_release(const struct fdry_driver *drv, CUcontext ctx);
/* Is there a holder of any context, so that fdry_pinned_get() may find kept memory? */
bool fdry_pinned_has_holder(void);

#endif
