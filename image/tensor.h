/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h - what can be said of a tensor's description alone. */
#ifndef FDRY_IMAGE_TENSOR_H
#define FDRY_IMAGE_TENSOR_H

#include <stdbool.h>

#include "foundry.h"
#include "lib/err.h"

/* Letters, digits and - _ . @ + / = : , 1 to FDRY_NAME_MAX bytes. @what ("tensor", "fact") is for
 * the message. */
int fdry_name_check(const char *what, const char *name) __must_check;

/* Bytes from element 0 to one past the last. FDRY_E_INVAL where type, rank, shape or strides are
 * not valid. */
int fdry_tensor_extent(const struct fdry_tensor *t, uint64_t *ret) __must_check;

/* Bytes of all elements, without gaps. FDRY_E_INVAL if those are more than the address space has.
 */
int fdry_tensor_bytes(const struct fdry_tensor *t, uint64_t *ret) __must_check;

/* The three that follow are for descriptions whose extent was computed. */

/* The elements, in whatever order, lie side by side. */
bool fdry_tensor_dense(const struct fdry_tensor *t);
/* No two elements share memory. False also for rare strides that make elements interleave. Strides
 * may be negative. */
bool fdry_tensor_distinct(const struct fdry_tensor *t);
/* Dense, and what a larger first dimension adds lies behind the tensor. */
bool fdry_tensor_extendable(const struct fdry_tensor *t);

#endif
