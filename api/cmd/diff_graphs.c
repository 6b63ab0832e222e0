// SPDX-License-Identifier: Apache-2.0
/*
 * diff_graphs.c - compares the graphs of two images, by key: nodes in canonical order, and edges.
 *
 * Kernels are compared by rank, since each image numbers its kernels differently. Two graph
 * objects with one id can call different kernels, and two with different ids can be equal.
 */
#include <stdlib.h>
#include <string.h>

#include "api/cmd/diff.h"

#define SHOWN 8 /* nodes per graph that are described without --long */

/* Ways in which nodes differ; the first that applies is counted. X(JSON key, text) */
#define FIELDS(X) \
	X(kinds, "the kind") \
	X(kernels, "the kernel") \
	X(launches, "the launch configuration") \
	X(attributes, "attributes") \
	X(arguments, "arguments") \
	X(operations, "the operation")

enum field {
#define X(member, text) FIELD_##member,
	FIELDS(X)
#undef X
	FIELD_COUNT
};

static const char *const field_keys[] = {
#define X(member, text) #member,
	FIELDS(X)
#undef X
};
static const char *const field_texts[] = {
#define X(member, text) text,
	FIELDS(X)
#undef X
};

/* Two graphs with one key. */
struct pair {
	struct diff *d;
	const struct fdry_mf_graph *entry[2];
	struct cmd_graph_object g[2];
	uint64_t fields[FIELD_COUNT]; /* nodes that differ in this field */
	uint64_t edges[2];            /* that only one side has */
	struct fdry_buf lines;        /* of the text */
	uint32_t shown;
};

/* --- nodes --- */

static bool spans_differ(struct fdry_span a, struct fdry_span b)
{
	return a.len != b.len || (a.len && memcmp(a.data, b.data, a.len));
}

/* Returns FIELD_COUNT if they are equal. */
static enum field kernels_differ(const struct diff *d, const struct fdry_node_kernel *a,
				 const struct fdry_node_kernel *b)
{
	if (a->kernel >= d->im[0].m.n_kernels || b->kernel >= d->im[1].m.n_kernels ||
	    d->kernels[0].rank[a->kernel] != d->kernels[1].rank[b->kernel])
		return FIELD_kernels;
	if (memcmp(&a->launch, &b->launch, sizeof(a->launch)))
		return FIELD_launches;
	if (spans_differ(a->attrs, b->attrs))
		return FIELD_attributes;
	return spans_differ(a->args, b->args) || a->args_short != b->args_short ? FIELD_arguments
										  : FIELD_COUNT;
}

static enum field nodes_differ(const struct diff *d, const struct fdry_node *a,
			       const struct fdry_node *b)
{
	bool differ = false;

	if (a->kind != b->kind)
		return FIELD_kinds;
	if (a->kind == FDRY_NODE_KERNEL)
		return kernels_differ(d, &a->kernel, &b->kernel);
	if (a->kind == FDRY_NODE_MEMSET)
		differ = memcmp(&a->memset, &b->memset, sizeof(a->memset));
	else if (a->kind == FDRY_NODE_MEMCPY)
		differ = memcmp(&a->memcpy, &b->memcpy, sizeof(a->memcpy));
	else if (a->kind == FDRY_NODE_RECORD || a->kind == FDRY_NODE_WAIT)
		differ = a->event != b->event;
	else if (a->kind == FDRY_NODE_MEMOP)
		differ = spans_differ(a->memops, b->memops);
	else if (a->kind == FDRY_NODE_HOST)
		differ = spans_differ(a->host, b->host);
	else if (a->kind == FDRY_NODE_SIGNAL || a->kind == FDRY_NODE_AWAIT)
		differ = spans_differ(a->semaphores, b->semaphores);
	else if (a->kind == FDRY_NODE_CHILD)
		differ = memcmp(&a->child, &b->child, sizeof(a->child));
	else if (a->kind == FDRY_NODE_CONDITIONAL)
		differ = memcmp(&a->conditional, &b->conditional, sizeof(a->conditional));
	return differ ? FIELD_operations : FIELD_COUNT;
}

static const char *node_name(const struct diff *d, int side, const struct fdry_node *n)
{
	const struct fdry_manifest *m = &d->im[side].m;

	if (n->kind == FDRY_NODE_KERNEL && n->kernel.kernel < m->n_kernels)
		return fdry_manifest_str(m, m->kernels[n->kernel.kernel].name);
	return fdry_node_ops(n->kind)->name;
}

