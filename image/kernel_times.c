// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_times.c - measures graphs and their kernels; see foundry/kernel_times.h.
 *
 * A graph is built a second time with marks: its nodes are a chain, and an event is recorded before
 * and after each. So a kernel runs alone, and the difference of its two events is its time with
 * about the cost of one event. Marks cannot stand between the nodes of a graph that waits for
 * something of its own or of others, so such a graph is left out.
 */
#include <stdlib.h>

#include "arch/stream.h"
#include "graph/subgraph.h"
#include "image/builder.h"
#include "image/exec.h"
#include "image/image_host.h"
#include "image/random.h"
#include "image/replays.h"
#include "image/selftest.h"
#include "lib/opts.h"

#define REPLAYS 7u
#define SEED 1u /* of the values of external tensors */

/* The times of one interval. */
struct samples {
	float ms[REPLAYS];
};

struct measuring {
	struct fdry_image *img;
	uint32_t graph; /* its position */
	const struct fdry_graph_view *view;
	struct fdry_buf kernels; /* struct fdry_kernel_time each */
	struct fdry_buf starts;  /* size_t each: the marks before these kernels */
	CUevent *marks;
	size_t nmarks; /* made so far */
	struct fdry_graph_built built; /* with marks */
	CUgraphExec exec;
	CUevent before, after;        /* a launch of the graph as it is; of the primary context */
	struct samples launch, alone, empty;
	struct samples *samples; /* of the kernels */
};

/* --- what can be measured --- */

static bool waits(const struct fdry_node *node)
{
	struct fdry_graph_memop op;
	size_t at;

	for (at = 0; fdry_span_at(node->memops, at, sizeof(op)); at += sizeof(op)) {
		memcpy(&op, node->memops.data + at, sizeof(op));
		if (op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
		    op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
			return true;
	}
	return false;
}

/* Why a graph with this node is left out; NULL if it need not be. */
static const char *node_reason(const struct fdry_node *node)
{
	switch (node->kind) {
	case FDRY_NODE_HOST:
		return "it has a host node, which calls a function of the program";
	case FDRY_NODE_RECORD:
	case FDRY_NODE_WAIT:
		return "it has an event, which may be awaited before it is recorded";
	case FDRY_NODE_SIGNAL:
	case FDRY_NODE_AWAIT:
		return "it has a semaphore, which orders work of others";
	case FDRY_NODE_CONDITIONAL:
		return "it has a conditional node, whose nodes run any number of times";
	case FDRY_NODE_MEMOP:
		return waits(node) ? "it has a memory operation that waits for a value" : NULL;
	default:
		return NULL;
	}
}

/* List the graph's kernel nodes. @why: the first reason to leave the graph out, or NULL. */
static int kernels_list(struct measuring *m, const char **why)
{
	struct fdry_kernel_time t = { 0 };
	struct fdry_graph_cursor c;
	struct fdry_node node;
	uint32_t in = 0;
	size_t start;
	int err = fdry_graph_cursor_init(m->view, &c);

	*why = NULL;
	if (err)
		return err;
	while (!err && !*why && fdry_graph_next(&c, &node)) {
		*why = node_reason(&node);
		if (node.kind != FDRY_NODE_KERNEL)
			continue;
		t.node = c.node - 1;
		t.kernel = node.kernel.kernel;
		t.name = fdry_manifest_str(&m->img->m, m->img->m.kernels[t.kernel].name);
		in = fdry_graph_of(m->view, in, t.node);
		start = fdry_graph_mark(in, t.node);
		err = fdry_buf_put(&m->kernels, &t, sizeof(t)) ?:
		      fdry_buf_put(&m->starts, &start, sizeof(start));
	}
	fdry_graph_cursor_release(&c);
	return err;
}

/* --- the graph with marks; the image's context is current --- */

static int marks_make(struct measuring *m)
{
	size_t n = fdry_graph_marks(m->view);
	int err = 0;

	m->marks = calloc(n, sizeof(*m->marks));
	m->samples = calloc(fdry_array_count(m->kernels, struct fdry_kernel_time) + 1,
			    sizeof(*m->samples));
	if (!m->marks || !m->samples)
		return fdry_nomem();
	for (; m->nmarks < n && !err; m->nmarks += !err)
		err = fdry_call(m->img->drv, cuEventCreate, &m->marks[m->nmarks],
				CU_EVENT_DEFAULT);
	return err;
}

static int marked_make(struct measuring *m)
{
	struct fdry_graph_builder builder = fdry_exec_builder(m->img, &m->img->execs[m->graph]);
	int err = marks_make(m);

	builder.marks = m->marks;
	return err ?: fdry_graph_build(&builder, m->view, &m->built) ?:
	       fdry_call(m->img->drv, cuGraphInstantiateWithFlags, &m->exec, m->built.graph,
			 fdry_graph_exec_flags(m->view));
}

static int marked_build(struct measuring *m)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(m->img, &mode);

	if (err)
		return err;
	fdry_ticket_take(&m->img->ticket);
	err = marked_make(m);
	fdry_ticket_return(&m->img->ticket);
	fdry_image_leave(m->img, &mode);
	return err;
}

