// SPDX-License-Identifier: Apache-2.0
/*
 * read_node.c - the functions that all kinds of nodes use while a graph is read; see read.h.
 *
 * Attributes are compared with those of a fresh node of the same kernel. Each new set of
 * attributes is also tried on a fresh node, in a graph of our own that is never instantiated:
 * the rehearsal. So a seal finds a set that the driver would refuse when a graph is built.
 *
 * Queries to the driver are most of the cost of reading. So all possible attributes are queried
 * only on some nodes of a kernel: a fresh one, the first that is read, and the first with each set
 * of attributes. On all others, the reader queries the attributes that the fresh node or the first
 * node has.
 */
#include "graph/read.h"

#include <inttypes.h>
#include <stdlib.h>

static int word_put(struct fdry_read *rd, uint64_t word, bool whole)
{
	return rd->record ? fdry_buf_put_u64(&rd->record->words, fdry_read_word_key(word, whole))
			  : 0;
}

/* A known word: the graph lists it once, and once more when it is first a whole parameter. */
static int word_record(struct fdry_read *rd, struct fdry_word *w, bool whole)
{
	uint64_t stamp = rd->in->memo.words.reading + whole;

	if (!rd->record || w->stamp >= stamp)
		return 0;
	w->stamp = stamp;
	return word_put(rd, w->word, whole);
}

static int range_record(struct fdry_read *rd, const struct fdry_read_range *range)
{
	uint32_t index;

	return rd->record ? fdry_intern(&rd->record->ranges, range, sizeof(*range), &index, NULL)
			  : 0;
}

int fdry_read_word(struct fdry_read *rd, uint64_t word, bool whole, const char **what,
		   bool *variable)
{
	struct fdry_wordset *words = &rd->in->memo.words;
	struct fdry_word *known = fdry_wordset_find(words, word);
	enum fdry_where where = FDRY_WHERE_OUTSIDE;
	const char *name = "memory that an image does not hold";
	int err;

	*what = NULL;
	*variable = false;
	if (known)
		return word_record(rd, known, whole);
	err = rd->in->where(rd->in->where_arg, word, 0, &where, &name);
	if (err)
		return err;
	if (where == FDRY_WHERE_FREED && !whole) {
		rd->freed = true;
		return word_put(rd, word, whole);
	}
	if (where == FDRY_WHERE_VARIABLE && rd->in->pointers) {
		*variable = true;
		return 0;
	}
	if (where != FDRY_WHERE_NOTHING && where != FDRY_WHERE_REGION) {
		*what = name;
		return 0;
	}
	err = fdry_wordset_add(words, word, words->reading + whole);
	return err ? err : word_put(rd, word, whole);
}

int fdry_read_range(struct fdry_read *rd, const char *what, CUdeviceptr addr, uint64_t bytes)
{
	const char *name = NULL;
	enum fdry_where where = FDRY_WHERE_NOTHING;
	int err = rd->in->where(rd->in->where_arg, addr, bytes, &where, &name);

	if (err)
		return err;
	if (where == FDRY_WHERE_REGION)
		return range_record(rd, &(struct fdry_read_range){ .addr = addr, .bytes = bytes });
	if (where == FDRY_WHERE_NOTHING || !name)
		name = "no memory that the driver knows";
	return fdry_fail(FDRY_E_REFUSED,
			 "%s, %" PRIu64 " bytes at 0x%llx, is %s; use memory of the region", what,
			 bytes, addr, name);
}

static int place_refuse(const char *what, CUdeviceptr addr, uint64_t bytes, bool pageable)
{
	return fdry_fail(
		FDRY_E_REFUSED,
		"%s, %" PRIu64 " bytes at 0x%llx, is %s that no single host tensor holds; keep it "
		"allocated and declare it with fdry_capture_tensor() and FDRY_TENSOR_HOST",
		what, bytes, addr, pageable ? "pageable host memory" : "pinned host memory");
}

int fdry_read_place(struct fdry_read *rd, const char *what, CUmemorytype type, uint64_t bytes,
		    uint64_t *addr)
{
	struct fdry_read_range range = {
		.addr = *addr, .bytes = bytes, .place = *addr, .type = type
	};
	enum fdry_where where = FDRY_WHERE_NOTHING;
	const char *name;
	int err = 0;

	if (rd->in->host)
		rd->in->host(rd->in->where_arg, *addr, bytes, &range.place);
	if (!fdry_host_is(range.place))
		err = rd->in->where(rd->in->where_arg, *addr, bytes, &where, &name);
	if (err)
		return err;
	if (where == FDRY_WHERE_REGION || fdry_host_is(range.place)) {
		*addr = range.place;
		return range_record(rd, &range);
	}
	if (where == FDRY_WHERE_HOST ||
	    (where == FDRY_WHERE_NOTHING && type != CU_MEMORYTYPE_DEVICE))
		return place_refuse(what, *addr, bytes, where == FDRY_WHERE_NOTHING);
	return fdry_read_range(rd, what, *addr, bytes);
}

