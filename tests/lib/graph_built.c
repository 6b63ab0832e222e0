// SPDX-License-Identifier: Apache-2.0
#include "tests/lib/graph_built.h"

#include <string.h>

#include "graph/listing.h"

static int edges_compare(const struct fdry_listing *l, const struct fdry_graph_view *v)
{
	struct fdry_graph_edges edges = { .v = v };
	struct fdry_graph_edge e;
	CUgraphEdgeData d;
	uint32_t i;

	for (i = 0; i < l->nedges && fdry_graph_edge_next(&edges, &e); i++) {
		d = fdry_graph_edge_data_at(v, e.index);
		if (l->edges[i].from != e.from || l->edges[i].to != e.to)
			return fdry_fail(FDRY_E_DRIVER,
					 "the driver has an edge from node %u to node %u in place "
					 "of one from %u to %u",
					 l->edges[i].from, l->edges[i].to, e.from, e.to);
		if (memcmp(&l->edges[i].data, &d, sizeof(d)))
			return fdry_fail(
				FDRY_E_DRIVER,
				"the driver changed the data of the edge from node %u to node %u",
				e.from, e.to);
	}
	return 0;
}

int graph_built_check(const struct fdry_driver *drv, const struct fdry_graph_view *view,
			   const struct fdry_graph_built *b)
{
	struct fdry_listing l = { 0 };
	int err = fdry_listing_init(drv, b->graph, &l);

	if (err)
		goto out_release;
	if (l.nnodes != view->header.nodes || l.nedges != fdry_graph_edge_count(view)) {
		err = fdry_fail(FDRY_E_DRIVER,
				"the driver has %u nodes and %u edges, but %u and %u were added",
				l.nnodes, l.nedges, view->header.nodes,
				fdry_graph_edge_count(view));
		goto out_release;
	}
	fdry_edges_sort(l.edges, l.nedges);
	err = edges_compare(&l, view);
out_release:
	fdry_listing_release(&l);
	return err;
}
