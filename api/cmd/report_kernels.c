// SPDX-License-Identifier: Apache-2.0
/* report_kernels.c - the kernels of an image by nodes and by bytes, for its page. */
#include <stdlib.h>
#include <string.h>

#include "api/cmd/dot.h"
#include "api/cmd/report.h"

#define ROWS_SHOWN 25u
#define ROWS_MAX 500u

static int graph_count(struct report *r, const struct fdry_mf_graph *g, uint64_t times)
{
	struct cmd_graph_object object;
	struct fdry_graph_cursor c;
	struct fdry_node n;
	int err = cmd_graph_open(r->reader, &g->oid, &object);

	if (err)
		return err;
	err = fdry_graph_cursor_init(&object.view, &c);
	if (err)
		goto out_close;
	while (fdry_graph_next(&c, &n))
		if (n.kind == FDRY_NODE_KERNEL && n.kernel.kernel < r->im.m.n_kernels)
			r->kernels[n.kernel.kernel].nodes += times;
	fdry_graph_cursor_release(&c);
out_close:
	cmd_graph_close(&object);
	return err;
}

/* Each object is read once, however many graphs have it. */
static int graphs_count(struct report *r)
{
	const struct fdry_manifest *m = &r->im.m;
	uint64_t *times = calloc((size_t)m->n_graphs + 1, sizeof(*times));
	uint32_t i, *first = NULL;
	int err = times ? fdry_manifest_graphs_first(m, &first) : fdry_nomem();

	for (i = 0; i < m->n_graphs && !err; i++)
		times[first[i]]++;
	for (i = 0; i < m->n_graphs && !err; i++)
		if (times[i])
			err = graph_count(r, &m->graphs[i], times[i]);
	free(first);
	free(times);
	return err;
}

static int kernel_read(struct report *r, uint32_t i)
{
	const struct fdry_mf_kernel *mk = &r->im.m.kernels[i];
	struct report_kernel *k = &r->kernels[i];
	struct fdry_object_info info;
	struct fdry_buf name = { 0 };
	int err = fdry_store_info(r->s, &r->im.m.objects[mk->object].oid, &info) ?:
		  cmd_short_name(fdry_manifest_str(&r->im.m, mk->name), &name);

	k->index = i;
	k->colour = -1;
	k->name = (char *)name.data;
	if (err)
		return err;
	k->bytes = info.size;
	k->stored = info.stored;
	return 0;
}

static int by_nodes(const void *a, const void *b, void *arg)
{
	const struct report_kernel *kernels = arg, *x = &kernels[*(const uint32_t *)a],
				   *y = &kernels[*(const uint32_t *)b];

	if (x->nodes != y->nodes)
		return x->nodes > y->nodes ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static int by_bytes(const void *a, const void *b, void *arg)
{
	const struct report_kernel *kernels = arg, *x = &kernels[*(const uint32_t *)a],
				   *y = &kernels[*(const uint32_t *)b];

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

int report_kernels_read(struct report *r)
{
	uint32_t i, n = r->im.m.n_kernels;
	int err = 0;

	r->graphs = r->im.m.n_graphs;
	r->nodes = cmd_image_nodes(&r->im.m);
	r->kernels = calloc((size_t)n + 1, sizeof(*r->kernels));
	r->ranked = calloc((size_t)n + 1, sizeof(*r->ranked));
	if (!r->kernels || !r->ranked)
		return fdry_nomem();
	for (i = 0; i < n && !err; i++) {
		r->ranked[i] = i;
		err = kernel_read(r, i);
	}
	err = err ?: graphs_count(r);
	if (err)
		return err;
	qsort_r(r->ranked, n, sizeof(*r->ranked), by_nodes, r->kernels);
	for (i = 0; i < n && i < REPORT_COLOURS; i++)
		r->kernels[r->ranked[i]].colour = (int)i;
	return 0;
}

void report_kernels_release(struct report *r)
{
	uint32_t i;

	for (i = 0; r->kernels && i < r->im.m.n_kernels; i++)
		free(r->kernels[i].name);
	free(r->kernels);
	free(r->ranked);
}

/* --- the tables --- */

static void row(const struct report *r, const struct report_kernel *k, uint64_t nodes,
		uint64_t bytes)
{
	const struct fdry_mf_kernel *mk = &r->im.m.kernels[k->index];
	const char *full = fdry_manifest_str(&r->im.m, mk->name);
	char text[64];

	fprintf(r->f, "<tr><td class=\"name\" title=\"");
	html_text(r->f, full);
	fputs("\"><code>", r->f);
	html_text(r->f, k->name);
	fputs("</code>", r->f);
	if (mk->whole_reason) {
		fputs(" <small>whole cubin: ", r->f);
		html_text(r->f, fdry_manifest_str(&r->im.m, mk->whole_reason));
		fputs("</small>", r->f);
	}
	fputs("</td>", r->f);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)k->nodes);
	html_bar(r->f, "nodes", k->nodes, nodes, text);
	html_bar(r->f, "bytes", k->bytes, bytes, cmd_size(k->bytes).text);
	fprintf(r->f, "<td class=\"num\">%s</td></tr>\n", cmd_size(k->stored).text);
}

static void table(const struct report *r, const uint32_t *order, uint32_t from, uint32_t to)
{
	uint64_t nodes = 0, bytes = 0;
	uint32_t i;

	for (i = 0; i < r->im.m.n_kernels; i++) {
		nodes = r->kernels[i].nodes > nodes ? r->kernels[i].nodes : nodes;
		bytes = r->kernels[i].bytes > bytes ? r->kernels[i].bytes : bytes;
	}
	fputs("<table><thead><tr><th>Kernel</th><th>Nodes</th><th>Code</th>"
	      "<th class=\"num\">At rest</th></tr></thead><tbody>\n",
	      r->f);
	for (i = from; i < to; i++)
		row(r, &r->kernels[order[i]], nodes, bytes);
	fputs("</tbody></table>\n", r->f);
}

void report_kernels(struct report *r)
{
	uint32_t i, n = r->im.m.n_kernels, whole = 0;

	html_section(r->f, "kernels", "Kernels");
	if (!n) {
		fputs("<p class=\"dim\">The image has no kernels.</p>\n", r->f);
		return;
	}
	for (i = 0; i < n; i++)
		whole += r->im.m.kernels[i].whole_reason != 0;
	fprintf(r->f,
		"<p class=\"dim\">%u kernels in %u objects; %u are slices of their cubins. Kernels "
		"of the same object show its size.</p>\n<h3>By nodes</h3>\n",
		n, r->im.m.n_objects, n - whole);
	report_list(r, &(struct report_list){ "kernels", n, ROWS_SHOWN, ROWS_MAX, table },
		    r->ranked);
	if (n < 4)
		return;
	qsort_r(r->ranked, n, sizeof(*r->ranked), by_bytes, r->kernels);
	fputs("<h3>By bytes of code</h3>\n", r->f);
	table(r, r->ranked, 0, n < 10 ? n : 10);
	qsort_r(r->ranked, n, sizeof(*r->ranked), by_nodes, r->kernels);
}
