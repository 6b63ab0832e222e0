// SPDX-License-Identifier: Apache-2.0
/*
 * node_event.c - nodes that record an event or wait for one.
 *
 * A node names its event by index. The events belong to the graph and are created when it is built.
 * So the graph must both record every event and wait for it. Any other event also belongs to the
 * application, which could not use the new one. A wait may come before the record: then a launch
 * waits for the launch before it. Graphs that use one event, as those of NCCL do, are built with
 * one: see struct fdry_graph_builder.
 */
#include "graph/build.h"
#include "graph/read.h"
#include "graph/text.h"

static int record_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	CUevent event = NULL;
	int err = fdry_call(rd->drv, cuGraphEventRecordNodeGetEvent, handle, &event);

	return err ? err : fdry_read_event(rd, event, FDRY_EVENT_RECORDED, &ret->event);
}

static int wait_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	CUevent event = NULL;
	int err = fdry_call(rd->drv, cuGraphEventWaitNodeGetEvent, handle, &event);

	return err ? err : fdry_read_event(rd, event, FDRY_EVENT_AWAITED, &ret->event);
}

static int event_put(struct fdry_graph_enc *enc, const struct fdry_node *node)
{
	if (node->event >= FDRY_GRAPH_EVENTS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the graph uses more than %u events; use fewer",
				 FDRY_GRAPH_EVENTS_MAX);
	if (node->event >= enc->events)
		enc->events = node->event + 1;
	return fdry_buf_put_u32(&enc->column[FDRY_GSEC_EVENT], node->event);
}

/* The recorded and awaited events, as bits. They lie on the stack, since a check allocates
 * nothing. */
struct uses {
	uint8_t recorded[FDRY_GRAPH_EVENTS_MAX / 8];
	uint8_t awaited[FDRY_GRAPH_EVENTS_MAX / 8];
};

static void uses_gather(const struct fdry_graph_view *v, struct uses *u)
{
	uint32_t i, n = 0, event;
	uint8_t *bits;

	for (i = 0; i < v->header.nodes; i++) {
		unsigned int kind = v->section[FDRY_GSEC_KIND][i];

		if (kind != FDRY_NODE_RECORD && kind != FDRY_NODE_WAIT)
			continue;
		event = fdry_graph_u32(v, FDRY_GSEC_EVENT, n++);
		bits = kind == FDRY_NODE_RECORD ? u->recorded : u->awaited;
		bits[event / 8] |= (uint8_t)(1u << event % 8);
	}
}

/* One check covers record and wait nodes. */
static int event_check(const struct fdry_graph_view *v)
{
	struct uses u;
	uint32_t i;
	int err = fdry_graph_index_check(v, FDRY_GSEC_EVENT, 0, v->header.events);

	if (err || !v->header.events)
		return err;
	memset(&u, 0, sizeof(u));
	uses_gather(v, &u);
	for (i = 0; i < v->header.events; i++)
		if (!(u.recorded[i / 8] & u.awaited[i / 8] & 1u << i % 8))
			return fdry_fail(FDRY_E_BADIMAGE,
					 "event %u is not both recorded and waited for", i);
	return 0;
}

static void event_get(struct fdry_graph_cursor *c, struct fdry_node *ret)
{
	ret->event = fdry_graph_u32(c->v, FDRY_GSEC_EVENT, c->next[FDRY_NODE_RECORD]++);
}

static int record_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	return fdry_call(b->drv, cuGraphAddEventRecordNode, ret, b->graph, NULL, 0,
			 b->events[node->event]);
}

static int wait_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	return fdry_call(b->drv, cuGraphAddEventWaitNode, ret, b->graph, NULL, 0,
			 b->events[node->event]);
}

static int event_to_text(const struct fdry_node *node, struct fdry_buf *ret)
{
	return fdry_buf_printf(ret, " %u", node->event);
}

static int event_from_text(struct fdry_text *t, struct fdry_node *ret)
{
	return fdry_word_u32(&t->w, "the event", &ret->event);
}

const struct fdry_node_ops fdry_node_record_ops = {
	.name = "record",
	.read = record_read,
	.put = event_put,
	.check = event_check,
	.get = event_get,
	.build = record_build,
	.to_text = event_to_text,
	.from_text = event_from_text,
};

const struct fdry_node_ops fdry_node_wait_ops = {
	.name = "wait",
	.read = wait_read,
	.put = event_put,
	.get = event_get,
	.build = wait_build,
	.to_text = event_to_text,
	.from_text = event_from_text,
};
