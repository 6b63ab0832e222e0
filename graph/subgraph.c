// SPDX-License-Identifier: Apache-2.0
/* subgraph.c - checks the graphs within a graph; see subgraph.h. */
#include "graph/subgraph.h"

#include "graph/edge.h"
#include "graph/node.h"

static int owner_check(const struct fdry_graph_view *v, uint32_t i,
		       const struct fdry_graph_subgraph *before)
{
	struct fdry_graph_subgraph s = fdry_graph_subgraph_at(v, i);

	if (s.owner >= s.first || s.first > v->header.nodes || s.owner < before->owner ||
	    s.first < before->first)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "graph %u within it, of node %u, begins at node %u of %u; it is "
				 "out of order or outside",
				 i, s.owner, s.first, v->header.nodes);
	if (v->section[FDRY_GSEC_KIND][s.owner] != FDRY_NODE_CHILD)
		return fdry_fail(FDRY_E_BADIMAGE, "node %u owns a graph and is no child graph",
				 s.owner);
	return 0;
}

/* Each child graph node owns one graph. */
static int owners_check(const struct fdry_graph_view *v)
{
	uint32_t node, i = 0;

	for (node = 0; node < v->header.nodes; node++) {
		if (v->section[FDRY_GSEC_KIND][node] != FDRY_NODE_CHILD)
			continue;
		if (i == v->header.subgraphs || fdry_graph_subgraph_at(v, i).owner != node)
			return fdry_fail(FDRY_E_BADIMAGE, "child graph node %u has no graph", node);
		i++;
	}
	if (i != v->header.subgraphs)
		return fdry_fail(FDRY_E_BADIMAGE, "%u child graph nodes have %u graphs", i,
				 v->header.subgraphs);
	return 0;
}

/* Graphs of one depth follow each other. */
static int depth_check(const struct fdry_graph_view *v)
{
	uint32_t i, depth = 0, parent = 0, deepest = 0; /* the first graph of the depth */

	for (i = 0; i < v->header.subgraphs; i++) {
		parent = fdry_graph_of(v, parent, fdry_graph_subgraph_at(v, i).owner);
		if (parent < deepest)
			continue;
		deepest = i + 1;
		if (++depth > FDRY_GRAPH_DEPTH_MAX)
			return fdry_fail(FDRY_E_LIMIT, "it has graphs more than %u deep",
					 FDRY_GRAPH_DEPTH_MAX);
	}
	return 0;
}

static int edges_check(const struct fdry_graph_view *v)
{
	struct fdry_graph_edges edges = { .v = v };
	struct fdry_graph_edge e;
	uint32_t i = 0;

	while (fdry_graph_edge_next(&edges, &e)) {
		i = fdry_graph_of(v, i, e.from);
		if (e.to >= fdry_graph_end(v, i))
			return fdry_fail(
				FDRY_E_BADIMAGE,
				"an edge leads from node %u to node %u of another graph", e.from,
				e.to);
	}
	return 0;
}

int fdry_graph_subgraphs_check(const struct fdry_graph_view *v)
{
	struct fdry_graph_subgraph before = { 0 };
	bool says = v->header.incompat & FDRY_GRAPH_INCOMPAT_SUBGRAPHS;
	uint32_t i;
	int err = 0;

	if (says != (v->header.subgraphs != 0))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "it has %u graphs within it, but its header says otherwise",
				 v->header.subgraphs);
	for (i = 0; i < v->header.subgraphs; i++) {
		err = owner_check(v, i, &before);
		if (err)
			return err;
		before = fdry_graph_subgraph_at(v, i);
	}
	err = owners_check(v);
	if (err || !v->header.subgraphs)
		return err;
	err = depth_check(v);
	return err ? err : edges_check(v);
}
