// SPDX-License-Identifier: Apache-2.0
#include "tests/lib/graph_built.h"

#include <stdlib.h>
#include <string.h>

#include "graph/listing.h"
#include "graph/subgraph.h"

struct built {
	const struct fdry_driver *drv;
	const struct fdry_graph_view *v;
	fdry_conditional_fn conditional;
	struct fdry_graph_edges edges; /* of the view, walked once */
	CUgraph *graphs;               /* the graph, and those within it so far ... */
	uint32_t ngraphs;              /* ... as many of these */
};

/* The edges of one graph, whose nodes begin at @first. */
static int edges_compare(struct built *b, const struct fdry_listing *l, uint32_t first)
{
	struct fdry_graph_edge e;
	CUgraphEdgeData d;
	uint32_t i;

	for (i = 0; i < l->nedges && fdry_graph_edge_next(&b->edges, &e); i++) {
		d = fdry_graph_edge_data_at(b->v, e.index);
		if (first + l->edges[i].from != e.from || first + l->edges[i].to != e.to)
			return fdry_fail(FDRY_E_DRIVER,
					 "the driver has an edge from node %u to node %u in place "
					 "of one from %u to %u",
					 first + l->edges[i].from, first + l->edges[i].to, e.from,
					 e.to);
		if (memcmp(&l->edges[i].data, &d, sizeof(d)))
			return fdry_fail(
				FDRY_E_DRIVER,
				"the driver changed the data of the edge from node %u to node %u",
				e.from, e.to);
	}
	return 0;
}

static int bodies_list(struct built *b, CUgraphNode node)
{
	struct fdry_conditional c = { 0 };
	int err = b->conditional(NULL, node, &c);
	unsigned int i;

	for (i = 0; !err && i < c.size; i++)
		b->graphs[++b->ngraphs] = c.bodies[i];
	return err;
}

/* The graphs that nodes of a graph hold, in the order of the nodes. */
static int children_list(struct built *b, const struct fdry_listing *l, uint32_t first)
{
	uint32_t i;
	int err = 0;

	for (i = 0; !err && i < l->nnodes; i++) {
		if (b->v->section[FDRY_GSEC_KIND][first + i] == FDRY_NODE_CONDITIONAL)
			err = bodies_list(b, l->nodes[i]);
		if (b->v->section[FDRY_GSEC_KIND][first + i] == FDRY_NODE_CHILD)
			err = fdry_call(b->drv, cuGraphChildGraphNodeGetGraph, l->nodes[i],
					&b->graphs[++b->ngraphs]);
	}
	return err;
}

static int graph_compare(struct built *b, uint32_t i, uint32_t *edges)
{
	uint32_t first = i ? fdry_graph_end(b->v, i - 1) : 0;
	struct fdry_listing l = { 0 };
	int err = fdry_listing_init(b->drv, b->graphs[i], &l);

	if (err)
		goto out_release;
	if (l.nnodes != fdry_graph_end(b->v, i) - first) {
		err = fdry_fail(FDRY_E_DRIVER, "the driver has %u nodes in graph %u", l.nnodes, i);
		goto out_release;
	}
	*edges += l.nedges;
	fdry_edges_sort(l.edges, l.nedges);
	err = edges_compare(b, &l, first) ?: children_list(b, &l, first);
out_release:
	fdry_listing_release(&l);
	return err;
}

int graph_built_check(const struct fdry_driver *drv, const struct fdry_graph_view *view,
		      const struct fdry_graph_built *built, fdry_conditional_fn conditional)
{
	struct built b = { .drv = drv, .v = view, .edges = { .v = view },
			   .conditional = conditional };
	uint32_t i, edges = 0;
	int err = 0;

	b.graphs = calloc((size_t)view->header.subgraphs + 1, sizeof(*b.graphs));
	if (!b.graphs)
		return fdry_nomem();
	b.graphs[0] = built->graph;
	for (i = 0; !err && i <= view->header.subgraphs; i++)
		err = graph_compare(&b, i, &edges);
	if (!err && edges != fdry_graph_edge_count(view))
		err = fdry_fail(FDRY_E_DRIVER, "the driver has %u edges, but %u were added", edges,
				fdry_graph_edge_count(view));
	free(b.graphs);
	return err;
}
