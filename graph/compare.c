// SPDX-License-Identifier: Apache-2.0
/*
 * compare.c - two graph objects, section by section; see compare.h.
 *
 * Objects are canonical, so equal nodes give equal sections. Only the sections of arguments
 * depend on the values of the arguments.
 */
#include "graph/compare.h"

static bool is_args(uint32_t id)
{
	return id == FDRY_GSEC_NODE_LIKE || id == FDRY_GSEC_NODE_PATCHES ||
	       id == FDRY_GSEC_PATCH_AT || id == FDRY_GSEC_PATCH;
}

bool fdry_graph_same_shape(const struct fdry_graph_view *a, const struct fdry_graph_view *b)
{
	struct fdry_span x, y;
	uint32_t id;

	for (id = 1; id < FDRY_GSEC_END; id++) {
		x = fdry_graph_section(a, id);
		y = fdry_graph_section(b, id);
		if (!is_args(id) && (x.len != y.len || (x.len && memcmp(x.data, y.data, x.len))))
			return false;
	}
	return true;
}

/* Nodes of the same kinds and kernels. */
static int nodes_compare(struct fdry_graph_cursor *a, struct fdry_graph_cursor *b,
			 struct fdry_buf *ret)
{
	struct fdry_node x, y;
	int err = 0;

	while (!err && fdry_graph_next(a, &x) && fdry_graph_next(b, &y))
		if (x.kind == FDRY_NODE_KERNEL && x.kernel.args.len &&
		    memcmp(x.kernel.args.data, y.kernel.args.data, x.kernel.args.len))
			err = fdry_buf_put_u32(ret, a->node - 1);
	return err;
}

int fdry_graph_args_differ(const struct fdry_graph_view *a, const struct fdry_graph_view *b,
			   struct fdry_buf *ret)
{
	struct fdry_graph_cursor x, y;
	size_t before = ret->len;
	int err;

	if (!fdry_graph_same_shape(a, b))
		return fdry_fail(FDRY_E_INVAL,
				 "the graphs differ in more than the arguments of their kernels");
	err = fdry_graph_cursor_init(a, &x);
	if (err)
		return err;
	err = fdry_graph_cursor_init(b, &y);
	if (err)
		goto out_release;
	err = nodes_compare(&x, &y, ret);
	if (err)
		ret->len = before;
	fdry_graph_cursor_release(&y);
out_release:
	fdry_graph_cursor_release(&x);
	return err;
}
