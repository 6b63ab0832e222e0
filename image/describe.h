/* SPDX-License-Identifier: Apache-2.0 */
/* describe.h - parts of fdry_image_describe(). */
#ifndef FDRY_IMAGE_DESCRIBE_H
#define FDRY_IMAGE_DESCRIBE_H

#include "image/manifest.h"

/* Append the amount of memory whose bytes the image holds, in tensors and elsewhere, and each place
 * that is in no tensor. Append nothing if it holds no bytes. */
int fdry_describe_content(const struct fdry_manifest *m, struct fdry_buf *out) __must_check;

#endif
