/* SPDX-License-Identifier: Apache-2.0 */
/*
 * edge.h - edges with their data, and the canonical order of nodes that they give.
 *
 * Canonical order: of all nodes whose predecessors have been listed, the one that was
 * created first comes next. So it is a topological order, it is the order of creation
 * where that is one (as for every captured graph), and all edges lead forward in it.
 * What it takes from the driver, besides the edges, is the order in which
 * cuGraphGetNodes lists the nodes, and only between nodes that do not depend on each
 * other.
 */
#ifndef FDRY_GRAPH_EDGE_H
#define FDRY_GRAPH_EDGE_H

#include <cuda.h>
#include <stdint.h>

#include "lib/err.h"

struct fdry_edge {
	uint32_t from, to;    /* node indices */
	CUgraphEdgeData data;
};

/**
 * fdry_edges_order() - Find the canonical order of nodes.
 * @edges: between nodes numbered in order of creation
 * @order: memory for @nodes numbers: the node that comes i-th
 *
 * FDRY_E_REFUSED where the edges make a cycle.
 */
int fdry_edges_order(const struct fdry_edge *edges, uint32_t nedges, uint32_t nodes, uint32_t *order) __must_check;

/* Sort by (from, to, data). */
void fdry_edges_sort(struct fdry_edge *edges, uint32_t count);

struct fdry_graph_view;
/* The edge columns hold what the format allows: FDRY_E_BADIMAGE, FDRY_E_VERSION. */
int fdry_graph_edges_check(const struct fdry_graph_view *v) __must_check;
/* Edge data that this version knows: FDRY_E_REFUSED. */
int fdry_edge_data_check(const CUgraphEdgeData *d) __must_check;

#endif
