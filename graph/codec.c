// SPDX-License-Identifier: Apache-2.0
/*
 * codec.c - from bytes to a checked view.
 *
 * The checks come in this order: header, directory and sections (columns.c), the kinds of nodes,
 * the columns of each kind, edges, graphs within the graph. Later checks rely on earlier ones. The
 * checks allocate nothing and do not recurse; their time is linear in the object's size.
 */
#include "graph/codec.h"

#include <stdlib.h>

#include "graph/edge.h"
#include "graph/subgraph.h"

static int kinds_check(const struct fdry_graph_view *v)
{
	const struct fdry_graph_header *h = &v->header;
	uint32_t n[FDRY_NODE_KINDS] = { 0 }, i;

	for (i = 0; i < h->nodes; i++) {
		unsigned int kind = v->section[FDRY_GSEC_KIND][i];

		if (!fdry_node_ops(kind))
			return fdry_fail(FDRY_E_VERSION,
					 "node %u is of kind %u, which is not understood; "
					 "use a newer version",
					 i, kind);
		n[kind]++;
	}
	if (n[FDRY_NODE_KERNEL] != h->kernel_nodes || n[FDRY_NODE_MEMSET] != h->memset_nodes ||
	    n[FDRY_NODE_MEMCPY] != h->memcpy_nodes ||
	    n[FDRY_NODE_RECORD] + n[FDRY_NODE_WAIT] != h->event_nodes ||
	    n[FDRY_NODE_HOST] != h->host_nodes || n[FDRY_NODE_MEMOP] != h->memop_nodes ||
	    n[FDRY_NODE_CONDITIONAL] != h->conditional_nodes ||
	    (n[FDRY_NODE_SIGNAL] + n[FDRY_NODE_AWAIT] != 0) != (h->semaphore_bytes != 0))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "its node kinds do not add up to the counts of its header");
	return 0;
}

int fdry_graph_view_init(struct fdry_span bytes, struct fdry_graph_view *ret)
{
	struct fdry_graph_view v;
	unsigned int k;
	int err = fdry_graph_columns_init(bytes, &v);

	if (err)
		return err;
	err = kinds_check(&v);
	if (err)
		return err;
	for (k = 1; k < FDRY_NODE_KINDS; k++) {
		err = fdry_node_ops(k)->check ? fdry_node_ops(k)->check(&v) : 0;
		if (err)
			return err;
	}
	err = fdry_graph_edges_check(&v);
	if (err)
		return err;
	err = fdry_graph_subgraphs_check(&v);
	if (err)
		return err;
	*ret = v;
	return 0;
}

static int kernel_check(const struct fdry_graph_kernel *g, const struct fdry_kernel *k)
{
	uint32_t i, bytes = fdry_graph_kernel_args(g);

	if (bytes != g->param_bytes ? bytes >= k->param_bytes : bytes != k->param_bytes)
		return fdry_fail(
			FDRY_E_BADIMAGE,
			"kernel %u (%.100s) takes %u bytes of arguments, and the graph has %u%s",
			g->index, k->name, k->param_bytes, bytes,
			bytes != g->param_bytes ? " as a part of them" : "");
	for (i = 0; i < k->nparams; i++)
		if ((uint32_t)k->params[i].offset + k->params[i].size > k->param_bytes)
			return fdry_fail(
				FDRY_E_BADIMAGE,
				"parameter %u of kernel %u (%.100s) lies outside of its %u bytes",
				i, g->index, k->name, k->param_bytes);
	return 0;
}

int fdry_graph_view_check_kernels(const struct fdry_graph_view *v,
				  const struct fdry_kernel *kernels, uint32_t count)
{
	struct fdry_graph_kernel g;
	uint32_t i;
	int err;

	for (i = 0; i < v->header.kernels; i++) {
		g = fdry_graph_kernel_at(v, i);
		if (g.index >= count)
			return fdry_fail(FDRY_E_BADIMAGE,
					 "the graph uses kernel %u, and the image has %u", g.index,
					 count);
		err = kernel_check(&g, &kernels[g.index]);
		if (err)
			return err;
	}
	return 0;
}

int fdry_graph_cursor_init(const struct fdry_graph_view *v, struct fdry_graph_cursor *ret)
{
	uint8_t *memory = malloc(v->header.arg_bytes +
				 sizeof(*ret->starts) * (size_t)v->header.kernel_nodes + 1);

	if (!memory)
		return fdry_nomem();
	*ret = (struct fdry_graph_cursor){ .v = v,
					   .blocks = memory,
					   .starts = (uint32_t *)(memory + v->header.arg_bytes) };
	return 0;
}

void fdry_graph_cursor_release(struct fdry_graph_cursor *c)
{
	free(c->blocks);
	c->blocks = NULL;
}

bool fdry_graph_next(struct fdry_graph_cursor *c, struct fdry_node *ret)
{
	const struct fdry_node_ops *ops;

	if (c->node == c->v->header.nodes)
		return false;
	ret->kind = c->v->section[FDRY_GSEC_KIND][c->node++];
	ops = fdry_node_ops(ret->kind);
	if (ops->get)
		ops->get(c, ret);
	return true;
}
