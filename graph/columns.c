// SPDX-License-Identifier: Apache-2.0
/*
 * columns.c - header, directory and sections of a graph object; see columns.h.
 *
 * The checks come in this order: version and limits of the header, directory, length of each
 * section against its count in the header. So no later code indexes a section beyond its end.
 */
#include "graph/columns.h"

#include <inttypes.h>

struct section_info {
	const char *name;
	uint32_t entry;    /* bytes */
	uint16_t count_at; /* of the count, in the header */
	bool wide;         /* the count has 64 bits */
};

static const struct section_info infos[FDRY_GSEC_END] = {
#define X(id, NAME, name, size, count) \
	[id] = { name, size, offsetof(struct fdry_graph_header, count), \
		 sizeof(((struct fdry_graph_header *)0)->count) == 8 },
	FDRY_GRAPH_SECTIONS(X)
#undef X
};

struct limit {
	const char *name;
	uint16_t at;
	bool wide;
	uint64_t max;
};

static const struct limit limits[] = {
#define LIMIT(field, max) { #field, offsetof(struct fdry_graph_header, field), \
			    sizeof(((struct fdry_graph_header *)0)->field) == 8, max }
	LIMIT(sections, FDRY_GRAPH_SECTIONS_MAX),
	LIMIT(size, FDRY_GRAPH_SIZE_MAX),
	LIMIT(nodes, FDRY_GRAPH_NODES_MAX),
	LIMIT(kernel_nodes, FDRY_GRAPH_NODES_MAX),
	LIMIT(memset_nodes, FDRY_GRAPH_NODES_MAX),
	LIMIT(memcpy_nodes, FDRY_GRAPH_NODES_MAX),
	LIMIT(event_nodes, FDRY_GRAPH_NODES_MAX),
	LIMIT(events, FDRY_GRAPH_EVENTS_MAX),
	LIMIT(kernels, FDRY_GRAPH_KERNELS_MAX),
	LIMIT(launches, FDRY_GRAPH_NODES_MAX),
	LIMIT(attr_sets, FDRY_GRAPH_ATTRS_MAX),
	LIMIT(attrs, FDRY_GRAPH_ATTRS_MAX),
	LIMIT(edges, FDRY_GRAPH_EDGES_MAX),
	LIMIT(edge_data, FDRY_GRAPH_EDGE_DATA_MAX),
	LIMIT(arg_bytes, FDRY_GRAPH_ARG_BYTES_MAX),
	LIMIT(configs, FDRY_GRAPH_CONFIGS_MAX),
	LIMIT(patches, FDRY_GRAPH_PATCHES_MAX),
	LIMIT(breaks, FDRY_GRAPH_NODES_MAX),
	LIMIT(subgraphs, FDRY_GRAPH_NODES_MAX),
	LIMIT(host_nodes, FDRY_GRAPH_NODES_MAX),
	LIMIT(host_bytes, FDRY_GRAPH_HOST_BYTES_MAX),
	LIMIT(memop_nodes, FDRY_GRAPH_NODES_MAX),
	LIMIT(memops, FDRY_GRAPH_MEMOPS_MAX),
	LIMIT(conditional_nodes, FDRY_GRAPH_CONDITIONALS_MAX),
	LIMIT(semaphore_bytes, FDRY_GRAPH_SEMAPHORE_BYTES_MAX),
#undef LIMIT
};

static uint64_t header_field(const struct fdry_graph_header *h, uint16_t at, bool wide)
{
	const uint8_t *p = (const uint8_t *)h + at;

	return wide ? fdry_get64(p) : fdry_get32(p);
}

static int header_version(const struct fdry_graph_header *h)
{
	if (memcmp(h->magic, FDRY_GRAPH_MAGIC, sizeof(h->magic)))
		return fdry_fail(FDRY_E_BADIMAGE, "it does not begin like a graph object");
	if (h->version != FDRY_GRAPH_VERSION)
		return fdry_fail(FDRY_E_VERSION,
				 "it has format version %u and this version reads %u; "
				 "use a newer version or seal again",
				 h->version, FDRY_GRAPH_VERSION);
	if (h->incompat & ~FDRY_GRAPH_INCOMPAT_KNOWN)
		return fdry_fail(
			FDRY_E_VERSION,
			"it needs features 0x%x, which this version lacks; use a newer version",
			h->incompat & ~FDRY_GRAPH_INCOMPAT_KNOWN);
	return 0;
}

