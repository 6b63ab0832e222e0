/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.h - graph objects: columns -> bytes, and bytes -> checked view.
 *
 * Opening a view checks everything that is in the bytes; whatever reads a view after
 * that trusts it. The view points into the bytes, which may lie at any address, and
 * allocates nothing. The encoder owns growing columns and writes canonical bytes.
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
	return (bytes + FDRY_GRAPH_ALIGN - 1) & ~(uint64_t)(FDRY_GRAPH_ALIGN - 1);
}

/* --- reading --- */

struct fdry_graph_view {
	struct fdry_span bytes;          /* must stay where they are */
	struct fdry_graph_header header; /* a copy */
	const uint8_t *section[FDRY_GSEC_END]; /* by id; NULL where it is left out */
};

/**
 * fdry_graph_view_open() - Check the bytes of a graph object and make a view of them.
 * @bytes: the whole object, at any alignment; must outlive the view
 *
 * Errors: FDRY_E_BADIMAGE names the field or section, FDRY_E_VERSION an unknown version,
 * feature, section, node kind or attribute, FDRY_E_LIMIT a count. Allocates nothing.
 */
int fdry_graph_view_open(struct fdry_span bytes, struct fdry_graph_view *ret) __must_check;

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

/* Entry @i of a section, of a checked view; @i must be below the section's count. */
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
struct fdry_graph_edge fdry_graph_edge_at(const struct fdry_graph_view *v, uint32_t i);
/* Edge data by an edge's index. */
CUgraphEdgeData fdry_graph_edge_data_at(const struct fdry_graph_view *v, uint32_t index);

/* Walks the nodes of a view in order. Set @v, zero the rest to start. */
struct fdry_graph_cursor {
	const struct fdry_graph_view *v;
	uint32_t node;                  /* the next node */
	uint32_t next[FDRY_NODE_KINDS]; /* the next entry of each kind's columns; record and wait nodes share one */
	uint64_t args;                  /* the next argument block */
};
/* False after the last node. @ret points into the view's bytes. */
bool fdry_graph_next(struct fdry_graph_cursor *c, struct fdry_node *ret);

/* --- writing --- */

/* Zero it to start; release it also after a failure. */
struct fdry_graph_enc {
	struct fdry_intern kernels, launches, attr_sets, edge_data;
	struct fdry_buf column[FDRY_GSEC_END]; /* those sections that are not tables of distinct records */
	struct fdry_buf optional;              /* sections that we do not know: directory entry and bytes each */
	uint32_t compat;
	uint32_t events;
	uint32_t edges;
};

/* Append a node. Nodes must come in canonical order. FDRY_E_LIMIT, FDRY_E_INVAL. */
int fdry_graph_enc_node(struct fdry_graph_enc *enc, const struct fdry_node *node) __must_check;
/* All edges, once, after the nodes; sorts @edges. FDRY_E_INVAL where one does not lead to a later node or is there twice. */
int fdry_graph_enc_edges(struct fdry_graph_enc *enc, struct fdry_edge *edges, uint32_t count) __must_check;
/* A section that we do not know (@id with FDRY_GSEC_OPTIONAL), in ascending order of ids. */
int fdry_graph_enc_optional(struct fdry_graph_enc *enc, uint32_t id, struct fdry_span data) __must_check;
/* The finished object, checked as any reader would; @ret must be empty and is untouched on failure. */
int fdry_graph_enc_finish(struct fdry_graph_enc *enc, struct fdry_buf *ret) __must_check;
void fdry_graph_enc_release(struct fdry_graph_enc *enc);

#endif
