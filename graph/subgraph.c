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
	if (v->section[FDRY_GSEC_KIND][s.owner] != FDRY_NODE_CHILD &&
	    v->section[FDRY_GSEC_KIND][s.owner] != FDRY_NODE_CONDITIONAL)
		return fdry_fail(FDRY_E_BADIMAGE, "node %u owns a graph and is no child graph",
				 s.owner);
	return 0;
}

/* The graphs that a node holds, from graph @i + 1: 1 for a child graph node. */
static int graphs_of(const struct fdry_graph_view *v, uint32_t node, uint32_t i,
		     uint32_t *conditional, uint32_t *ret)
{
	struct fdry_graph_conditional c;

	*ret = v->section[FDRY_GSEC_KIND][node] == FDRY_NODE_CHILD;
	if (v->section[FDRY_GSEC_KIND][node] != FDRY_NODE_CONDITIONAL)
		return 0;
	c = fdry_graph_conditional_at(v, (*conditional)++);
	if (c.first != i + 1)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "conditional node %u has graphs from %u, and others have them",
				 *conditional - 1, c.first);
	*ret = c.size;
	return 0;
}

/* Each child graph node owns one graph, and each conditional node its bodies. */
static int owners_check(const struct fdry_graph_view *v)
{
	uint32_t node, i = 0, conditional = 0, n, end;
	int err;

	for (node = 0; node < v->header.nodes; node++) {
		err = graphs_of(v, node, i, &conditional, &n);
		if (err)
			return err;
		for (end = i + n; i < end; i++)
			if (i >= v->header.subgraphs || fdry_graph_subgraph_at(v, i).owner != node)
				return fdry_fail(FDRY_E_BADIMAGE,
						 "child graph node %u has no graph", node);
	}
	if (i != v->header.subgraphs)
		return fdry_fail(FDRY_E_BADIMAGE, "%u child graph nodes have %u graphs", i,
				 v->header.subgraphs);
	return 0;
}

/* Check that graph @i is the graph itself or a body, with only bodies around it, whose handles are
 * at most @most. */
static int around_check(const struct fdry_graph_view *v, uint32_t i, uint32_t most)
{
	struct fdry_graph_conditional c;
	uint32_t owner, conditional;

	for (; i; i = fdry_graph_find(v, owner)) {
		owner = fdry_graph_subgraph_at(v, i - 1).owner;
		if (v->section[FDRY_GSEC_KIND][owner] != FDRY_NODE_CONDITIONAL)
			return fdry_fail(FDRY_E_BADIMAGE,
					 "a condition lies in the child graph of node %u", owner);
		conditional = fdry_graph_conditional_of(v, i);
		c = fdry_graph_conditional_at(v, conditional);
		if (c.handle > most)
			return fdry_fail(FDRY_E_BADIMAGE,
					 "handle %u is of a body, whose node has the later handle "
					 "%u", most + 1, c.handle);
	}
	return 0;
}

/* Conditional nodes lie in no child graph. A body exists before handles are created for it. */
static int conditions_check(const struct fdry_graph_view *v)
{
	struct fdry_graph_conditional c;
	uint32_t i, owner;
	int err = 0;

	for (i = 0; !err && i < v->header.conditional_nodes; i++) {
		c = fdry_graph_conditional_at(v, i);
		owner = fdry_graph_subgraph_at(v, c.first - 1).owner;
		err = around_check(v, fdry_graph_find(v, owner), UINT32_MAX - 1);
		if (!err)
			err = around_check(v, fdry_graph_condition_at(v, i).graph, i);
	}
	return err;
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
	err = depth_check(v) ?: conditions_check(v);
	return err ? err : edges_check(v);
}
