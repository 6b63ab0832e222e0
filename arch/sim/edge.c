// SPDX-License-Identifier: Apache-2.0
/*
 * edge.c - dependencies between the nodes of a graph, with their data.
 *
 * Every edge is stored twice, at both of its ends, in the order of creation.
 */
#include "arch/sim/graph.h"

#include <stdlib.h>
#include <string.h>

const CUgraphEdgeData sim_edge_none;

bool sim_edge_plain(const CUgraphEdgeData *data)
{
	return !memcmp(data, &sim_edge_none, sizeof(*data));
}

static struct sim_edge *edges_find(const struct sim_edges *e, const struct sim_node *node)
{
	for (size_t i = 0; i < e->count; i++)
		if (e->v[i].node == node)
			return &e->v[i];
	return NULL;
}

static CUresult edges_reserve(struct sim_edges *e)
{
	size_t cap = e->cap ? 2 * e->cap : 4;
	struct sim_edge *v;

	if (e->count < e->cap)
		return CUDA_SUCCESS;
	v = realloc(e->v, cap * sizeof(*v));
	if (!v)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->v = v;
	e->cap = cap;
	return CUDA_SUCCESS;
}

CUresult sim_edges_put(struct sim_edges *e, struct sim_node *node, const CUgraphEdgeData *data)
{
	struct sim_edge *old = edges_find(e, node);

	if (old) {
		if (sim_edge_plain(data))
			old->data = *data;
		return CUDA_SUCCESS;
	}
	SIM_TRY(edges_reserve(e));
	e->v[e->count++] = (struct sim_edge){ node, *data };
	return CUDA_SUCCESS;
}

CUresult sim_edges_merge(struct sim_edges *to, const struct sim_edges *from)
{
	for (size_t i = 0; i < from->count; i++)
		SIM_TRY(sim_edges_put(to, from->v[i].node, &from->v[i].data));
	return CUDA_SUCCESS;
}

static void edges_drop(struct sim_edges *e, const struct sim_node *node)
{
	struct sim_edge *x = edges_find(e, node);

	if (!x)
		return;
	memmove(x, x + 1, (size_t)(e->v + e->count - x - 1) * sizeof(*x));
	e->count--;
}

CUresult sim_edges_copy(const struct sim_edges *e, struct sim_edges *ret)
{
	struct sim_edges copy = { NULL, e->count, e->count };

	if (e->count) {
		copy.v = malloc(e->count * sizeof(*copy.v));
		if (!copy.v)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(copy.v, e->v, e->count * sizeof(*copy.v));
	}
	*ret = copy;
	return CUDA_SUCCESS;
}

void sim_edges_release(struct sim_edges *e)
{
	free(e->v);
	*e = (struct sim_edges){ 0 };
}

