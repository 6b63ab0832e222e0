/* SPDX-License-Identifier: Apache-2.0 */
/*
 * subgraph.h - graphs within a graph: those that child graph nodes and conditional nodes hold.
 *
 * A graph object lists the nodes of the graph itself first, then those of each graph within it, in
 * the order of the nodes that own these graphs. So columns, tables and events are shared by all of
 * them, and most code need not know that they exist. Graph 0 is the graph itself; graph i is the
 * one that entry i - 1 of section SUBGRAPH describes. Its owner is a node of an earlier graph.
 */
#ifndef FDRY_GRAPH_SUBGRAPH_H
#define FDRY_GRAPH_SUBGRAPH_H

#include "graph/columns.h"
#include "lib/search.h"

static inline struct fdry_graph_subgraph fdry_graph_subgraph_at(const struct fdry_graph_view *v,
								uint32_t i)
{
	struct fdry_graph_subgraph s;

	memcpy(&s, v->section[FDRY_GSEC_SUBGRAPH] + sizeof(s) * (size_t)i, sizeof(s));
	return s;
}

/* One past the last node of graph @i, which has no nodes if that is its first. */
static inline uint32_t fdry_graph_end(const struct fdry_graph_view *v, uint32_t i)
{
	return i < v->header.subgraphs ? fdry_graph_subgraph_at(v, i).first : v->header.nodes;
}

/* The graph of @node. @i: a graph that does not come after it; nodes are walked in order. */
static inline uint32_t fdry_graph_of(const struct fdry_graph_view *v, uint32_t i, uint32_t node)
{
	while (i < v->header.subgraphs && node >= fdry_graph_end(v, i))
		i++;
	return i;
}

/* The graph of @node, in any order of nodes. */
static inline uint32_t fdry_graph_find(const struct fdry_graph_view *v, uint32_t node)
{
	return (uint32_t)fdry_lower_bound(k, v->header.subgraphs,
					  fdry_graph_subgraph_at(v, (uint32_t)k).first <= node);
}

static inline struct fdry_graph_conditional
fdry_graph_conditional_at(const struct fdry_graph_view *v, uint32_t i)
{
	struct fdry_graph_conditional c;

	memcpy(&c, v->section[FDRY_GSEC_CONDITIONAL] + sizeof(c) * (size_t)i, sizeof(c));
	return c;
}

static inline struct fdry_graph_condition fdry_graph_condition_at(const struct fdry_graph_view *v,
								  uint32_t i)
{
	struct fdry_graph_condition h;

	memcpy(&h, v->section[FDRY_GSEC_CONDITION] + sizeof(h) * (size_t)i, sizeof(h));
	return h;
}

/* The conditional node that holds graph @i, a body. */
static inline uint32_t fdry_graph_conditional_of(const struct fdry_graph_view *v, uint32_t i)
{
	return (uint32_t)fdry_lower_bound(k, v->header.conditional_nodes,
					  fdry_graph_conditional_at(v, (uint32_t)k).first <= i) -
	       1;
}

/* Check owners, places and depth of all graphs within the graph, and that no edge leads from one
 * graph to another. FDRY_E_BADIMAGE, FDRY_E_LIMIT. The edges were checked. */
int fdry_graph_subgraphs_check(const struct fdry_graph_view *v) __must_check;

#endif
