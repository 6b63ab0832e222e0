/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.h - building a driver graph: the state that the kinds of nodes share. Internal to graph/.
 */
#ifndef FDRY_GRAPH_BUILD_H
#define FDRY_GRAPH_BUILD_H

#include "graph/graph.h"

struct fdry_build {
	const struct fdry_graph_builder *in;
	const struct fdry_driver *drv;
	const struct fdry_graph_view *view;
	CUgraph graph;
	CUevent *events;
	void **params; /* memory for the addresses of the parameters of any kernel */
};

#endif
