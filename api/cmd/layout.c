// SPDX-License-Identifier: Apache-2.0
/* layout.c - places the nodes of a graph on a grid; see layout.h. */
#include "api/cmd/layout.h"

#include <stdlib.h>

#include "graph/subgraph.h"

#define NONE UINT32_MAX

/* --- edges --- */

static int edge_put(struct fdry_buf *edges, uint32_t from, uint32_t to, bool dotted)
{
	const struct layout_edge e = { from, to, dotted };

	return fdry_buf_put(edges, &e, sizeof(e));
}

/* The edges of the graph, then those to the graphs within it. */
static int edges_read(const struct fdry_graph_view *v, struct layout *l)
{
	struct fdry_graph_edges edges = { .v = v };
	struct fdry_buf buf = { 0 };
	struct fdry_graph_subgraph s;
	struct fdry_graph_edge e;
	uint32_t i;
	int err = 0;

	while (!err && fdry_graph_edge_next(&edges, &e))
		err = edge_put(&buf, e.from, e.to, false);
	for (i = 0; !err && i < v->header.subgraphs; i++) {
		s = fdry_graph_subgraph_at(v, i);
		if (s.first < fdry_graph_end(v, i + 1))
			err = edge_put(&buf, s.owner, s.first, true);
	}
	if (err) {
		fdry_buf_release(&buf);
		return err;
	}
	l->edges = (uint32_t)(buf.len / sizeof(struct layout_edge));
	l->edge = (struct layout_edge *)(void *)buf.data;
	return 0;
}

static int by_target(const void *a, const void *b)
{
	const struct layout_edge *x = a, *y = b;

	if (x->to != y->to)
		return x->to < y->to ? -1 : 1;
	return x->from < y->from ? -1 : x->from > y->from;
}

/* --- places --- */

/* The levels, in @column. Every edge leads to a later node, so one pass is enough. @first: each
 * node's first predecessor. Returns the number of levels. */
static uint32_t levels_find(struct layout *l, uint32_t *first)
{
	uint32_t i, levels = 0, level;

	for (i = 0; i < l->nodes; i++)
		first[i] = NONE;
	for (i = 0; i < l->edges; i++) {
		const struct layout_edge *e = &l->edge[i];

		level = l->column[e->from] + 1;
		if (first[e->to] == NONE)
			first[e->to] = e->from;
		if (l->column[e->to] < level)
			l->column[e->to] = level;
	}
	for (i = 0; i < l->nodes; i++)
		levels = l->column[i] >= levels ? l->column[i] + 1 : levels;
	return levels;
}

/* Sort nodes by level: those of level i are order[start[i]] to order[start[i + 1]]. */
static void levels_sort(const struct layout *l, uint32_t levels, uint32_t *start, uint32_t *order)
{
	uint32_t i, n, sum = 0;

	for (i = 0; i < l->nodes; i++)
		start[l->column[i]]++;
	for (i = 0; i <= levels; i++) {
		n = start[i];
		start[i] = sum;
		sum += n;
	}
	for (i = 0; i < l->nodes; i++)
		order[start[l->column[i]]++] = i;
	for (i = levels; i > 0; i--)
		start[i] = start[i - 1];
	start[0] = 0;
}

/* Each node keeps the lane of its first predecessor if no other node of the level has it. */
static void level_lanes(struct layout *l, const uint32_t *nodes, uint32_t n, const uint32_t *first,
			bool *used)
{
	uint32_t i, node, want, next = 0;

	for (i = 0; i < n; i++) {
		node = nodes[i];
		want = first[node] == NONE ? NONE : l->lane[first[node]];
		l->lane[node] = NONE;
		if (want < LAYOUT_LANES_MAX && !used[want]) {
			l->lane[node] = want;
			used[want] = true;
		}
	}
	for (i = 0; i < n; i++) {
		node = nodes[i];
		while (next < LAYOUT_LANES_MAX && used[next])
			next++;
		if (l->lane[node] == NONE && next < LAYOUT_LANES_MAX)
			l->lane[node] = next++;
	}
	for (i = 0; i < LAYOUT_LANES_MAX; i++)
		used[i] = false;
}

/* Give each level its columns: one, or as many as its nodes need. */
static void columns_assign(struct layout *l, uint32_t levels, const uint32_t *start,
			   const uint32_t *order, const uint32_t *first)
{
	bool used[LAYOUT_LANES_MAX] = { false };
	uint32_t i, k, n;

	for (i = 0; i < levels; i++) {
		n = start[i + 1] - start[i];
		if (n <= LAYOUT_LANES_MAX)
			level_lanes(l, order + start[i], n, first, used);
		for (k = 0; k < n; k++) {
			const uint32_t node = order[start[i] + k];

			l->column[node] = l->columns + k / LAYOUT_LANES_MAX;
			if (n > LAYOUT_LANES_MAX)
				l->lane[node] = k % LAYOUT_LANES_MAX;
		}
		l->columns += (n + LAYOUT_LANES_MAX - 1) / LAYOUT_LANES_MAX;
	}
}

static int rows_make(struct layout *l)
{
	uint32_t i, row;

	l->rows = (l->columns + l->per_row - 1) / l->per_row;
	l->row_top = calloc((size_t)l->rows + 1, sizeof(*l->row_top));
	if (!l->row_top)
		return fdry_nomem();
	for (i = 0; i < l->nodes; i++) {
		row = layout_row(l, i);
		if (l->row_top[row + 1] < l->lane[i] + 1)
			l->row_top[row + 1] = l->lane[i] + 1;
	}
	for (i = 1; i <= l->rows; i++) {
		l->lanes = l->row_top[i] > l->lanes ? l->row_top[i] : l->lanes;
		l->row_top[i] += l->row_top[i - 1];
	}
	return 0;
}

static int nodes_place(struct layout *l)
{
	size_t n = (size_t)l->nodes + 2;
	uint32_t *first = calloc(n, sizeof(*first)), *start = calloc(n, sizeof(*start)),
		 *order = calloc(n, sizeof(*order)), levels;
	int err = first && start && order ? 0 : fdry_nomem();

	if (err)
		goto out_free;
	levels = levels_find(l, first);
	levels_sort(l, levels, start, order);
	columns_assign(l, levels, start, order, first);
	err = rows_make(l);
out_free:
	free(first);
	free(start);
	free(order);
	return err;
}

int layout_make(const struct fdry_graph_view *v, uint32_t per_row, struct layout *ret)
{
	struct layout l = { .nodes = v->header.nodes, .per_row = per_row };
	int err;

	l.column = calloc((size_t)l.nodes + 1, sizeof(*l.column));
	l.lane = calloc((size_t)l.nodes + 1, sizeof(*l.lane));
	if (!l.column || !l.lane) {
		err = fdry_nomem();
		goto out_release;
	}
	err = edges_read(v, &l);
	if (err)
		goto out_release;
	if (l.edges)
		qsort(l.edge, l.edges, sizeof(*l.edge), by_target);
	err = nodes_place(&l);
	if (err)
		goto out_release;
	*ret = l;
	return 0;
out_release:
	layout_release(&l);
	return err;
}

void layout_release(struct layout *l)
{
	free(l->column);
	free(l->lane);
	free(l->row_top);
	free(l->edge);
	*l = (struct layout){ 0 };
}
