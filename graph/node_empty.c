// SPDX-License-Identifier: Apache-2.0
/* node_empty.c - empty nodes, which have only edges. */
#include "graph/build.h"
#include "graph/read.h"

static int empty_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	(void)rd;
	(void)handle;
	(void)ret;
	return 0;
}

static int empty_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	(void)node;
	return fdry_call(b->drv, cuGraphAddEmptyNode, ret, b->graph, NULL, 0);
}

const struct fdry_node_ops fdry_node_empty_ops = {
	.name = "empty",
	.read = empty_read,
	.build = empty_build,
};
