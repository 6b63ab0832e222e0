// SPDX-License-Identifier: Apache-2.0
/*
 * events.c - finds events that several graphs use.
 *
 * Event nodes order the launches of graphs that share an event. NCCL does this: each graph waits
 * for the event of the communicator, and records it. The graphs of an image share such events
 * again.
 */
#include <stdlib.h>

#include "image/seal/seal.h"

struct use {
	CUevent event;
	uint32_t graph, index;
};

int fdry_seal_graph_events(struct fdry_seal *s, const struct fdry_buf *events)
{
	struct use u = { .graph = (uint32_t)fdry_array_count(s->w.graphs, struct fdry_mf_graph) -
				  1 };
	size_t n = fdry_array_count(*events, CUevent);
	int err = 0;

	for (; u.index < n && !err; u.index++) {
		u.event = fdry_array(*events, CUevent)[u.index];
		err = fdry_buf_put(&s->event_uses, &u, sizeof(u));
	}
	return err;
}

/* An event: how many graphs use it, and its number + 1 if several do. */
struct count {
	uint32_t graphs, number;
};

static int uses_count(const struct use *u, size_t n, struct fdry_intern *events,
		      struct count *counts)
{
	uint32_t index = 0;
	size_t i;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		err = fdry_intern(events, &u[i].event, sizeof(u[i].event), &index, NULL);
		counts[index].graphs += !err;
	}
	return err;
}

static int shared_put(struct fdry_seal *s, const struct use *u, size_t n,
		      const struct fdry_intern *events, struct count *counts)
{
	struct fdry_mf_event mf = { 0 };
	uint32_t index = 0, numbers = 0;
	size_t i;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		(void)fdry_intern_find(events, &u[i].event, sizeof(u[i].event), &index);
		if (counts[index].graphs < 2)
			continue;
		if (!counts[index].number)
			counts[index].number = ++numbers;
		mf.graph = u[i].graph;
		mf.event = u[i].index;
		mf.number = counts[index].number - 1;
		err = fdry_buf_put(&s->w.events, &mf, sizeof(mf));
	}
	return err;
}

int fdry_seal_events(struct fdry_seal *s)
{
	const struct use *u = fdry_array(s->event_uses, struct use);
	size_t n = fdry_array_count(s->event_uses, struct use);
	struct count *counts = calloc(n + 1, sizeof(*counts));
	struct fdry_intern events = { 0 };
	int err = counts ? uses_count(u, n, &events, counts) : fdry_nomem();

	err = err ?: shared_put(s, u, n, &events, counts);
	fdry_intern_release(&events);
	free(counts);
	return err;
}
