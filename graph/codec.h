/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.h - graph objects: from columns to bytes, and from bytes to a checked view.
 *
 * A graph object stores its nodes by columns: one array for each field, with an entry for each
 * node.
 *
 * fdry_graph_view_init() checks all bytes; the functions that read a view rely on that. The
 * encoder owns growing columns and writes canonical bytes.
 *
 * Threads: these functions share no hidden state. Any number of threads may make views of
 * different objects or of the same bytes, and each may walk one view with a cursor of its own.
 * A cursor and an encoder belong to one thread at a time.
 */
#ifndef FDRY_GRAPH_CODEC_H
#define FDRY_GRAPH_CODEC_H

#include "foundry/types.h"
#include "graph/columns.h"
#include "graph/cuarray.h"
#include "graph/edge.h"
#include "graph/format.h"
#include "graph/host.h"
#include "graph/intern.h"
#include "graph/kernel.h"
#include "graph/node.h"

/* --- reading --- */

/**
 * fdry_graph_view_init() - Check the bytes of a graph object and make a view of them.
 * @bytes: the whole object, at any alignment; must outlive the view
 *
 * Errors: FDRY_E_BADIMAGE names the field or section; FDRY_E_VERSION an unknown version, feature,
 * section, node kind or attribute; FDRY_E_LIMIT a count. It allocates nothing.
 */
int fdry_graph_view_init(struct fdry_span bytes, struct fdry_graph_view *ret) __must_check;

/**
 * fdry_graph_view_check_kernels() - Check a view against the image's kernel table.
 *
 * Every kernel is in the table, its parameters lie in its parameter buffer, and the
 * buffer is as long as the graph's argument blocks for it. FDRY_E_BADIMAGE otherwise.
 */
int fdry_graph_view_check_kernels(const struct fdry_graph_view *v,
				  const struct fdry_kernel *kernels, uint32_t count) __must_check;

/* Check that every place in host memory lies in the image's host segments. FDRY_E_BADIMAGE
 * otherwise. */
int fdry_graph_view_check_hosts(const struct fdry_graph_view *v,
				const struct fdry_host_segment *hosts, uint32_t count) __must_check;

/* Check that every copy from or to an array lies inside one of the image's arrays, and consists of
 * whole elements. FDRY_E_BADIMAGE otherwise. */
int fdry_graph_view_check_arrays(const struct fdry_graph_view *v,
				 const struct fdry_cuarray *arrays, uint32_t count) __must_check;

/* Check that @functions has the name of each host function. FDRY_E_NOKEY otherwise. */
int fdry_graph_view_check_functions(const struct fdry_graph_view *v,
				    const struct fdry_host_function *functions,
				    size_t count) __must_check;

/* Check that @semaphores has the name of each semaphore. FDRY_E_NOKEY otherwise. */
int fdry_graph_view_check_semaphores(const struct fdry_graph_view *v,
				     const struct fdry_semaphore *semaphores,
				     size_t count) __must_check;

/*
 * Walks the nodes of a view in order. Its own memory holds the argument blocks, which it
 * decodes as it goes.
 */
struct fdry_graph_cursor {
	const struct fdry_graph_view *v;
	uint32_t node;                  /* the next node */
	uint32_t next[FDRY_NODE_KINDS]; /* the next entry of each kind's columns; record and wait
					   nodes share one, and so do signal and await
					   nodes */
	uint32_t graphs;                /* of the nodes so far */
	uint64_t args;                  /* the next argument block */
	uint32_t patch;                 /* the next patch */
	uint8_t *blocks;                /* arg_bytes bytes; those before @args are decoded */
	uint32_t *starts; /* offset of each kernel node's block, in units of FDRY_GRAPH_ALIGN */
};
/* Allocate memory for all argument blocks: header.arg_bytes, and 4 bytes for each kernel node. */
int fdry_graph_cursor_init(const struct fdry_graph_view *v,
			   struct fdry_graph_cursor *ret) __must_check;
/* False after the last node. @ret points into the view's bytes and into the cursor's blocks, which
 * stay until the cursor is released. */
bool fdry_graph_next(struct fdry_graph_cursor *c, struct fdry_node *ret);
void fdry_graph_cursor_release(struct fdry_graph_cursor *c);

/* --- writing --- */

/* Zero it to start; release it also after a failure. */
struct fdry_graph_enc {
	struct fdry_intern kernels, launches, attr_sets, edge_data;
	struct fdry_intern configs;            /* struct fdry_graph_config */
	struct fdry_buf
		column[FDRY_GSEC_END]; /* the sections that are not tables of distinct records */
	struct fdry_buf blocks;                /* argument blocks, padded */
	struct fdry_buf starts;                /* u64 for each kernel node: offset of its block */
	struct fdry_buf recent;	  /* for each kernel, its most recent nodes; see args.c */
	struct fdry_buf conditionals; /* struct fdry_graph_conditional_node each */
	struct fdry_buf optional; /* unknown sections: directory entry and bytes each */
	uint32_t compat;
	uint32_t events;
	uint32_t graphs;                       /* that the nodes hold */
	bool linked;                           /* the edges were appended */
};

/*
 * A configuration of kernel nodes, as in the columns CONFIG_...: indices into the graph's tables.
 */
struct fdry_graph_config {
	uint32_t kernel;
	uint32_t launch;
	uint32_t attrs; /* 0: the empty set, else index + 1 */
};

/* A conditional node before its handle has a column. */
struct fdry_graph_conditional_node {
	struct fdry_graph_conditional c;
	struct fdry_graph_condition h;
};

/* Append a node. Nodes must come in canonical order. FDRY_E_LIMIT, FDRY_E_INVAL. */
int fdry_graph_enc_node(struct fdry_graph_enc *enc, const struct fdry_node *node) __must_check;
/* The next nodes are those of a graph that node @owner holds. */
int fdry_graph_enc_subgraph(struct fdry_graph_enc *enc, uint32_t owner) __must_check;
/* Append all edges, once, after the nodes; sorts @edges. FDRY_E_INVAL if an edge does not lead to a
 * later node, or occurs twice. */
int fdry_graph_enc_edges(struct fdry_graph_enc *enc, struct fdry_edge *edges,
			 uint32_t count) __must_check;
/* Write the columns of conditional nodes. FDRY_E_INVAL unless each handle has one node. */
int fdry_graph_enc_conditions(struct fdry_graph_enc *enc) __must_check;
/* Append a section that this version does not know; @id has the bit FDRY_SECTION_OPTIONAL. Sections
 * must come in ascending order of ids. */
int fdry_graph_enc_optional(struct fdry_graph_enc *enc, uint32_t id,
			    struct fdry_span data) __must_check;
/* Write the finished object to @ret, and check it as a reader does. @ret must be empty and is
 * untouched on failure. */
int fdry_graph_enc_finish(struct fdry_graph_enc *enc, struct fdry_buf *ret) __must_check;
void fdry_graph_enc_release(struct fdry_graph_enc *enc);

#endif
