// SPDX-License-Identifier: Apache-2.0
/*
 * build.c - from a checked view to a driver graph.
 *
 * All nodes are added first, without dependencies, then all edges. Edges of one graph with the same
 * edge data are added in one call, because drivers apply the first record of a call to all its
 * edges. One allocation holds node handles, edge handles and parameter addresses. Another holds the
 * argument blocks. Both are freed when the graph is complete.
 *
 * A graph with marks, for measuring, gets a chain in place of its edges.
 */
#include "graph/build.h"

#include <stdlib.h>

#include "graph/subgraph.h"
#include "lib/search.h"

/* The parts of the first allocation. */
struct scratch {
	CUgraphNode *nodes;
	CUgraphNode *from, *to; /* edges of one call */
	CUgraphEdgeData *data;
	CUgraph *graphs;
	CUgraphNode *conditionals;
	void **params;
};

static int scratch_new(const struct fdry_graph_view *v, const struct fdry_kernel *kernels,
		       struct scratch *ret)
{
	size_t nodes = v->header.nodes, edges = fdry_graph_edge_count(v), params = 0,
	       graphs = (size_t)v->header.subgraphs + 1,
	       conditionals = v->header.conditional_nodes;
	uint32_t i;
	void **p;

	_Static_assert(sizeof(CUgraphEdgeData) <= sizeof(void *), "edge data fits the slots");
	for (i = 0; i < v->header.kernels; i++) {
		uint32_t n = kernels[fdry_graph_kernel_at(v, i).index].nparams;

		params = n > params ? n : params;
	}
	p = malloc((nodes + 3 * edges + graphs + conditionals + params) * sizeof(*p));
	if (!p)
		return fdry_nomem();
	ret->nodes = (CUgraphNode *)p;
	ret->from = ret->nodes + nodes;
	ret->to = ret->from + edges;
	ret->data = (CUgraphEdgeData *)(ret->to + edges);
	ret->graphs = (CUgraph *)(p + nodes + 3 * edges);
	ret->conditionals = (CUgraphNode *)(ret->graphs + graphs);
	ret->params = (void **)(ret->conditionals + conditionals);
	memset(ret->graphs, 0, (graphs + conditionals) * sizeof(*p));
	return 0;
}

/* The words of node @i, and their number. */
static const struct fdry_graph_word *words_of(const struct fdry_graph_builder *in, uint32_t i,
					      uint32_t *ret)
{
	size_t from = fdry_lower_bound(k, in->nwords, in->words[k].node < i),
	       end = fdry_lower_bound(k, in->nwords, in->words[k].node <= i);

	*ret = (uint32_t)(end - from);
	return *ret ? in->words + from : NULL;
}

/* Build a node with @n words in its arguments. Later nodes copy these arguments, so they become
 * zero again. */
static int words_build(struct fdry_build *b, const struct fdry_node *node,
		       const struct fdry_graph_word *w, uint32_t n, CUgraphNode *ret)
{
	uint8_t *args = (uint8_t *)node->kernel.args.data; /* the cursor's own memory */
	uint32_t i;
	int err;

	for (i = 0; i < n; i++) {
		if (node->kind != FDRY_NODE_KERNEL ||
		    !fdry_span_at(node->kernel.args, w[i].offset, 8) ||
		    fdry_get64(args + w[i].offset))
			return fdry_fail(FDRY_E_BADIMAGE,
					 "byte %u of its arguments has no place for an address; "
					 "seal the image anew",
					 w[i].offset);
		fdry_set64(args + w[i].offset, w[i].value);
	}
	err = fdry_node_ops(node->kind)->build(b, node, ret);
	for (i = 0; i < n; i++)
		fdry_set64(args + w[i].offset, 0);
	return err;
}

static int nodes_build(struct fdry_build *b, CUgraphNode *nodes)
{
	const struct fdry_graph_word *w;
	struct fdry_graph_cursor c;
	struct fdry_node node;
	uint32_t i = 0, n;
	int err = fdry_graph_cursor_init(b->view, &c);

	if (err)
		return err;
	while (fdry_graph_next(&c, &node)) {
		i = fdry_graph_of(b->view, i, c.node - 1);
		b->graph = b->graphs[i];
		w = words_of(b->in, c.node - 1, &n);
		err = words_build(b, &node, w, n, &nodes[c.node - 1]);
		if (err) {
			err = fdry_fail_at(err, "node %u", c.node - 1);
			break;
		}
	}
	fdry_graph_cursor_release(&c);
	return err;
}

/* Add @n edges of graph @i with edge data @index. */
static int edges_add(struct fdry_build *b, const struct scratch *s, uint32_t i, uint32_t index,
		     uint32_t n)
{
	if (!n)
		return 0;
	return fdry_call(b->drv, cuGraphAddDependencies_v2, s->graphs[i], s->from, s->to,
			 index ? s->data : NULL, n);
}

/* Add the edges with edge data @index, in one call for each graph. */
static int edges_build(struct fdry_build *b, const struct scratch *s, uint32_t index)
{
	const struct fdry_graph_view *v = b->view;
	CUgraphEdgeData data = fdry_graph_edge_data_at(v, index);
	struct fdry_graph_edges edges = { .v = v };
	struct fdry_graph_edge e;
	uint32_t n = 0, i = 0;
	int err;

	while (fdry_graph_edge_next(&edges, &e)) {
		if (e.index != index)
			continue;
		if (e.from >= fdry_graph_end(v, i)) {
			err = edges_add(b, s, i, index, n);
			if (err)
				return err;
			i = fdry_graph_of(v, i, e.from);
			n = 0;
		}
		s->from[n] = s->nodes[e.from];
		s->to[n] = s->nodes[e.to];
		s->data[n++] = data;
	}
	return edges_add(b, s, i, index, n);
}

