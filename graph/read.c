// SPDX-License-Identifier: Apache-2.0
/*
 * read.c - from a driver graph to a graph object.
 *
 * List nodes and edges, put the nodes into canonical order (edge.h), read each through
 * the ops of its kind, encode. What cannot be restored exactly is refused on the way,
 * and the place is put in front of the reason here.
 *
 * Attributes are compared with those of a fresh node of the same kernel, and each new set
 * of them is tried on a fresh node: in a graph of our own, the rehearsal, which is never
 * instantiated. So a set that the driver would not take back is found at seal time.
 *
 * Asking the driver is what reading costs. Every id that an attribute can have is asked of
 * three nodes of a kernel: a fresh one, the first that is read, and the first with each set
 * of attributes; of all others only the ids that one of the first two answered.
 */
#include "graph/read.h"

#include <inttypes.h>
#include <stdlib.h>

#include "graph/listing.h"

/* --- what the kinds of nodes ask for --- */

int fdry_read_word(struct fdry_read *rd, uint64_t word, bool whole, const char **what)
{
	enum fdry_where where = FDRY_WHERE_OUTSIDE;
	const char *name = "memory that an image does not hold";
	uint32_t index;
	int err;

	*what = NULL;
	if (fdry_intern_find(&rd->in->memo.words, &word, sizeof(word), &index))
		return 0;
	err = rd->in->where(rd->in->where_arg, word, 0, &where, &name);
	if (err)
		return err;
	if (where == FDRY_WHERE_FREED && !whole)
		return 0;
	if (where == FDRY_WHERE_NOTHING || where == FDRY_WHERE_REGION)
		return fdry_intern(&rd->in->memo.words, &word, sizeof(word), &index, NULL);
	*what = name;
	return 0;
}

int fdry_read_range(struct fdry_read *rd, const char *what, CUdeviceptr addr, uint64_t bytes)
{
	const char *name = "no memory that the driver knows";
	enum fdry_where where = FDRY_WHERE_NOTHING;
	int err = rd->in->where(rd->in->where_arg, addr, bytes, &where, &name);

	if (!err && where == FDRY_WHERE_NOTHING)
		name = "no memory that the driver knows";
	if (!err && where != FDRY_WHERE_REGION)
		err = fdry_fail(FDRY_E_REFUSED, "%s, %" PRIu64 " bytes at 0x%llx, is %s; use memory of the region",
				what, bytes, addr, name);
	return err;
}

static int place_refuse(const char *what, CUdeviceptr addr, uint64_t bytes, bool pageable)
{
	return fdry_fail(FDRY_E_REFUSED, "%s, %" PRIu64 " bytes at 0x%llx, is %s that no one host tensor holds; keep it allocated and "
			 "declare it with fdry_capture_tensor() and FDRY_TENSOR_HOST", what, bytes, addr,
			 pageable ? "pageable host memory" : "pinned host memory");
}

int fdry_read_place(struct fdry_read *rd, const char *what, CUmemorytype type, uint64_t bytes, uint64_t *addr)
{
	enum fdry_where where = FDRY_WHERE_NOTHING;
	uint64_t place = *addr;
	const char *name;
	int err = rd->in->where(rd->in->where_arg, *addr, bytes, &where, &name);

	if (err || where == FDRY_WHERE_REGION)
		return err;
	if (rd->in->host)
		rd->in->host(rd->in->where_arg, *addr, bytes, &place);
	if (fdry_host_is(place)) {
		*addr = place;
		return 0;
	}
	if (where == FDRY_WHERE_HOST || (where == FDRY_WHERE_NOTHING && type != CU_MEMORYTYPE_DEVICE))
		return place_refuse(what, *addr, bytes, where == FDRY_WHERE_NOTHING);
	return fdry_read_range(rd, what, *addr, bytes);
}

int fdry_read_event(struct fdry_read *rd, CUevent event, enum fdry_event_use use, uint32_t *ret)
{
	bool is_new = false;
	uint32_t index = 0;
	void *added;
	int err = fdry_intern(&rd->events, &event, sizeof(event), &index, &is_new);

	if (!err && is_new)
		err = fdry_buf_grow(&rd->event_uses, 1, &added);
	if (err)
		return err;
	rd->event_uses.data[index] |= (uint8_t)use;
	*ret = index;
	return 0;
}

/* --- attributes --- */

/* A fresh node like the one with @params. */
static int rehearsal_node(struct fdry_read *rd, const CUDA_KERNEL_NODE_PARAMS *params, CUgraphNode *ret)
{
	int err = 0;

	if (!rd->rehearsal)
		err = fdry_call(rd->drv, cuGraphCreate, &rd->rehearsal, 0);
	if (!err)
		err = fdry_call(rd->drv, cuGraphAddKernelNode_v2, ret, rd->rehearsal, NULL, 0, params);
	return err;
}

