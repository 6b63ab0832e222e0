// SPDX-License-Identifier: Apache-2.0
/* edge.c - canonical order, edge columns; see edge.h. */
#include "graph/edge.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(CUgraphEdgeData) == sizeof(struct fdry_graph_edge_data),
	       "edge data is stored as the driver has it");

/* --- order --- */

/* The state of the ordering: each node's successors, and the number of its predecessors that are
 * not listed yet. */
struct order {
	uint32_t *first;   /* nodes + 1: index of a node's first successor in @to */
	uint32_t *to;
	uint32_t *missing;
	uint32_t *heap;    /* nodes that may come next; the first created is on top */
	uint32_t nheap;
};

static void heap_push(struct order *o, uint32_t node)
{
	uint32_t i = o->nheap++, up;

	for (; i && o->heap[up = (i - 1) / 2] > node; i = up)
		o->heap[i] = o->heap[up];
	o->heap[i] = node;
}

static uint32_t heap_pop(struct order *o)
{
	uint32_t top = o->heap[0], last = o->heap[--o->nheap], i = 0, down;

	while ((down = 2 * i + 1) < o->nheap) {
		down += down + 1 < o->nheap && o->heap[down + 1] < o->heap[down];
		if (o->heap[down] >= last)
			break;
		o->heap[i] = o->heap[down];
		i = down;
	}
	o->heap[i] = last;
	return top;
}

static void successors_fill(struct order *o, const struct fdry_edge *edges, uint32_t nedges,
			    uint32_t nodes)
{
	uint32_t i;

	for (i = 0; i < nedges; i++) {
		o->first[edges[i].from + 1]++;
		o->missing[edges[i].to]++;
	}
	for (i = 0; i < nodes; i++)
		o->first[i + 1] += o->first[i];
	/* Filling from the back leaves first[n + 1] at the first successor of n; memmove() then
	 * shifts it to first[n]. */
	for (i = nedges; i--; )
		o->to[--o->first[edges[i].from + 1]] = edges[i].to;
	memmove(o->first, o->first + 1, nodes * sizeof(*o->first));
	o->first[nodes] = nedges;
}

static uint32_t order_list(struct order *o, uint32_t nodes, uint32_t *order)
{
	uint32_t i, n = 0, node;

	for (i = 0; i < nodes; i++)
		if (!o->missing[i])
			heap_push(o, i);
	while (o->nheap) {
		node = heap_pop(o);
		order[n++] = node;
		for (i = o->first[node]; i < o->first[node + 1]; i++)
			if (!--o->missing[o->to[i]])
				heap_push(o, o->to[i]);
	}
	return n;
}

int fdry_edges_order(const struct fdry_edge *edges, uint32_t nedges, uint32_t nodes,
		     uint32_t *order)
{
	struct order o = { 0 };
	uint32_t *memory = calloc(3 * (size_t)nodes + nedges + 2, sizeof(*memory)), n;

	if (!memory)
		return fdry_nomem();
	o.first = memory;
	o.missing = o.first + nodes + 1;
	o.heap = o.missing + nodes;
	o.to = o.heap + nodes;
	successors_fill(&o, edges, nedges, nodes);
	n = order_list(&o, nodes, order);
	free(memory);
	if (n != nodes)
		return fdry_fail(
			FDRY_E_REFUSED,
			"%u nodes of the graph depend on each other in a cycle; remove an edge",
			nodes - n);
	return 0;
}

static int edge_compare(const void *a, const void *b)
{
	const struct fdry_edge *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	if (x->to != y->to)
		return x->to < y->to ? -1 : 1;
	return memcmp(&x->data, &y->data, sizeof(x->data));
}

void fdry_edges_sort(struct fdry_edge *edges, uint32_t count)
{
	if (count)
		qsort(edges, count, sizeof(*edges), edge_compare);
}

/* --- columns --- */

