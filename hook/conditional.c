// SPDX-License-Identifier: Apache-2.0
/*
 * conditional.c - notes conditional nodes and the handles of their conditions, since the driver
 * reports neither.
 *
 * The driver numbers the handles of a graph and of the graphs within it from 1. So a handle 1 shows
 * that a new graph has the address of an old one, whose notes end. The notes of a node are replaced
 * when another node gets its address. So no note outlives what it describes, and the destruction of
 * graphs need not be seen.
 *
 * Locking: one lock around all notes.
 */
#include "hook/internal.h"
#include "lib/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A graph with handles, or a body. */
struct graph_note {
	CUgraph graph;
	CUgraph root; /* the graph itself, or the one that its handles belong to */
	struct fdry_condition *v; /* by handle; NULL for bodies */
	size_t n;
};

struct node_note {
	CUgraphNode node;
	CUgraph root;
	struct fdry_conditional c;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph_note *graphs; /* by address */
static struct node_note *nodes;   /* by address */
static size_t ngraphs, nnodes;

/* Insert @size zero bytes at entry @at of @n in *@items; NULL: out of memory. */
static void *insert(void *items, size_t size, size_t at, size_t *n)
{
	char **p = items, *more = reallocarray(*p, *n + 1, size);

	if (!more)
		return NULL;
	*p = more;
	more += at * size;
	memmove(more + size, more, (*n - at) * size);
	memset(more, 0, size);
	++*n;
	return more;
}

static struct graph_note *graph_find(CUgraph graph)
{
	size_t at = fdry_lower_bound(i, ngraphs, graphs[i].graph < graph);

	return at < ngraphs && graphs[at].graph == graph ? &graphs[at] : NULL;
}

/* The note of @graph, as a graph whose handles belong to @root; NULL: out of memory. */
static struct graph_note *graph_put(CUgraph graph, CUgraph root)
{
	size_t at = fdry_lower_bound(i, ngraphs, graphs[i].graph < graph);
	struct graph_note *g = graph_find(graph) ?: insert(&graphs, sizeof(*g), at, &ngraphs);

	if (!g)
		return NULL;
	if (g->root != root || root != graph)
		g->n = 0;
	g->graph = graph;
	g->root = root;
	return g;
}

static CUgraph root_of(CUgraph graph)
{
	struct graph_note *g = graph_find(graph);

	return g ? g->root : graph;
}

/* Note handle @handle. If memory is out, or the handles before it are not known, the graph has too
 * few notes, and fdry_hook_conditional() fails. */
static void handle_note(uint64_t handle, const struct fdry_condition *c)
{
	CUgraph root = handle == 1 ? c->graph : root_of(c->graph);
	struct graph_note *g = graph_put(root, root);
	struct fdry_condition *v;

	if (!g || !handle)
		return;
	if (handle - 1 < g->n)
		g->n = handle - 1; /* of an older graph */
	if (handle - 1 > g->n)
		return;
	v = reallocarray(g->v, g->n + 1, sizeof(*v));
	if (!v) {
		g->n = 0;
		return;
	}
	g->v = v;
	v[g->n++] = *c;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *ret, CUgraph graph, CUcontext ctx,
					unsigned int value, unsigned int flags)
{
	CUresult res = fdry_real(cuGraphConditionalHandleCreate)(ret, graph, ctx, value, flags);
	struct fdry_condition c = { graph, ctx, value, flags };

	if (res || fdry_start_is_forked())
		return res;
	pthread_mutex_lock(&lock);
	handle_note(*ret, &c);
	pthread_mutex_unlock(&lock);
	return res;
}

/* Without memory for the note, at least the old one ends. */
static void node_note(CUgraphNode node, CUgraph graph, const CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	size_t at = fdry_lower_bound(i, nnodes, nodes[i].node < node);
	struct node_note *n = at < nnodes && nodes[at].node == node ? &nodes[at] : NULL;
	CUgraph root = root_of(graph);
	unsigned int i;

	if (!n)
		n = insert(&nodes, sizeof(*n), at, &nnodes);
	if (!n)
		return;
	*n = (struct node_note){ .node = node, .root = root };
	for (i = 0; i < p->size; i++)
		if (!graph_put(p->phGraph_out[i], root))
			return;
	n->c = (struct fdry_conditional){ .handle = p->handle,
					  .type = p->type,
					  .size = p->size,
					  .bodies = p->phGraph_out,
					  .ctx = p->ctx };
}

void fdry_conditional_added(CUgraphNode node, CUgraph graph, const CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	pthread_mutex_lock(&lock);
	node_note(node, graph, p);
	pthread_mutex_unlock(&lock);
}

/* Lock held. */
static bool conditional_find(CUgraphNode node, struct fdry_conditional *ret)
{
	size_t at = fdry_lower_bound(i, nnodes, nodes[i].node < node);
	const struct graph_note *g;

	if (at == nnodes || nodes[at].node != node || !nodes[at].c.size)
		return false;
	g = graph_find(nodes[at].root);
	if (!g || nodes[at].c.handle - 1 >= g->n)
		return false;
	*ret = nodes[at].c;
	ret->condition = g->v[ret->handle - 1];
	ret->handles = g->n;
	return true;
}

int fdry_hook_conditional(CUgraphNode node, struct fdry_conditional *ret)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = conditional_find(node, ret);
	pthread_mutex_unlock(&lock);
	return found ? 0
		     : fdry_fail(FDRY_E_REFUSED,
				 "its handle and its bodies were not seen when it was added; put "
				 "the interposer in place before any CUDA code runs");
}
