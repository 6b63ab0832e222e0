/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables.h - restores the values of module variables that an image holds.
 *
 * A module variable belongs to the loaded code. If the capturing process changed one, the image
 * holds its value, and a load writes it after the code is loaded. The load then keeps a copy of all
 * variables that kernels can write, also of those with the value of their code. A restore writes
 * these copies. What was written is read back and compared.
 */
#ifndef FDRY_IMAGE_VARIABLES_H
#define FDRY_IMAGE_VARIABLES_H

#include "image/image.h"

/* Read all values, write them, and keep them and the copies in the image. The image's kernels must
 * be loaded, their objects available, and its context current. */
int fdry_image_values_load(struct fdry_image *img, struct fdry_reader *reader) __must_check;
/* Write values and copies again. FDRY_E_CORRUPT if other bytes arrived. */
int fdry_image_values_write(struct fdry_image *img) __must_check;
void fdry_image_values_free(struct fdry_image *img);

#endif
