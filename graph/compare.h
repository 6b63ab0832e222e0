/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.h - what two graph objects of one image differ in.
 *
 * An exec may be shared only between graphs that differ in kernel arguments alone: what
 * else is changed in an exec slows its replays for good.
 */
#ifndef FDRY_GRAPH_COMPARE_H
#define FDRY_GRAPH_COMPARE_H

#include "graph/codec.h"

/* Whether all but the arguments of kernel nodes is the same: kinds, kernels, launch configurations, attributes, copies, fills,
 * events, edges. Takes no memory and about as long as comparing 20 bytes a node. Of views of one image, in canonical form. */
bool fdry_graph_same_shape(const struct fdry_graph_view *a, const struct fdry_graph_view *b);

/**
 * fdry_graph_args_differ() - List the nodes of two graphs of the same shape whose arguments differ.
 * @ret: u32 for each, ascending, appended; as it was on failure
 *
 * Errors: FDRY_E_INVAL where the shapes differ, FDRY_E_NOMEM.
 */
int fdry_graph_args_differ(const struct fdry_graph_view *a, const struct fdry_graph_view *b,
			   struct fdry_buf *ret) __must_check;

#endif
