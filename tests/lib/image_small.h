/* SPDX-License-Identifier: Apache-2.0 */
/* image_small.h - an image with a small tensor among zeros, and a pack of it in the store. */
#ifndef FDRY_TESTS_LIB_IMAGE_SMALL_H
#define FDRY_TESTS_LIB_IMAGE_SMALL_H

#include "tests/lib/image.h"

#define SMALL 64u /* bytes of the tensor "small", at the beginning of 3 MiB of content */

/* Write a pack of "img" into the store's directory "packs". */
void image_pack_put(struct fdry_store *s);
/* Graph 1 (c = a + b), input a, constants b and small, output c, under @ref; and a pack of it. */
void image_small_seal(const char *ref, bool with_pack);

#endif