/* Only kernels have ports, and a programmatic edge joins two kernels. */
CUresult sim_edge_check(const struct sim_node *from, const struct sim_node *to,
			const CUgraphEdgeData *data)
{
	static const unsigned char zero[sizeof(data->reserved)];
	bool kernel = from->type == CU_GRAPH_NODE_TYPE_KERNEL;

	if (data->to_port || memcmp(data->reserved, zero, sizeof(zero)))
		return CUDA_ERROR_INVALID_VALUE;
	if (data->from_port > (kernel ? CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER : 0))
		return CUDA_ERROR_INVALID_VALUE;
	if (data->type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT)
		return data->from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
			       ? CUDA_ERROR_INVALID_VALUE
			       : CUDA_SUCCESS;
	if (data->type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC || !data->from_port ||
	    to->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult sim_edge_add(struct sim_node *from, struct sim_node *to, const CUgraphEdgeData *data)
{
	CUresult res;

	if (from == to || from->graph != to->graph || edges_find(&to->in, from))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_edge_check(from, to, data));
	SIM_TRY(sim_edges_put(&to->in, from, data));
	res = sim_edges_put(&from->out, to, data);
	if (res)
		edges_drop(&to->in, from);
	return res;
}

static void edge_cut(struct sim_node *from, struct sim_node *to)
{
	edges_drop(&from->out, to);
	edges_drop(&to->in, from);
}

void sim_edges_cut(struct sim_node *node)
{
	while (node->in.count)
		edge_cut(node->in.v[node->in.count - 1].node, node);
	while (node->out.count)
		edge_cut(node, node->out.v[node->out.count - 1].node);
	sim_edges_release(&node->in);
	sim_edges_release(&node->out);
}

/* cuGraphAddDependencies_v2 of drivers 580 to 610 gives every edge of a call the data of
 * the first. So does this driver, unless FDRY_SIM_BULK_EDGE_QUIRK=0. */
static bool bulk_edge_quirk(void)
{
	const char *v = getenv("FDRY_SIM_BULK_EDGE_QUIRK");

	return !v || strcmp(v, "0");
}

/* The edges that one call names. */
struct edge_list {
	struct sim_graph *graph;
	const CUgraphNode *from, *to;
	const CUgraphEdgeData *data;
	size_t count;
	bool same_data;
};

static CUresult edge_list_at(const struct edge_list *l, size_t i, struct sim_node *ends[2],
			     CUgraphEdgeData *data)
{
	SIM_TRY(sim_node_find(l->from[i], &ends[0]));
	SIM_TRY(sim_node_find(l->to[i], &ends[1]));
	if (ends[0]->graph != l->graph || ends[1]->graph != l->graph)
		return CUDA_ERROR_INVALID_VALUE;
	*data = l->data ? l->data[l->same_data ? 0 : i] : sim_edge_none;
	return CUDA_SUCCESS;
}

static CUresult edge_list_open(CUgraph graph, struct edge_list *l)
{
	SIM_TRY(sim_graph_find(graph, &l->graph));
	return l->count && (!l->from || !l->to) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult edge_list_add(struct edge_list *l)
{
	struct sim_node *ends[2];
	CUgraphEdgeData data;
	CUresult res = CUDA_SUCCESS;
	size_t i;

	for (i = 0; i < l->count && !res; i++) {
		res = edge_list_at(l, i, ends, &data);
		if (!res)
			res = sim_edge_add(ends[0], ends[1], &data);
	}
	if (!res)
		return CUDA_SUCCESS;
	for (i--; i--;)
		if (!edge_list_at(l, i, ends, &data))
			edge_cut(ends[0], ends[1]);
	return res;
}

static CUresult edge_list_remove(struct edge_list *l)
{
	struct sim_node *ends[2];
	CUgraphEdgeData data;

	for (size_t i = 0; i < l->count; i++) {
		struct sim_edge *e;

		SIM_TRY(edge_list_at(l, i, ends, &data));
		e = edges_find(&ends[1]->in, ends[0]);
		if (!e || memcmp(&e->data, &data, sizeof(data)))
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < l->count; i++)
		if (!edge_list_at(l, i, ends, &data))
			edge_cut(ends[0], ends[1]);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				   const CUgraphEdgeData *data, size_t count)
{
	struct edge_list l = { NULL, from, to, data, count, bulk_edge_quirk() };

	SIM_ENTER(cuGraphAddDependencies_v2);
	SIM_TRY(edge_list_open(graph, &l));
	return edge_list_add(&l);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				      const CUgraphEdgeData *data, size_t count)
{
	struct edge_list l = { NULL, from, to, data, count, false };

	SIM_ENTER(cuGraphRemoveDependencies_v2);
	SIM_TRY(edge_list_open(graph, &l));
	if (l.count && l.graph->nmem)
		return CUDA_ERROR_INVALID_VALUE;
	return edge_list_remove(&l);
}

/* The caller's arrays for edges. @capacity: how many fit; out: how many there are. */
struct edge_query {
	CUgraphNode *from, *to;
	CUgraphEdgeData *data;
	size_t capacity, seen;
};

static CUresult edge_query_put(struct edge_query *q, const struct sim_node *from,
			       const struct sim_node *to, const CUgraphEdgeData *data)
{
	size_t i = q->seen++;

	if (!q->data && !sim_edge_plain(data))
		return CUDA_ERROR_LOSSY_QUERY;
	if (i >= q->capacity)
		return CUDA_SUCCESS;
	if (q->from)
		q->from[i] = SIM_HANDLE(CUgraphNode, from);
	if (q->to)
		q->to[i] = SIM_HANDLE(CUgraphNode, to);
	if (q->data)
		q->data[i] = *data;
	return CUDA_SUCCESS;
}

/* Fill the rest of the arrays with NULL, and set *@count to the number of entries. */
static void edge_query_end(struct edge_query *q, size_t *count)
{
	for (size_t i = q->seen; i < q->capacity; i++) {
		if (q->from)
			q->from[i] = NULL;
		if (q->to)
			q->to[i] = NULL;
		if (q->data)
			q->data[i] = sim_edge_none;
	}
	*count = q->seen < q->capacity ? q->seen : q->capacity;
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
			    CUgraphEdgeData *data, size_t *count)
{
	struct edge_query q = { from, to, data, 0, 0 };
	struct sim_graph *g;
	size_t total = 0;

	SIM_ENTER(cuGraphGetEdges_v2);
	SIM_TRY(sim_graph_find(graph, &g));
	if (!count || !from != !to || (data && !from))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < g->count; i++)
		total += g->nodes[i]->out.count;
	if (!from) {
		*count = total;
		return CUDA_SUCCESS;
	}
	q.capacity = *count;
	for (size_t i = 0; i < g->count; i++) {
		const struct sim_node *n = g->nodes[i];

		for (size_t k = 0; k < n->out.count; k++)
			SIM_TRY(edge_query_put(&q, n, n->out.v[k].node, &n->out.v[k].data));
	}
	edge_query_end(&q, count);
	return CUDA_SUCCESS;
}

static CUresult neighbours(const struct sim_edges *e, CUgraphNode *nodes, CUgraphEdgeData *data,
			   size_t *count)
{
	struct edge_query q = { nodes, NULL, data, 0, 0 };

	if (!count || (data && !nodes))
		return CUDA_ERROR_INVALID_VALUE;
	if (!nodes) {
		*count = e->count;
		return CUDA_SUCCESS;
	}
	q.capacity = *count;
	for (size_t i = 0; i < e->count; i++)
		SIM_TRY(edge_query_put(&q, e->v[i].node, NULL, &e->v[i].data));
	edge_query_end(&q, count);
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *deps, CUgraphEdgeData *data,
				       size_t *count)
{
	struct sim_node *n;

	SIM_ENTER(cuGraphNodeGetDependencies_v2);
	SIM_TRY(sim_node_find(node, &n));
	return neighbours(&n->in, deps, data, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *deps, CUgraphEdgeData *data,
					 size_t *count)
{
	struct sim_node *n;

	SIM_ENTER(cuGraphNodeGetDependentNodes_v2);
	SIM_TRY(sim_node_find(node, &n));
	return neighbours(&n->out, deps, data, count);
}
