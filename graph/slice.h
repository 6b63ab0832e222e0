/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.h - a smaller cubin that holds some kernels and what they reach.
 *
 * The same kernels of the same cubin always give the same bytes. What a slice may leave
 * out, and what makes a slice impossible, is in Documentation/format/kernel-object.rst.
 */
#ifndef FDRY_GRAPH_SLICE_H
#define FDRY_GRAPH_SLICE_H

#include "lib/buf.h"
#include "graph/code_reach.h"

/**
 * fdry_slice() - Cut what is reached out of its cubin, and check the result.
 * @r: what the kernels reach
 * @ret: gets the slice; must be empty
 *
 * Errors: FDRY_E_NOSLICE, whose sentence says why not (keep the whole cubin), FDRY_E_NOMEM,
 * FDRY_E_BADCODE (malformed), FDRY_E_BUG (the slice differs from the cubin).
 */
int fdry_slice(const struct fdry_code_reach *r, struct fdry_buf *ret) __must_check;

/* Read a slice and compare everything in it with the cubin that it was cut from; FDRY_E_BUG names what differs. */
int fdry_slice_check(const struct fdry_code_reach *r, struct fdry_span slice) __must_check;

#endif
