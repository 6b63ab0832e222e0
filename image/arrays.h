/* SPDX-License-Identifier: Apache-2.0 */
/* arrays.h - the CUDA arrays of a loaded image, which its graphs copy from or to. */
#ifndef FDRY_IMAGE_ARRAYS_H
#define FDRY_IMAGE_ARRAYS_H

#include "image/image.h"

/* Find the shapes of the image's arrays: graph objects are checked against them. */
int fdry_image_arrays_plan(struct fdry_image *img) __must_check;
/* Make the arrays, in the image's context. */
int fdry_image_arrays_make(struct fdry_image *img) __must_check;
/* Write the content of all arrays, and wait. */
int fdry_image_arrays_content(struct fdry_image *img, struct fdry_reader *reader,
			      struct fdry_content_sum *sum) __must_check;
/* Destroy those that were made. */
void fdry_image_arrays_free(struct fdry_image *img);

#endif
