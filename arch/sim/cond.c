// SPDX-License-Identifier: Apache-2.0
/*
 * cond.c - conditional nodes: their handles, their bodies, and how they run.
 *
 * The handles of a graph and of all graphs within it are the numbers 1, 2, 3, ... in the order of
 * their creation, as in driver 580. A launch begins with the default values of its handles; kernels
 * change them. Bodies belong to their node.
 */
#include "arch/sim/graph.h"

#include <stdlib.h>
#include <string.h>

/* The graph that has the handles of @g: no node holds it. */
static struct sim_graph *root_of(struct sim_graph *g)
{
	while (g->parent)
		g = g->parent->graph;
	return g;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *ret, CUgraph graph, CUcontext ctx,
					unsigned int value, unsigned int flags)
{
	struct sim_handle *handles;
	struct sim_graph *g;
	struct sim_ctx *c;

	SIM_ENTER(cuGraphConditionalHandleCreate);
	SIM_TRY(sim_graph_find(graph, &g));
	if (!ret || flags & ~(unsigned int)CU_GRAPH_COND_ASSIGN_DEFAULT)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	SIM_TRY(sim_ctx_find(ctx, &c));
	g = root_of(g);
	handles = reallocarray(g->handles, g->nhandles + 1, sizeof(*handles));
	if (!handles)
		return CUDA_ERROR_OUT_OF_MEMORY;
	handles[g->nhandles++] = (struct sim_handle){ .value = flags ? value : 0 };
	g->handles = handles;
	*ret = g->nhandles;
	return CUDA_SUCCESS;
}

static bool shape_ok(const CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	switch (p->type) {
	case CU_GRAPH_COND_TYPE_IF:
		return p->size == 1 || p->size == 2;
	case CU_GRAPH_COND_TYPE_WHILE:
		return p->size == 1;
	case CU_GRAPH_COND_TYPE_SWITCH:
		return p->size > 0;
	default:
		return false;
	}
}

void sim_bodies_free(struct sim_bodies *b)
{
	unsigned int i;

	if (!b)
		return;
	for (i = 0; i < b->size && b->graphs[i]; i++)
		sim_graph_free(b->graphs[i]);
	free(b->graphs);
	free(b->handles);
	free(b);
}

static CUresult bodies_new(const CUDA_CONDITIONAL_NODE_PARAMS *p, struct sim_bodies **ret)
{
	struct sim_bodies *b = calloc(1, sizeof(*b));
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;
	unsigned int i;

	if (!b)
		return res;
	b->handle = p->handle;
	b->type = p->type;
	b->size = p->size;
	b->graphs = calloc(p->size, sizeof(struct sim_graph *));
	b->handles = calloc(p->size, sizeof(*b->handles));
	if (!b->graphs || !b->handles) {
		b->size = 0;
		goto out_free;
	}
	for (i = 0; i < b->size; i++) {
		res = sim_graph_new(&b->graphs[i]);
		if (res)
			goto out_free;
		b->handles[i] = SIM_HANDLE(CUgraph, b->graphs[i]);
	}
	*ret = b;
	return CUDA_SUCCESS;
out_free:
	sim_bodies_free(b);
	return res;
}

CUresult sim_bodies_add(const struct sim_place *at, CUDA_CONDITIONAL_NODE_PARAMS *p,
			CUgraphNode *ret)
{
	struct sim_bodies *b;
	struct sim_graph *g;
	struct sim_node *n;
	struct sim_ctx *c;
	CUresult res;
	unsigned int i;

	SIM_TRY(sim_graph_find(at->graph, &g));
	SIM_TRY(sim_ctx_find(p->ctx, &c));
	g = root_of(g);
	if (!ret || !shape_ok(p) || p->handle - 1 >= g->nhandles || g->handles[p->handle - 1].used)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(bodies_new(p, &b));
	res = sim_node_place(at, CU_GRAPH_NODE_TYPE_CONDITIONAL, &n);
	if (res) {
		sim_bodies_free(b);
		return res;
	}
	for (i = 0; i < b->size; i++)
		b->graphs[i]->parent = n;
	n->bodies = b;
	g->handles[p->handle - 1].used = true;
	p->phGraph_out = b->handles;
	*ret = SIM_HANDLE(CUgraphNode, n);
	return CUDA_SUCCESS;
}

bool sim_bodies_any(const struct sim_graph *g)
{
	for (size_t i = 0; i < g->count; i++)
		if (g->nodes[i]->bodies ||
		    (g->nodes[i]->child && sim_bodies_any(g->nodes[i]->child)))
			return true;
	return false;
}

/* Each handle has a node. */
CUresult sim_handles_check(const struct sim_graph *g)
{
	for (size_t i = 0; i < g->nhandles; i++)
		if (!g->handles[i].used)
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* Whether bodies may hold such nodes. */
static bool type_ok(CUgraphNodeType type)
{
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_MEMCPY:
	case CU_GRAPH_NODE_TYPE_GRAPH:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return true;
	default:
		return false;
	}
}

static CUresult body_check(const struct sim_plan *p)
{
	for (size_t i = 0; i < p->count; i++) {
		if (!type_ok(p->steps[i].type))
			return CUDA_ERROR_INVALID_VALUE;
		if (p->steps[i].child)
			SIM_TRY(body_check(p->steps[i].child));
	}
	return CUDA_SUCCESS;
}

CUresult sim_bodies_plan(const struct sim_bodies *b, struct sim_step *s, uint64_t *bad)
{
	s->cond = b->handle;
	s->cond_type = b->type;
	s->bodies = calloc(b->size, sizeof(struct sim_plan *));
	if (!s->bodies)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (; s->nbodies < b->size; s->nbodies++)
		SIM_TRY(sim_plan_make(b->graphs[s->nbodies], &s->bodies[s->nbodies], bad));
	for (unsigned int i = 0; i < s->nbodies; i++)
		SIM_TRY(body_check(s->bodies[i]));
	return CUDA_SUCCESS;
}