/* What is known about the attributes of a kernel's nodes. */
struct kernel_attrs {
	struct fdry_attr_values fresh;
	uint32_t ids; /* that some node of it answers */
};

/* Look at a fresh node of a kernel, and at the first one that is read. */
static int kernel_attrs_new(struct fdry_read *rd, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params, uint32_t kernel)
{
	struct fdry_graph_memo *memo = &rd->in->memo;
	struct fdry_attr_values now;
	struct kernel_attrs *k;
	CUgraphNode fresh;
	uint32_t index;
	void *added;
	int err = rehearsal_node(rd, params, &fresh);

	if (!err)
		err = fdry_buf_grow(&memo->fresh, sizeof(*k), &added);
	if (err)
		return err;
	k = added;
	err = fdry_attrs_read(rd->drv, fresh, FDRY_ATTRS_ALL, &k->fresh);
	if (!err)
		err = fdry_attrs_read(rd->drv, node, FDRY_ATTRS_ALL, &now);
	if (!err)
		err = fdry_intern(&memo->kernels, &kernel, sizeof(kernel), &index, NULL);
	if (err)
		memo->fresh.len -= sizeof(*k);
	else
		k->ids = k->fresh.readable | now.readable;
	return err;
}

/* *ret is valid until the next call. */
static int kernel_attrs_get(struct fdry_read *rd, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params, uint32_t kernel,
			    const struct kernel_attrs **ret)
{
	const struct fdry_graph_memo *memo = &rd->in->memo;
	uint32_t index = memo->kernels.count;
	int err = 0;

	if (!fdry_intern_find(&memo->kernels, &kernel, sizeof(kernel), &index))
		err = kernel_attrs_new(rd, node, params, kernel);
	if (!err)
		*ret = (const struct kernel_attrs *)memo->fresh.data + index;
	return err;
}

/* Try rd->attrs on a fresh node: it must then read as @now does. */
static int attrs_rehearse(struct fdry_read *rd, const CUDA_KERNEL_NODE_PARAMS *params, struct fdry_span attrs,
			  const struct fdry_attr_values *now)
{
	struct fdry_attr_values *again;
	CUgraphNode node;
	int err = rehearsal_node(rd, params, &node);

	if (!err)
		err = fdry_attrs_set(rd->drv, node, attrs);
	if (err)
		return err;
	again = malloc(sizeof(*again));
	if (!again)
		return fdry_nomem();
	err = fdry_attrs_read(rd->drv, node, FDRY_ATTRS_ALL, again);
	if (!err && memcmp(again->value, now->value, sizeof(again->value)))
		err = fdry_fail(FDRY_E_REFUSED, "its attributes read differently after they were set again; use another driver");
	free(again);
	return err;
}

/* Rehearse a set of attributes, which @node has, once for each kernel that has it. */
static int attrs_verify(struct fdry_read *rd, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params, uint32_t kernel,
			uint32_t count)
{
	struct fdry_span attrs = { (const uint8_t *)rd->attrs, count * sizeof(rd->attrs[0]) };
	struct fdry_intern *rehearsed = &rd->in->memo.rehearsed;
	struct fdry_attr_values all;
	uint32_t index;
	int err;

	rd->key.len = 0;
	err = fdry_buf_put_u32(&rd->key, kernel);
	if (!err)
		err = fdry_buf_put(&rd->key, attrs.data, attrs.len);
	if (err || fdry_intern_find(rehearsed, rd->key.data, rd->key.len, &index))
		return err;
	err = fdry_attrs_read(rd->drv, node, FDRY_ATTRS_ALL, &all);
	if (!err)
		err = attrs_rehearse(rd, params, attrs, &all);
	return err ? err : fdry_intern(rehearsed, rd->key.data, rd->key.len, &index, NULL);
}

static int window_check(struct fdry_read *rd, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (rd->attrs[i].id == FDRY_ATTR_ACCESS_POLICY_WINDOW && fdry_get64(rd->attrs[i].value + 8))
			return fdry_read_range(rd, "its access policy window", fdry_get64(rd->attrs[i].value),
					       fdry_get64(rd->attrs[i].value + 8));
	return 0;
}

int fdry_read_attrs(struct fdry_read *rd, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params, uint32_t kernel,
		    uint32_t *count)
{
	const struct kernel_attrs *k;
	struct fdry_attr_values now;
	int err = kernel_attrs_get(rd, node, params, kernel, &k);

	if (!err)
		err = fdry_attrs_read(rd->drv, node, k->ids, &now);
	if (!err)
		err = fdry_attrs_diff(&k->fresh, &now, rd->attrs, count);
	if (!err && *count)
		err = window_check(rd, *count);
	if (!err && *count)
		err = attrs_verify(rd, node, params, kernel, *count);
	return err;
}

/* --- the graph --- */