static int elapsed(const struct measuring *m, size_t mark, size_t end, float *ret)
{
	return fdry_call(m->img->drv, cuEventElapsedTime, ret, m->marks[mark], m->marks[end]);
}

/* Read the times of replay @i, which has ended. */
static int marks_read(struct measuring *m, unsigned int i)
{
	const size_t *start = fdry_array(m->starts, size_t);
	size_t k, n = fdry_array_count(m->starts, size_t),
	       first = fdry_graph_mark(0, 0), last = fdry_graph_mark(0, fdry_graph_end(m->view, 0));
	int err = elapsed(m, 0, first, &m->empty.ms[i]) ?:
		  elapsed(m, first, last, &m->alone.ms[i]);

	for (k = 0; k < n && !err; k++)
		err = elapsed(m, start[k], start[k] + 1, &m->samples[k].ms[i]);
	return err;
}

/* --- replays --- */

/* Replay the graph with marks once, as replay @i; the first one only warms up, and is read over. */
static int marked_replay(struct measuring *m, unsigned int i)
{
	struct fdry_launch l = { .graph = m->graph, .exec = m->exec };
	CUstreamCaptureMode mode;
	int err = fdry_image_restore(m->img, NULL) ?: fdry_exec_launch(m->img, &l) ?:
		  fdry_image_synchronize(m->img, NULL) ?:
		  fdry_image_enter(m->img, &mode);

	if (err)
		return err;
	err = marks_read(m, i);
	fdry_image_leave(m->img, &mode);
	return err;
}

static int event_record(const struct measuring *m, CUevent event)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter_primary(m->img, &mode);

	if (err)
		return err;
	err = fdry_call(m->img->drv, cuEventRecord, event, NULL);
	fdry_image_leave(m->img, &mode);
	return err;
}

/* Launch the graph as it is, behind another launch of it from the content as it was sealed: while
 * that one runs, the driver gets all that follows, so the time is that of the GPU alone. */
static int replay(struct measuring *m, unsigned int i)
{
	uint64_t key = m->img->m.graphs[m->graph].key;
	CUstreamCaptureMode mode;
	int err = fdry_image_restore(m->img, NULL) ?: fdry_image_launch(m->img, key, NULL) ?:
		  event_record(m, m->before) ?: fdry_image_launch(m->img, key, NULL) ?:
		  event_record(m, m->after) ?: fdry_image_synchronize(m->img, NULL) ?:
		  fdry_image_enter_primary(m->img, &mode);

	if (err)
		return err;
	err = fdry_call(m->img->drv, cuEventElapsedTime, &m->launch.ms[i], m->before, m->after);
	fdry_image_leave(m->img, &mode);
	return err;
}

static int replays(struct measuring *m)
{
	unsigned int i;
	int err = replay(m, 0) ?: marked_replay(m, 0);

	for (i = 0; i < REPLAYS && !err; i++)
		err = replay(m, i);
	for (i = 0; i < REPLAYS && !err; i++)
		err = marked_replay(m, i);
	return err;
}

/* --- results --- */

