// SPDX-License-Identifier: Apache-2.0
/*
 * report_graphs.c - draws the graphs of an image as SVG, for its page.
 *
 * A small graph has boxes with names. In a larger one, nodes are squares in the colour of their
 * kernel, and a pointer that rests on one shows its name. The page stays small: beyond TITLED_MAX
 * nodes there are no names, and nodes of a colour are one path; beyond DRAWN_MAX, graphs are listed
 * and not drawn.
 */
#include <stdlib.h>
#include <string.h>

#include "api/cmd/layout.h"
#include "api/cmd/report.h"

#define BOXES_MAX 28u /* nodes of a graph with boxes */
#define BOX_LANES_MAX 8u
#define TITLED_MAX 20000u
#define DRAWN_MAX 300000u
#define OPEN_GRAPHS 3u /* pictures that are seen without a click */
#define OPEN_NODES 2000u
#define LISTED_MAX 2000u

/* Sizes of a picture, in its units. */
struct scale {
	uint32_t width, height; /* of a node */
	uint32_t dx, dy;        /* from a column to the next, and from a lane to the next */
	uint32_t row;           /* between rows */
	uint32_t per_row;
	bool boxes;
};

static const struct scale boxes = { 160, 38, 184, 50, 26, 6, true },
			  squares = { 10, 10, 15, 15, 14, 72, false },
			  dots = { 6, 6, 9, 9, 6, 120, false };

#define MARGIN 10u

/* One graph while it is drawn. */
struct drawing {
	struct report *r;
	const struct scale *s;
	struct layout l;
	const struct fdry_graph_view *v;
	uint8_t *colour; /* of each node: an index of colours */
};

/* The colours: REPORT_COLOURS kernels, then these. */
enum { OTHER = REPORT_COLOURS, COPY, SET, GRAPH, WAIT, COLOURS };
static const char *const fills[COLOURS] = { "f0", "f1", "f2", "f3", "f4", "f5", "f6",
					    "f7", "fo", "fc", "fs", "fg", "fw" };

static uint8_t colour_of(const struct report *r, const struct fdry_node *n)
{
	int own;

	switch (n->kind) {
	case FDRY_NODE_KERNEL:
		own = n->kernel.kernel < r->im.m.n_kernels
			      ? r->kernels[n->kernel.kernel].colour
			      : -1;
		return own < 0 ? OTHER : (uint8_t)own;
	case FDRY_NODE_MEMCPY:
		return COPY;
	case FDRY_NODE_MEMSET:
		return SET;
	case FDRY_NODE_CHILD:
	case FDRY_NODE_CONDITIONAL:
		return GRAPH;
	default:
		return WAIT;
	}
}

/* --- places --- */

static uint32_t x_of(const struct drawing *d, uint32_t node)
{
	return MARGIN + d->l.column[node] % d->l.per_row * d->s->dx;
}

static uint32_t row_y(const struct drawing *d, uint32_t row)
{
	return MARGIN + d->l.row_top[row] * d->s->dy + row * d->s->row;
}

static uint32_t y_of(const struct drawing *d, uint32_t node)
{
	return row_y(d, layout_row(&d->l, node)) + d->l.lane[node] * d->s->dy;
}

/* --- nodes --- */

static void node_words(const struct drawing *d, const struct fdry_node *n, char *ret, size_t len)
{
	const struct report *r = d->r;

	switch (n->kind) {
	case FDRY_NODE_KERNEL:
		snprintf(ret, len, "%s",
			 n->kernel.kernel < r->im.m.n_kernels ? r->kernels[n->kernel.kernel].name
							      : "kernel");
		break;
	case FDRY_NODE_MEMSET:
		snprintf(ret, len, "memset of %s",
			 cmd_size(n->memset.width * n->memset.element_size *
				  n->memset.height).text);
		break;
	case FDRY_NODE_MEMCPY:
		snprintf(ret, len, "memcpy of %s",
			 cmd_size(n->memcpy.width * n->memcpy.height * n->memcpy.depth).text);
		break;
	default:
		snprintf(ret, len, "%s", fdry_node_ops(n->kind)->name);
	}
}

/* "391", "2x3", "1x1x4": without ones at the end. */
static void dimensions(const uint32_t n[3], char *ret, size_t len)
{
	if (n[2] > 1)
		snprintf(ret, len, "%ux%ux%u", n[0], n[1], n[2]);
	else if (n[1] > 1)
		snprintf(ret, len, "%ux%u", n[0], n[1]);
	else
		snprintf(ret, len, "%u", n[0]);
}

