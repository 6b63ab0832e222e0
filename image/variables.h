/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables.h - restores the values of module variables that an image holds.
 *
 * A module variable belongs to the loaded code. If the capturing process changed one, the image
 * holds its value, and a load writes it after the code is loaded.
 */
#ifndef FDRY_IMAGE_VARIABLES_H
#define FDRY_IMAGE_VARIABLES_H

#include "image/image.h"

/* Read all values, keep them in the image for restores, and write them. The image's kernels must be
 * loaded, and its context current. */
int fdry_image_values_load(struct fdry_image *img, struct fdry_reader *reader) __must_check;
/* Write the values again. */
int fdry_image_values_write(struct fdry_image *img) __must_check;
void fdry_image_values_free(struct fdry_image *img);

#endif
