// SPDX-License-Identifier: Apache-2.0
/*
 * memnode.c - nodes that allocate and free memory.
 *
 * An allocation node has its address and memory from its creation, for as long as the node or an
 * executable graph of it exists. Running the node only makes the allocation live. A graph with
 * such nodes cannot be cloned, its nodes cannot be removed, and it has one executable graph at a
 * time.
 */
#include "arch/sim/graph.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK ((size_t)2 << 20)

struct sim_gmem {
	struct sim_gmem *next; /* in mems */
	int refs;
	CUdeviceptr addr;
	size_t size, extent;
	CUdevice dev;
	bool has_free; /* a node of some graph frees it */
	bool live;     /* a launch allocated it, and nothing has freed it since */
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUmemAccessDesc access[SIM_DEVICES_MAX];
};

static struct sim_gmem *mems;

static struct sim_gmem *mem_find(CUdeviceptr addr)
{
	struct sim_gmem *m = mems;

	while (m && m->addr != addr)
		m = m->next;
	return m;
}

struct sim_gmem *sim_gmem_get(struct sim_gmem *m)
{
	if (m)
		m->refs++;
	return m;
}

void sim_gmem_put(struct sim_gmem *m)
{
	struct sim_gmem **p = &mems;

	if (!m || --m->refs)
		return;
	while (*p != m)
		p = &(*p)->next;
	*p = m->next;
	sim_range_remove(m->addr);
	munmap((void *)(uintptr_t)m->addr, m->extent);
	sim_memory_uncharge(m->dev, m->extent);
	free(m);
}

static bool params_ok(const CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	return p && p->bytesize && p->bytesize <= SIZE_MAX / 4 &&
	       p->accessDescCount <= SIM_DEVICES_MAX && (!p->accessDescCount || p->accessDescs) &&
	       p->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       p->poolProps.handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
	       p->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       sim_device_ok(p->poolProps.location.id);
}

/* The memory of an allocation node, and its address. */
static CUresult mem_map(struct sim_gmem *m)
{
	struct sim_range r = { .size = m->size,
			       .extent = m->extent,
			       .kind = SIM_MEM_GRAPH,
			       .dev = m->dev,
			       .read = true,
			       .write = true };
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	SIM_TRY(sim_memory_charge(m->dev, m->extent));
	r.start = (CUdeviceptr)(uintptr_t)sim_memory_map(m->extent);
	if (!r.start)
		goto out_give;
	res = sim_range_add(&r);
	if (res)
		goto out_unmap;
	m->addr = r.start;
	return CUDA_SUCCESS;

out_unmap:
	munmap((void *)(uintptr_t)r.start, m->extent);
out_give:
	sim_memory_uncharge(m->dev, m->extent);
	return res;
}

CUresult sim_gmem_new(const CUDA_MEM_ALLOC_NODE_PARAMS *p, struct sim_gmem **ret)
{
	struct sim_gmem *m;
	CUresult res;

	if (!params_ok(p))
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->refs = 1;
	m->size = p->bytesize;
	m->extent = (p->bytesize + BLOCK - 1) / BLOCK * BLOCK;
	m->dev = p->poolProps.location.id;
	res = mem_map(m);
	if (res) {
		free(m);
		return res;
	}
	m->params = *p;
	if (p->accessDescCount)
		memcpy(m->access, p->accessDescs, p->accessDescCount * sizeof(*m->access));
	m->params.accessDescs = p->accessDescCount ? m->access : NULL;
	m->params.dptr = m->addr;
	m->next = mems;
	mems = m;
	*ret = m;
	return CUDA_SUCCESS;
}

CUresult sim_gmem_find(CUdeviceptr addr, struct sim_gmem **ret)
{
	struct sim_gmem *m = mem_find(addr);

	if (!m || m->has_free)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = sim_gmem_get(m);
	return CUDA_SUCCESS;
}

CUdeviceptr sim_gmem_addr(const struct sim_gmem *m)
{
	return m->addr;
}

void sim_gmem_attach(struct sim_node *n, struct sim_gmem *m)
{
	n->mem = m;
	n->graph->nmem++;
	if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		m->has_free = true;
}