static void launch_words(const struct fdry_node *n, char *ret, size_t len)
{
	const struct fdry_graph_launch *l = &n->kernel.launch;
	char grid[40], block[40];

	*ret = '\0';
	if (n->kind != FDRY_NODE_KERNEL)
		return;
	dimensions(l->grid, grid, sizeof(grid));
	dimensions(l->block, block, sizeof(block));
	snprintf(ret, len, "%s of %s", grid, block);
}

static void title(const struct drawing *d, const struct fdry_node *n, uint32_t node)
{
	char words[160], launch[80];

	node_words(d, n, words, sizeof(words));
	launch_words(n, launch, sizeof(launch));
	fprintf(d->r->f, "<title>%u: ", node);
	html_text(d->r->f, words);
	fprintf(d->r->f, "%s%s</title>", *launch ? ", " : "", launch);
}

/* Cut a name to @max bytes. A name in namespaces loses these first. */
static void fitting(char *name, size_t max)
{
	const char *last = strlen(name) > max ? strrchr(name, ':') : NULL;

	if (last && last[1])
		memmove(name, last + 1, strlen(last));
	if (strlen(name) <= max)
		return;
	max -= 2;
	while (max && (name[max] & 0xC0) == 0x80) /* no part of a character */
		max--;
	strcpy(name + max, "..");
}

static void box(const struct drawing *d, const struct fdry_node *n, uint32_t node)
{
	uint32_t x = x_of(d, node), y = y_of(d, node);
	char words[256], shown[512], launch[80];
	FILE *f = d->r->f;

	node_words(d, n, words, sizeof(words));
	launch_words(n, launch, sizeof(launch));
	snprintf(shown, sizeof(shown), "%s", cmd_text(words));
	fitting(shown, 20);
	fitting(launch, 25);
	fprintf(f,
		"<g><rect class=\"box\" x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" rx=\"5\" "
		"stroke=\"var(--line)\"/><rect class=\"%s\" x=\"%u\" y=\"%u\" width=\"5\" "
		"height=\"%u\" rx=\"2\"/><text x=\"%u\" y=\"%u\">",
		x, y, d->s->width, d->s->height, fills[d->colour[node]], x, y, d->s->height, x + 12,
		y + 16);
	html_text(f, shown);
	fprintf(f, "</text><text class=\"dimmed\" x=\"%u\" y=\"%u\">%s</text>", x + 12, y + 30,
		launch);
	title(d, n, node);
	fputs("</g>\n", f);
}

static void square(const struct drawing *d, const struct fdry_node *n, uint32_t node)
{
	fprintf(d->r->f, "<path class=\"%s\" d=\"M%u %uh%uv%uh-%uz\">", fills[d->colour[node]],
		x_of(d, node), y_of(d, node), d->s->width, d->s->height, d->s->width);
	title(d, n, node);
	fputs("</path>\n", d->r->f);
}

static int nodes_titled(const struct drawing *d)
{
	struct fdry_graph_cursor c;
	struct fdry_node n;
	int err = fdry_graph_cursor_init(d->v, &c);

	if (err)
		return err;
	while (fdry_graph_next(&c, &n)) {
		if (d->s->boxes)
			box(d, &n, c.node - 1);
		else
			square(d, &n, c.node - 1);
	}
	fdry_graph_cursor_release(&c);
	return 0;
}

/* One path for all nodes of a colour. */
static void nodes_plain(const struct drawing *d)
{
	uint32_t i, colour;
	bool any;

	for (colour = 0; colour < COLOURS; colour++) {
		any = false;
		for (i = 0; i < d->l.nodes; i++) {
			if (d->colour[i] != colour)
				continue;
			if (!any)
				fprintf(d->r->f, "<path class=\"%s\" d=\"", fills[colour]);
			any = true;
			fprintf(d->r->f, "M%u %uh%uv%uh-%uz", x_of(d, i), y_of(d, i), d->s->width,
				d->s->height, d->s->width);
		}
		if (any)
			fputs("\"/>\n", d->r->f);
	}
}

static int colours_read(struct drawing *d)
{
	struct fdry_graph_cursor c;
	struct fdry_node n;
	int err = fdry_graph_cursor_init(d->v, &c);

	if (err)
		return err;
	while (fdry_graph_next(&c, &n))
		d->colour[c.node - 1] = colour_of(d->r, &n);
	fdry_graph_cursor_release(&c);
	return 0;
}

