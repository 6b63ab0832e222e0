/* SPDX-License-Identifier: Apache-2.0 */
/* private_ctx.h - launching from a context of the image's own; see private_ctx.c. */
#ifndef FDRY_IMAGE_PRIVATE_CTX_H
#define FDRY_IMAGE_PRIVATE_CTX_H

#include "image/image.h"

/* Not between enter and leave. What was made of it on failure goes with fdry_private_ctx_free(). */
int fdry_private_ctx_new(struct fdry_image *img) __must_check;
/* On a checked stream; any thread, any context. */
int fdry_private_ctx_launch(struct fdry_image *img, CUgraphExec exec, CUstream stream) __must_check;
/* In the own context; nothing is in flight. NULL is fine. */
void fdry_private_ctx_free(struct fdry_image *img);

#endif