/* Append the differing range of arguments: ", bytes 8 to 15: 00c0ffee..., 00decade...". */
static int arguments_text(struct fdry_span a, struct fdry_span b, struct fdry_buf *out)
{
	size_t i, from = 0, to = a.len, n;
	int err;

	while (from < a.len && a.data[from] == b.data[from])
		from++;
	while (to > from && a.data[to - 1] == b.data[to - 1])
		to--;
	n = to - from < 16 ? to - from : 16;
	err = fdry_buf_printf(out, ", bytes %zu to %zu: ", from, to - 1);
	for (i = 0; i < n && !err; i++)
		err = fdry_buf_printf(out, "%02x", a.data[from + i]);
	err = err ?: fdry_buf_printf(out, "%s, ", to - from > n ? "..." : "");
	for (i = 0; i < n && !err; i++)
		err = fdry_buf_printf(out, "%02x", b.data[from + i]);
	return err ?: fdry_buf_printf(out, "%s", to - from > n ? "..." : "");
}

static int node_text(struct pair *p, uint32_t index, enum field field, const struct fdry_node *a,
		     const struct fdry_node *b)
{
	int err;

	if (p->shown++ >= SHOWN && !cmd_has(p->d->a, LONG))
		return 0;
	err = fdry_buf_printf(&p->lines, "    node %u %s: %s", index,
			      cmd_text(node_name(p->d, 0, a)), field_texts[field]);
	if (err)
		return err;
	if (field == FIELD_arguments && a->kernel.args.len == b->kernel.args.len)
		err = arguments_text(a->kernel.args, b->kernel.args, &p->lines);
	else if (field == FIELD_arguments)
		err = fdry_buf_printf(&p->lines, ", %zu bytes, %zu bytes", a->kernel.args.len,
				      b->kernel.args.len);
	else if (field == FIELD_kinds || field == FIELD_kernels)
		err = fdry_buf_printf(&p->lines, ", %s", cmd_text(node_name(p->d, 1, b)));
	return err ?: fdry_buf_printf(&p->lines, "\n");
}

static int nodes_walk(struct pair *p, struct fdry_graph_cursor *a, struct fdry_graph_cursor *b)
{
	struct fdry_node x, y;
	enum field field;
	int err = 0;

	while (!err && fdry_graph_next(a, &x) && fdry_graph_next(b, &y)) {
		field = nodes_differ(p->d, &x, &y);
		if (field == FIELD_COUNT)
			continue;
		p->fields[field]++;
		err = node_text(p, a->node - 1, field, &x, &y);
	}
	return err;
}

static int nodes_compare(struct pair *p)
{
	struct fdry_graph_cursor a, b;
	int err = fdry_graph_cursor_init(&p->g[0].view, &a);

	if (err)
		return err;
	err = fdry_graph_cursor_init(&p->g[1].view, &b);
	if (err)
		goto out_release;
	err = nodes_walk(p, &a, &b);
	fdry_graph_cursor_release(&b);
out_release:
	fdry_graph_cursor_release(&a);
	return err;
}

/* --- edges --- */

static int edge_order(const struct pair *p, const struct fdry_graph_edge *a,
		      const struct fdry_graph_edge *b)
{
	CUgraphEdgeData x, y;

	if (a->from != b->from)
		return a->from < b->from ? -1 : 1;
	if (a->to != b->to)
		return a->to < b->to ? -1 : 1;
	x = fdry_graph_edge_data_at(&p->g[0].view, a->index);
	y = fdry_graph_edge_data_at(&p->g[1].view, b->index);
	return memcmp(&x, &y, sizeof(x));
}

static void edges_compare(struct pair *p)
{
	struct fdry_graph_edges a = { .v = &p->g[0].view }, b = { .v = &p->g[1].view };
	struct fdry_graph_edge x, y;
	bool more_a = fdry_graph_edge_next(&a, &x), more_b = fdry_graph_edge_next(&b, &y);
	int order;

	while (more_a || more_b) {
		order = !more_a ? 1 : !more_b ? -1 : edge_order(p, &x, &y);
		p->edges[0] += order < 0;
		p->edges[1] += order > 0;
		if (order <= 0)
			more_a = fdry_graph_edge_next(&a, &x);
		if (order >= 0)
			more_b = fdry_graph_edge_next(&b, &y);
	}
}

