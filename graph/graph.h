/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - graph objects: a CUDA graph as canonical bytes, by columns.
 *
 * Driver graph -> bytes (capture.c), bytes -> driver graph (build.c), bytes -> checked
 * view (codec.c), bytes <-> text (dump.c). Kernels appear as indices into the image's
 * kernel table. The view points into the bytes and allocates nothing.
 */
#ifndef FDRY_GRAPH_GRAPH_H
#define FDRY_GRAPH_GRAPH_H

#include "arch/buf.h"
#include "arch/driver.h"
#include "graph/kernel.h"

/* What a pointer in an argument or a copy may point at. */
enum fdry_where {
	FDRY_WHERE_NOTHING, /* no memory known to the driver: a plain number */
	FDRY_WHERE_REGION,  /* inside a live allocation of a region */
	FDRY_WHERE_OUTSIDE, /* memory that an image does not hold */
};

/* Says where @addr lies; @what (static or owned by the callee until the next call) names it for messages. */
typedef int (*fdry_where_fn)(void *arg, CUdeviceptr addr, enum fdry_where *ret, const char **what);

struct fdry_graph_reader {
	const struct fdry_driver *drv;
	struct fdry_kernel_set *kernels;
	fdry_where_fn where;
	void *where_arg;
};

/* Read a driver graph into the canonical bytes of a graph object. FDRY_E_REFUSED names node, kernel and reason. */
int fdry_graph_read(struct fdry_graph_reader *rd, CUgraph graph, struct fdry_buf *ret) __must_check;

struct fdry_graph_view; /* defined in codec.h */

/* Build a driver graph; events are created in the current context and belong to the caller until destroyed. */
struct fdry_graph_built {
	CUgraph graph;
	CUevent *events; /* what event nodes record and wait for, private to this graph */
	uint32_t nevents;
};
int fdry_graph_build(const struct fdry_driver *drv, CUcontext ctx, const struct fdry_graph_view *view,
		     const struct fdry_kernel *kernels, const struct fdry_kernel_bank *bank,
		     struct fdry_graph_built *ret) __must_check;
void fdry_graph_built_release(const struct fdry_driver *drv, struct fdry_graph_built *b);

#endif