static int header_check(const struct fdry_graph_header *h, size_t len)
{
	size_t i;
	int err = header_version(h);

	if (err)
		return err;
	for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		uint64_t v = header_field(h, limits[i].at, limits[i].wide);

		if (v > limits[i].max)
			return fdry_fail(FDRY_E_LIMIT,
					 "header field %s is %" PRIu64
					 ", more than the limit of %" PRIu64,
					 limits[i].name, v, limits[i].max);
	}
	if (h->size != len)
		return fdry_fail(FDRY_E_BADIMAGE, "it has %zu bytes, and its header says %" PRIu64,
				 len, h->size);
	return 0;
}

static int section_place(struct fdry_graph_view *v, uint32_t id, struct fdry_span data)
{
	const struct section_info *info;
	uint64_t count;

	if (id & FDRY_SECTION_OPTIONAL)
		return 0;
	if (!id || id >= FDRY_GSEC_END || !infos[id].name)
		return fdry_fail(FDRY_E_VERSION,
				 "section %u is not understood; use a newer version", id);
	info = &infos[id];
	count = header_field(&v->header, info->count_at, info->wide);
	if (data.len != count * info->entry)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "section %u (%s) has %zu bytes, and %" PRIu64
				 " entries need %" PRIu64,
				 id, info->name, data.len, count, count * info->entry);
	v->section[id] = data.data;
	return 0;
}

static int directory_check(struct fdry_graph_view *v)
{
	struct fdry_sections s;
	struct fdry_span data;
	uint32_t id = 1;
	int err = fdry_sections_begin(v->bytes, sizeof(v->header), v->header.sections, &s);

	if (err)
		return err;
	while (id) {
		err = fdry_sections_next(&s, &id, &data);
		if (err)
			return err;
		if (id)
			err = section_place(v, id, data);
		if (err)
			return err;
	}
	return 0;
}

/* Refuse a count without its section. */
static int sections_complete(const struct fdry_graph_view *v)
{
	uint32_t id;

	for (id = 1; id < FDRY_GSEC_END; id++)
		if (infos[id].name && !v->section[id] &&
		    header_field(&v->header, infos[id].count_at, infos[id].wide))
			return fdry_fail(FDRY_E_BADIMAGE, "section %u (%s) is missing", id,
					 infos[id].name);
	return 0;
}

static uint32_t index_at(const uint8_t *p, uint32_t size)
{
	if (size == 1)
		return *p;
	return size == 2 ? fdry_get16(p) : fdry_get32(p);
}

int fdry_graph_index_check(const struct fdry_graph_view *v, enum fdry_graph_section_id id,
			   uint32_t base, uint32_t total)
{
	const struct section_info *info = &infos[id];
	uint64_t i, count = header_field(&v->header, info->count_at, info->wide);
	uint32_t index, seen = base;

	for (i = 0; i < count; i++) {
		index = index_at(v->section[id] + i * info->entry, info->entry);
		if (index > seen || index >= total + base)
			return fdry_fail(
				FDRY_E_BADIMAGE,
				"entry %" PRIu64
				" of section %u (%s) is %u, and at most %u can stand there",
				i, id, info->name, index,
				seen < total + base ? seen : total + base - 1);
		seen += index == seen;
	}
	if (seen != total + base)
		return fdry_fail(FDRY_E_BADIMAGE, "section %u (%s) uses %u of %u records", id,
				 info->name, seen - base, total);
	return 0;
}

int fdry_graph_columns_init(struct fdry_span bytes, struct fdry_graph_view *ret)
{
	struct fdry_graph_view v = { .bytes = bytes };
	const void *p = fdry_span_at(bytes, 0, sizeof(v.header));
	int err;

	if (!p)
		return fdry_fail(FDRY_E_BADIMAGE, "%zu bytes are too few for a graph object",
				 bytes.len);
	memcpy(&v.header, p, sizeof(v.header));
	err = header_check(&v.header, bytes.len);
	if (err)
		return err;
	err = directory_check(&v);
	if (err)
		return err;
	err = sections_complete(&v);
	if (err)
		return err;
	*ret = v;
	return 0;
}
