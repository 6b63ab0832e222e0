// SPDX-License-Identifier: Apache-2.0
/*
 * node_child.c - child graph nodes.
 *
 * The nodes of a child graph follow those of the graph in the object; see subgraph.h. The driver
 * copies the graph that a child graph node is made of. So the builder makes each node of an empty
 * graph, and adds the nodes of the child to the copy, which the driver allows.
 */
#include "graph/build.h"
#include "graph/read.h"
#include "graph/subgraph.h"

static int child_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	CUgraph graph = NULL;
	int err = fdry_call(rd->drv, cuGraphChildGraphNodeGetGraph, handle, &graph);

	(void)ret;
	return err ? err : fdry_read_subgraph(rd, graph, true);
}

static int child_put(struct fdry_graph_enc *enc, const struct fdry_node *node)
{
	(void)node;
	enc->graphs++;
	return 0;
}

static void child_get(struct fdry_graph_cursor *c, struct fdry_node *ret)
{
	uint32_t i = c->graphs++;

	ret->child.graph = i + 1;
	ret->child.first = fdry_graph_end(c->v, i);
	ret->child.nodes = fdry_graph_end(c->v, i + 1) - ret->child.first;
}

static int child_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	int err = b->empty ? 0 : fdry_call(b->drv, cuGraphCreate, &b->empty, 0);

	if (err)
		return err;
	err = fdry_call(b->drv, cuGraphAddChildGraphNode, ret, b->graph, NULL, 0, b->empty);
	return err ? err
		   : fdry_call(b->drv, cuGraphChildGraphNodeGetGraph, *ret,
			       &b->graphs[node->child.graph]);
}

const struct fdry_node_ops fdry_node_child_ops = {
	.name = "child",
	.read = child_read,
	.put = child_put,
	.get = child_get,
	.build = child_build,
};
