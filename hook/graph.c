// SPDX-License-Identifier: Apache-2.0
/*
 * graph.c - follows graphs: which are clones of others, what is added to them, and which nodes end
 * with them. Other files note what the driver does not report of nodes; this one moves their notes.
 *
 * The nodes of a graph are listed only if there are notes.
 */
#include "hook/internal.h"

#include <stdlib.h>

static CUresult graph_destroy(CUgraph graph);
static CUresult node_destroy(CUgraphNode node);

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

/* Copy the notes of a graph to its clone, whose nodes have the same order. False: not all. @lost:
 * set if attributes were lost for lack of memory. */
static bool graph_cloned(CUgraph to, CUgraph from, bool *lost)
{
	size_t i, n, m;
	CUgraphNode *a = nodes_of(from, &n), *b = nodes_of(to, &m);
	bool ret = n == m && !n == !a && !m == !b;

	*lost |= !n != !a || !m != !b;
	fdry_graph_age_copy(to, from);
	for (i = 0; ret && i < n; i++) {
		CUgraph child = graph_of(a[i], 0), copy = graph_of(b[i], 0);

		*lost |= !fdry_attributes_copy(b[i], a[i]);
		if (child || copy)
			ret = child && copy && graph_cloned(copy, child, lost);
	}
	free(a);
	free(b);
	return ret;
}

/* Whether a graph has notes that a clone needs. */
static bool any(void)
{
	return fdry_attributes_any() || fdry_graph_age_any();
}

/* CUDA_ERROR_OUT_OF_MEMORY: the clone may lack attributes. */
static CUresult cloned(CUgraph to, CUgraph from)
{
	bool lost = false;

	if (to == from || !any() || fdry_start_is_forked())
		return CUDA_SUCCESS;
	if (!graph_cloned(to, from, &lost))
		fdry_graph_age_forget();
	return lost && fdry_attributes_any() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* The child graph of @node, if it has one, is a clone of @from unless @node took that over. */
static CUresult child_cloned(CUgraphNode node, CUgraph from)
{
	CUgraph to = any() ? graph_of(node, 0) : NULL;

	return to ? cloned(to, from) : CUDA_SUCCESS;
}

/* A node with a child graph was added; undo that if the child lacks attributes. */
static CUresult child_added(CUgraphNode node, CUgraph from)
{
	CUresult res = child_cloned(node, from);

	if (res)
		(void)node_destroy(node);
	return res;
}

/* Whether the graph, or one within it, has allocation or free nodes of ours. */
static bool has_memory(CUgraph graph)
{
	bool ret = fdry_graph_memory_in(graph);
	CUgraphNode *nodes;
	unsigned int k;
	size_t i, n;
	CUgraph g;

	if (ret || !fdry_graph_memory_any() || fdry_start_is_forked())
		return ret;
	nodes = nodes_of(graph, &n);
	ret = n && !nodes; /* not known: refused */
	for (i = 0; nodes && i < n && !ret; i++)
		for (k = 0; !ret && (g = graph_of(nodes[i], k)) != NULL; k++)
			ret = has_memory(g);
	free(nodes);
	return ret;
}

CUresult cuGraphCreate(CUgraph *ret, unsigned int flags)
{
	uint64_t age = fdry_array_age();
	CUresult res = fdry_real(cuGraphCreate)(ret, flags);

	if (!res)
		fdry_graph_age_begin(*ret, age);
	return res;
}

/* To the driver, graphs with our allocation nodes have only empty nodes. But it does not clone
 * graphs with its own. */
CUresult cuGraphClone(CUgraph *ret, CUgraph graph)
{
	CUresult res = has_memory(graph) ? CUDA_ERROR_NOT_SUPPORTED
					 : fdry_real(cuGraphClone)(ret, graph);

	if (!res) {
		res = cloned(*ret, graph);
		if (res)
			(void)graph_destroy(*ret);
	}
	return res;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
				  size_t n, CUgraph child)
{
	CUresult res = has_memory(child)
			       ? CUDA_ERROR_NOT_SUPPORTED
			       : fdry_real(cuGraphAddChildGraphNode)(ret, graph, deps, n, child);

	return res ? res : child_added(*ret, child);
}

/* A node of any kind was added. @age: of the bodies that it made. */
static CUresult added(CUresult res, const CUgraphNode *ret, CUgraph graph,
		      const CUgraphNodeParams *p, uint64_t age)
{
	unsigned int i;

	if (res || fdry_start_is_forked())
		return res;
	if (p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		fdry_conditional_added(*ret, graph, &p->conditional);
		for (i = 0; i < p->conditional.size; i++)
			fdry_graph_age_begin(p->conditional.phGraph_out[i], age);
	} else if (p->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		res = child_added(*ret, p->graph.graph);
	}
	return res;
}

/* Whether @p makes a clone of a graph with our allocation nodes, which the driver would refuse. */
static bool clones_memory(const CUgraphNodeParams *p)
{
	return p && p->type == CU_GRAPH_NODE_TYPE_GRAPH &&
	       p->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE &&
	       has_memory(p->graph.graph);
}

CUresult cuGraphAddNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t n,
			CUgraphNodeParams *p)
{
	struct fdry_node_place at = { graph, deps, NULL, n };
	CUresult res = CUDA_ERROR_NOT_SUPPORTED;
	uint64_t age = fdry_array_age();

	if (clones_memory(p) || fdry_graph_memory_add(&at, p, ret, &res))
		return res;
	res = fdry_real(cuGraphAddNode)(ret, graph, deps, n, p);
	return added(res, ret, graph, p, age);
}

