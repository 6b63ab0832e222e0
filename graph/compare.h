/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.h - the differences between two graph objects of one image.
 *
 * Graphs may share an exec only if they differ in nothing but kernel arguments: any other change
 * to an exec makes its replays slower for the rest of its life.
 */
#ifndef FDRY_GRAPH_COMPARE_H
#define FDRY_GRAPH_COMPARE_H

#include "graph/codec.h"

/* Whether two graphs are equal except for the arguments of kernel nodes: kinds, kernels, launch
 * configurations, attributes, copies, fills, events, edges. Both views must be of one image and
 * canonical. Allocates nothing; takes about as long as comparing 20 bytes a node. */
bool fdry_graph_same_shape(const struct fdry_graph_view *a, const struct fdry_graph_view *b);

/**
 * fdry_graph_args_differ() - List the nodes of two graphs of the same shape whose arguments differ.
 * @ret: u32 for each, ascending, appended; as it was on failure
 *
 * Errors: FDRY_E_INVAL if the shapes differ, FDRY_E_NOMEM.
 */
int fdry_graph_args_differ(const struct fdry_graph_view *a, const struct fdry_graph_view *b,
			   struct fdry_buf *ret) __must_check;

#endif