/* Child graphs cannot have such nodes. Bodies of conditional nodes accept them. */
static CUresult place_check(const struct sim_place *at)
{
	struct sim_graph *g;

	SIM_TRY(sim_graph_find(at->graph, &g));
	return g->parent && g->parent->type == CU_GRAPH_NODE_TYPE_GRAPH ? CUDA_ERROR_NOT_SUPPORTED
									  : CUDA_SUCCESS;
}

/* Add a node of @type for @m, and keep the reference to @m in it, or put it on failure. */
static CUresult mem_add(const struct sim_place *at, CUgraphNodeType type, struct sim_gmem *m,
			CUgraphNode *ret)
{
	struct sim_node *n;
	CUresult res = sim_node_place(at, type, &n);

	if (res) {
		sim_gmem_put(m);
		return res;
	}
	sim_gmem_attach(n, m);
	*ret = SIM_HANDLE(CUgraphNode, n);
	return CUDA_SUCCESS;
}

CUresult sim_gmem_alloc_add(const struct sim_place *at, CUDA_MEM_ALLOC_NODE_PARAMS *params,
			    CUgraphNode *ret)
{
	struct sim_gmem *m;

	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(place_check(at));
	SIM_TRY(sim_gmem_new(params, &m));
	SIM_TRY(mem_add(at, CU_GRAPH_NODE_TYPE_MEM_ALLOC, m, ret));
	params->dptr = m->addr;
	return CUDA_SUCCESS;
}

CUresult sim_gmem_free_add(const struct sim_place *at, CUdeviceptr addr, CUgraphNode *ret)
{
	struct sim_gmem *m;

	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(place_check(at));
	SIM_TRY(sim_gmem_find(addr, &m));
	return mem_add(at, CU_GRAPH_NODE_TYPE_MEM_FREE, m, ret);
}

void sim_gmem_node_clear(struct sim_node *n)
{
	struct sim_gmem *m = n->mem;

	if (!m)
		return;
	if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		m->has_free = false;
	n->graph->nmem--;
	n->mem = NULL;
	sim_gmem_put(m);
}

/* Check that all allocations of a plan are free; with @freeing, free them first. */
static CUresult plan_allocs(const struct sim_plan *p, bool freeing)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct sim_step *s = &p->steps[i];

		if (s->child)
			SIM_TRY(plan_allocs(s->child, freeing));
		if (s->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !s->mem->live)
			continue;
		if (!freeing)
			return CUDA_ERROR_INVALID_VALUE;
		s->mem->live = false;
	}
	return CUDA_SUCCESS;
}

/* Mark the allocations that are live after the plan has run. */
static void plan_mark(const struct sim_plan *p)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct sim_step *s = &p->steps[p->order[i]];

		if (s->child)
			plan_mark(s->child);
		else if (s->mem)
			s->mem->live = s->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	}
}

CUresult sim_gmem_launch(const struct sim_plan *p, bool auto_free)
{
	SIM_TRY(plan_allocs(p, auto_free));
	plan_mark(p);
	return CUDA_SUCCESS;
}

bool sim_gmem_free(CUdeviceptr addr)
{
	struct sim_gmem *m = mem_find(addr);

	if (!m || !m->live)
		return false;
	m->live = false;
	return true;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
				size_t ndeps, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	SIM_ENTER(cuGraphAddMemAllocNode);
	return sim_gmem_alloc_add(&(struct sim_place){ graph, deps, NULL, ndeps }, params, ret);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *ret)
{
	struct sim_node *n;

	SIM_ENTER(cuGraphMemAllocNodeGetParams);
	SIM_TRY(sim_node_find(node, &n));
	if (!ret || n->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = n->mem->params;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
			       size_t ndeps, CUdeviceptr addr)
{
	SIM_ENTER(cuGraphAddMemFreeNode);
	return sim_gmem_free_add(&(struct sim_place){ graph, deps, NULL, ndeps }, addr, ret);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *ret)
{
	struct sim_node *n;

	SIM_ENTER(cuGraphMemFreeNodeGetParams);
	SIM_TRY(sim_node_find(node, &n));
	if (!ret || n->type != CU_GRAPH_NODE_TYPE_MEM_FREE)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = n->mem->addr;
	return CUDA_SUCCESS;
}
