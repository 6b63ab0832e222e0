/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder.h - a thread that builds an image's graphs in the background.
 *
 * It works in the image's context, in relaxed capture mode, in the image's order, one
 * graph in each turn; a thread that needs a graph at once goes before it. It ends when all
 * graphs are built, when one fails for want of memory, or when it is stopped. Builders of several
 * images work one after another.
 */
#ifndef FDRY_IMAGE_BUILDER_H
#define FDRY_IMAGE_BUILDER_H

#include "image/image.h"

/* Build the first @count graphs in the caller's order. If no thread can be started, graphs
 * are built at their first launch. */
void fdry_builder_start(struct fdry_image *img, uint32_t count);
/* Let it end after the graph that it is at, and wait for that. May be called often, by any thread
 * but its own. */
void fdry_builder_stop(struct fdry_image *img);
/* Wait until it has ended by itself. */
void fdry_builder_wait(struct fdry_image *img);
/* Stop it and forget it; not in a forked child, where there is no such thread. */
void fdry_builder_free(struct fdry_image *img);

#endif
