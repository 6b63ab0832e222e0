// SPDX-License-Identifier: Apache-2.0
/*
 * generator.c - random numbers in captures. A graph reads the seed and offset of its generator from
 * two slots of memory. The caller declares these slots, or finds them among the arguments of the
 * graph's kernels. See foundry/rng.h.
 */
#include <stdlib.h>
#include <string.h>

#include "image/capture/capture.h"
#include "lib/opts.h"
#include "lib/search.h"
#include "image/tensor.h"
#include "graph/kernel.h"

/* --- declaring slots --- */

static int slot_check(struct fdry_capture *cap, const char *what, uint64_t addr, uint64_t *serial)
{
	bool shared;
	int err = fdry_capture_find(cap, addr, FDRY_RNG_SLOT_BYTES, serial, &shared);

	if (err)
		return err;
	if (addr % FDRY_RNG_SLOT_BYTES || !*serial)
		return fdry_fail(FDRY_E_RANGE,
				 "the generator's %s at %#llx is not 8 aligned bytes of live "
				 "memory of the capture's region; "
				 "give the address that the kernels read it from",
				 what, (unsigned long long)addr);
	if (shared)
		return fdry_fail(FDRY_E_REFUSED,
				 "the generator's %s lies in memory that the program mapped twice, "
				 "exported, imported or "
				 "created before fdry_capture_begin(), which no image can hold",
				 what);
	return 0;
}

static bool shares(const struct fdry_rng_use *a, const struct fdry_rng_use *b)
{
	return a->seed == b->seed || a->seed == b->offset || a->offset == b->seed ||
	       a->offset == b->offset;
}

/* Check a use against those that were declared before. */
static int rng_use_check(const struct fdry_capture *cap, uint64_t key,
			 const struct fdry_rng_use *use)
{
	const struct fdry_capture_rng_use *d =
		fdry_array(cap->rng_uses, struct fdry_capture_rng_use);
	size_t i;

	for (i = 0; i < fdry_array_count(cap->rng_uses, struct fdry_capture_rng_use); i++, d++) {
		if (d->key == key && !strcmp(d->desc.generator, use->generator))
			return fdry_fail(
				FDRY_E_EXISTS,
				"graph %llu was declared before to draw from generator '%s'",
				(unsigned long long)key, use->generator);
		if (d->key == key && shares(&d->desc, use))
			return fdry_fail(FDRY_E_EXISTS,
					 "generators '%s' and '%s' share a slot in graph %llu; "
					 "each needs slots of its own",
					 use->generator, d->desc.generator,
					 (unsigned long long)key);
	}
	return 0;
}

static int rng_use_add(struct fdry_capture *cap, struct fdry_capture_rng_use add)
{
	int err;

	if (!fdry_capture_graph_find(cap, add.key))
		return fdry_fail(FDRY_E_NOKEY, "no graph with key %llu was added; add it first",
				 (unsigned long long)add.key);
	err = rng_use_check(cap, add.key, &add.desc);
	if (err)
		return err;
	add.desc.generator = strdup(add.desc.generator);
	if (!add.desc.generator)
		return fdry_nomem();
	err = fdry_buf_put(&cap->rng_uses, &add, sizeof(add));
	if (err)
		free((char *)add.desc.generator);
	return err;
}

int fdry_capture_rng_use(struct fdry_capture *cap, uint64_t key, const struct fdry_rng_use *use)
{
	struct fdry_capture_rng_use add = { .key = key };
	int err = fdry_capture_check(cap) ?: fdry_need(use);

	if (err)
		return err;
	err = fdry_name_check("generator", use->generator);
	if (err)
		return err;
	if (use->seed == use->offset)
		return fdry_fail(
			FDRY_E_INVAL,
			"seed and offset of generator '%s' have the same address; each needs "
			"8 bytes of its own",
			use->generator);
	err = slot_check(cap, "seed", use->seed, &add.serial[0]);
	if (err)
		return err;
	err = slot_check(cap, "offset", use->offset, &add.serial[1]);
	if (err)
		return err;
	add.desc = *use;
	pthread_mutex_lock(&cap->lock);
	err = rng_use_add(cap, add);
	pthread_mutex_unlock(&cap->lock);
	return err;
}

