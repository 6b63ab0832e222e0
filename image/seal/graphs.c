// SPDX-License-Identifier: Apache-2.0
/*
 * graphs.c - reads the graphs of a seal and stores their objects.
 *
 * A graph that nothing can have changed since an earlier seal is kept: it is neither read nor
 * hashed again.
 */
#include <stdlib.h>

#include "image/seal/seal.h"

#define KEPT_MAX \
	(256ull << 20) /* bytes of host memory for data of graphs that are kept from seal to seal */

static int graph_cmp(const void *a, const void *b)
{
	uint64_t x = (*(struct fdry_capture_graph *const *)a)->key;
	uint64_t y = (*(struct fdry_capture_graph *const *)b)->key;

	return (x > y) - (x < y);
}

int fdry_seal_graphs_list(struct fdry_seal *s)
{
	struct fdry_capture_graph *g = fdry_array(s->cap->graphs, struct fdry_capture_graph);
	size_t i, n = fdry_array_count(s->cap->graphs, struct fdry_capture_graph);
	int err = 0;

	for (i = 0; i < n && !err; i++, g++)
		if (!g->skip)
			err = fdry_buf_put(&s->graphs, &g, sizeof(g));
	if (err)
		return err;
	if (!s->graphs.len)
		return fdry_fail(FDRY_E_STATE, "there is no graph to seal; %s",
				 n ? "fdry_capture_graph_skip() left out all"
				   : "add one with fdry_capture_graph()");
	qsort(s->graphs.data, s->graphs.len / sizeof(g), sizeof(g), graph_cmp);
	return fdry_seal_rng_uses_list(s);
}

/* Store a graph object, and check the draws of the graph. */
static int graph_store(struct fdry_seal *s, const struct fdry_capture_graph *g,
		       struct fdry_span bytes, struct fdry_mf_graph *mf)
{
	struct fdry_graph_view view;
	int err = fdry_graph_view_init(bytes, &view);

	if (err)
		return err;
	mf->nodes = view.header.nodes;
	err = fdry_seal_rng_uses(s, g, &view);
	if (err)
		return err;
	return fdry_writer_add_object(s->writer, FDRY_OBJECT_GRAPH, bytes.data, bytes.len, NULL, 0,
				      &mf->oid);
}

/* Does the store have the object of a kept graph already? Then the graph is not hashed, and
 * it is decoded only if the audit needs its arguments again. */
static int kept_has(struct fdry_seal *s, const struct fdry_capture_graph *g,
		    struct fdry_mf_graph *mf, bool *ret)
{
	const struct fdry_graph_kept *kept = &g->kept;

	*ret = false;
	if (!g->fixed || !kept->has_oid || g->random || s->rng_uses.len)
		return 0;
	mf->oid = kept->oid;
	mf->nodes = fdry_get32(kept->object.data + offsetof(struct fdry_graph_header, nodes));
	return fdry_writer_has_object(s->writer, FDRY_OBJECT_GRAPH, kept->object.len, &kept->oid,
				      ret);
}

static int graph_put(struct fdry_seal *s, struct fdry_capture_graph *g, struct fdry_span bytes)
{
	struct fdry_mf_graph mf = { .key = g->key };
	bool has;
	int err = kept_has(s, g, &mf, &has);

	if (err)
		return err;
	if (!has)
		err = graph_store(s, g, bytes, &mf);
	if (err)
		return err;
	g->kept.oid = mf.oid;
	g->kept.has_oid = g->fixed;
	err = fdry_manifest_add_str(&s->w, g->name, &mf.name);
	if (err)
		return err;
	s->report.graphs++;
	s->report.nodes += mf.nodes;
	s->report.graph_bytes += bytes.len;
	err = fdry_buf_put(&s->w.graphs, &mf, sizeof(mf));
	return err ? err : fdry_seal_audit_graph(s, g, bytes);
}

static int graph_seal(struct fdry_seal *s, struct fdry_graph_reader *rd,
		      struct fdry_capture_graph *g)
{
	struct fdry_buf once = { 0 };
	const struct fdry_buf *bytes = g->fixed ? &g->kept.object : &once;
	bool has = g->kept.object.len != 0;
	int err;

	s->events.len = s->graph_pointers.len = 0;
	err = g->fixed ? fdry_graph_reread(rd, g->graph, &g->kept)
		       : fdry_graph_read(rd, g->graph, &once);
	if (err)
		goto out_release;
	err = graph_put(s, g, (struct fdry_span){ bytes->data, bytes->len }) ?:
	      fdry_seal_graph_events(s, g->fixed ? &g->kept.events : &s->events) ?:
	      fdry_seal_graph_pointers(s, g->fixed ? &g->kept.pointers : &s->graph_pointers);
out_release:
	fdry_buf_release(&once);
	if (has)
		fdry_seal_spent(s, kept_graphs);
	else
		fdry_seal_spent(s, read_graphs);
	return err ? fdry_fail_at(err, "graph %llu '%s'", (unsigned long long)g->key, g->name) : 0;
}

