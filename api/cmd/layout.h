/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - places the nodes of a graph on a grid, from left to right.
 *
 * A node's level is the number of nodes before it on the longest path to it. Nodes of one level lie
 * in one column, and a chain stays in one lane. A column that would be too high is continued beside
 * itself. Columns fill rows, as words fill lines.
 */
#ifndef FDRY_API_CMD_LAYOUT_H
#define FDRY_API_CMD_LAYOUT_H

#include "graph/codec.h"

#define LAYOUT_LANES_MAX 40u

struct layout_edge {
	uint32_t from, to;
	bool dotted; /* from a node to the first node of a graph that it holds */
};

struct layout {
	uint32_t nodes, edges, columns, rows, lanes; /* lanes: the most of any row */
	uint32_t per_row; /* columns */
	uint32_t *column, *lane; /* of each node */
	uint32_t *row_top;	 /* rows + 1 entries: lanes above each row, and all of them */
	struct layout_edge *edge;
};

/* @per_row: the columns of a row. FDRY_E_NOMEM. */
int layout_make(const struct fdry_graph_view *v, uint32_t per_row, struct layout *ret) __must_check;
void layout_release(struct layout *l);

static inline uint32_t layout_row(const struct layout *l, uint32_t node)
{
	return l->column[node] / l->per_row;
}

#endif
