/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.h - the state that all kinds of nodes share while a driver graph is built. Internal to
 * graph/.
 */
#ifndef FDRY_GRAPH_BUILD_H
#define FDRY_GRAPH_BUILD_H

#include "graph/graph.h"

struct fdry_build {
	const struct fdry_graph_builder *in;
	const struct fdry_driver *drv;
	const struct fdry_graph_view *view;
	CUgraph graph;   /* the graph that nodes are added to */
	CUgraph *graphs; /* by number, as in subgraph.h; NULL until their nodes are added */
	CUgraphNode *conditionals; /* the conditional nodes; NULL until added */
	uint32_t handles; /* of conditions so far */
	CUgraph empty;   /* that child graph nodes are made of; NULL until needed */
	CUevent *events;
	struct fdry_graph_built *built; /* gets the nodes of semaphores */
	void **params; /* memory for the addresses of the parameters of any kernel */
	void *extra[5]; /* of a node with a packed buffer ... */
	size_t packed;  /* ... of so many bytes */
};

/* Keep those of the graph's nodes @nodes that signal or await semaphores. */
int fdry_build_semaphores_keep(struct fdry_build *b, const CUgraphNode *nodes) __must_check;

#endif
