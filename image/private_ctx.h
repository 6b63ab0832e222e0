/* SPDX-License-Identifier: Apache-2.0 */
/* private_ctx.h - launches in a private context of the image; see private_ctx.c. */
#ifndef FDRY_IMAGE_PRIVATE_CTX_H
#define FDRY_IMAGE_PRIVATE_CTX_H

#include "image/image.h"

/* Make stream and events. The caller must be outside fdry_image_enter() and leave. After a failure,
 * fdry_private_ctx_free() frees what was made. */
int fdry_private_ctx_new(struct fdry_image *img) __must_check;
/* Launch @exec in the order of @stream, which was checked. Any thread, any context. */
int fdry_private_ctx_launch(struct fdry_image *img, CUgraphExec exec, CUstream stream) __must_check;
/* Free everything, if there is anything. The private context must be current, and no launch in
 * flight. */
void fdry_private_ctx_free(struct fdry_image *img);

#endif
