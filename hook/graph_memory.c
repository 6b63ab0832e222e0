// SPDX-License-Identifier: Apache-2.0
/*
 * graph_memory.c - nodes that allocate and free memory: their memory comes from the region, and the
 * driver gets empty nodes in their place.
 *
 * A load could not have the addresses that the driver chooses for such memory. The region's memory
 * of an allocation node belongs to the node until the region ends, so that every launch may use it.
 * For the program the nodes keep their types and parameters, which are noted here. The driver gets
 * the calls for memory of other devices, and for memory that peers access.
 *
 * Locking: one lock around the notes, never held during a call of the driver.
 */
#include "hook/internal.h"
#include "lib/search.h"

#include <stdlib.h>
#include <string.h>

struct note {
	CUgraphNode node;
	CUgraph graph;
	CUgraphNodeType type;
	CUDA_MEM_ALLOC_NODE_PARAMS p; /* of a free node, only the address */
	CUmemAccessDesc access;
	uint64_t ending; /* the call that destroys the node, until it returns; 0: none */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct note **notes; /* by the address of the node */
static size_t count;	    /* also read without the lock: 0 if there are none */

bool fdry_graph_memory_any(void)
{
	return __atomic_load_n(&count, __ATOMIC_RELAXED) != 0;
}

/* Lock held. */
static size_t note_at(CUgraphNode node)
{
	return fdry_lower_bound(i, count, notes[i]->node < node);
}

/* The note of @node, or NULL. A node that is being destroyed has none. Lock held. */
static struct note *note_of(CUgraphNode node)
{
	size_t at = note_at(node);

	return at < count && notes[at]->node == node && !notes[at]->ending ? notes[at] : NULL;
}

/* Lock held. */
static void note_remove(size_t at)
{
	free(notes[at]);
	memmove(&notes[at], &notes[at + 1], (count - at - 1) * sizeof(*notes));
	__atomic_fetch_sub(&count, 1, __ATOMIC_RELAXED);
}

/* Add @new, which replaces an older note of a node that had the same address. False: out of
 * memory. */
static bool note_add(struct note *new)
{
	struct note **more = NULL;
	size_t at;

	pthread_mutex_lock(&lock);
	at = note_at(new->node);
	if (at < count && notes[at]->node == new->node)
		note_remove(at);
	more = reallocarray(notes, count + 1, sizeof(*notes));
	if (!more)
		goto out_unlock;
	notes = more;
	memmove(&notes[at + 1], &notes[at], (count - at) * sizeof(*notes));
	notes[at] = new;
	__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
out_unlock:
	pthread_mutex_unlock(&lock);
	return more;
}

static void note_drop(CUgraphNode node)
{
	pthread_mutex_lock(&lock);
	if (note_of(node))
		note_remove(note_at(node));
	pthread_mutex_unlock(&lock);
}

void fdry_graph_memory_ending(CUgraphNode node, uint64_t call)
{
	struct note *n;

	pthread_mutex_lock(&lock);
	n = note_of(node);
	if (n)
		n->ending = call;
	pthread_mutex_unlock(&lock);
}

void fdry_graph_memory_end(uint64_t call, bool refused)
{
	size_t i;

	pthread_mutex_lock(&lock);
	for (i = count; i--;) {
		if (notes[i]->ending != call)
			continue;
		notes[i]->ending = 0;
		if (!refused)
			note_remove(i);
	}
	pthread_mutex_unlock(&lock);
}

bool fdry_graph_memory_in(CUgraph graph)
{
	bool found = false;
	size_t i;

	if (!fdry_graph_memory_any() || fdry_start_is_forked())
		return false;
	pthread_mutex_lock(&lock);
	for (i = 0; i < count && !found; i++)
		found = notes[i]->graph == graph && !notes[i]->ending;
	pthread_mutex_unlock(&lock);
	return found;
}

bool fdry_graph_memory_is(CUgraphNode node)
{
	bool found;

	if (!fdry_graph_memory_any() || fdry_start_is_forked())
		return false;
	pthread_mutex_lock(&lock);
	found = note_of(node);
	pthread_mutex_unlock(&lock);
	return found;
}

/* --- adding nodes --- */

static CUresult empty_add(const struct fdry_node_place *at, CUgraphNode *ret)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_EMPTY };

	return at->data ? fdry_real(cuGraphAddNode_v2)(ret, at->graph, at->deps, at->data, at->n,
						       &p)
			: fdry_real(cuGraphAddEmptyNode)(ret, at->graph, at->deps, at->n);
}

