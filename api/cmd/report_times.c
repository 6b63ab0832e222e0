// SPDX-License-Identifier: Apache-2.0
/* report_times.c - loads an image on the GPU, measures its kernels, and shows them by time, for its
 * page. */
#include <stdlib.h>
#include <string.h>

#include "api/cmd/report.h"
#include "foundry.h"

#define ROWS_SHOWN 25u
#define ROWS_MAX 500u
#define GRAPHS_MAX 2000u

/* A kernel in all graphs that were measured. */
struct kernel_sum {
	uint64_t launches;
	double ms;
};

/* A graph, in the order of the manifest. */
struct graph_sum {
	char *left_out; /* NULL: it was measured */
	double launch_ms, alone_ms, empty_ms, kernels_ms;
};

struct report_times {
	struct fdry_buf kernels; /* struct kernel_sum each, by index as far as any was launched */
	struct fdry_buf graphs;  /* struct graph_sum each */
	int err;                 /* of the function that gathers them */
};

/* --- measuring --- */

static int kernel_add(struct report_times *t, const struct fdry_kernel_time *k, double *total)
{
	const struct kernel_sum none = { 0 };
	struct kernel_sum *sum;
	int err = 0;

	while (fdry_array_count(t->kernels, struct kernel_sum) <= k->kernel && !err)
		err = fdry_buf_put(&t->kernels, &none, sizeof(none));
	if (err)
		return err;
	sum = &fdry_array(t->kernels, struct kernel_sum)[k->kernel];
	sum->launches++;
	sum->ms += k->ms;
	*total += k->ms;
	return 0;
}

static void graph_add(void *arg, const struct fdry_graph_times *g)
{
	struct report_times *t = arg;
	struct graph_sum sum = { .launch_ms = g->launch_ms, .alone_ms = g->alone_ms,
				 .empty_ms = g->empty_ms };
	size_t i;

	if (t->err)
		return;
	for (i = 0; i < g->nkernels && !t->err; i++)
		t->err = kernel_add(t, &g->kernels[i], &sum.kernels_ms);
	if (g->left_out && !t->err) {
		sum.left_out = strdup(g->left_out);
		t->err = sum.left_out ? 0 : fdry_nomem();
	}
	t->err = t->err ?: fdry_buf_put(&t->graphs, &sum, sizeof(sum));
	if (t->err)
		free(sum.left_out);
}

int report_times_measure(struct report *r, const struct fdry_oid *oid)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_image *img;
	int err;

	r->measured = calloc(1, sizeof(*r->measured));
	if (!r->measured)
		return fdry_nomem();
	err = fdry_image_load(r->s, fdry_oid_hex(oid, hex), NULL, &img);
	if (err)
		return err;
	err = fdry_image_kernel_times(img, NULL, 0, graph_add, r->measured);
	fdry_image_unload(img);
	return err ?: r->measured->err;
}

void report_times_release(struct report *r)
{
	struct graph_sum *g;
	size_t i;

	if (!r->measured)
		return;
	g = fdry_array(r->measured->graphs, struct graph_sum);
	for (i = 0; i < fdry_array_count(r->measured->graphs, struct graph_sum); i++)
		free(g[i].left_out);
	fdry_buf_release(&r->measured->kernels);
	fdry_buf_release(&r->measured->graphs);
	free(r->measured);
}

/* --- the section --- */

static struct kernel_sum sum_of(const struct report *r, uint32_t kernel)
{
	const struct report_times *t = r->measured;

	return kernel < fdry_array_count(t->kernels, struct kernel_sum)
		       ? fdry_array(t->kernels, struct kernel_sum)[kernel]
		       : (struct kernel_sum){ 0 };
}

static int by_time(const void *a, const void *b, void *arg)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	double t = sum_of(arg, x).ms, u = sum_of(arg, y).ms;

	if (t > u || t < u)
		return t > u ? -1 : 1;
	return x < y ? -1 : x > y;
}

static double kernels_ms(const struct report *r)
{
	double ms = 0;
	uint32_t i;

	for (i = 0; i < r->im.m.n_kernels; i++)
		ms += sum_of(r, i).ms;
	return ms;
}

static void number(const struct report *r, const char *fmt, double value)
{
	fputs("<td class=\"num\">", r->f);
	html_format(r->f, fmt, value);
	fputs("</td>", r->f);
}

static void kernel_row(const struct report *r, uint32_t kernel, double most, double all)
{
	struct kernel_sum sum = sum_of(r, kernel);
	char text[32];

	fputs("<tr><td class=\"name\"><code>", r->f);
	html_text(r->f, r->kernels[kernel].name);
	fputs("</code></td>", r->f);
	snprintf(text, sizeof(text), "%.4f ms", sum.ms);
	html_bar(r->f, "time", (uint64_t)(sum.ms * 1e6), (uint64_t)(most * 1e6), text);
	number(r, "%.1f %%", all > 0 ? 100 * sum.ms / all : 0);
	number(r, "%.0f", (double)sum.launches);
	number(r, "%.4f ms", sum.launches ? sum.ms / (double)sum.launches : 0);
	fputs("</tr>\n", r->f);
}

