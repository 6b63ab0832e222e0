/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing.h - the nodes and edges of a driver graph, numbered. Internal to graph/.
 */
#ifndef FDRY_GRAPH_LISTING_H
#define FDRY_GRAPH_LISTING_H

#include "arch/driver.h"
#include "graph/edge.h"

/* Zero it to start; release it also after a failure. */
struct fdry_listing {
	CUgraphNode *nodes;      /* in the driver's order, which is the order of creation */
	struct fdry_edge *edges; /* from and to are indices into @nodes; unordered */
	uint32_t nnodes, nedges;
};

/* FDRY_E_LIMIT; FDRY_E_REFUSED if this version does not know the data of an edge. */
int fdry_listing_init(const struct fdry_driver *drv, CUgraph graph,
		      struct fdry_listing *ret) __must_check;
void fdry_listing_release(struct fdry_listing *l);

#endif
