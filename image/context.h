/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - makes and destroys an image's contexts; image.h declares the functions that enter
 * them. */
#ifndef FDRY_IMAGE_CONTEXT_H
#define FDRY_IMAGE_CONTEXT_H

#include "image/image.h"

/* Open the driver and retain the primary context of the device. FDRY_E_NODRIVER, FDRY_E_NOGPU,
 * FDRY_E_FORKED. */
int fdry_context_start(struct fdry_image *img, const struct fdry_load_opts *o) __must_check;
/* Make a private context for the image's kernels and graphs. FDRY_E_NOFUNC before CUDA 12.5,
 * FDRY_E_NODEVMEM. */
int fdry_context_private(struct fdry_image *img) __must_check;
/* Destroy or release the contexts. The caller must be outside fdry_image_enter() and leave, and
 * everything of the image in them must be freed. */
void fdry_context_end(struct fdry_image *img);

/* Raise the context's limits to what the kernels need. The image's context must be current. The
 * limits are restored only if the load fails. */
int fdry_context_limits(struct fdry_image *img) __must_check;
void fdry_context_limits_undo(struct fdry_image *img);

#endif