/* --- reporting --- */

static void entry_text(const struct diff *d, int side, const struct fdry_mf_graph *g, char *ret,
		       size_t len)
{
	const char *name = fdry_manifest_str(&d->im[side].m, g->name);

	snprintf(ret, len, "%s%s%s%u nodes", *name ? "'" : "", name, *name ? "' " : "", g->nodes);
}

static bool pair_differs(const struct pair *p)
{
	uint64_t n = p->edges[0] + p->edges[1];
	int i;

	for (i = 0; i < FIELD_COUNT; i++)
		n += p->fields[i];
	return n || p->entry[0]->nodes != p->entry[1]->nodes ||
	       strcmp(fdry_manifest_str(&p->d->im[0].m, p->entry[0]->name),
		      fdry_manifest_str(&p->d->im[1].m, p->entry[1]->name));
}

static void pair_report(struct pair *p)
{
	char name[32], text[2][512];
	struct diff *d = p->d;
	int i;

	snprintf(name, sizeof(name), "graph %llu", (unsigned long long)p->entry[0]->key);
	for (i = 0; i < 2; i++)
		entry_text(d, i, p->entry[i], text[i], sizeof(text[i]));
	diff_begin(d, DIFF_CHANGED, name, text[0], text[1]);
	for (i = 0; i < FIELD_COUNT; i++) {
		diff_number(d, field_keys[i], p->fields[i]);
		if (p->fields[i])
			diff_more(d, "%s of %llu node%s", field_texts[i],
				  (unsigned long long)p->fields[i], cmd_plural(p->fields[i]));
	}
	diff_number(d, "edges_removed", p->edges[0]);
	diff_number(d, "edges_added", p->edges[1]);
	if (p->edges[0] || p->edges[1])
		diff_more(d, "edges: %llu gone, %llu new", (unsigned long long)p->edges[0],
			  (unsigned long long)p->edges[1]);
	if (p->lines.len && !cmd_has(d->a, JSON) && !cmd_has(d->a, QUIET))
		printf("%s%s", (const char *)p->lines.data,
		       p->shown > SHOWN && !cmd_has(d->a, LONG) ? "    ...\n" : "");
	diff_end(d);
}

static int pair_compare(struct pair *p)
{
	int err = nodes_compare(p);

	if (err)
		return err;
	edges_compare(p);
	if (pair_differs(p))
		pair_report(p);
	return 0;
}

static int graph_both(struct diff *d, const struct fdry_mf_graph *a, const struct fdry_mf_graph *b)
{
	struct pair p = { .d = d, .entry = { a, b } };
	int err = cmd_graph_open(d->reader, &a->oid, &p.g[0]);

	if (err)
		return err;
	err = cmd_graph_open(d->reader, &b->oid, &p.g[1]);
	if (err)
		goto out_close;
	err = pair_compare(&p);
	cmd_graph_close(&p.g[1]);
out_close:
	cmd_graph_close(&p.g[0]);
	fdry_buf_release(&p.lines);
	return err;
}

static int graph_found(struct diff *d, int64_t i, int64_t j)
{
	const struct fdry_mf_graph *a = i < 0 ? NULL : &d->im[0].m.graphs[i],
				   *b = j < 0 ? NULL : &d->im[1].m.graphs[j];
	char name[32], text[512];

	if (a && b)
		return graph_both(d, a, b);
	snprintf(name, sizeof(name), "graph %llu", (unsigned long long)(a ? a : b)->key);
	entry_text(d, a ? 0 : 1, a ? a : b, text, sizeof(text));
	diff_begin(d, a ? DIFF_REMOVED : DIFF_ADDED, name, a ? text : "", a ? "" : text);
	diff_end(d);
	return 0;
}

static int graph_order(const struct diff *d, uint32_t i, uint32_t j)
{
	uint64_t a = d->im[0].m.graphs[i].key, b = d->im[1].m.graphs[j].key;

	return (a > b) - (a < b);
}

int diff_graphs(struct diff *d)
{
	const struct diff_list l = {
		"graphs", { d->im[0].m.n_graphs, d->im[1].m.n_graphs }, graph_order, graph_found
	};

	return diff_list(d, &l);
}
