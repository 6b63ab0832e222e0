/* SPDX-License-Identifier: Apache-2.0 */
/* image_place.h - helpers for tests of fdry_load_opts.into: an image, and a process that makes some
 * of its allocations. */
#ifndef FDRY_TESTS_LIB_IMAGE_PLACE_H
#define FDRY_TESTS_LIB_IMAGE_PLACE_H

#include "tests/lib/image.h"

#define BIG (3u << 20)

/* The image: a, b, c, one of 3 MiB, and d; some memory was freed between. Graph 1: c = a + b; 2: c
 * = a + d. */
void seal_into(void *unused);

/* Allocate the first @n of a, b and c, and fill them with @salt. */
void into_begin(struct work *w, int n, float salt);
struct fdry_load_opts into(const struct work *w);
void tensor_is(struct fdry_image *img, const char *name, float salt);

/* Check that graph @key computes the sum for a of @a and b of @b. */
void sum_is(struct fdry_image *img, uint64_t key, float a, float b);

#endif