static int edges_build_all(struct fdry_build *b, const struct scratch *s)
{
	uint32_t index;
	int err = 0;

	for (index = 0; index <= b->view->header.edge_data && !err; index++)
		err = edges_build(b, s, index);
	return err;
}

/* --- a chain, in place of the graph's edges --- */

/* Record mark @i after node *@last of @graph, unless that is NULL. The record becomes *@last. */
static int mark_add(struct fdry_build *b, CUgraph graph, size_t i, CUgraphNode *last)
{
	CUgraphNode after = *last;

	return fdry_call(b->drv, cuGraphAddEventRecordNode, last, graph, &after, after != NULL,
			 b->in->marks[i]);
}

/* The nodes of graph @i, from @node on. They are in an order in which all edges lead forward. */
static int chain_build(struct fdry_build *b, const struct scratch *s, uint32_t i, uint32_t node)
{
	CUgraph graph = s->graphs[i];
	CUgraphNode last = NULL;
	int err = i ? 0 : mark_add(b, graph, 0, &last);

	err = err ?: mark_add(b, graph, fdry_graph_mark(i, node), &last);
	for (; node < fdry_graph_end(b->view, i) && !err; node++) {
		err = fdry_call(b->drv, cuGraphAddDependencies_v2, graph, &last, &s->nodes[node],
				NULL, 1);
		last = s->nodes[node];
		err = err ?: mark_add(b, graph, fdry_graph_mark(i, node) + 1, &last);
	}
	return err;
}

static int chains_build(struct fdry_build *b, const struct scratch *s)
{
	uint32_t i, node = 0;
	int err = 0;

	for (i = 0; i <= b->view->header.subgraphs && !err; i++) {
		err = chain_build(b, s, i, node);
		node = fdry_graph_end(b->view, i);
	}
	return err;
}

static int graph_fill(struct fdry_build *b)
{
	struct scratch s = { 0 };
	int err = scratch_new(b->view, b->in->kernels, &s);

	if (err)
		return err;
	b->params = s.params;
	b->graphs = s.graphs;
	b->conditionals = s.conditionals;
	b->graphs[0] = b->graph;
	err = nodes_build(b, s.nodes);
	if (err)
		goto out_free;
	err = fdry_build_semaphores_keep(b, s.nodes);
	if (err)
		goto out_free;
	err = b->in->marks ? chains_build(b, &s) : edges_build_all(b, &s);
out_free:
	if (b->empty)
		fdry_call_raw(b->drv, cuGraphDestroy, b->empty);
	free(s.nodes);
	return err;
}

static int events_create(const struct fdry_driver *drv, struct fdry_graph_built *b, uint32_t count)
{
	int err;

	if (!count)
		return 0;
	b->events = calloc(count, sizeof(*b->events));
	if (!b->events)
		return fdry_nomem();
	for (; b->nevents < count; b->nevents++) {
		if (b->shared && b->shared[b->nevents]) {
			b->events[b->nevents] = b->shared[b->nevents];
			continue;
		}
		err = fdry_call(drv, cuEventCreate, &b->events[b->nevents],
				CU_EVENT_DISABLE_TIMING);
		if (err)
			return err;
	}
	return 0;
}

int fdry_graph_build(const struct fdry_graph_builder *in, const struct fdry_graph_view *view,
		     struct fdry_graph_built *ret)
{
	struct fdry_build b = { .in = in, .drv = in->drv, .view = view };
	struct fdry_graph_built built = { .shared = in->events };
	int err = fdry_graph_view_check_kernels(view, in->kernels, in->nkernels);

	if (err)
		return err;
	err = fdry_graph_view_check_hosts(view, in->hosts, in->nhosts);
	if (err)
		return err;
	err = fdry_graph_view_check_arrays(view, in->arrays, in->narrays);
	if (err)
		return err;
	err = fdry_graph_view_check_functions(view, in->functions, in->nfunctions);
	if (err)
		return err;
	err = fdry_graph_view_check_semaphores(view, in->semaphores, in->nsemaphores);
	if (err)
		return err;
	err = fdry_call(b.drv, cuGraphCreate, &built.graph, 0);
	if (err)
		return err;
	err = events_create(b.drv, &built, view->header.events);
	if (err)
		goto out_release;
	b.graph = built.graph;
	b.events = built.events;
	b.built = &built;
	err = graph_fill(&b);
	if (err)
		goto out_release;
	*ret = built;
	return 0;

out_release:
	fdry_graph_built_release(b.drv, &built);
	return err;
}

unsigned long long fdry_graph_exec_flags(const struct fdry_graph_view *view)
{
	struct fdry_graph_attr a;
	uint32_t i;

	for (i = 0; i < view->header.attrs; i++) {
		memcpy(&a, view->section[FDRY_GSEC_ATTR] + sizeof(a) * (size_t)i, sizeof(a));
		if (a.id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
			return CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
	}
	return 0;
}

void fdry_graph_built_release(const struct fdry_driver *drv, struct fdry_graph_built *b)
{
	/* fdry_call() would replace the message of an earlier failure. */
	if (b->graph)
		fdry_call_raw(drv, cuGraphDestroy, b->graph);
	while (b->nevents--)
		if (!b->shared || !b->shared[b->nevents])
			fdry_call_raw(drv, cuEventDestroy_v2, b->events[b->nevents]);
	free(b->events);
	free(b->semaphores);
	memset(b, 0, sizeof(*b));
}
