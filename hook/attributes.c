// SPDX-License-Identifier: Apache-2.0
/*
 * attributes.c - notes two attributes of kernel nodes that drivers accept and do not report: the
 * preferred cluster size, and scheduling by NVLink's use.
 *
 * A node gets them from a launch that is captured, from a call, from another node, or from the node
 * that it is a clone of. Few programs set them. So the nodes of a graph are listed only if there
 * are notes.
 *
 * Locking: one lock around the notes, never held during a call of the driver.
 */
#include "hook/internal.h"
#include "lib/search.h"

#include <stdlib.h>
#include <string.h>

struct note {
	CUgraphNode node;
	cuuint64_t capture; /* the launch was captured by it; 0: none */
	struct fdry_unreported_attrs a;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct note *notes; /* by address */
static size_t count;       /* also read without the lock: 0 if there are none */

static bool any(void)
{
	return __atomic_load_n(&count, __ATOMIC_RELAXED) != 0;
}

/* The place of @id in struct fdry_unreported_attrs, or -1. */
static int place_of(CUlaunchAttributeID id)
{
	return id == (CUlaunchAttributeID)FDRY_UNREPORTED_CLUSTER  ? 0
	       : id == (CUlaunchAttributeID)FDRY_UNREPORTED_NVLINK ? 1
								   : -1;
}

/* The value that nodes have by default, so that it needs no note. */
static bool is_default(int at, const CUlaunchAttributeValue *v)
{
	static const unsigned int none[3];

	return !memcmp(v, none, at ? sizeof(none[0]) : sizeof(none));
}

/* The note of @node; with @make, a new one if there is none. NULL: none, or out of memory. Lock
 * held. */
static struct note *note_get(CUgraphNode node, bool make)
{
	size_t at = fdry_lower_bound(i, count, notes[i].node < node);
	struct note *more;

