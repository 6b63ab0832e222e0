/* SPDX-License-Identifier: Apache-2.0 */
/* pull.h - the order in which a pull fetches the objects of an image. */
#ifndef FDRY_IMAGE_PULL_H
#define FDRY_IMAGE_PULL_H

#include "lib/buf.h"

/* Append the ids (struct fdry_oid each) of an image's objects in the order in which a load needs
 * them: kernels, values of variables, graphs, content in the order of addresses. A manifest that is
 * not valid has none. */
int fdry_image_order(struct fdry_span manifest, struct fdry_buf *ret) __must_check;

#endif
