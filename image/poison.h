/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poison.h - fills memory whose content a load does not restore, to show reads of it.
 */
#ifndef FDRY_IMAGE_POISON_H
#define FDRY_IMAGE_POISON_H

#include "image/image.h"
#include "image/plan.h"

#define FDRY_POISON 0xA5

/* Fill all device memory of the image that is not content, except what the process keeps. */
int fdry_image_poison(struct fdry_image *img, const struct fdry_plan *plan) __must_check;

#endif
