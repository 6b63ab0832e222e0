/* SPDX-License-Identifier: Apache-2.0 */
/* own.h - launching from a context of the image's own; see own.c. */
#ifndef FDRY_IMAGE_OWN_H
#define FDRY_IMAGE_OWN_H

#include "image/image.h"

/* Not between enter and leave. What was made of it on failure goes with fdry_own_free(). */
int fdry_own_new(struct fdry_image *img) __must_check;
/* On a checked stream; any thread, any context. */
int fdry_own_launch(struct fdry_image *img, CUgraphExec exec, CUstream stream) __must_check;
/* In the own context; nothing is in flight. NULL is fine. */
void fdry_own_free(struct fdry_image *img);

#endif