int fdry_read_array(struct fdry_read *rd, CUgraph graph, CUarray array, uint32_t *number,
		    struct fdry_cuarray *ret)
{
	struct fdry_read_range range = { .addr = (uintptr_t)array, .bytes = (uintptr_t)graph,
					 .type = CU_MEMORYTYPE_ARRAY };
	int err;

	if (!rd->in->array)
		return fdry_fail(FDRY_E_REFUSED,
				 "the CUDA arrays of the program are not known; use linear device "
				 "memory");
	err = rd->in->array(rd->in->where_arg, graph, array, number, ret);
	if (err)
		return err;
	range.place = fdry_cuarray_place(*number, 0);
	return range_record(rd, &range);
}

int fdry_read_kernel(struct fdry_read *rd, const CUDA_KERNEL_NODE_PARAMS *p, uint32_t *ret)
{
	struct fdry_read_handle handle = { p->kern, p->func, p->sharedMemBytes };
	uint32_t index;
	int err = fdry_kernel_set_intern(rd->in->kernels, p->kern, p->func, ret);

	if (err)
		return err;
	fdry_kernel_set_allow_shared(rd->in->kernels, *ret, p->sharedMemBytes);
	if (!rd->record)
		return 0;
	return fdry_intern(&rd->record->kernels, &handle, sizeof(handle), &index, NULL);
}

int fdry_read_event(struct fdry_read *rd, CUevent event, enum fdry_event_use use, uint32_t *ret)
{
	bool is_new = false;
	uint32_t index = 0;
	int err = fdry_intern(&rd->events, &event, sizeof(event), &index, &is_new);

	if (err)
		return err;
	if (is_new) {
		err = fdry_buf_grow(&rd->event_uses, 1, NULL);
		if (err)
			return err;
	}
	rd->event_uses.data[index] |= (uint8_t)use;
	*ret = index;
	return 0;
}

int fdry_read_context(struct fdry_read *rd, CUcontext ctx)
{
	if (ctx && rd->ctx && ctx != rd->ctx)
		return fdry_fail(FDRY_E_REFUSED,
				 "it runs in another context than the nodes before it; "
				 "capture graphs of one context only");
	if (ctx)
		rd->ctx = ctx;
	return 0;
}

int fdry_read_subgraph(struct fdry_read *rd, CUgraph graph, bool child)
{
	struct fdry_read_subgraph s;

	memset(&s, 0, sizeof(s));
	s.graph = graph;
	s.owner = rd->node;
	s.in_child = rd->in_child || child;
	s.in_body = rd->in_body || !child;
	return fdry_buf_put(&rd->subgraphs, &s, sizeof(s));
}

/* --- attributes --- */

/* Add a fresh node with @params to the rehearsal, without shared memory: the kernel's limit may be
 * lower by now. */
static int rehearsal_node(struct fdry_read *rd, const CUDA_KERNEL_NODE_PARAMS *params,
			  CUgraphNode *ret)
{
	CUDA_KERNEL_NODE_PARAMS fresh = *params;
	int err = rd->rehearsal ? 0 : fdry_call(rd->drv, cuGraphCreate, &rd->rehearsal, 0);

	fresh.sharedMemBytes = 0;
	return err ? err
		   : fdry_call(rd->drv, cuGraphAddKernelNode_v2, ret, rd->rehearsal, NULL, 0,
			       &fresh);
}

/* The attributes of one kernel's nodes. */
struct kernel_attrs {
	struct fdry_attr_values fresh;
	uint32_t ids; /* bit i: the fresh node or the first node that was read has attribute i */
	bool known;
};

/* Query a fresh node of a kernel, and @node, the first one that is read. */
static int kernel_attrs_query(struct fdry_read *rd, CUgraphNode node,
			      const CUDA_KERNEL_NODE_PARAMS *params, struct kernel_attrs *ret)
{
	struct fdry_attr_values now;
	CUgraphNode fresh;
	int err = rehearsal_node(rd, params, &fresh);

	if (err)
		return err;
	err = fdry_attrs_read(rd->drv, fresh, FDRY_ATTRS_ALL, &ret->fresh);
	if (err)
		return err;
	err = fdry_attrs_read(rd->drv, node, FDRY_ATTRS_ALL, &now);
	if (err)
		return err;
	ret->ids = ret->fresh.readable | now.readable;
	ret->known = true;
	return 0;
}

/* Find or query the attributes of the nodes of the kernel with print @number. *ret is valid until
 * the next call. */
