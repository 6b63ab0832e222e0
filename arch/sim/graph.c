// SPDX-License-Identifier: Apache-2.0
/*
 * graph.c - graphs and their nodes of all kinds.
 *
 * A graph lists its nodes in the order of creation, without gaps. A child graph belongs to its
 * node and is destroyed only with it.
 */
#include "arch/sim/graph.h"

#include <stdlib.h>
#include <string.h>

CUresult sim_graph_find(CUgraph handle, struct sim_graph **ret)
{
	struct sim_graph *g = sim_find(handle, SIM_GRAPH);

	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = g;
	return CUDA_SUCCESS;
}

CUresult sim_node_find(CUgraphNode handle, struct sim_node **ret)
{
	struct sim_node *n = sim_find(handle, SIM_NODE);

	if (!n)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = n;
	return CUDA_SUCCESS;
}

CUresult sim_graph_new(struct sim_graph **ret)
{
	struct sim_graph *g = calloc(1, sizeof(*g));
	CUresult res;

	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = sim_obj_open(&g->obj, SIM_GRAPH, NULL);
	if (res) {
		free(g);
		return res;
	}
	*ret = g;
	return CUDA_SUCCESS;
}

void sim_graph_free(struct sim_graph *g)
{
	while (g->count)
		sim_node_free(g->nodes[g->count - 1]);
	free(g->nodes);
	free(g->handles);
	sim_users_drop(g);
	sim_obj_close(&g->obj);
}

static CUresult graph_reserve(struct sim_graph *g)
{
	size_t cap = g->cap ? 2 * g->cap : 16;
	struct sim_node **nodes;

	if (g->count < g->cap)
		return CUDA_SUCCESS;
	nodes = realloc(g->nodes, cap * sizeof(*nodes));
	if (!nodes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	g->nodes = nodes;
	g->cap = cap;
	return CUDA_SUCCESS;
}

CUresult sim_node_new(struct sim_graph *g, CUgraphNodeType type, struct sim_node **ret)
{
	struct sim_node *n;
	CUresult res;

	SIM_TRY(graph_reserve(g));
	n = calloc(1, sizeof(*n));
	if (!n)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = sim_obj_open(&n->obj, SIM_NODE, NULL);
	if (res) {
		free(n);
		return res;
	}
	n->graph = g;
	n->type = type;
	n->index = g->count;
	g->nodes[g->count++] = n;
	*ret = n;
	return CUDA_SUCCESS;
}

void sim_node_free(struct sim_node *node)
{
	struct sim_graph *g = node->graph;

	sim_edges_cut(node);
	memmove(&g->nodes[node->index], &g->nodes[node->index + 1],
		(g->count - node->index - 1) * sizeof(*g->nodes));
	g->count--;
	for (size_t i = node->index; i < g->count; i++)
		g->nodes[i]->index = i;
	if (node->child)
		sim_graph_free(node->child);
	sim_bodies_free(node->bodies);
	sim_node_clear(node);
	sim_obj_close(&node->obj);
}

static CUresult node_depend(struct sim_node *n, const struct sim_place *at)
{
	struct sim_node *dep;

	for (size_t i = 0; i < at->ndeps; i++) {
		SIM_TRY(sim_node_find(at->deps[i], &dep));
		SIM_TRY(sim_edge_add(dep, n, at->data ? &at->data[i] : &sim_edge_none));
	}
	return CUDA_SUCCESS;
}

CUresult sim_node_place(const struct sim_place *at, CUgraphNodeType type, struct sim_node **ret)
{
	struct sim_graph *g;
	struct sim_node *n;
	CUresult res;

	SIM_TRY(sim_graph_find(at->graph, &g));
	if (at->ndeps && !at->deps)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_node_new(g, type, &n));
	res = node_depend(n, at);
	if (res) {
		sim_node_free(n);
		return res;
	}
	*ret = n;
	return CUDA_SUCCESS;
}

/* The edges of a node, between the nodes of @to that have the same indices. */
static CUresult clone_edges(const struct sim_edges *e, struct sim_graph *to, struct sim_edges *ret)
{
	SIM_TRY(sim_edges_copy(e, ret));
	for (size_t i = 0; i < ret->count; i++)
		ret->v[i].node = to->nodes[e->v[i].node->index];
	return CUDA_SUCCESS;
}