/* --- edges --- */

/* Within a row: straight to the next column of the same lane, else a curve. */
static void edge_near(const struct drawing *d, const struct layout_edge *e)
{
	uint32_t x1 = x_of(d, e->from) + d->s->width, y1 = y_of(d, e->from) + d->s->height / 2,
		 x2 = x_of(d, e->to), y2 = y_of(d, e->to) + d->s->height / 2, mid, up;

	if (x2 <= x1) { /* a node of a column that is continued beside itself */
		fprintf(d->r->f, "M%u %uL%u %u", x1, y1, x2, y2);
	} else if (y1 == y2 && x2 - x1 > d->s->dx) { /* around the nodes between */
		up = y1 - d->s->height / 2 - (d->s->dy - d->s->height) / 2;
		fprintf(d->r->f, "M%u %uC%u %u %u %u %u %uH%uC%u %u %u %u %u %u", x1, y1, x1 + 4,
			y1, x1, up, x1 + 6, up, x2 - 6, x2, up, x2 - 4, y2, x2, y2);
	} else if (y1 == y2) {
		fprintf(d->r->f, "M%u %uH%u", x1, y1, x2);
	} else {
		mid = x2 - (d->s->dx - d->s->width) / 2;
		if (mid > x1 + d->s->dx)
			fprintf(d->r->f, "M%u %uC%u %u %u %u %u %uV%uH%u", x1, y1, x1 + 4, y1,
				mid - 4, y1, mid, y1, y2, x2);
		else
			fprintf(d->r->f, "M%u %uC%u %u %u %u %u %u", x1, y1, mid, y1, mid, y2, x2,
				y2);
	}
}

/* To another row: out at the right, between the rows, and in at the left. */
static void edge_far(const struct drawing *d, const struct layout_edge *e)
{
	uint32_t x1 = x_of(d, e->from) + d->s->width, y1 = y_of(d, e->from) + d->s->height / 2,
		 x2 = x_of(d, e->to), y2 = y_of(d, e->to) + d->s->height / 2,
		 row = layout_row(&d->l, e->to), gap = row_y(d, row) - d->s->row / 2 -
						       (d->s->dy - d->s->height) / 2;

	fprintf(d->r->f, "M%u %uh3V%uH%uV%uh3", x1, y1, gap, x2 > 3 ? x2 - 3 : 0, y2);
}

static void edges(const struct drawing *d)
{
	uint32_t i;
	int dotted;

	for (dotted = 0; dotted < 2; dotted++) {
		fprintf(d->r->f, "<path class=\"edge%s\"%s d=\"", d->s->boxes ? "" : " thin",
			dotted ? " stroke-dasharray=\"2 2\"" : "");
		for (i = 0; i < d->l.edges; i++) {
			const struct layout_edge *e = &d->l.edge[i];

			if (e->dotted != dotted)
				continue;
			if (layout_row(&d->l, e->from) == layout_row(&d->l, e->to))
				edge_near(d, e);
			else
				edge_far(d, e);
		}
		fputs("\"/>\n", d->r->f);
	}
}

/* --- one graph --- */

static const struct scale *scale_of(const struct layout *l)
{
	if (l->nodes <= BOXES_MAX && l->lanes <= BOX_LANES_MAX)
		return &boxes;
	return l->nodes <= 2000 ? &squares : &dots;
}

static int picture(struct drawing *d)
{
	struct report *r = d->r;
	uint32_t columns = d->l.columns < d->l.per_row ? d->l.columns : d->l.per_row,
		 wide = 2 * MARGIN + columns * d->s->dx,
		 high = row_y(d, d->l.rows) - d->s->row + MARGIN;
	int err = 0;

	fprintf(r->f,
		"<div class=\"picture\"><svg viewBox=\"0 0 %u %u\" style=\"max-width:%upx\" "
		"role=\"img\" aria-label=\"%u nodes, %u edges\">\n",
		wide, high, wide, d->l.nodes, d->l.edges);
	edges(d);
	if (r->titled + d->l.nodes <= TITLED_MAX) {
		r->titled += d->l.nodes;
		err = nodes_titled(d);
	} else {
		nodes_plain(d);
	}
	fputs("</svg></div>\n", r->f);
	return err;
}

