/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - graph objects: a CUDA graph as canonical bytes, by columns.
 *
 * Driver graph -> bytes (read.c), bytes -> checked view (codec.c), view -> driver graph
 * (build.c), view <-> text (dump.c). Kernels appear as indices into the image's kernel
 * table. Equal graphs give equal bytes, whatever process, machine or driver they come
 * from: nodes stand in canonical order (edge.h), nothing holds a handle or a default.
 *
 * A loader: fdry_graph_view_init() once (it checks everything), fdry_graph_build() when
 * the graph is needed, fdry_graph_built_release() when its exec is made or gone.
 *
 * Locking: none; objects are the caller's. The driver is called in the current context.
 */
#ifndef FDRY_GRAPH_GRAPH_H
#define FDRY_GRAPH_GRAPH_H

#include "lib/buf.h"
#include "arch/driver.h"
#include "graph/codec.h"
#include "graph/host.h"
#include "graph/kernel.h"

/* What a pointer in an argument or a copy may point at. */
enum fdry_where {
	FDRY_WHERE_NOTHING, /* no memory known to the driver: a plain number */
	FDRY_WHERE_REGION,  /* inside a live allocation of a region */
	FDRY_WHERE_OUTSIDE, /* memory that an image does not hold */
	FDRY_WHERE_FREED,   /* the region's, handed out once; there is no memory now, an access would be a fault */
	FDRY_WHERE_HOST,    /* pinned host memory, which copies alone may reach */
};

/* Says where the @bytes bytes at @addr lie, all of them; @bytes 0: what a pointer of that value points at, which may also
 * be one past the end of something. @what (static or owned by the callee until the next call) names what is OUTSIDE, FREED or HOST
 * for messages ("host memory", "a module variable") and is not looked at otherwise. Asked once for each distinct value. */
typedef int (*fdry_where_fn)(void *arg, CUdeviceptr addr, uint64_t bytes, enum fdry_where *ret, const char **what);

/* The place (host.h) of the @bytes bytes of host memory at @addr; *ret stays as it is where they do not all lie in one host
 * segment of the image. */
typedef void (*fdry_host_fn)(void *arg, uint64_t addr, uint64_t bytes, uint64_t *ret);

/* What was found out once, and holds for every graph that the same reader reads. No handles are in it. */
struct fdry_graph_memo {
	struct fdry_intern words;     /* argument words that are numbers, or point into the region */
	struct fdry_intern kernels;   /* kernel indices, by place in ... */
	struct fdry_buf fresh;        /* ... what a fresh node of each has */
	struct fdry_intern rehearsed; /* kernel index and attribute set: setting it on a fresh node was seen to work */
};

/* Memory must neither come nor go while one is in use. */
struct fdry_graph_reader {
	const struct fdry_driver *drv;
	struct fdry_kernel_set *kernels;
	fdry_where_fn where;
	void *where_arg;   /* of both */
	fdry_host_fn host; /* asked for what copies read and write outside of the region; NULL: the image has no host memory */
	struct fdry_graph_memo memo; /* zero it to start */
};

/**
 * fdry_graph_read() - Read a driver graph into the canonical bytes of a graph object.
 * @graph: left as it is; the context of its kernels must be current
 * @ret: an empty buffer, to be released by the caller; untouched on failure
 *
 * Interns the graph's kernels into @rd->kernels, in canonical order.
 * Errors: FDRY_E_REFUSED names node, kernel and reason of what cannot be restored exactly:
 * other kinds of nodes, host memory that @rd does not know, arrays, pointers to memory outside the region,
 * events of the application, attributes that cannot be set again.
 */
int fdry_graph_read(struct fdry_graph_reader *rd, CUgraph graph, struct fdry_buf *ret) __must_check;
/* Release the memo. */
void fdry_graph_reader_release(struct fdry_graph_reader *rd);

/* A built graph; it belongs to the caller until released. */
struct fdry_graph_built {
	CUgraph graph;
	CUevent *events; /* what event nodes record and wait for, private to this graph */
	uint32_t nevents;
};

/* What the graphs of an image are built with. */
struct fdry_graph_builder {
	const struct fdry_driver *drv;
	CUcontext ctx;                       /* the current context */
	const struct fdry_kernel *kernels;   /* the image's kernel table ... */
	uint32_t nkernels;
	const struct fdry_kernel_bank *bank; /* ... and the kernels loaded from it */
	const struct fdry_host_segment *hosts; /* the image's host segments */
	uint32_t nhosts;
};

/**
 * fdry_graph_build() - Build a driver graph.
 * @view: of bytes that stay where they are until this returns; checked against kernel table and host segments here
 *
 * Two allocations for the whole graph, nothing allocated for a node.
 * On failure nothing is left behind. Errors: FDRY_E_BADIMAGE, FDRY_E_DRIVER, FDRY_E_NODEVMEM.
 */
int fdry_graph_build(const struct fdry_graph_builder *in, const struct fdry_graph_view *view,
		     struct fdry_graph_built *ret) __must_check;
/* The flags to instantiate a graph of @view with, so that what its nodes say counts: drivers look at the priorities of
 * nodes only where they are told to, and take the launching stream's for all of them otherwise. */
unsigned long long fdry_graph_exec_flags(const struct fdry_graph_view *view);
/* Destroy graph and events. An exec needs the events, not the graph: whoever wants the graph's memory back earlier
 * destroys it and sets it to NULL. */
void fdry_graph_built_release(const struct fdry_driver *drv, struct fdry_graph_built *b);

/* Ask the driver whether a built graph has the nodes and edges, with their data, of @view. FDRY_E_DRIVER says what differs. */
int fdry_graph_built_check(const struct fdry_driver *drv, const struct fdry_graph_view *view,
			   const struct fdry_graph_built *b) __must_check;

/**
 * fdry_graph_to_text() - Write a graph object as lines of text, complete and stable.
 * @kernels: the image's kernel table, whose names are added as comments; NULL: none
 * @ret: an empty buffer, to be released by the caller; a terminator stands behind the text, uncounted
 */
int fdry_graph_to_text(const struct fdry_graph_view *view, const struct fdry_kernel *kernels, uint32_t nkernels,
		       struct fdry_buf *ret) __must_check;
/* The graph object that a text describes: the same bytes that the text was made from. FDRY_E_INVAL names the line. */
int fdry_graph_from_text(struct fdry_span text, struct fdry_buf *ret) __must_check;

#endif