static CUresult clone_nodes(const struct sim_graph *from, struct sim_graph *to)
{
	struct sim_node *n;

	for (size_t i = 0; i < from->count; i++) {
		SIM_TRY(sim_node_new(to, from->nodes[i]->type, &n));
		n->origin = from->nodes[i]->obj.id;
		SIM_TRY(sim_node_copy_work(from->nodes[i], n));
	}
	for (size_t i = 0; i < from->count; i++) {
		SIM_TRY(clone_edges(&from->nodes[i]->in, to, &to->nodes[i]->in));
		SIM_TRY(clone_edges(&from->nodes[i]->out, to, &to->nodes[i]->out));
	}
	return CUDA_SUCCESS;
}

CUresult sim_graph_clone(const struct sim_graph *g, struct sim_graph **ret)
{
	struct sim_graph *to;
	CUresult res;

	if (g->nmem || sim_bodies_any(g))
		return CUDA_ERROR_NOT_SUPPORTED;
	SIM_TRY(sim_graph_new(&to));
	res = clone_nodes(g, to);
	if (!res)
		res = sim_users_copy(g, to);
	if (res) {
		sim_graph_free(to);
		return res;
	}
	*ret = to;
	return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *ret, unsigned int flags)
{
	struct sim_graph *g;

	SIM_ENTER(cuGraphCreate);
	if (!ret || flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_graph_new(&g));
	*ret = SIM_HANDLE(CUgraph, g);
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	struct sim_graph *g;

	SIM_ENTER(cuGraphDestroy);
	SIM_TRY(sim_graph_find(graph, &g));
	if (g->parent || g->capture)
		return CUDA_ERROR_INVALID_VALUE;
	sim_graph_free(g);
	return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *ret, CUgraph original)
{
	struct sim_graph *g, *clone;

	SIM_ENTER(cuGraphClone);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_graph_find(original, &g));
	SIM_TRY(sim_graph_clone(g, &clone));
	*ret = SIM_HANDLE(CUgraph, clone);
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *ret, CUgraphNode original, CUgraph clone)
{
	struct sim_graph *g;

	SIM_ENTER(cuGraphNodeFindInClone);
	SIM_TRY(sim_graph_find(clone, &g));
	if (!ret || !original)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < g->count; i++)
		if (g->nodes[i]->origin == (uintptr_t)original) {
			*ret = SIM_HANDLE(CUgraphNode, g->nodes[i]);
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *ret)
{
	struct sim_node *n;

	SIM_ENTER(cuGraphNodeGetType);
	SIM_TRY(sim_node_find(node, &n));
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = n->type;
	return CUDA_SUCCESS;
}

/* All nodes of a graph, or those without dependencies. */
static CUresult graph_list(CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots)
{
	struct sim_graph *g;
	size_t seen = 0, capacity;

	SIM_TRY(sim_graph_find(graph, &g));
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	capacity = nodes ? *count : 0;
	for (size_t i = 0; i < g->count; i++) {
		if (roots && g->nodes[i]->in.count)
			continue;
		if (seen < capacity)
			nodes[seen] = SIM_HANDLE(CUgraphNode, g->nodes[i]);
		seen++;
	}
	for (size_t i = seen; i < capacity; i++)
		nodes[i] = NULL;
	*count = nodes && capacity < seen ? capacity : seen;
	return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	SIM_ENTER(cuGraphGetNodes);
	return graph_list(graph, nodes, count, false);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	SIM_ENTER(cuGraphGetRootNodes);
	return graph_list(graph, nodes, count, true);
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
	struct sim_node *n;

	SIM_ENTER(cuGraphDestroyNode);
	SIM_TRY(sim_node_find(node, &n));
	if (n->graph->capture)
		return CUDA_ERROR_INVALID_VALUE;
	if (n->graph->nmem)
		return CUDA_ERROR_NOT_SUPPORTED;
	sim_node_free(n);
	return CUDA_SUCCESS;
}
