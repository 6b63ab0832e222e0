/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.h - a smaller cubin with some kernels and everything that they reach.
 *
 * The same kernels of the same cubin always give the same bytes.
 * Documentation/format/kernel-object.rst lists what a slice may leave out, and what makes a slice
 * impossible.
 */
#ifndef FDRY_GRAPH_SLICE_H
#define FDRY_GRAPH_SLICE_H

#include "lib/buf.h"
#include "graph/code_reach.h"

/**
 * fdry_slice() - Copy the reached parts of a cubin into a slice, and check the slice.
 * @r: the parts that the kernels reach
 * @ret: gets the slice; must be empty
 *
 * Errors: FDRY_E_NOSLICE (the message says why; keep the whole cubin), FDRY_E_NOMEM,
 * FDRY_E_BADCODE (malformed), FDRY_E_BUG (the slice differs from the cubin).
 */
int fdry_slice(const struct fdry_code_reach *r, struct fdry_buf *ret) __must_check;

/* Compare everything in a slice with its cubin. FDRY_E_BUG names the first difference. */
int fdry_slice_check(const struct fdry_code_reach *r, struct fdry_span slice) __must_check;

#endif