/* --- finding slots --- */

struct search {
	struct fdry_capture *cap;
	struct fdry_alloc *ledger;
	size_t n;
	CUdeviceptr base;
	uint64_t size;         /* of the region */
	struct fdry_buf found; /* u64: addresses */
	struct fdry_buf graphs; /* CUgraph each: the graph, and those within it so far */
};

static int word_look(struct search *s, uint64_t word)
{
	bool shared = false;

	word -= word % FDRY_RNG_SLOT_BYTES;
	if (word - s->base >= s->size ||
	    !fdry_allocs_under(s->ledger, s->n, word, FDRY_RNG_SLOT_BYTES, &shared) || shared)
		return 0;
	return fdry_buf_put_u64(&s->found, word);
}

static int bytes_look(struct search *s, const uint8_t *bytes, size_t len)
{
	size_t at;
	int err;

	for (at = 0; at + 8 <= len; at += 4) {
		err = word_look(s, fdry_get64(bytes + at));
		if (err)
			return err;
	}
	return 0;
}

static int extra_look(struct search *s, void *const *extra)
{
	const uint8_t *bytes = NULL;
	size_t len = 0;

	for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			bytes = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			len = *(const size_t *)extra[1];
	}
	return bytes ? bytes_look(s, bytes, len) : 0;
}

static int params_look(struct search *s, const CUDA_KERNEL_NODE_PARAMS *p)
{
	const struct fdry_driver *drv = s->cap->drv;
	size_t i, offset, size;
	CUresult res;
	int err;

	for (i = 0; i < FDRY_KERNEL_PARAMS_MAX; i++) {
		res = fdry_call_raw(drv, cuFuncGetParamInfo, p->func, i, &offset, &size);
		if (res == CUDA_ERROR_INVALID_VALUE)
			return 0; /* one past the last */
		if (res)
			return fdry_driver_result(drv, FDRY_DRV_cuFuncGetParamInfo, res);
		err = bytes_look(s, p->kernelParams[i], size);
		if (err)
			return err;
	}
	return 0;
}

static int kernel_look(struct search *s, CUgraphNode node)
{
	CUDA_KERNEL_NODE_PARAMS p;
	int err;

	memset(&p, 0, sizeof(p));
	err = fdry_call(s->cap->drv, cuGraphKernelNodeGetParams_v2, node, &p);
	if (err)
		return err;
	return p.kernelParams ? params_look(s, &p) : extra_look(s, p.extra);
}

static int memcpy_look(struct search *s, CUgraphNode node)
{
	CUDA_MEMCPY3D p;
	uint64_t src, dst;
	int err;

	memset(&p, 0, sizeof(p));
	err = fdry_call(s->cap->drv, cuGraphMemcpyNodeGetParams, node, &p);
	if (err)
		return err;
	src = p.srcDevice + p.srcXInBytes + p.srcPitch * (p.srcY + p.srcHeight * p.srcZ);
	dst = p.dstDevice + p.dstXInBytes + p.dstPitch * (p.dstY + p.dstHeight * p.dstZ);
	err = p.srcMemoryType == CU_MEMORYTYPE_HOST ? 0 : word_look(s, src);
	if (err)
		return err;
	return p.dstMemoryType == CU_MEMORYTYPE_HOST ? 0 : word_look(s, dst);
}

static int memset_look(struct search *s, CUgraphNode node)
{
	CUDA_MEMSET_NODE_PARAMS p;
	int err;

	memset(&p, 0, sizeof(p));
	err = fdry_call(s->cap->drv, cuGraphMemsetNodeGetParams, node, &p);
	return err ? err : word_look(s, p.dst);
}

/* Note the graph of a child graph node, which graphs_look() searches later. */
static int child_note(struct search *s, CUgraphNode node)
{
	CUgraph graph = NULL;
	int err = fdry_call(s->cap->drv, cuGraphChildGraphNodeGetGraph, node, &graph);

	return err ? err : fdry_buf_put(&s->graphs, &graph, sizeof(graph));
}

