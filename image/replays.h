/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replays.h - replays of a loaded image's graphs that leave no trace: content and generators are as
 * before a test or a measurement. Nothing else may use the image meanwhile.
 */
#ifndef FDRY_IMAGE_REPLAYS_H
#define FDRY_IMAGE_REPLAYS_H

#include "image/image.h"

struct fdry_replays {
	struct fdry_image *img;
	struct fdry_rng_state *states; /* of the generators, before */
};

/* Restore content, and keep the states of the generators. After a success, fdry_replays_end() must
 * follow. FDRY_E_STATE: the image lies among the allocations of a capture. */
int fdry_replays_begin(struct fdry_image *img, struct fdry_replays *ret) __must_check;
/* Restore content and generators, and count all external tensors as not filled: replays may have
 * written them. @err: the result of the replays, which is returned unless this call fails. */
int fdry_replays_end(struct fdry_replays *r, int err) __must_check;

#endif
