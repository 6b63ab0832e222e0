/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap.h - finds launches of one image that may overlap: a check for debugging.
 *
 * Graphs of an image share memory, and nothing but the caller's streams and events keeps
 * their launches apart. With the check on, a launch on another stream than the one before
 * waits, on the host, for what its stream was given so far. If the launch before is still
 * in flight then, the stream was not ordered after it.
 */
#ifndef FDRY_IMAGE_OVERLAP_H
#define FDRY_IMAGE_OVERLAP_H

#include "image/random.h"

/* Whether FOUNDRY_DEBUG asks for the check; FDRY_E_ENV if it says something else. */
int fdry_overlap_asked(bool *ret) __must_check;

/* In the primary context, as the launching below. */
int fdry_overlap_new(struct fdry_image *img) __must_check;
/* Launch @l, with its random state; FDRY_E_STATE names both graphs if it may overlap, and
 * nothing is launched. Any thread. */
int fdry_overlap_launch(struct fdry_image *img, const struct fdry_launch *l) __must_check;
/* Nothing is in flight. NULL is fine. */
void fdry_overlap_free(struct fdry_image *img);

#endif
