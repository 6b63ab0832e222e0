/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.h - building a driver graph: what the kinds of nodes share. Internal to graph/.
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
	void **params; /* room for the addresses of any of its kernels' parameters */
};

#endif