static int node_look(struct search *s, CUgraphNode node)
{
	CUgraphNodeType type;
	int err = fdry_call(s->cap->drv, cuGraphNodeGetType, node, &type);

	if (err)
		return err;
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_look(s, node);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return memcpy_look(s, node);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return memset_look(s, node);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return child_note(s, node);
	default:
		return 0;
	}
}

/* Sort the addresses found and remove duplicates. Returns their number. */
static size_t found_sort(struct search *s)
{
	uint64_t *a = (uint64_t *)(void *)s->found.data;
	size_t i, n = s->found.len / sizeof(*a), kept = 0;

	if (n)
		qsort(a, n, sizeof(*a), fdry_u64_cmp);
	for (i = 0; i < n; i++)
		if (!i || a[i] != a[i - 1])
			a[kept++] = a[i];
	return kept;
}

static int graph_look(struct search *s, CUgraph graph)
{
	CUgraphNode *nodes;
	size_t i, n = 0;
	int err = fdry_call(s->cap->drv, cuGraphGetNodes, graph, NULL, &n);

	if (err || !n)
		return err;
	nodes = calloc(n, sizeof(*nodes));
	if (!nodes)
		return fdry_nomem();
	err = fdry_call(s->cap->drv, cuGraphGetNodes, graph, nodes, &n);
	if (err)
		goto out_free;
	for (i = 0; i < n; i++) {
		err = node_look(s, nodes[i]);
		if (err)
			goto out_free;
	}
out_free:
	free(nodes);
	return err;
}

static int graphs_look(struct search *s, CUgraph graph)
{
	size_t at;
	int err = fdry_buf_put(&s->graphs, &graph, sizeof(graph));

	for (at = 0; !err && at < s->graphs.len; at += sizeof(graph)) {
		memcpy(&graph, s->graphs.data + at, sizeof(graph));
		err = graph_look(s, graph);
	}
	return err;
}

static int slots_read(struct search *s, CUgraph graph, struct fdry_rng_slot *slots, size_t max,
		      size_t *ret)
{
	const uint64_t *a;
	size_t i, n = 0;
	int err = graphs_look(s, graph);

	if (err)
		return err;
	err = fdry_call(s->cap->drv, cuCtxSynchronize);
	if (err)
		return err;
	n = found_sort(s);
	a = (const uint64_t *)(const void *)s->found.data;
	for (i = 0; i < n && i < max; i++) {
		slots[i].addr = a[i];
		err = fdry_call(s->cap->drv, cuMemcpyDtoH_v2, &slots[i].value, a[i],
				sizeof(slots[i].value));
		if (err)
			return err;
	}
	*ret = n;
	return 0;
}

static int slots_in_context(struct search *s, CUgraph graph, struct fdry_rng_slot *slots,
			    size_t max, size_t *ret)
{
	struct fdry_capture *cap = s->cap;
	struct fdry_hook_live live;
	int err;

	cap->hook->live(&live);
	if (live.captures)
		return fdry_fail(FDRY_E_STATE,
				 "%llu stream(s) are capturing; end every capture first",
				 (unsigned long long)live.captures);
	err = fdry_interposer_result(cap->hook,
				  cap->hook->region_ledger(&s->base, &s->size, &s->ledger, &s->n));
	err = err ?: fdry_capture_wait(cap) ?: fdry_capture_enter(cap);
	if (err)
		return err;
	err = slots_read(s, graph, slots, max, ret);
	fdry_capture_leave(cap);
	return err;
}

int fdry_capture_rng_slots(struct fdry_capture *cap, uint64_t key, struct fdry_rng_slot *slots,
			   size_t max, size_t *ret)
{
	struct search s = { .cap = cap };
	const struct fdry_capture_graph *g;
	int err = fdry_capture_check(cap) ?: fdry_need(ret);

	if (err)
		return err;
	if (max)
		err = fdry_need(slots);
	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	g = fdry_capture_graph_find(cap, key);
	if (g)
		err = slots_in_context(&s, g->graph, slots, max, ret);
	else
		err = fdry_fail(FDRY_E_NOKEY, "no graph with key %llu was added; add it first",
				(unsigned long long)key);
	pthread_mutex_unlock(&cap->lock);
	free(s.ledger);
	fdry_buf_release(&s.found);
	fdry_buf_release(&s.graphs);
	return err;
}