/* Add the empty node, and @n, whose graph, type and parameters are set. */
static CUresult node_add(const struct fdry_node_place *at, struct note *n, CUgraphNode *ret)
{
	CUresult res = empty_add(at, &n->node);

	if (res)
		return res;
	*ret = n->node;
	if (note_add(n))
		return CUDA_SUCCESS;
	fdry_real(cuGraphDestroyNode)(*ret);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether a region can hold the memory: it is for this process and its own device alone. */
static bool is_plain(const CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	const CUmemLocation *at = &p->poolProps.location;
	const CUmemAccessDesc *d = p->accessDescs;

	if (!p->bytesize || p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    p->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
	    at->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return false;
	return !p->accessDescCount ||
	       (p->accessDescCount == 1 && d && d->location.type == at->type &&
		d->location.id == at->id && d->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static void addr_set(CUgraphNode node, CUdeviceptr addr)
{
	struct note *n;

	pthread_mutex_lock(&lock);
	n = note_of(node);
	if (n)
		n->p.dptr = addr;
	pthread_mutex_unlock(&lock);
}

/* The region of this memory is @r. The node is added first: it can be destroyed, while the region
 * keeps memory of allocation nodes until it ends. */
static CUresult alloc_in(struct fdry_region *r, const struct fdry_node_place *at,
			 CUDA_MEM_ALLOC_NODE_PARAMS *p, CUgraphNode *ret)
{
	struct fdry_async a = { .size = p->bytesize, .graph = FDRY_GRAPH_NODES,
				.flags = fdry_capture_alloc_flags() };
	struct note *n = calloc(1, sizeof(*n));
	CUgraphNode node;
	CUresult res;

	if (!n)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*n = (struct note){ .graph = at->graph, .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .p = *p };
	if (p->accessDescCount) {
		n->access = *p->accessDescs;
		n->p.accessDescs = &n->access;
	}
	res = node_add(at, n, &node);
	if (res) {
		free(n);
		return res;
	}
	res = fdry_dispatch_alloc_result(fdry_region_alloc_async(r, &a, &p->dptr));
	if (res) {
		note_drop(node);
		fdry_real(cuGraphDestroyNode)(node);
		return res;
	}
	addr_set(node, p->dptr);
	*ret = node;
	return CUDA_SUCCESS;
}

/* False: the driver must answer the call. */
static bool alloc_add(const struct fdry_node_place *at, CUDA_MEM_ALLOC_NODE_PARAMS *p,
		      CUgraphNode *ret, CUresult *res)
{
	struct fdry_region *r;
	bool ours;
	int err;

	if (!p || !ret || !is_plain(p))
		return false;
	err = fdry_dispatch_current(&r);
	if (err == FDRY_FOREIGN)
		return false;
	*res = fdry_dispatch_alloc_result(err);
	if (err)
		return true;
	ours = p->poolProps.location.id == fdry_region_device(r);
	if (ours)
		*res = alloc_in(r, at, p, ret);
	fdry_dispatch_put(false);
	return ours;
}

/* @addr lies in region @r. A graph frees only memory that a graph allocates, and once. */
static CUresult free_in(struct fdry_region *r, const struct fdry_node_place *at, CUdeviceptr addr,
			CUgraphNode *ret)
{
	struct fdry_async by = { .graph = FDRY_GRAPH_NODES };
	struct fdry_alloc a;
	struct note *n;
	CUresult res;
	int err;

	if (!fdry_region_find(r, addr, &a) || a.addr != addr || a.kind != FDRY_KIND_POOL ||
	    !a.capturing)
		return CUDA_ERROR_INVALID_VALUE;
	n = calloc(1, sizeof(*n));
	if (!n)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*n = (struct note){ .graph = at->graph, .type = CU_GRAPH_NODE_TYPE_MEM_FREE,
			    .p.dptr = addr };
	res = node_add(at, n, ret);
	if (res) {
		free(n);
		return res;
	}
	err = fdry_region_free_async(r, addr, &by, &a);
	if (err) { /* another thread has freed it */
		note_drop(*ret);
		fdry_real(cuGraphDestroyNode)(*ret);
	}
	return fdry_dispatch_free_result(err);
}

/* False: the driver must answer the call. */
static bool free_add(const struct fdry_node_place *at, CUdeviceptr addr, CUgraphNode *ret,
		     CUresult *res)
{
	struct fdry_region *r;

	if (!ret || fdry_dispatch_holder(addr, &r))
		return false;
	*res = free_in(r, at, addr, ret);
	fdry_dispatch_put(false);
	return true;
}

bool fdry_graph_memory_add(const struct fdry_node_place *at, CUgraphNodeParams *p,
			   CUgraphNode *ret, CUresult *res)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc;

	if (p && p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		_Static_assert(sizeof(alloc) == sizeof(p->alloc), "one layout, two names");
		memcpy(&alloc, &p->alloc, sizeof(alloc));
		if (!alloc_add(at, &alloc, ret, res))
			return false;
		p->alloc.dptr = alloc.dptr;
		return true;
	}
	return p && p->type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
	       free_add(at, p->free.dptr, ret, res);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t n,
				CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	struct fdry_node_place at = { graph, deps, NULL, n };
	CUresult res;

	return alloc_add(&at, p, ret, &res)
		       ? res
		       : fdry_real(cuGraphAddMemAllocNode)(ret, graph, deps, n, p);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t n,
			       CUdeviceptr addr)
{
	struct fdry_node_place at = { graph, deps, NULL, n };
	CUresult res;

	return free_add(&at, addr, ret, &res)
		       ? res
		       : fdry_real(cuGraphAddMemFreeNode)(ret, graph, deps, n, addr);
}

/* --- queries --- */

/* The parameters of a node of ours. False: the driver must answer. */
static bool params_of(CUgraphNode node, CUgraphNodeType type, CUDA_MEM_ALLOC_NODE_PARAMS *ret)
{
	const struct note *n;

	if (!fdry_graph_memory_any() || fdry_start_is_forked())
		return false;
	pthread_mutex_lock(&lock);
	n = note_of(node);
	if (n && n->type == type)
		*ret = n->p;
	else
		n = NULL;
	pthread_mutex_unlock(&lock);
	return n;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *ret)
{
	return ret && params_of(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, ret)
		       ? CUDA_SUCCESS
		       : fdry_real(cuGraphMemAllocNodeGetParams)(node, ret);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *ret)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p;

	if (!ret || !params_of(node, CU_GRAPH_NODE_TYPE_MEM_FREE, &p))
		return fdry_real(cuGraphMemFreeNodeGetParams)(node, ret);
	*ret = p.dptr;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *ret)
{
	CUresult res = fdry_real(cuGraphNodeGetType)(node, ret);
	const struct note *n;

	if (res || *ret != CU_GRAPH_NODE_TYPE_EMPTY || !fdry_graph_memory_any() ||
	    fdry_start_is_forked())
		return res;
	pthread_mutex_lock(&lock);
	n = note_of(node);
	if (n)
		*ret = n->type;
	pthread_mutex_unlock(&lock);
	return res;
}