static int kernel_attrs_get(struct fdry_read *rd, CUgraphNode node,
			    const CUDA_KERNEL_NODE_PARAMS *params, uint32_t number,
			    const struct kernel_attrs **ret)
{
	struct fdry_buf *fresh = &rd->in->memo.fresh;
	size_t have = fresh->len / sizeof(struct kernel_attrs);
	struct kernel_attrs *k;
	int err = 0;

	if (number >= have)
		err = fdry_buf_grow(fresh, (number + 1 - have) * sizeof(*k), NULL);
	if (err)
		return err;
	k = (struct kernel_attrs *)fresh->data + number;
	if (!k->known)
		err = kernel_attrs_query(rd, node, params, k);
	*ret = k;
	return err;
}

/* Set @attrs on a fresh node: it must then read as @now does. */
static int attrs_rehearse(struct fdry_read *rd, const CUDA_KERNEL_NODE_PARAMS *params,
			  struct fdry_span attrs, const struct fdry_attr_values *now)
{
	struct fdry_attr_values again;
	CUgraphNode node;
	int err = rehearsal_node(rd, params, &node);

	if (err)
		return err;
	err = fdry_attrs_set(rd->drv, node, attrs);
	if (err)
		return err;
	err = fdry_attrs_read(rd->drv, node, FDRY_ATTRS_ALL, &again);
	if (err)
		return err;
	if (memcmp(again.value, now->value, sizeof(again.value)))
		return fdry_fail(FDRY_E_REFUSED,
				 "its attributes have other values after they were set again; "
				 "use another driver");
	return 0;
}

/* Rehearse the attributes @attrs of @node, once for each kernel that has them. */
static int attrs_verify(struct fdry_read *rd, CUgraphNode node,
			const CUDA_KERNEL_NODE_PARAMS *params, uint32_t number,
			struct fdry_span attrs)
{
	struct fdry_intern *rehearsed = &rd->in->memo.rehearsed;
	struct fdry_attr_values all;
	uint32_t index;
	int err;

	rd->key.len = 0;
	err = fdry_buf_put_u32(&rd->key, number);
	if (err)
		return err;
	err = fdry_buf_put(&rd->key, attrs.data, attrs.len);
	if (err)
		return err;
	if (fdry_intern_find(rehearsed, rd->key.data, rd->key.len, &index))
		return 0;
	err = fdry_attrs_read(rd->drv, node, FDRY_ATTRS_ALL, &all);
	if (err)
		return err;
	err = attrs_rehearse(rd, params, attrs, &all);
	if (err)
		return err;
	return fdry_intern(rehearsed, rd->key.data, rd->key.len, &index, NULL);
}

/* An access policy window must lie in the region. */
static int window_check(struct fdry_read *rd, uint32_t count)
{
	const struct fdry_graph_attr *a;
	uint64_t bytes;

	for (a = rd->attrs; a < rd->attrs + count; a++) {
		bytes = fdry_get64(a->value + 8);
		if (a->id == FDRY_ATTR_ACCESS_POLICY_WINDOW && bytes)
			return fdry_read_range(rd, "its access policy window", fdry_get64(a->value),
					       bytes);
	}
	return 0;
}

/* Add the attributes that the driver does not report. */
static void unreported_add(struct fdry_read *rd, CUgraphNode node, struct fdry_attr_values *now)
{
	static const uint32_t ids[] = { FDRY_UNREPORTED_CLUSTER, FDRY_UNREPORTED_NVLINK };
	struct fdry_unreported_attrs a;
	unsigned int i;

	if (!rd->in->attributes)
		return;
	rd->in->attributes(rd->in->where_arg, node, &a);
	for (i = 0; i < 2; i++)
		if (a.set[i] && !(now->readable & 1u << ids[i]))
			fdry_attr_value_put(ids[i], &a.value[i], now);
}

int fdry_read_attrs(struct fdry_read *rd, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params,
		    uint32_t kernel, uint32_t *count)
{
	const struct kernel_attrs *k;
	struct fdry_attr_values now;
	struct fdry_span attrs;
	uint32_t number;
	int err = fdry_read_print(rd->in, kernel, &number);

	if (err)
		return err;
	err = kernel_attrs_get(rd, node, params, number, &k);
	if (err)
		return err;
	err = fdry_attrs_read(rd->drv, node, k->ids, &now);
	if (err)
		return err;
	unreported_add(rd, node, &now);
	err = fdry_attrs_diff(&k->fresh, &now, rd->attrs, count);
	if (err || !*count)
		return err;
	err = window_check(rd, *count);
	if (err)
		return err;
	attrs = (struct fdry_span){ (const uint8_t *)rd->attrs, *count * sizeof(rd->attrs[0]) };
	return attrs_verify(rd, node, params, number, attrs);
}
