/* SPDX-License-Identifier: Apache-2.0 */
/*
 * columns.h - the sections of a graph object, as a view that reads columns from them.
 *
 * A view points into the object's bytes, which may lie at any address, and allocates
 * nothing. fdry_graph_view_init() (codec.h) makes a checked view; the checks of node kinds
 * and edges use the functions below while it does so.
 */
#ifndef FDRY_GRAPH_COLUMNS_H
#define FDRY_GRAPH_COLUMNS_H

#include "graph/format.h"

struct fdry_graph_view {
	struct fdry_span bytes;          /* must stay in place */
	struct fdry_graph_header header; /* a copy */
	const uint8_t *section[FDRY_GSEC_END]; /* by id; NULL if the object omits it */
};

/* Check header, directory and the length of each section, but not the content of the sections.
 * FDRY_E_BADIMAGE, FDRY_E_VERSION, FDRY_E_LIMIT. */
int fdry_graph_columns_init(struct fdry_span bytes, struct fdry_graph_view *ret) __must_check;

/*
 * Check a section whose entries are indices into a table of @total records. The first use of
 * each record must come in ascending order, so no record is unused. With @base 1, index 0 means
 * a default that is not in the table. FDRY_E_BADIMAGE.
 */
int fdry_graph_index_check(const struct fdry_graph_view *v, enum fdry_graph_section_id id,
			   uint32_t base, uint32_t total) __must_check;

/* A length with its padding; @bytes is a checked length. */
static inline uint64_t fdry_graph_padded(uint64_t bytes)
{
	return fdry_section_padded(bytes);
}

/* Entry @i of a section of a checked view; @i must be below the section's count. */
static inline uint32_t fdry_graph_u16(const struct fdry_graph_view *v,
				      enum fdry_graph_section_id id, uint32_t i)
{
	return fdry_get16(v->section[id] + 2 * (size_t)i);
}
static inline uint32_t fdry_graph_u32(const struct fdry_graph_view *v,
				      enum fdry_graph_section_id id, uint32_t i)
{
	return fdry_get32(v->section[id] + 4 * (size_t)i);
}
static inline struct fdry_graph_kernel fdry_graph_kernel_at(const struct fdry_graph_view *v,
							    uint32_t i)
{
	struct fdry_graph_kernel k;

	memcpy(&k, v->section[FDRY_GSEC_KERNEL] + sizeof(k) * (size_t)i, sizeof(k));
	return k;
}
/* The bytes of arguments of each node of this kernel. */
static inline uint32_t fdry_graph_kernel_args(const struct fdry_graph_kernel *k)
{
	return k->param_bytes & ~FDRY_GRAPH_KERNEL_SHORT;
}

#endif
