/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.h - graph objects: columns -> bytes, and bytes -> checked view.
 *
 * Opening a view checks everything that is in the bytes; whatever reads a view after
 * that trusts it. The view points into the bytes, which may lie at any address, and
 * allocates nothing. The encoder owns growing columns and writes canonical bytes.
 *
 * Threads: nothing is shared behind the scenes. Any number of threads may open views of
 * different objects or of the same bytes, and walk one view with a cursor each; a cursor
 * and an encoder belong to one thread at a time.
 */
#ifndef FDRY_GRAPH_CODEC_H
#define FDRY_GRAPH_CODEC_H

#include "graph/edge.h"
#include "graph/format.h"
#include "graph/host.h"
#include "graph/intern.h"
#include "graph/kernel.h"
#include "graph/node.h"

/* A length with its padding; @bytes is a checked one. */
static inline uint64_t fdry_graph_padded(uint64_t bytes)
{
	return fdry_section_padded(bytes);
}

/* --- reading --- */

struct fdry_graph_view {
	struct fdry_span bytes;          /* must stay where they are */
	struct fdry_graph_header header; /* a copy */
	const uint8_t *section[FDRY_GSEC_END]; /* by id; NULL where it is left out */
};

/**
 * fdry_graph_view_init() - Check the bytes of a graph object and make a view of them.
 * @bytes: the whole object, at any alignment; must outlive the view
 *
 * Errors: FDRY_E_BADIMAGE names the field or section, FDRY_E_VERSION an unknown version,
 * feature, section, node kind or attribute, FDRY_E_LIMIT a count. Allocates nothing.
 */
int fdry_graph_view_init(struct fdry_span bytes, struct fdry_graph_view *ret) __must_check;

/**
 * fdry_graph_view_check_kernels() - Check a view against the image's kernel table.
 *
 * Every kernel is in the table, its parameters lie in its parameter buffer, and the
 * buffer is as long as the graph's argument blocks for it. FDRY_E_BADIMAGE otherwise.
 */
int fdry_graph_view_check_kernels(const struct fdry_graph_view *v, const struct fdry_kernel *kernels,
				  uint32_t count) __must_check;

/* Check that every place in host memory lies in the image's host segments. FDRY_E_BADIMAGE otherwise. */
int fdry_graph_view_check_hosts(const struct fdry_graph_view *v, const struct fdry_host_segment *hosts,
				uint32_t count) __must_check;

/* For the checks of kinds and edges: the entries of a section are indices into a table of @total records whose first uses
 * ascend, so that none is unused. @base 1: index 0 means a default that is not in the table. FDRY_E_BADIMAGE. */
int fdry_graph_index_check(const struct fdry_graph_view *v, enum fdry_graph_section_id id, uint32_t base,
			   uint32_t total) __must_check;

/* All bytes of a section of a checked view; NULL and 0 where it is left out. */
struct fdry_span fdry_graph_section(const struct fdry_graph_view *v, enum fdry_graph_section_id id);

/* Entry @i of a section, of a checked view; @i must be below the section's count. */
static inline uint32_t fdry_graph_u16(const struct fdry_graph_view *v, enum fdry_graph_section_id id, uint32_t i)
{
	return fdry_get16(v->section[id] + 2 * (size_t)i);
}
static inline uint32_t fdry_graph_u32(const struct fdry_graph_view *v, enum fdry_graph_section_id id, uint32_t i)
{
	return fdry_get32(v->section[id] + 4 * (size_t)i);
}
static inline struct fdry_graph_kernel fdry_graph_kernel_at(const struct fdry_graph_view *v, uint32_t i)
{
	struct fdry_graph_kernel k;

	memcpy(&k, v->section[FDRY_GSEC_KERNEL] + sizeof(k) * (size_t)i, sizeof(k));
	return k;
}

