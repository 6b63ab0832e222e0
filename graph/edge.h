/* SPDX-License-Identifier: Apache-2.0 */
/*
 * edge.h - edges with their data, and the canonical order of nodes that follows from them.
 *
 * Canonical order: among all nodes whose predecessors have been listed, the node that was
 * created first comes next. So it is a topological order, and all edges lead forward in it.
 * It equals the order of creation if that is topological, as for every captured graph. The
 * order of cuGraphGetNodes decides only between nodes that do not depend on each other.
 */
#ifndef FDRY_GRAPH_EDGE_H
#define FDRY_GRAPH_EDGE_H

#include <cuda.h>
#include <stdint.h>

#include "lib/err.h"
#include "graph/columns.h"

struct fdry_edge {
	uint32_t from, to;    /* node indices */
	CUgraphEdgeData data;
};

/**
 * fdry_edges_order() - Find the canonical order of nodes.
 * @edges: between nodes numbered in order of creation
 * @order: memory for @nodes numbers: entry i is the node that comes i-th
 *
 * FDRY_E_REFUSED if the edges make a cycle.
 */
int fdry_edges_order(const struct fdry_edge *edges, uint32_t nedges, uint32_t nodes,
		     uint32_t *order) __must_check;

/* Sort by (from, to, data). */
void fdry_edges_sort(struct fdry_edge *edges, uint32_t count);

/* Check that the edge columns hold what the format allows. FDRY_E_BADIMAGE, FDRY_E_VERSION. */
int fdry_graph_edges_check(const struct fdry_graph_view *v) __must_check;
/* Check that this version knows the edge data. FDRY_E_REFUSED. */
int fdry_edge_data_check(const CUgraphEdgeData *d) __must_check;

struct fdry_graph_edge {
	uint32_t from, to; /* node indices, from < to */
	uint32_t index;    /* 0: default edge data, else entry index - 1 of FDRY_GSEC_EDGE_DATA */
};
/* The edge data for fdry_graph_edge.index. */
CUgraphEdgeData fdry_graph_edge_data_at(const struct fdry_graph_view *v, uint32_t index);
uint32_t fdry_graph_edge_count(const struct fdry_graph_view *v);

/*
 * Walks the edges of a checked view in the order of from, to and data. To start, set @v and zero
 * the rest. The chain is the sequence of edges from each node to the next; the object stores only
 * the nodes after which it breaks.
 */
struct fdry_graph_edges {
	const struct fdry_graph_view *v;
	uint32_t node;   /* the node whose edges come next ... */
	bool linked;     /* ... and whether its edge of the chain was returned */
	uint32_t brk;    /* the next break of the chain */
	uint32_t stored; /* the next entry of the edge columns */
};
/* False after the last edge. */
bool fdry_graph_edge_next(struct fdry_graph_edges *e, struct fdry_graph_edge *ret);

#endif
