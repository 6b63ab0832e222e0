/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder.h - a thread that builds an image's graphs in the background.
 *
 * It works in the image's context, in relaxed capture mode, in the image's order of graphs. It
 * holds the image's ticket for one graph at a time, and threads that need a graph at once get the
 * ticket first. It ends when all graphs are built, when the device has too little memory for one,
 * or when it is stopped. Builders of several images work one after another.
 */
#ifndef FDRY_IMAGE_BUILDER_H
#define FDRY_IMAGE_BUILDER_H

#include "image/image.h"

/* Build the first @count graphs in the caller's order. If no thread can be started, graphs
 * are built at their first launch. */
void fdry_builder_start(struct fdry_image *img, uint32_t count);
/* Stop the thread after its current graph, and wait for that. Any other thread may call this, also
 * repeatedly. */
void fdry_builder_stop(struct fdry_image *img);
/* Wait until the thread ends by itself. */
void fdry_builder_wait(struct fdry_image *img);
/* Stop the thread and free the builder. A forked child, which has no such thread, must not call
 * this. */
void fdry_builder_free(struct fdry_image *img);

#endif