static int layout_choose(struct drawing *d)
{
	int err = layout_make(d->v, boxes.per_row, &d->l);

	if (err)
		return err;
	d->s = scale_of(&d->l);
	if (d->s == &boxes)
		return 0;
	layout_release(&d->l);
	return layout_make(d->v, d->s->per_row, &d->l);
}

static int graph_draw(struct report *r, const struct fdry_graph_view *v)
{
	struct drawing d = { .r = r, .v = v };
	int err = layout_choose(&d);

	if (err)
		return err;
	d.colour = calloc((size_t)d.l.nodes + 1, 1);
	err = d.colour ? colours_read(&d) : fdry_nomem();
	if (!err && d.l.nodes)
		err = picture(&d);
	free(d.colour);
	layout_release(&d.l);
	return err;
}

static int graph_object_draw(struct report *r, const struct fdry_mf_graph *g)
{
	struct cmd_graph_object object;
	int err = cmd_graph_open(r->reader, &g->oid, &object);

	if (err)
		return err;
	err = graph_draw(r, &object.view);
	cmd_graph_close(&object);
	return err;
}

/* --- all graphs --- */

static void graph_name(const struct report *r, const struct fdry_mf_graph *g)
{
	const char *name = fdry_manifest_str(&r->im.m, g->name);

	fprintf(r->f, "Graph %llu", (unsigned long long)g->key);
	if (*name) {
		fputs(", ", r->f);
		html_text(r->f, name);
	}
	fprintf(r->f, ": %u node%s", g->nodes, cmd_plural(g->nodes));
}

static void legend(const struct report *r)
{
	static const char *const words[] = { "other kernels", "memcpy", "memset",
					     "graphs within", "events and others" };
	static const char *const backs[] = { "bo", "bc", "bs", "bg", "bw" };
	uint32_t i;

	fputs("<div class=\"legend\">", r->f);
	for (i = 0; i < r->im.m.n_kernels && i < REPORT_COLOURS; i++) {
		fprintf(r->f, "<span><i class=\"b%u\"></i><code>", i);
		html_text(r->f, r->kernels[r->ranked[i]].name);
		fputs("</code></span>", r->f);
	}
	for (i = r->im.m.n_kernels > REPORT_COLOURS ? 0 : 1; i < 5; i++)
		fprintf(r->f, "<span><i class=\"%s\"></i>%s</span>", backs[i], words[i]);
	fputs("</div>\n", r->f);
}

/* @first: the first graph with the same object. */
static int graph_show(struct report *r, uint32_t i, uint32_t first)
{
	const struct fdry_mf_graph *g = &r->im.m.graphs[i];
	bool open = i < OPEN_GRAPHS && g->nodes <= OPEN_NODES;
	int err;

	if (first != i || r->drawn + g->nodes > DRAWN_MAX) {
		fputs("<h3>", r->f);
		graph_name(r, g);
		if (first != i)
			fprintf(r->f, " <small>the same as graph %llu</small></h3>\n",
				(unsigned long long)r->im.m.graphs[first].key);
		else
			fputs(" <small>not drawn, since the page would be too large</small></h3>\n",
			      r->f);
		return 0;
	}
	r->drawn += g->nodes;
	fputs(open ? "<h3>" : "<details><summary>", r->f);
	graph_name(r, g);
	fputs(open ? "</h3>\n" : "</summary>\n", r->f);
	err = graph_object_draw(r, g);
	if (!open)
		fputs("</details>\n", r->f);
	return err;
}

int report_graphs(struct report *r)
{
	const struct fdry_manifest *m = &r->im.m;
	uint32_t i, *first = NULL, listed = m->n_graphs < LISTED_MAX ? m->n_graphs : LISTED_MAX;
	int err = 0;

	html_section(r->f, "graphs", "Graphs");
	if (!m->n_graphs) {
		fputs("<p class=\"dim\">The image has no graphs.</p>\n", r->f);
		return 0;
	}
	fputs("<p class=\"dim\">Work flows from left to right, then row by row. Nodes in one "
	      "column may run at the same time.</p>\n",
	      r->f);
	legend(r);
	err = fdry_manifest_graphs_first(m, &first);
	for (i = 0; i < listed && !err; i++)
		err = graph_show(r, i, first[i]);
	free(first);
	if (m->n_graphs > listed)
		fprintf(r->f, "<p class=\"dim\">%u further graphs are not listed.</p>\n",
			m->n_graphs - listed);
	return err;
}
