// SPDX-License-Identifier: Apache-2.0
/*
 * plan.c - an executable graph's own copy of nodes, edges and work, and their order.
 *
 * The real driver runs independent nodes in any order. This driver chooses an order at
 * instantiation that exposes missing edges: among the ready nodes, the one that became ready last
 * runs first. So a node that lost an edge runs before its former predecessor. FDRY_SIM_ORDER=N, N
 * not 0, chooses at random, with the seed N. For every edge, also a programmatic one, the upstream
 * node finishes first.
 */
#include "arch/sim/graph.h"

#include <stdlib.h>
#include <string.h>

#include "lib/search.h"

static void step_clear(struct sim_step *s)
{
	sim_op_release(&s->op);
	if (s->child)
		sim_plan_put(s->child);
	while (s->nbodies)
		sim_plan_put(s->bodies[--s->nbodies]);
	free(s->bodies);
	sim_gmem_put(s->mem);
	free(s->deps);
}

void sim_plan_put(struct sim_plan *p)
{
	if (--p->refs)
		return;
	for (size_t i = 0; i < p->count; i++)
		step_clear(&p->steps[i]);
	free(p->steps);
	free(p->order);
	free(p->values);
	free(p);
}

static CUresult plan_new(size_t count, struct sim_plan **ret)
{
	struct sim_plan *p = calloc(1, sizeof(*p));

	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->refs = 1;
	p->steps = calloc(count ? count : 1, sizeof(*p->steps));
	p->order = calloc(count ? count : 1, sizeof(*p->order));
	if (!p->steps || !p->order) {
		sim_plan_put(p);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	p->count = count;
	*ret = p;
	return CUDA_SUCCESS;
}

struct picker {
	uint64_t state; /* 0: newest first */
	size_t *ready;
	size_t count;
};

static size_t pick(struct picker *p)
{
	size_t at = p->count - 1, ret;

	if (p->state) {
		p->state ^= p->state << 13;
		p->state ^= p->state >> 7;
		p->state ^= p->state << 17;
		at = (size_t)(p->state % p->count);
	}
	ret = p->ready[at];
	p->ready[at] = p->ready[--p->count];
	return ret;
}

/* Fill p->order; returns the number of nodes in it, fewer than all if edges form a cycle. */
static size_t order_fill(const struct sim_graph *g, struct sim_plan *p, struct picker *pk,
			 size_t *waits)
{
	size_t n = 0;

	for (size_t i = 0; i < g->count; i++) {
		waits[i] = g->nodes[i]->in.count;
		if (!waits[i])
			pk->ready[pk->count++] = i;
	}
	while (pk->count) {
		const struct sim_node *node = g->nodes[pick(pk)];

		p->order[n++] = node->index;
		for (size_t k = 0; k < node->out.count; k++)
			if (!--waits[node->out.v[k].node->index])
				pk->ready[pk->count++] = node->out.v[k].node->index;
	}
	return n;
}

static CUresult plan_order(const struct sim_graph *g, struct sim_plan *p, uint64_t *bad)
{
	const char *seed = getenv("FDRY_SIM_ORDER");
	struct picker pk = { .state = seed ? strtoull(seed, NULL, 0) * 0x9e3779b97f4a7c15u : 0 };
	size_t *waits = calloc(2 * g->count + 1, sizeof(*waits));
	size_t n;

	if (!waits)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pk.ready = waits + g->count;
	n = order_fill(g, p, &pk, waits);
	for (size_t i = 0; n < g->count && bad && i < g->count; i++)
		if (waits[i])
			*bad = g->nodes[i]->obj.id;
	free(waits);
	return n < g->count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult step_make(const struct sim_node *n, struct sim_step *s, uint64_t *bad)
{
	s->node = n->obj.id;
	s->type = n->type;
	s->mem = sim_gmem_get(n->mem);
	if (n->in.count) {
		s->deps = calloc(n->in.count, sizeof(*s->deps));
		if (!s->deps)
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (; s->ndeps < n->in.count; s->ndeps++)
		s->deps[s->ndeps] = (struct sim_step_dep){ n->in.v[s->ndeps].node->index,
							   n->in.v[s->ndeps].data };
	if (n->child)
		return sim_plan_make(n->child, &s->child, bad);
	if (n->bodies)
		return sim_bodies_plan(n->bodies, s, bad);
	if (n->op.kind == SIM_OP_KERNEL)
		return sim_kernel_check(&n->op.launch, &s->op);
	return sim_op_copy(&n->op, &s->op);
}

static CUresult values_make(const struct sim_graph *g, struct sim_plan *p)
{
	p->values = calloc(g->nhandles + 1, sizeof(*p->values));
	if (!p->values)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (; p->nvalues < g->nhandles; p->nvalues++)
		p->values[p->nvalues] = g->handles[p->nvalues].value;
	return CUDA_SUCCESS;
}

CUresult sim_plan_make(const struct sim_graph *g, struct sim_plan **ret, uint64_t *bad)
{
	struct sim_plan *p;
	CUresult res;

	SIM_TRY(plan_new(g->count, &p));
	res = values_make(g, p);
	if (!res)
		res = plan_order(g, p, bad);
	for (size_t i = 0; !res && i < g->count; i++)
		res = step_make(g->nodes[i], &p->steps[i], bad);
	if (res) {
		sim_plan_put(p);
		return res;
	}
	*ret = p;
	return CUDA_SUCCESS;
}

static CUresult plan_copy(const struct sim_plan *from, struct sim_plan **ret);

static CUresult bodies_copy(const struct sim_step *from, struct sim_step *to)
{
	to->cond = from->cond;
	to->cond_type = from->cond_type;
	to->bodies = calloc(from->nbodies, sizeof(struct sim_plan *));
	if (!to->bodies)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (; to->nbodies < from->nbodies; to->nbodies++)
		SIM_TRY(plan_copy(from->bodies[to->nbodies], &to->bodies[to->nbodies]));
	return CUDA_SUCCESS;
}

static CUresult step_copy(const struct sim_step *from, struct sim_step *to)
{
	to->node = from->node;
	to->type = from->type;
	to->disabled = from->disabled;
	to->mem = sim_gmem_get(from->mem);
	if (from->ndeps) {
		to->deps = malloc(from->ndeps * sizeof(*to->deps));
		if (!to->deps)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(to->deps, from->deps, from->ndeps * sizeof(*to->deps));
		to->ndeps = from->ndeps;
	}
	if (from->child)
		return plan_copy(from->child, &to->child);
	if (from->bodies)
		return bodies_copy(from, to);
	return sim_op_copy(&from->op, &to->op);
}

static CUresult plan_copy(const struct sim_plan *from, struct sim_plan **ret)
{
	struct sim_plan *p;
	CUresult res = CUDA_SUCCESS;

	SIM_TRY(plan_new(from->count, &p));
	memcpy(p->order, from->order, from->count * sizeof(*p->order));
	p->values = calloc(from->nvalues + 1, sizeof(*p->values));
	if (p->values) {
		memcpy(p->values, from->values, from->nvalues * sizeof(*p->values));
		p->nvalues = from->nvalues;
	} else {
		res = CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t i = 0; !res && i < from->count; i++)
		res = step_copy(&from->steps[i], &p->steps[i]);
	if (res) {
		sim_plan_put(p);
		return res;
	}
	*ret = p;
	return CUDA_SUCCESS;
}

CUresult sim_plan_own(struct sim_plan **p)
{
	struct sim_plan *copy;

	if ((*p)->refs == 1)
		return CUDA_SUCCESS;
	SIM_TRY(plan_copy(*p, &copy));
	sim_plan_put(*p);
	*p = copy;
	return CUDA_SUCCESS;
}

/* Nodes are listed in order of creation, so their handles ascend. */
struct sim_step *sim_plan_find(struct sim_plan *p, uint64_t node)
{
	size_t at = fdry_lower_bound(i, p->count, p->steps[i].node < node);

	return at < p->count && p->steps[at].node == node ? &p->steps[at] : NULL;
}
