/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared_graph.h - graph objects in memory, shared by all images of the process.
 *
 * Images of one workload have graphs in common. For example, if graphs are saved one by one, each
 * image has all graphs that were captured before it. Each object is in memory once, verified and
 * checked. It is freed with the last image that has it.
 *
 * Locking: the table locks itself. Objects do not change.
 */
#ifndef FDRY_IMAGE_SHARED_GRAPH_H
#define FDRY_IMAGE_SHARED_GRAPH_H

#include "graph/codec.h"
#include "lib/oid.h"

struct fdry_shared_graph {
	struct fdry_shared_graph *next; /* in its bucket */
	struct fdry_oid oid;
	uint64_t users;
	struct fdry_buf bytes;
	struct fdry_graph_view view;
};

/* Get a reference to graph object @oid, or NULL if no image has it. */
struct fdry_shared_graph *fdry_shared_graph_get(const struct fdry_oid *oid);
/* Add the graph object @oid, whose bytes were read and verified, and get a reference. @bytes: moves
 * into the table, also on failure. Errors are those of fdry_graph_view_init(). */
int fdry_shared_graph_add(const struct fdry_oid *oid, struct fdry_buf *bytes,
			  struct fdry_shared_graph **ret) __must_check;
/* Return a reference; @g may be NULL. */
void fdry_shared_graph_put(struct fdry_shared_graph *g);

#endif
