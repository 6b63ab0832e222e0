/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap.h - a check for debugging: finds launches of one image that may overlap.
 *
 * Graphs of an image share memory, and only the caller's streams and events order their launches.
 * With the check, a launch on another stream than the launch before waits on the host for the
 * earlier work of its stream. If the launch before is then still in flight, the caller did not
 * order the stream after it.
 */
#ifndef FDRY_IMAGE_OVERLAP_H
#define FDRY_IMAGE_OVERLAP_H

#include "image/random.h"

/* Whether FOUNDRY_DEBUG enables the check; FDRY_E_ENV if it has an unknown value. */
int fdry_overlap_asked(bool *ret) __must_check;

/* Make the check's state. The primary context must be current, here and in
 * fdry_overlap_launch(). */
int fdry_overlap_new(struct fdry_image *img) __must_check;
/* Launch @l with its random state. If it may overlap, nothing is launched, and FDRY_E_STATE names
 * both graphs. Any thread. */
int fdry_overlap_launch(struct fdry_image *img, const struct fdry_launch *l) __must_check;
/* Free the state, if there is any. No launch may be in flight. */
void fdry_overlap_free(struct fdry_image *img);

#endif
