// SPDX-License-Identifier: Apache-2.0
/*
 * read.c - from a driver graph to a graph object.
 *
 * The reader lists nodes and edges, puts the nodes into canonical order (edge.h), reads each node
 * through the ops of its kind, and encodes them. It refuses a graph that cannot be restored
 * exactly; the error names the node and the reason.
 */
#include "graph/read.h"

#include <stdlib.h>

#include "graph/codec.h"
#include "graph/listing.h"

/*
 * Put nodes and edges into canonical order: node order[i] comes i-th, so node n comes place[n]-th.
 */
static int listing_order(struct fdry_listing *l)
{
	uint32_t *order = calloc(2 * (size_t)l->nnodes + 1, sizeof(*order)), *place, i;
	CUgraphNode *nodes = calloc(l->nnodes + 1, sizeof(*nodes));
	int err;

	if (!nodes || !order) {
		err = fdry_nomem();
		goto out_free;
	}
	place = order + l->nnodes;
	err = fdry_edges_order(l->edges, l->nedges, l->nnodes, order);
	if (err)
		goto out_free;
	for (i = 0; i < l->nnodes; i++) {
		nodes[i] = l->nodes[order[i]];
		place[order[i]] = i;
	}
	for (i = 0; i < l->nedges; i++) {
		l->edges[i].from = place[l->edges[i].from];
		l->edges[i].to = place[l->edges[i].to];
	}
	memcpy(l->nodes, nodes, l->nnodes * sizeof(*nodes));
out_free:
	free(nodes);
	free(order);
	return err;
}

/* Whether a driver runs such nodes in bodies of conditional nodes. */
static bool in_bodies(enum fdry_node_kind kind)
{
	return kind != FDRY_NODE_RECORD && kind != FDRY_NODE_WAIT && kind != FDRY_NODE_HOST &&
	       kind != FDRY_NODE_MEMOP && kind != FDRY_NODE_SIGNAL && kind != FDRY_NODE_AWAIT;
}

static int node_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_graph_enc *enc)
{
	CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
	const struct fdry_node_ops *ops;
	struct fdry_node node;
	int err = fdry_call(rd->drv, cuGraphNodeGetType, handle, &type);

	if (err)
		return err;
	memset(&node, 0, sizeof(node));
	err = fdry_node_kind_of(type, &node.kind);
	if (err)
		return err;
	ops = fdry_node_ops(node.kind);
	if (rd->in_body && !in_bodies(node.kind))
		return fdry_fail(FDRY_E_REFUSED,
				 "its kind is %s, which a body of a conditional node cannot hold",
				 ops->name);
	err = ops->read(rd, handle, &node);
	if (err)
		return fdry_fail_at(err, "%s", ops->name);
	return fdry_graph_enc_node(enc, &node);
}

/* The node that uses event @index, for messages. */
static uint32_t event_user(const struct fdry_graph_enc *enc, uint32_t index)
{
	const struct fdry_buf *kinds = &enc->column[FDRY_GSEC_KIND],
			      *events = &enc->column[FDRY_GSEC_EVENT];
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
			return fdry_fail(
				FDRY_E_REFUSED,
				"node %u: its event is %s within the graph, so it belongs to the "
				"application; record it and wait for it outside of the graph",
				event_user(enc, i),
				rd->event_uses.data[i] & FDRY_EVENT_RECORDED
					? "recorded but not waited for"
					: "waited for but not recorded");
	return 0;
}

/* Read the nodes of one graph, and append its edges. */
static int nodes_read(struct fdry_read *rd, struct fdry_listing *l, struct fdry_graph_enc *enc,
		      struct fdry_buf *edges)
{
	uint32_t i, first = rd->node;
	int err = listing_order(l);