/* Find the module variables that arguments point to. If one is unknown, read its graph again: the
 * reader then refuses the pointer, and names the node. */
static int args_find(struct fdry_seal *s, struct fdry_graph_reader *rd,
		     struct fdry_capture_graph *const *graphs)
{
	const struct fdry_capture_graph *g;
	struct fdry_buf object = { 0 };
	uint32_t unknown;
	int err = fdry_seal_args_find(s, &unknown);

	if (err || unknown == UINT32_MAX)
		return err;
	g = graphs[unknown];
	rd->pointers = NULL;
	err = fdry_graph_read(rd, g->graph, &object);
	fdry_buf_release(&object);
	if (!err)
		err = fdry_fail(FDRY_E_STATE, "the memory that its arguments point to was freed "
				"while the seal ran; keep it allocated");
	return fdry_fail_at(err, "graph %llu '%s'", (unsigned long long)g->key, g->name);
}

/* Prepare what is kept of graphs for this seal. The words of the last seal serve kept graphs alone,
 * and each may cost a question to the driver. A graph that is left out must ask when it is sealed
 * again. Return the bytes that are kept of such graphs. */
static size_t kept_prepare(struct fdry_seal *s)
{
	struct fdry_capture_graph *g = fdry_array(s->cap->graphs, struct fdry_capture_graph);
	size_t i, n = fdry_array_count(s->cap->graphs, struct fdry_capture_graph), bytes = 0;
	bool any = false;

	for (i = 0; i < n; i++, g++)
		if (g->skip) {
			g->kept.ask = true;
			bytes += fdry_graph_kept_bytes(&g->kept);
		} else {
			any |= g->kept.object.len != 0;
		}
	if (!any)
		fdry_wordset_release(&s->cap->memo.words);
	return bytes;
}

static int conditional_find(void *arg, CUgraphNode node, struct fdry_conditional *ret)
{
	const struct fdry_hook *hook = ((struct fdry_seal *)arg)->cap->hook;

	return fdry_interposer_result(hook, hook->conditional(node, ret));
}

static void attributes_find(void *arg, CUgraphNode node, struct fdry_unreported_attrs *ret)
{
	((struct fdry_seal *)arg)->cap->hook->attributes(node, ret);
}

static struct fdry_graph_reader reader_of(struct fdry_seal *s)
{
	return (struct fdry_graph_reader){
		.drv = s->cap->drv,
		.kernels = s->kernels,
		.where = fdry_seal_ptr,
		.where_arg = s,
		.host = fdry_seal_host,
		.array = fdry_seal_array,
		.conditional = conditional_find,
		.attributes = attributes_find,
		.functions = fdry_array(s->cap->functions, struct fdry_host_function),
		.nfunctions = fdry_array_count(s->cap->functions, struct fdry_host_function),
		.semaphores = fdry_array(s->cap->semaphores, struct fdry_semaphore),
		.nsemaphores = fdry_array_count(s->cap->semaphores, struct fdry_semaphore),
		.events = &s->events,
		.pointers = &s->graph_pointers,
	};
}

int fdry_seal_args_again(struct fdry_seal *s)
{
	struct fdry_capture_graph *const *g = fdry_array(s->graphs, struct fdry_capture_graph *);
	size_t i, n = fdry_array_count(s->graphs, struct fdry_capture_graph *);
	struct fdry_graph_reader rd = reader_of(s);
	struct fdry_buf object = { 0 };
	int err = 0;

	if (s->heap.start == s->heap.end && !fdry_seal_functions_in_args(s))
		return 0;
	for (i = 0; i < n && !err; i++) {
		err = fdry_graph_read(&rd, g[i]->graph, &object);
		fdry_buf_release(&object);
		if (err)
			err = fdry_fail_at(err, "graph %llu '%s'", (unsigned long long)g[i]->key,
					   g[i]->name);
	}
	fdry_graph_memo_release(&rd.memo);
	return err;
}

int fdry_seal_graphs(struct fdry_seal *s)
{
	struct fdry_graph_reader rd = reader_of(s);
	struct fdry_capture_graph **g = fdry_array(s->graphs, struct fdry_capture_graph *);
	size_t i, n = fdry_array_count(s->graphs, struct fdry_capture_graph *);
	size_t kept = kept_prepare(s);
	int err = 0;

	fdry_graph_memo_adopt(&rd, &s->cap->memo);
	fdry_seal_spent(s, words);
	for (i = 0; i < n; i++) {
		err = graph_seal(s, &rd, g[i]);
		kept += fdry_graph_kept_bytes(&g[i]->kept);
		if (kept > KEPT_MAX)
			fdry_graph_kept_release(&g[i]->kept);
		if (err)
			goto out_yield;
		fdry_seal_progress(s, FDRY_SEAL_GRAPHS, i + 1, n);
	}
	err = args_find(s, &rd, g) ?: fdry_seal_events(s);
out_yield:
	fdry_graph_memo_yield(&rd, !err, &s->cap->memo);
	return err;
}
