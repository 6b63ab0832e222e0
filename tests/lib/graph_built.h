/* SPDX-License-Identifier: Apache-2.0 */
/* graph_built.h - compares graphs that were built with their objects. */
#ifndef FDRY_TESTS_LIB_GRAPH_BUILT_H
#define FDRY_TESTS_LIB_GRAPH_BUILT_H

#include "graph/graph.h"

/* Check that the driver's graph has the nodes and edges of @view, with their data. FDRY_E_DRIVER
 * names a difference.
 * @conditional: as in a reader, with NULL for its argument */
int graph_built_check(const struct fdry_driver *drv, const struct fdry_graph_view *view,
		      const struct fdry_graph_built *b,
		      fdry_conditional_fn conditional) __must_check;

#endif