	if (err)
		return err;
	for (i = 0; i < l->nnodes; i++, rd->node++) {
		err = node_read(rd, l->nodes[i], enc);
		if (err)
			return fdry_fail_at(err, "node %u", i);
	}
	for (i = 0; i < l->nedges; i++) {
		l->edges[i].from += first;
		l->edges[i].to += first;
	}
	return l->nedges ? fdry_buf_put(edges, l->edges, l->nedges * sizeof(*l->edges)) : 0;
}

static int subgraph_read(struct fdry_read *rd, const struct fdry_read_subgraph *s,
			 struct fdry_graph_enc *enc, struct fdry_buf *edges)
{
	struct fdry_listing l = { 0 };
	int err = fdry_graph_enc_subgraph(enc, s->owner);

	if (err)
		return err;
	err = fdry_listing_init(rd->drv, s->graph, &l);
	if (err)
		goto out_release;
	rd->current = s->graph;
	rd->in_child = s->in_child;
	rd->in_body = s->in_body;
	err = nodes_read(rd, &l, enc, edges);
out_release:
	fdry_listing_release(&l);
	return err ? fdry_fail_at(err, "the graph of node %u", s->owner) : 0;
}

/* Reading a graph lists the graphs within it, which are read after it. */
static int subgraphs_read(struct fdry_read *rd, struct fdry_graph_enc *enc, struct fdry_buf *edges)
{
	struct fdry_read_subgraph s;
	size_t at;
	int err;

	for (at = 0; at < rd->subgraphs.len; at += sizeof(s)) {
		memcpy(&s, rd->subgraphs.data + at, sizeof(s));
		err = subgraph_read(rd, &s, enc, edges);
		if (err)
			return err;
	}
	return 0;
}

int fdry_read_listing(struct fdry_read *rd, struct fdry_listing *l, struct fdry_buf *ret)
{
	struct fdry_graph_enc enc = { 0 };
	struct fdry_buf edges = { 0 };
	int err;

	rd->current = rd->graph;
	err = nodes_read(rd, l, &enc, &edges);
	if (err)
		goto out_release;
	err = subgraphs_read(rd, &enc, &edges);
	if (err)
		goto out_release;
	err = fdry_read_conditions(rd, &enc) ?: events_check(rd, &enc);
	if (err)
		goto out_release;
	err = fdry_graph_enc_edges(&enc, (struct fdry_edge *)edges.data,
				   (uint32_t)(edges.len / sizeof(struct fdry_edge)));
	if (err)
		goto out_release;
	err = fdry_graph_enc_finish(&enc, ret);
out_release:
	fdry_buf_release(&edges);
	fdry_graph_enc_release(&enc);
	return err;
}

void fdry_read_release(struct fdry_read *rd)
{
	/* fdry_call() would replace the message of an earlier failure. */
	if (rd->rehearsal)
		fdry_call_raw(rd->drv, cuGraphDestroy, rd->rehearsal);
	fdry_intern_release(&rd->events);
	fdry_buf_release(&rd->event_uses);
	fdry_buf_release(&rd->subgraphs);
	fdry_buf_release(&rd->condition_graphs);
	fdry_buf_release(&rd->pointers);
	fdry_buf_release(&rd->key);
	fdry_buf_release(&rd->args);
}

int fdry_graph_read(struct fdry_graph_reader *in, CUgraph graph, struct fdry_buf *ret)
{
	struct fdry_read rd = { .in = in, .drv = in->drv, .graph = graph };
	struct fdry_listing l = { 0 };
	struct fdry_buf object = { 0 };
	int err = fdry_listing_init(in->drv, graph, &l);

	if (err)
		goto out_release;
	err = fdry_read_listing(&rd, &l, &object);
	if (err)
		goto out_release;
	if (in->events)
		err = fdry_buf_put(in->events, rd.events.bytes.data, rd.events.bytes.len);
	if (!err && in->pointers)
		err = fdry_buf_put(in->pointers, rd.pointers.data, rd.pointers.len);
	if (err)
		fdry_buf_release(&object);
	else
		*ret = object;
out_release:
	fdry_read_release(&rd);
	fdry_listing_release(&l);
	return err;
}
