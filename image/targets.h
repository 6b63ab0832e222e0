/* SPDX-License-Identifier: Apache-2.0 */
/*
 * targets.h - restores pointers to module variables.
 *
 * A variable has another address in each process. The manifest names the variables that pointers
 * point to, and the places of these pointers: in arguments, in content, in values of variables. A
 * load finds the addresses after it has loaded the code, and writes them to these places.
 */
#ifndef FDRY_IMAGE_TARGETS_H
#define FDRY_IMAGE_TARGETS_H

#include "image/image.h"

/* Find the addresses, and list the words of arguments for each graph. The image's kernels must be
 * loaded, and its context current. */
int fdry_image_targets_find(struct fdry_image *img) __must_check;
/* Write the pointers into the values that were read. */
void fdry_image_targets_values(struct fdry_image *img);
/* Write the pointers into content, which was compared with its fingerprints. The image's context
 * must be current. */
int fdry_image_targets_content(struct fdry_image *img) __must_check;
void fdry_image_targets_free(struct fdry_image *img);

#endif