/* Renumber nodes and edges: node order[i] comes i-th. @place: memory for the reverse of @order. */
static void listing_apply(struct fdry_listing *l, CUgraphNode *nodes, const uint32_t *order, uint32_t *place)
{
	uint32_t i;

	for (i = 0; i < l->nnodes; i++) {
		nodes[i] = l->nodes[order[i]];
		place[order[i]] = i;
	}
	for (i = 0; i < l->nedges; i++) {
		l->edges[i].from = place[l->edges[i].from];
		l->edges[i].to = place[l->edges[i].to];
	}
	free(l->nodes);
	l->nodes = nodes;
}

/* Put nodes and edges into canonical order. */
static int listing_order(struct fdry_listing *l)
{
	CUgraphNode *nodes = calloc(l->nnodes + 1, sizeof(*nodes));
	uint32_t *order = calloc(2 * (size_t)l->nnodes + 1, sizeof(*order));
	int err = nodes && order ? fdry_edges_order(l->edges, l->nedges, l->nnodes, order) : fdry_nomem();

	if (err)
		free(nodes);
	else
		listing_apply(l, nodes, order, order + l->nnodes);
	free(order);
	return err;
}

static int node_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_graph_enc *enc)
{
	struct fdry_node node;
	CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
	int err = fdry_call(rd->drv, cuGraphNodeGetType, handle, &type);

	memset(&node, 0, sizeof(node));
	if (!err)
		err = fdry_node_kind_of(type, &node.kind);
	if (!err)
		err = fdry_node_ops(node.kind)->read(rd, handle, &node);
	if (err && node.kind)
		err = fdry_fail_at(err, "%s", fdry_node_ops(node.kind)->name);
	if (!err)
		err = fdry_graph_enc_node(enc, &node);
	return err;
}

static int nodes_read(struct fdry_read *rd, const struct fdry_listing *l, struct fdry_graph_enc *enc)
{
	uint32_t i;
	int err;

	for (i = 0; i < l->nnodes; i++) {
		err = node_read(rd, l->nodes[i], enc);
		if (err)
			return fdry_fail_at(err, "node %u", i);
	}
	return 0;
}

/* The node that uses event @index, for messages. */
static uint32_t event_user(const struct fdry_graph_enc *enc, uint32_t index)
{
	const struct fdry_buf *kinds = &enc->column[FDRY_GSEC_KIND], *events = &enc->column[FDRY_GSEC_EVENT];
	uint32_t i, n = 0;

	for (i = 0; i < kinds->len; i++) {
		if (kinds->data[i] != FDRY_NODE_RECORD && kinds->data[i] != FDRY_NODE_WAIT)
			continue;
		if (fdry_get32(events->data + 4 * (size_t)n++) == index)
			break;
	}
	return i;
}

static int events_check(const struct fdry_read *rd, const struct fdry_graph_enc *enc)
{
	uint32_t i;

	for (i = 0; i < rd->events.count; i++)
		if (rd->event_uses.data[i] != (FDRY_EVENT_RECORDED | FDRY_EVENT_AWAITED))
			return fdry_fail(FDRY_E_REFUSED, "node %u: its event is %s within the graph, so it belongs to the application; "
					 "record it and wait for it outside of the graph", event_user(enc, i),
					 rd->event_uses.data[i] & FDRY_EVENT_RECORDED ? "recorded but not waited for" :
											"waited for but not recorded");
	return 0;
}

static int graph_encode(struct fdry_read *rd, struct fdry_listing *l, struct fdry_buf *ret)
{
	struct fdry_graph_enc enc = { 0 };
	int err = nodes_read(rd, l, &enc);

	if (!err)
		err = events_check(rd, &enc);
	if (!err)
		err = fdry_graph_enc_edges(&enc, l->edges, l->nedges);
	if (!err)
		err = fdry_graph_enc_finish(&enc, ret);
	fdry_graph_enc_release(&enc);
	return err;
}

static void read_release(struct fdry_read *rd)
{
	/* Not through fdry_call(): the sentence of a failure stays. */
	if (rd->rehearsal)
		fdry_call_raw(rd->drv, cuGraphDestroy, rd->rehearsal);
	fdry_intern_release(&rd->events);
	fdry_buf_release(&rd->event_uses);
	fdry_buf_release(&rd->key);
	fdry_buf_release(&rd->args);
}

int fdry_graph_read(struct fdry_graph_reader *in, CUgraph graph, struct fdry_buf *ret)
{
	struct fdry_read rd = { .in = in, .drv = in->drv };
	struct fdry_listing l = { 0 };
	int err = fdry_listing_init(in->drv, graph, &l);

	if (!err)
		err = listing_order(&l);
	if (!err)
		err = graph_encode(&rd, &l, ret);
	read_release(&rd);
	fdry_listing_release(&l);
	return err;
}

void fdry_graph_reader_release(struct fdry_graph_reader *rd)
{
	fdry_intern_release(&rd->memo.words);
	fdry_intern_release(&rd->memo.kernels);
	fdry_buf_release(&rd->memo.fresh);
	fdry_intern_release(&rd->memo.rehearsed);
}
