/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.h - events that several graphs of an image use.
 *
 * Each graph has events of its own for its event nodes, except for these: they order the launches
 * of the graphs that share them, so all these graphs are built with one event.
 */
#ifndef FDRY_IMAGE_EVENTS_H
#define FDRY_IMAGE_EVENTS_H

#include "image/image.h"

/* Create them; the image's graphs are read, and its context is current. FDRY_E_BADIMAGE if a graph
 * has no such event. */
int fdry_image_events_make(struct fdry_image *img) __must_check;
/* After the graphs are destroyed. The same context is current. */
void fdry_image_events_free(struct fdry_image *img);

#endif
