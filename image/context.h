/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - an image's contexts, made and undone; image.h has what enters them. */
#ifndef FDRY_IMAGE_CONTEXT_H
#define FDRY_IMAGE_CONTEXT_H

#include "image/image.h"

/* Open the driver, retain the primary context of the device. FDRY_E_NODRIVER, FDRY_E_NOGPU,
 * FDRY_E_FORKED. */
int fdry_context_start(struct fdry_image *img, const struct fdry_load_opts *o) __must_check;
/* Make a context of the image's own for kernels and graphs. FDRY_E_NOFUNC before CUDA 12.5,
 * FDRY_E_NODEVMEM. */
int fdry_context_private(struct fdry_image *img) __must_check;
/* Not between enter and leave; nothing of the image is left in them. */
void fdry_context_end(struct fdry_image *img);

/* In the image's context: raise what the kernels need. Undone only if the load fails. */
int fdry_context_limits(struct fdry_image *img) __must_check;
void fdry_context_limits_undo(struct fdry_image *img);

#endif