	if (at < count && notes[at].node == node)
		return &notes[at];
	more = make ? reallocarray(notes, count + 1, sizeof(*notes)) : NULL;
	if (!more)
		return NULL;
	notes = more;
	memmove(&notes[at + 1], &notes[at], (count - at) * sizeof(*notes));
	notes[at] = (struct note){ .node = node };
	__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
	return &notes[at];
}

static void note_drop(CUgraphNode node)
{
	struct note *n;

	pthread_mutex_lock(&lock);
	n = note_get(node, false);
	if (n) {
		memmove(n, n + 1, (size_t)(notes + count - n - 1) * sizeof(*n));
		__atomic_fetch_sub(&count, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
}

void fdry_attributes_lost(cuuint64_t id)
{
	size_t i, n = 0;

	if (!id || !any())
		return;
	pthread_mutex_lock(&lock);
	for (i = 0; i < count; i++)
		if (notes[i].capture != id)
			notes[n++] = notes[i];
	__atomic_store_n(&count, n, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

/* @capture: 0 unless a launch that it captured set the attribute. */
static void note_set(CUgraphNode node, cuuint64_t capture, CUlaunchAttributeID id,
		     const CUlaunchAttributeValue *v)
{
	int at = place_of(id);
	struct note *n;

	if (at < 0)
		return;
	pthread_mutex_lock(&lock);
	n = note_get(node, !is_default(at, v));
	if (n) {
		n->capture = capture ? capture : n->capture;
		n->a.value[at] = *v;
		n->a.set[at] = !is_default(at, v);
	}
	pthread_mutex_unlock(&lock);
}

static void note_copy(CUgraphNode to, CUgraphNode from)
{
	struct fdry_unreported_attrs a;
	struct note *n;

	fdry_hook_attributes(from, &a);
	pthread_mutex_lock(&lock);
	n = note_get(to, a.set[0] || a.set[1]);
	if (n)
		n->a = a;
	pthread_mutex_unlock(&lock);
}

void fdry_hook_attributes(CUgraphNode node, struct fdry_unreported_attrs *ret)
{
	const struct note *n;

	memset(ret, 0, sizeof(*ret));
	if (!any())
		return;
	pthread_mutex_lock(&lock);
	n = note_get(node, false);
	if (n)
		*ret = n->a;
	pthread_mutex_unlock(&lock);
}

/* --- launches that are captured, and nodes --- */

static bool sets_any(const CUlaunchConfig *c)
{
	unsigned int i;
	int at;

	for (i = 0; i < c->numAttrs; i++) {
		at = place_of(c->attrs[i].id);
		if (at >= 0 && !is_default(at, &c->attrs[i].value))
			return true;
	}
	return false;
}

/* Note the attributes of the node that a launch has added: the one on which the next will depend.
 * @zero: the stream that handle 0 is. */
static CUresult launched(CUresult res, const CUlaunchConfig *c, CUstream zero)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUgraphEdgeData *data;
	const CUgraphNode *nodes;
	cuuint64_t id = 0;
	size_t n = 0;
	unsigned int i;

	if (res || !c || !sets_any(c) || !fdry_capture_count() || fdry_start_is_forked())
		return res;
	if (fdry_real(cuStreamGetCaptureInfo_v3)(c->hStream ? c->hStream : zero, &status, &id,
						 NULL, &nodes, &data, &n) ||
	    status != CU_STREAM_CAPTURE_STATUS_ACTIVE || n != 1)
		return res;
	note_drop(nodes[0]);
	for (i = 0; i < c->numAttrs; i++)
		note_set(nodes[0], id, c->attrs[i].id, &c->attrs[i].value);
	return res;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	return launched(fdry_real(cuLaunchKernelEx)(c, f, params, extra), c, NULL);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	return launched(fdry_real(cuLaunchKernelEx_ptsz)(c, f, params, extra), c,
			CU_STREAM_PER_THREAD);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
				       const CUkernelNodeAttrValue *value)
{
	CUresult res = fdry_real(cuGraphKernelNodeSetAttribute)(node, id, value);

	if (!res && !fdry_start_is_forked())
		note_set(node, 0, id, value);
	return res;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	CUresult res = fdry_real(cuGraphKernelNodeCopyAttributes)(dst, src);

	if (!res && any())
		note_copy(dst, src);
	return res;
}

/* --- graphs --- */

/* The nodes of a graph, or NULL; free() them. */
static CUgraphNode *nodes_of(CUgraph graph, size_t *n)
{
	CUgraphNode *nodes;

	*n = 0;
	if (fdry_real(cuGraphGetNodes)(graph, NULL, n) || !*n)
		return NULL;
	nodes = calloc(*n, sizeof(*nodes));
	if (nodes && fdry_real(cuGraphGetNodes)(graph, nodes, n)) {
		free(nodes);
		nodes = NULL;
	}
	return nodes;
}

/* Graph @i that @node holds, or NULL. */
static CUgraph graph_of(CUgraphNode node, unsigned int i)
{
	CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
	struct fdry_conditional c;
	CUgraph g = NULL;

	if (fdry_real(cuGraphNodeGetType)(node, &type))
		return NULL;
	if (type == CU_GRAPH_NODE_TYPE_GRAPH && !i)
		fdry_real(cuGraphChildGraphNodeGetGraph)(node, &g);
	else if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL && !fdry_hook_conditional(node, &c) &&
		 i < c.size)
		g = c.bodies[i];
	return g;
}

/* Copy the notes of a graph to its clone, whose nodes have the same order. */
static void graph_cloned(CUgraph to, CUgraph from)
{
	size_t i, n, m;
	CUgraphNode *a = nodes_of(from, &n), *b = nodes_of(to, &m);

	for (i = 0; a && b && n == m && i < n; i++) {
		CUgraph child = graph_of(a[i], 0), copy = graph_of(b[i], 0);

		note_copy(b[i], a[i]);
		if (child && copy)
			graph_cloned(copy, child);
	}
	free(a);
	free(b);
}

static void cloned(CUgraph to, CUgraph from)
{
	if (to != from && any() && !fdry_start_is_forked())
		graph_cloned(to, from);
}

/* To the driver, graphs with our allocation nodes have only empty nodes. But it does not clone
 * graphs with its own. */
CUresult cuGraphClone(CUgraph *ret, CUgraph graph)
{
	CUresult res = fdry_graph_memory_in(graph) ? CUDA_ERROR_NOT_SUPPORTED
						   : fdry_real(cuGraphClone)(ret, graph);

	if (!res)
		cloned(*ret, graph);
	return res;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
				  size_t n, CUgraph child)
{
	CUresult res = fdry_graph_memory_in(child)
			       ? CUDA_ERROR_NOT_SUPPORTED
			       : fdry_real(cuGraphAddChildGraphNode)(ret, graph, deps, n, child);

	if (!res && any() && graph_of(*ret, 0))
		cloned(graph_of(*ret, 0), child);
	return res;
}

/* A node of any kind was added. A child graph is a clone unless its node took it over. */
static CUresult added(CUresult res, const CUgraphNode *ret, CUgraph graph,
		      const CUgraphNodeParams *p)
{
	if (res || fdry_start_is_forked())
		return res;
	if (p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		fdry_conditional_added(*ret, graph, &p->conditional);
	else if (p->type == CU_GRAPH_NODE_TYPE_GRAPH && any() && graph_of(*ret, 0))
		cloned(graph_of(*ret, 0), p->graph.graph);
	return res;
}

/* Whether @p makes a clone of a graph with our allocation nodes, which the driver would refuse. */
static bool clones_memory(const CUgraphNodeParams *p)
{
	return p && p->type == CU_GRAPH_NODE_TYPE_GRAPH &&
	       p->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE &&
	       fdry_graph_memory_in(p->graph.graph);
}

CUresult cuGraphAddNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t n,
			CUgraphNodeParams *p)
{
	struct fdry_node_place at = { graph, deps, NULL, n };
	CUresult res = CUDA_ERROR_NOT_SUPPORTED;

	if (clones_memory(p) || fdry_graph_memory_add(&at, p, ret, &res))
		return res;
	return added(fdry_real(cuGraphAddNode)(ret, graph, deps, n, p), ret, graph, p);
}

CUresult cuGraphAddNode_v2(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
			   const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *p)
{
	struct fdry_node_place at = { graph, deps, data, n };
	CUresult res = CUDA_ERROR_NOT_SUPPORTED;

	if (clones_memory(p) || fdry_graph_memory_add(&at, p, ret, &res))
		return res;
	return added(fdry_real(cuGraphAddNode_v2)(ret, graph, deps, data, n, p), ret, graph, p);
}

static void graph_gone(CUgraph graph);

/* The graphs within @node go with it. */
static void node_gone(CUgraphNode node)
{
	unsigned int i;
	CUgraph g;

	note_drop(node);
	fdry_graph_memory_gone(node);
	for (i = 0; (g = graph_of(node, i)) != NULL; i++)
		graph_gone(g);
}

static void graph_gone(CUgraph graph)
{
	size_t i, n;
	CUgraphNode *nodes = nodes_of(graph, &n);

	for (i = 0; nodes && i < n; i++)
		node_gone(nodes[i]);
	free(nodes);
}

/* The notes end before the call, as afterwards other nodes may have the addresses. A graph that is
 * not destroyed, because a node holds it, loses its notes too; such a call is an error. */
CUresult cuGraphDestroy(CUgraph graph)
{
	if ((any() || fdry_graph_memory_any()) && !fdry_start_is_forked())
		graph_gone(graph);
	return fdry_real(cuGraphDestroy)(graph);
}

/* The driver keeps allocation and free nodes as long as their graph. */
CUresult cuGraphDestroyNode(CUgraphNode node)
{
	if (fdry_graph_memory_is(node))
		return CUDA_ERROR_NOT_SUPPORTED;
	if ((any() || fdry_graph_memory_any()) && !fdry_start_is_forked())
		node_gone(node);
	return fdry_real(cuGraphDestroyNode)(node);
}