struct fdry_graph_edge {
	uint32_t from, to; /* node indices, from < to */
	uint32_t index;    /* 0: default edge data, else entry index - 1 of FDRY_GSEC_EDGE_DATA */
};
/* Edge data by an edge's index. */
CUgraphEdgeData fdry_graph_edge_data_at(const struct fdry_graph_view *v, uint32_t index);
uint32_t fdry_graph_edge_count(const struct fdry_graph_view *v);

/* Walks the edges of a view, sorted by from, to and data. Set @v, zero the rest to start. */
struct fdry_graph_edges {
	const struct fdry_graph_view *v;
	uint32_t node;   /* whose edges come next ... */
	bool linked;     /* ... and whether the one of the chain is behind us */
	uint32_t brk;    /* the next break of the chain */
	uint32_t stored; /* the next entry of the edge columns */
};
/* False after the last edge. */
bool fdry_graph_edge_next(struct fdry_graph_edges *e, struct fdry_graph_edge *ret);

/* Walks the nodes of a view in order, putting their arguments together in memory of its own. */
struct fdry_graph_cursor {
	const struct fdry_graph_view *v;
	uint32_t node;                  /* the next node */
	uint32_t next[FDRY_NODE_KINDS]; /* the next entry of each kind's columns; record and wait nodes share one */
	uint64_t args;                  /* the next argument block */
	uint32_t patch;                 /* the next patch */
	uint8_t *blocks;                /* arg_bytes of them; those before args are filled */
	uint32_t *starts;               /* where the block of each kernel node begins, in units of FDRY_GRAPH_ALIGN */
};
/* Start: takes memory for all argument blocks at once (header.arg_bytes and 4 bytes a kernel node). Needs an end where it
 * worked. */
int fdry_graph_cursor_init(const struct fdry_graph_view *v, struct fdry_graph_cursor *ret) __must_check;
/* False after the last node. @ret points into the view's bytes and the cursor's blocks, which stay until the end. */
bool fdry_graph_next(struct fdry_graph_cursor *c, struct fdry_node *ret);
void fdry_graph_cursor_release(struct fdry_graph_cursor *c);

/* --- writing --- */

/* Zero it to start; release it also after a failure. */
struct fdry_graph_enc {
	struct fdry_intern kernels, launches, attr_sets, edge_data;
	struct fdry_intern configs;            /* struct fdry_graph_config */
	struct fdry_buf column[FDRY_GSEC_END]; /* those sections that are not tables of distinct records */
	struct fdry_buf blocks;                /* argument blocks, padded */
	struct fdry_buf starts;                /* u64 for each kernel node: where its block begins */
	struct fdry_buf recent;                /* for each kernel, which nodes of it came last; see args.c */
	struct fdry_buf optional;              /* sections that we do not know: directory entry and bytes each */
	uint32_t compat;
	uint32_t events;
	bool linked;                           /* the edges were put */
};

/* A configuration of kernel nodes, as the columns CONFIG_... have it: indices of the graph's tables. */
struct fdry_graph_config {
	uint32_t kernel;
	uint32_t launch;
	uint32_t attrs; /* 0: the empty set, else index + 1 */
};

/* Append a node. Nodes must come in canonical order. FDRY_E_LIMIT, FDRY_E_INVAL. */
int fdry_graph_enc_node(struct fdry_graph_enc *enc, const struct fdry_node *node) __must_check;
/* All edges, once, after the nodes; sorts @edges. FDRY_E_INVAL where one does not lead to a later node or is there twice. */
int fdry_graph_enc_edges(struct fdry_graph_enc *enc, struct fdry_edge *edges, uint32_t count) __must_check;
/* A section that we do not know (@id with FDRY_SECTION_OPTIONAL), in ascending order of ids. */
int fdry_graph_enc_optional(struct fdry_graph_enc *enc, uint32_t id, struct fdry_span data) __must_check;
/* The finished object, checked as any reader would; @ret must be empty and is untouched on failure. */
int fdry_graph_enc_finish(struct fdry_graph_enc *enc, struct fdry_buf *ret) __must_check;
void fdry_graph_enc_release(struct fdry_graph_enc *enc);

#endif
