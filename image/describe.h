/* SPDX-License-Identifier: Apache-2.0 */
/* describe.h - parts of fdry_image_describe(). */
#ifndef FDRY_IMAGE_DESCRIBE_H
#define FDRY_IMAGE_DESCRIBE_H

#include "image/manifest.h"

/* Append which memory the image keeps bytes of: how much of it is in tensors, and each place with
 * bytes that are in none. Nothing if it keeps no bytes. */
int fdry_describe_content(const struct fdry_manifest *m, struct fdry_buf *out) __must_check;

#endif