static int by_time(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

static double median(struct samples *s)
{
	qsort(s->ms, REPLAYS, sizeof(s->ms[0]), by_time);
	return (double)s->ms[REPLAYS / 2];
}

static void times_give(struct measuring *m, const char *why, fdry_graph_times_fn fn, void *arg)
{
	const struct fdry_mf_graph *g = &m->img->m.graphs[m->graph];
	struct fdry_kernel_time *kernels = fdry_array(m->kernels, struct fdry_kernel_time);
	size_t i, n = fdry_array_count(m->kernels, struct fdry_kernel_time);
	struct fdry_graph_times times = { .key = g->key,
					  .name = fdry_manifest_str(&m->img->m, g->name),
					  .left_out = why };

	if (!why) {
		for (i = 0; i < n; i++)
			kernels[i].ms = median(&m->samples[i]);
		times.launch_ms = median(&m->launch);
		times.alone_ms = median(&m->alone);
		times.empty_ms = median(&m->empty);
		times.kernels = kernels;
		times.nkernels = n;
	}
	fn(arg, &times);
}

static void marked_destroy(struct measuring *m)
{
	const struct fdry_driver *drv = m->img->drv;
	CUstreamCaptureMode mode;
	size_t i;

	if (!m->marks || fdry_image_enter(m->img, &mode))
		return;
	if (m->exec)
		(void)fdry_call_raw(drv, cuGraphExecDestroy, m->exec);
	fdry_graph_built_release(drv, &m->built);
	for (i = 0; i < m->nmarks; i++)
		(void)fdry_call_raw(drv, cuEventDestroy_v2, m->marks[i]);
	fdry_image_leave(m->img, &mode);
}

/* Measure graph @graph; the events of @with are those of launches. */
static int graph_measure(const struct measuring *with, uint32_t graph, fdry_graph_times_fn fn,
			 void *arg)
{
	struct measuring m = *with;
	const char *why = NULL;
	int err;

	m.graph = graph;
	m.view = &m.img->execs[graph].view;
	err = kernels_list(&m, &why);
	if (!err && !why)
		err = marked_build(&m) ?: replays(&m);
	if (!err)
		times_give(&m, why, fn, arg);
	marked_destroy(&m);
	free(m.marks);
	free(m.samples);
	fdry_buf_release(&m.kernels);
	fdry_buf_release(&m.starts);
	return err ? fdry_fail_at(err, "times of graph %llu",
				  (unsigned long long)m.img->m.graphs[graph].key) : 0;
}

/* --- all of it --- */

/* Give external tensors that are not filled the values of a self-test. */
static int externals_fill(struct fdry_image *img)
{
	struct fdry_tensor *list = calloc((size_t)img->m.n_tensors + 1, sizeof(*list));
	struct fdry_selftest t = { img->drv, SEED, list, 0 };
	CUstreamCaptureMode mode;
	uint32_t i;
	int err = list ? fdry_image_enter_primary(img, &mode) : fdry_nomem();

	if (err)
		goto out_free;
	for (i = 0; i < img->m.n_tensors; i++)
		if (img->m.tensors[i].flags & FDRY_TENSOR_EXTERNAL && !img->filled[i])
			fdry_image_tensor_get(img, i, &list[t.n++]);
	err = fdry_selftest_fill(&t, true);
	fdry_image_leave(img, &mode);
	err = err ?: fdry_image_filled(img, NULL);
out_free:
	free(list);
	return err;
}

static int events_make(struct measuring *m)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter_primary(m->img, &mode);

	if (err)
		return err;
	err = fdry_call(m->img->drv, cuEventCreate, &m->before, CU_EVENT_DEFAULT) ?:
	      fdry_call(m->img->drv, cuEventCreate, &m->after, CU_EVENT_DEFAULT);
	fdry_image_leave(m->img, &mode);
	return err;
}

static void events_destroy(struct measuring *m)
{
	CUstreamCaptureMode mode;

	if (!m->before || fdry_image_enter_primary(m->img, &mode))
		return;
	(void)fdry_call_raw(m->img->drv, cuEventDestroy_v2, m->before);
	if (m->after)
		(void)fdry_call_raw(m->img->drv, cuEventDestroy_v2, m->after);
	fdry_image_leave(m->img, &mode);
}

static int graphs_measure(struct fdry_image *img, const uint64_t *keys, size_t n,
			  fdry_graph_times_fn fn, void *arg)
{
	struct measuring m = { .img = img };
	uint32_t graph = 0;
	size_t i;
	int err = externals_fill(img) ?: events_make(&m);

	for (i = 0; i < n && !err; i++) {
		graph = (uint32_t)i;
		err = (keys ? fdry_exec_index(img, keys[i], &graph) : 0) ?:
		      graph_measure(&m, graph, fn, arg);
	}
	events_destroy(&m);
	return err;
}

static int keys_check(const struct fdry_image *img, const uint64_t *keys, size_t n)
{
	uint32_t graph;
	size_t i;
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = fdry_exec_index(img, keys[i], &graph);
	return err;
}

int fdry_image_kernel_times(struct fdry_image *img, const uint64_t *keys, size_t n,
			    fdry_graph_times_fn fn, void *arg)
{
	struct fdry_replays undo;
	int err = fdry_image_check_outside(img) ?: fdry_need(fn);

	if (err)
		return err;
	err = keys ? keys_check(img, keys, n) : 0;
	if (err)
		return fdry_image_fail(img, err);
	fdry_builder_wait(img);
	err = fdry_replays_begin(img, &undo);
	if (!err)
		err = fdry_replays_end(&undo, graphs_measure(img, keys, keys ? n : img->m.n_graphs,
							     fn, arg));
	return fdry_image_fail(img, err);
}