static void kernel_table(const struct report *r, const uint32_t *order, uint32_t from, uint32_t to)
{
	double all = kernels_ms(r), most = 0;
	uint32_t i;

	for (i = 0; i < r->im.m.n_kernels; i++)
		most = sum_of(r, i).ms > most ? sum_of(r, i).ms : most;
	fputs("<table><thead><tr><th>Kernel</th><th>Time</th><th class=\"num\">Share</th>"
	      "<th class=\"num\">Launches</th><th class=\"num\">One launch</th></tr></thead>"
	      "<tbody>\n",
	      r->f);
	for (i = from; i < to; i++)
		kernel_row(r, order[i], most, all);
	fputs("</tbody></table>\n", r->f);
}

static int kernels(const struct report *r)
{
	uint32_t i, n = r->im.m.n_kernels, *order = calloc((size_t)n + 1, sizeof(*order));

	if (!order)
		return fdry_nomem();
	for (i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), by_time, (void *)r);
	fputs("<h3>Kernels by time</h3>\n<p class=\"dim\">The sum over all graphs, each replayed "
	      "once.</p>\n",
	      r->f);
	report_list(r,
		    &(struct report_list){ "kernels", n, ROWS_SHOWN, ROWS_MAX, kernel_table },
		    order);
	free(order);
	return 0;
}

static void graph_row(const struct report *r, const struct fdry_mf_graph *g,
		      const struct graph_sum *sum)
{
	const char *name = fdry_manifest_str(&r->im.m, g->name);

	fprintf(r->f, "<tr><td class=\"name\">Graph %llu%s", (unsigned long long)g->key,
		*name ? ", " : "");
	html_text(r->f, name);
	if (sum->left_out) {
		fputs(" <small>not measured: ", r->f);
		html_text(r->f, sum->left_out);
		fputs("</small></td><td></td><td></td><td></td><td></td></tr>\n", r->f);
		return;
	}
	fputs("</td>", r->f);
	number(r, "%.4f ms", sum->launch_ms);
	number(r, "%.4f ms", sum->alone_ms);
	number(r, "%.4f ms", sum->kernels_ms);
	number(r, "%.4f ms", sum->empty_ms);
	fputs("</tr>\n", r->f);
}

static void graphs(const struct report *r)
{
	const struct graph_sum *sum = fdry_array(r->measured->graphs, struct graph_sum);
	uint32_t i, n = r->im.m.n_graphs, listed = n < GRAPHS_MAX ? n : GRAPHS_MAX;

	fputs("<h3>Graphs</h3>\n<table><thead><tr><th>Graph</th><th class=\"num\">Launch</th>"
	      "<th class=\"num\">Nodes alone</th><th class=\"num\">Kernels of these</th>"
	      "<th class=\"num\">No node</th></tr></thead><tbody>\n",
	      r->f);
	for (i = 0; i < listed; i++)
		graph_row(r, &r->im.m.graphs[i], &sum[i]);
	fputs("</tbody></table>\n", r->f);
	if (n > listed)
		fprintf(r->f, "<p class=\"dim\">%u further graphs are not listed.</p>\n",
			n - listed);
}

static uint32_t externals(const struct fdry_manifest *m)
{
	uint32_t i, n = 0;

	for (i = 0; i < m->n_tensors; i++)
		n += (m->tensors[i].flags & FDRY_TENSOR_EXTERNAL) != 0;
	return n;
}

int report_times(const struct report *r)
{
	const char *driver = fdry_manifest_fact(&r->im.m, "fdry.gpu.driver");
	uint32_t external = externals(&r->im.m);

	html_section(r->f, "times", "Times");
	if (driver && !strcmp(driver, "software"))
		fputs("<p class=\"dim\">The software driver ran these kernels on the "
		      "processor.</p>\n",
		      r->f);
	fputs("<p class=\"dim\">Medians of replays on the GPU of the machine that wrote this page. "
	      "A launch runs the graph as it is. For the other times, each node ran alone, with "
	      "an event before and after it. A time of a kernel includes what these events cost: "
	      "about as much as the column \"No node\" says, which is the time from one event to "
	      "the next with nothing between them.</p>\n",
	      r->f);
	if (external)
		fprintf(r->f,
			"<p class=\"dim\">The image has %u external tensor%s. Nobody filled %s, so "
			"%s numbers from a seed, or zeros.</p>\n",
			external, cmd_plural(external), external == 1 ? "it" : "them",
			external == 1 ? "it had" : "they had");
	if (!r->im.m.n_graphs) {
		fputs("<p class=\"dim\">The image has no graphs.</p>\n", r->f);
		return 0;
	}
	graphs(r);
	return r->im.m.n_kernels ? kernels(r) : 0;
}