CUresult cuGraphAddNode_v2(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
			   const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *p)
{
	struct fdry_node_place at = { graph, deps, data, n };
	CUresult res = CUDA_ERROR_NOT_SUPPORTED;
	uint64_t age = fdry_array_age();

	if (clones_memory(p) || fdry_graph_memory_add(&at, p, ret, &res))
		return res;
	res = fdry_real(cuGraphAddNode_v2)(ret, graph, deps, data, n, p);
	return added(res, ret, graph, p, age);
}

/* A driver may let a child graph node get a clone of another graph. */
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *p)
{
	CUresult res = clones_memory(p) ? CUDA_ERROR_NOT_SUPPORTED
					: fdry_real(cuGraphNodeSetParams)(node, p);

	if (!res && p->type == CU_GRAPH_NODE_TYPE_GRAPH)
		res = child_cloned(node, p->graph.graph);
	return res;
}

/* --- destruction --- */

static bool graph_ending(CUgraph graph, uint64_t call);

/* The graphs within @node are destroyed with it. False: not all nodes could be listed. */
static bool node_ending(CUgraphNode node, uint64_t call)
{
	bool ret = true;
	unsigned int i;
	CUgraph g;

	for (i = 0; (g = graph_of(node, i)) != NULL; i++)
		ret &= graph_ending(g, call);
	fdry_attributes_ending(node, call);
	fdry_graph_memory_ending(node, call);
	return ret;
}

static bool graph_ending(CUgraph graph, uint64_t call)
{
	size_t i, n;
	CUgraphNode *nodes = nodes_of(graph, &n);
	bool ret = !n || nodes;

	for (i = 0; nodes && i < n; i++)
		ret &= node_ending(nodes[i], call);
	free(nodes);
	return ret;
}

/* A number for a call that destroys nodes; 0 if no node has a note. */
static uint64_t call_new(void)
{
	static uint64_t last;

	return (fdry_attributes_any() || fdry_graph_memory_any()) && !fdry_start_is_forked()
		       ? __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED)
		       : 0;
}

static CUresult call_ended(CUresult res, uint64_t call)
{
	if (call) {
		fdry_attributes_end(call, res != CUDA_SUCCESS);
		fdry_graph_memory_end(call, res != CUDA_SUCCESS);
	}
	return res;
}

/* The notes of the nodes are marked before the call: during it, another thread's node may get one
 * of their addresses. They stay if the driver refuses the call. If a note could outlive its node
 * since the nodes cannot be listed, the call fails. */
static CUresult graph_destroy(CUgraph graph)
{
	uint64_t call = call_new();

	if (call && !graph_ending(graph, call))
		return call_ended(CUDA_ERROR_OUT_OF_MEMORY, call);
	return call_ended(fdry_real(cuGraphDestroy)(graph), call);
}

CUresult cuGraphDestroy(CUgraph graph)
{
	return graph_destroy(graph);
}

static CUresult node_destroy(CUgraphNode node)
{
	uint64_t call = call_new();

	if (call && !node_ending(node, call))
		return call_ended(CUDA_ERROR_OUT_OF_MEMORY, call);
	return call_ended(fdry_real(cuGraphDestroyNode)(node), call);
}

/* The driver keeps allocation and free nodes as long as their graph. */
CUresult cuGraphDestroyNode(CUgraphNode node)
{
	return fdry_graph_memory_is(node) ? CUDA_ERROR_NOT_SUPPORTED : node_destroy(node);
}
