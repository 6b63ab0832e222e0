/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pinned.h - blocks of pinned host memory, through which content goes to the device.
 *
 * To make and to free a block takes longer than to copy its bytes. So blocks are kept for the next
 * load while images that share a region are loaded: a process loads many of those in turn.
 *
 * Locking: the kept blocks have a lock of their own. A child of a fork has none of the blocks.
 */
#ifndef FDRY_IMAGE_PINNED_H
#define FDRY_IMAGE_PINNED_H

#include "arch/driver.h"

#define FDRY_PINNED_SIZE ((size_t)4 << 20)

struct fdry_pinned {
	uint8_t *bytes;  /* FDRY_PINNED_SIZE of them; NULL: none */
	bool registered; /* with the driver; otherwise it copies them through memory of its own */
};

/* A kept block or a new one. FDRY_E_NOMEM. */
int fdry_pinned_get(const struct fdry_driver *drv, struct fdry_pinned *ret) __must_check;
/* Keep the block for another load, or free it. No copy uses it any more. */
void fdry_pinned_put(const struct fdry_driver *drv, const struct fdry_pinned *block);

/* Keep some blocks until as many calls of fdry_pinned_release(), which frees them at last. The
 * device's context is current there. */
void fdry_pinned_hold(const struct fdry_driver *drv);
void fdry_pinned_release(const struct fdry_driver *drv);

#endif
