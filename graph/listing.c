// SPDX-License-Identifier: Apache-2.0
/*
 * listing.c - nodes and edges of a driver graph, with numbers in place of handles; see listing.h.
 */
#include "graph/listing.h"

#include <stdlib.h>

#include "graph/format.h"
#include "graph/intern.h"

static int nodes_list(const struct fdry_driver *drv, CUgraph graph, struct fdry_listing *l)
{
	size_t n = 0;
	int err = fdry_call(drv, cuGraphGetNodes, graph, NULL, &n);

	if (err)
		return err;
	if (n > FDRY_GRAPH_NODES_MAX)
		return fdry_fail(FDRY_E_LIMIT,
				 "the graph has %zu nodes, more than the limit of %u; split it", n,
				 FDRY_GRAPH_NODES_MAX);
	l->nodes = calloc(n + 1, sizeof(*l->nodes));
	if (!l->nodes)
		return fdry_nomem();
	l->nnodes = (uint32_t)n;
	return n ? fdry_call(drv, cuGraphGetNodes, graph, l->nodes, &n) : 0;
}

/* The arrays that cuGraphGetEdges_v2 fills. */
struct raw_edges {
	CUgraphNode *from, *to;
	CUgraphEdgeData *data;
};

static int edges_number(const struct raw_edges *raw, const struct fdry_intern *numbers,
			struct fdry_listing *l)
{
	struct fdry_edge *e;
	uint32_t i;
	int err;

	for (i = 0; i < l->nedges; i++) {
		e = &l->edges[i];
		e->data = raw->data[i];
		if (!fdry_intern_find(numbers, &raw->from[i], sizeof(raw->from[i]), &e->from) ||
		    !fdry_intern_find(numbers, &raw->to[i], sizeof(raw->to[i]), &e->to))
			return fdry_fail(FDRY_E_REFUSED,
					 "edge %u of the graph ends at a node that is not in it; "
					 "use another driver",
					 i);
		err = fdry_edge_data_check(&e->data);
		if (err)
			return fdry_fail_at(err, "edge %u", i);
	}
	return 0;
}

static int edges_get(const struct fdry_driver *drv, CUgraph graph, size_t n, struct fdry_listing *l)
{
	struct fdry_intern numbers = { 0 };
	struct raw_edges raw = {
		calloc(n, sizeof(*raw.from)),
		calloc(n, sizeof(*raw.to)),
		calloc(n, sizeof(*raw.data)),
	};
	uint32_t i, index;
	int err;

	l->edges = calloc(n, sizeof(*l->edges));
	if (!raw.from || !raw.to || !raw.data || !l->edges) {
		err = fdry_nomem();
		goto out_free;
	}
	err = fdry_call(drv, cuGraphGetEdges_v2, graph, raw.from, raw.to, raw.data, &n);
	if (err)
		goto out_free;
	for (i = 0; i < l->nnodes; i++) {
		err = fdry_intern(&numbers, &l->nodes[i], sizeof(l->nodes[i]), &index, NULL);
		if (err)
			goto out_free;
	}
	l->nedges = (uint32_t)n;
	err = edges_number(&raw, &numbers, l);
out_free:
	fdry_intern_release(&numbers);
	free(raw.from);
	free(raw.to);
	free(raw.data);
	return err;
}

static int edges_list(const struct fdry_driver *drv, CUgraph graph, struct fdry_listing *l)
{
	size_t n = 0;
	int err = fdry_call(drv, cuGraphGetEdges_v2, graph, NULL, NULL, NULL, &n);

	if (err)
		return err;
	if (n > FDRY_GRAPH_EDGES_MAX)
		return fdry_fail(FDRY_E_LIMIT,
				 "the graph has %zu edges, more than the limit of %u; split it", n,
				 FDRY_GRAPH_EDGES_MAX);
	return n ? edges_get(drv, graph, n, l) : 0;
}

int fdry_listing_init(const struct fdry_driver *drv, CUgraph graph, struct fdry_listing *ret)
{
	int err = nodes_list(drv, graph, ret);

	return err ? err : edges_list(drv, graph, ret);
}

void fdry_listing_release(struct fdry_listing *l)
{
	free(l->nodes);
	free(l->edges);
	memset(l, 0, sizeof(*l));
}