static const char *edge_data_fault(const CUgraphEdgeData *d)
{
	static const uint8_t zero[sizeof(d->reserved)];

	if (d->type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
		return "a type";
	if (d->from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER)
		return "an outgoing port";
	if (d->to_port)
		return "an incoming port";
	if (memcmp(d->reserved, zero, sizeof(zero)))
		return "reserved bytes";
	return NULL;
}

int fdry_edge_data_check(const CUgraphEdgeData *d)
{
	const char *fault = edge_data_fault(d);

	if (fault)
		return fdry_fail(FDRY_E_REFUSED,
				 "it has %s that this version does not know (from_port %u, to_port "
				 "%u, type %u); "
				 "use a newer version",
				 fault, d->from_port, d->to_port, d->type);
	return 0;
}

static struct fdry_graph_edge stored_at(const struct fdry_graph_view *v, uint32_t i)
{
	return (struct fdry_graph_edge){
		.from = fdry_graph_u32(v, FDRY_GSEC_EDGE_FROM, i),
		.to = fdry_graph_u32(v, FDRY_GSEC_EDGE_TO, i),
		.index = v->section[FDRY_GSEC_EDGE_INDEX][i],
	};
}

uint32_t fdry_graph_edge_count(const struct fdry_graph_view *v)
{
	return v->header.edges + (v->header.nodes ? v->header.nodes - 1 - v->header.breaks : 0);
}

/*
 * Return the edge from e->node to the next node, unless the chain breaks there. No edge out of that
 * node sorts before it.
 */
static bool chain_next(struct fdry_graph_edges *e, struct fdry_graph_edge *ret)
{
	const struct fdry_graph_view *v = e->v;

	e->linked = true;
	if (e->node + 1 >= v->header.nodes)
		return false;
	if (e->brk < v->header.breaks && fdry_graph_u32(v, FDRY_GSEC_BREAK, e->brk) == e->node) {
		e->brk++;
		return false;
	}
	*ret = (struct fdry_graph_edge){ e->node, e->node + 1, 0 };
	return true;
}

bool fdry_graph_edge_next(struct fdry_graph_edges *e, struct fdry_graph_edge *ret)
{
	const struct fdry_graph_view *v = e->v;

	for (; e->node < v->header.nodes; e->node++, e->linked = false) {
		if (!e->linked && chain_next(e, ret))
			return true;
		if (e->stored < v->header.edges &&
		    fdry_graph_u32(v, FDRY_GSEC_EDGE_FROM, e->stored) == e->node) {
			*ret = stored_at(v, e->stored++);
			return true;
		}
	}
	return false;
}

CUgraphEdgeData fdry_graph_edge_data_at(const struct fdry_graph_view *v, uint32_t index)
{
	CUgraphEdgeData d = { 0 };

	if (index)
		memcpy(&d, v->section[FDRY_GSEC_EDGE_DATA] + sizeof(d) * (size_t)(index - 1),
		       sizeof(d));
	return d;
}

static int data_check(const struct fdry_graph_view *v)
{
	static const CUgraphEdgeData plain;
	CUgraphEdgeData d;
	const char *fault;
	uint32_t i;

	for (i = 1; i <= v->header.edge_data; i++) {
		d = fdry_graph_edge_data_at(v, i);
		fault = edge_data_fault(&d);
		if (fault)
			return fdry_fail(
				FDRY_E_VERSION,
				"edge data %u has %s that is not understood; use a newer version",
				i, fault);
		if (!memcmp(&d, &plain, sizeof(d)))
			return fdry_fail(FDRY_E_BADIMAGE,
					 "edge data %u is the default, which is not stored", i);
	}
	return 0;
}

static struct fdry_edge edge_with_data(const struct fdry_graph_view *v, uint32_t i)
{
	struct fdry_graph_edge e = stored_at(v, i);

	return (struct fdry_edge){ e.from, e.to, fdry_graph_edge_data_at(v, e.index) };
}

static int breaks_check(const struct fdry_graph_view *v)
{
	uint32_t i, brk, from = 0;

	for (i = 0; i < v->header.breaks; i++, from = brk + 1) {
		brk = fdry_graph_u32(v, FDRY_GSEC_BREAK, i);
		if (brk < from || (uint64_t)brk + 1 >= v->header.nodes)
			return fdry_fail(
				FDRY_E_BADIMAGE,
				"break %u, after node %u of %u, is out of order or outside", i, brk,
				v->header.nodes);
	}
	return 0;
}

int fdry_graph_edges_check(const struct fdry_graph_view *v)
{
	struct fdry_edge e, before = { 0 };
	uint32_t i;
	int err = data_check(v);

	if (err)
		return err;
	err = breaks_check(v);
	if (err)
		return err;
	err = fdry_graph_index_check(v, FDRY_GSEC_EDGE_INDEX, 1, v->header.edge_data);
	if (err)
		return err;
	for (i = 0; i < v->header.edges; i++) {
		e = edge_with_data(v, i);
		if (e.from >= e.to || e.to >= v->header.nodes)
			return fdry_fail(
				FDRY_E_BADIMAGE,
				"edge %u leads from node %u to node %u of %u; it must lead forward",
				i, e.from, e.to, v->header.nodes);
		if (e.to == e.from + 1 && !v->section[FDRY_GSEC_EDGE_INDEX][i])
			return fdry_fail(FDRY_E_BADIMAGE,
					 "edge %u leads from node %u to the next without data, "
					 "which is not stored",
					 i, e.from);
		if (i && edge_compare(&before, &e) >= 0)
			return fdry_fail(FDRY_E_BADIMAGE, "edge %u is not in ascending order", i);
		before = e;
	}
	return 0;
}
