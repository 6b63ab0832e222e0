/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h - checks and sizes of tensors that follow from their descriptions. */
#ifndef FDRY_IMAGE_TENSOR_H
#define FDRY_IMAGE_TENSOR_H

#include <stdbool.h>

#include "foundry.h"
#include "lib/err.h"

/* Check a name: letters, digits and - _ . @ + / = : , 1 to FDRY_NAME_MAX bytes. @what ("tensor",
 * "fact") is used in the message. */
int fdry_name_check(const char *what, const char *name) __must_check;

/* Compute the bytes from element 0 to one past the last. FDRY_E_INVAL if type, rank, shape or
 * strides are not valid. */
int fdry_tensor_extent(const struct fdry_tensor *t, uint64_t *ret) __must_check;

/* Compute the bytes of all elements, without gaps. FDRY_E_INVAL if they are more than the address
 * space.
 */
int fdry_tensor_bytes(const struct fdry_tensor *t, uint64_t *ret) __must_check;

/* For the three functions below, fdry_tensor_extent() must have succeeded. */

/* Whether the elements lie without gaps, in any order. */
bool fdry_tensor_dense(const struct fdry_tensor *t);
/* Whether no two elements share memory. It is also false for rare strides that interleave elements.
 * Strides may be negative. */
bool fdry_tensor_distinct(const struct fdry_tensor *t);
/* Whether the tensor is dense, and elements that a larger first dimension adds lie after its
 * end. */
bool fdry_tensor_extendable(const struct fdry_tensor *t);

#endif
