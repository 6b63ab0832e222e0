// SPDX-License-Identifier: Apache-2.0
/*
 * encode.c - from nodes and edges to the canonical bytes of a graph object.
 *
 * Sections are written in the order of ids, without empty ones. The encoder then opens the result
 * like a reader, so a seal never stores an object that a reader would refuse.
 */
#include "graph/codec.h"

int fdry_graph_enc_node(struct fdry_graph_enc *enc, const struct fdry_node *node)
{
	const struct fdry_node_ops *ops = fdry_node_ops(node->kind);
	struct fdry_buf *kinds = &enc->column[FDRY_GSEC_KIND];
	uint8_t kind = (uint8_t)node->kind;
	int err;

	if (!ops)
		return fdry_bug("a node of kind %u cannot be written", node->kind);
	if (kinds->len >= FDRY_GRAPH_NODES_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the graph has more than %u nodes; split it",
				 FDRY_GRAPH_NODES_MAX);
	err = ops->put ? ops->put(enc, node) : 0;
	return err ? err : fdry_buf_put(kinds, &kind, 1);
}

int fdry_graph_enc_subgraph(struct fdry_graph_enc *enc, uint32_t owner)
{
	struct fdry_graph_subgraph s = {
		.owner = owner,
		.first = (uint32_t)enc->column[FDRY_GSEC_KIND].len,
	};

	return fdry_buf_put(&enc->column[FDRY_GSEC_SUBGRAPH], &s, sizeof(s));
}

static int edge_put(struct fdry_graph_enc *enc, const struct fdry_edge *e)
{
	static const CUgraphEdgeData plain;
	uint32_t index = 0;
	uint8_t column;
	int err;

	if (memcmp(&e->data, &plain, sizeof(plain))) {
		err = fdry_intern(&enc->edge_data, &e->data, sizeof(e->data), &index, NULL);
		if (err)
			return err;
		index++;
	}
	if (index > FDRY_GRAPH_EDGE_DATA_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the graph has more than %u kinds of edge data",
				 FDRY_GRAPH_EDGE_DATA_MAX);
	column = (uint8_t)index;
	err = fdry_buf_put_u32(&enc->column[FDRY_GSEC_EDGE_FROM], e->from);
	if (err)
		return err;
	err = fdry_buf_put_u32(&enc->column[FDRY_GSEC_EDGE_TO], e->to);
	return err ? err : fdry_buf_put(&enc->column[FDRY_GSEC_EDGE_INDEX], &column, 1);
}

static bool links_to_next(const struct fdry_edge *e, uint32_t node)
{
	static const CUgraphEdgeData plain;

	return e->from == node && e->to == node + 1 && !memcmp(&e->data, &plain, sizeof(plain));
}

/* Most edges lead from a node to the next one and form a chain. Store the breaks of the chain, and
 * all other edges. */
int fdry_graph_enc_edges(struct fdry_graph_enc *enc, struct fdry_edge *edges, uint32_t count)
{
	uint32_t nodes = (uint32_t)enc->column[FDRY_GSEC_KIND].len, node, i = 0;
	int err;

	if (count > FDRY_GRAPH_EDGES_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the graph has more than %u edges; split it",
				 FDRY_GRAPH_EDGES_MAX);
	fdry_edges_sort(edges, count);
	for (node = 0; node + 1 < nodes; node++) {
		if (i < count && links_to_next(&edges[i], node)) {
			i++;
		} else {
			err = fdry_buf_put_u32(&enc->column[FDRY_GSEC_BREAK], node);
			if (err)
				return err;
		}
		/* cppcheck-suppress nullPointer ; @count is 0 if @edges is NULL */
		for (; i < count && edges[i].from == node; i++) {
			err = edge_put(enc, &edges[i]);
			if (err)
				return err;
		}
	}
	for (; i < count; i++) {
		err = edge_put(enc, &edges[i]);
		if (err)
			return err;
	}
	enc->linked = true;
	return 0;
}

int fdry_graph_enc_optional(struct fdry_graph_enc *enc, uint32_t id, struct fdry_span data)
{
	struct fdry_section s = { .id = id, .length = data.len };
	int err;

	if (!(id & FDRY_SECTION_OPTIONAL) || !data.len)
		return fdry_fail(FDRY_E_INVAL, "section 0x%x is not an optional one with content",
				 id);
	err = fdry_buf_put(&enc->optional, &s, sizeof(s));
	if (err)
		return err;
	err = fdry_buf_put(&enc->optional, data.data, data.len);
	return err ? err : fdry_buf_align(&enc->optional, FDRY_GRAPH_ALIGN);
}

/* The bytes of a section, which is a column or a table. */
static struct fdry_span section_bytes(const struct fdry_graph_enc *enc, uint32_t id)
{
	const struct fdry_buf *b = &enc->column[id];

	if (id == FDRY_GSEC_KERNEL)
		b = &enc->kernels.bytes;
	else if (id == FDRY_GSEC_LAUNCH)
		b = &enc->launches.bytes;
	else if (id == FDRY_GSEC_ATTR)
		b = &enc->attr_sets.bytes;
	else if (id == FDRY_GSEC_EDGE_DATA)
		b = &enc->edge_data.bytes;
	return (struct fdry_span){ b->data, b->len };
}

/* Write the end of each attribute set, counted in attributes. */
static int attr_ends_put(struct fdry_graph_enc *enc)
{
	struct fdry_buf *column = &enc->column[FDRY_GSEC_ATTR_SET];
	uint32_t i;
	int err;

	column->len = 0;
	for (i = 0; i < enc->attr_sets.count; i++) {
		err = fdry_buf_put_u32(column,
				       fdry_get32(enc->attr_sets.ends.data + 4 * (size_t)i) /
					       (uint32_t)sizeof(struct fdry_graph_attr));
		if (err)
			return err;
	}
	return 0;
}

/* Split the configurations into columns. */
static int configs_put(struct fdry_graph_enc *enc)
{
	struct fdry_buf *kernel = &enc->column[FDRY_GSEC_CONFIG_KERNEL],
			*launch = &enc->column[FDRY_GSEC_CONFIG_LAUNCH];
	struct fdry_buf *attrs = &enc->column[FDRY_GSEC_CONFIG_ATTRS];
	struct fdry_graph_config c;
	uint32_t i;
	int err;

	kernel->len = launch->len = attrs->len = 0;
	for (i = 0; i < enc->configs.count; i++) {
		memcpy(&c, enc->configs.bytes.data + sizeof(c) * (size_t)i, sizeof(c));
		err = fdry_buf_put_u32(kernel, c.kernel);
		if (err)
			return err;
		err = fdry_buf_put_u32(launch, c.launch);
		if (err)
			return err;
		err = fdry_buf_put_u32(attrs, c.attrs);
		if (err)
			return err;
	}
	return 0;
}

/* The features that a reader of this object must know. */
static uint32_t features(const struct fdry_graph_enc *enc)
{
	const struct fdry_buf *copies = &enc->column[FDRY_GSEC_MEMCPY],
			      *kernels = &enc->kernels.bytes;
	struct fdry_graph_kernel k;
	struct fdry_graph_memcpy m;
	uint32_t ret = enc->column[FDRY_GSEC_SUBGRAPH].len ? FDRY_GRAPH_INCOMPAT_SUBGRAPHS : 0;
	size_t at;

	if (enc->column[FDRY_GSEC_HOST_END].len)
		ret |= FDRY_GRAPH_INCOMPAT_FUNCTIONS;
	if (enc->column[FDRY_GSEC_MEMOP_END].len)
		ret |= FDRY_GRAPH_INCOMPAT_MEMOPS;
	if (enc->column[FDRY_GSEC_CONDITIONAL].len)
		ret |= FDRY_GRAPH_INCOMPAT_CONDITIONALS;
	if (enc->column[FDRY_GSEC_SEMAPHORE].len)
		ret |= FDRY_GRAPH_INCOMPAT_SEMAPHORES;
	for (at = 0; at < copies->len; at += sizeof(m)) {
		memcpy(&m, copies->data + at, sizeof(m));
		if (fdry_host_is(m.src) || fdry_host_is(m.dst))
			ret |= FDRY_GRAPH_INCOMPAT_HOST;
		if (fdry_cuarray_is(m.src) || fdry_cuarray_is(m.dst))
			ret |= FDRY_GRAPH_INCOMPAT_ARRAYS;
	}
	for (at = 0; at < kernels->len; at += sizeof(k)) {
		memcpy(&k, kernels->data + at, sizeof(k));
		if (k.param_bytes & FDRY_GRAPH_KERNEL_SHORT)
			ret |= FDRY_GRAPH_INCOMPAT_SHORT;
	}
	return ret;
}

static int header_put(const struct fdry_graph_enc *enc, struct fdry_buf *out)
{
	const struct fdry_buf *c = enc->column;
	struct fdry_graph_header h = {
		.version = FDRY_GRAPH_VERSION,
		.incompat = features(enc),
		.compat = enc->compat,
		.nodes = (uint32_t)c[FDRY_GSEC_KIND].len,
		.kernel_nodes = (uint32_t)(c[FDRY_GSEC_NODE_CONFIG].len / 2),
		.memset_nodes =
			(uint32_t)(c[FDRY_GSEC_MEMSET].len / sizeof(struct fdry_graph_memset)),
		.memcpy_nodes =
			(uint32_t)(c[FDRY_GSEC_MEMCPY].len / sizeof(struct fdry_graph_memcpy)),
		.event_nodes = (uint32_t)(c[FDRY_GSEC_EVENT].len / 4),
		.events = enc->events,
		.kernels = enc->kernels.count,
		.launches = enc->launches.count,
		.attr_sets = enc->attr_sets.count,
		.attrs = (uint32_t)(enc->attr_sets.bytes.len / sizeof(struct fdry_graph_attr)),
		.edges = (uint32_t)(c[FDRY_GSEC_EDGE_FROM].len / 4),
		.edge_data = enc->edge_data.count,
		.arg_bytes = enc->blocks.len,
		.configs = enc->configs.count,
		.patches = (uint32_t)(c[FDRY_GSEC_PATCH].len / 4),
		.breaks = (uint32_t)(c[FDRY_GSEC_BREAK].len / 4),
		.subgraphs = (uint32_t)(c[FDRY_GSEC_SUBGRAPH].len /
					sizeof(struct fdry_graph_subgraph)),
		.host_nodes = (uint32_t)(c[FDRY_GSEC_HOST_END].len / 4),
		.host_bytes = (uint32_t)c[FDRY_GSEC_HOST_NAME].len,
		.memop_nodes = (uint32_t)(c[FDRY_GSEC_MEMOP_END].len / 4),
		.memops = (uint32_t)(c[FDRY_GSEC_MEMOP].len / sizeof(struct fdry_graph_memop)),
		.conditional_nodes = (uint32_t)(c[FDRY_GSEC_CONDITIONAL].len /
						sizeof(struct fdry_graph_conditional)),
		.semaphore_bytes = (uint32_t)c[FDRY_GSEC_SEMAPHORE].len,
	};

	memcpy(h.magic, FDRY_GRAPH_MAGIC, sizeof(h.magic));
	return fdry_buf_put(out, &h, sizeof(h));
}

/* Write directory and sections: the known ones, then the optional ones. */
static int sections_put(const struct fdry_graph_enc *enc, struct fdry_buf *out, uint32_t *count)
{
	struct fdry_section_part part;
	struct fdry_buf parts = { 0 };
	struct fdry_section s;
	size_t off;
	int err;

	for (part.id = 1; part.id < FDRY_GSEC_END; part.id++) {
		part.bytes = section_bytes(enc, part.id);
		err = fdry_buf_put(&parts, &part, sizeof(part));
		if (err)
			goto out_release;
	}
	for (off = 0; off < enc->optional.len; off += sizeof(s) + fdry_graph_padded(s.length)) {
		memcpy(&s, enc->optional.data + off, sizeof(s));
		part = (struct fdry_section_part){
			s.id, { enc->optional.data + off + sizeof(s), s.length }
		};
		err = fdry_buf_put(&parts, &part, sizeof(part));
		if (err)
			goto out_release;
	}
	err = fdry_sections_put((struct fdry_section_part *)parts.data, parts.len / sizeof(part),
				out, count);
out_release:
	fdry_buf_release(&parts);
	return err;
}

int fdry_graph_enc_finish(struct fdry_graph_enc *enc, struct fdry_buf *ret)
{
	struct fdry_graph_view v;
	struct fdry_buf out = { 0 };
	uint32_t sections = 0;
	int err = enc->linked ? 0 : fdry_graph_enc_edges(enc, NULL, 0);

	if (err)
		return err;
	err = attr_ends_put(enc);
	if (err)
		return err;
	err = configs_put(enc);
	if (err)
		return err;
	err = fdry_graph_enc_conditions(enc);
	if (err)
		return err;
	err = header_put(enc, &out);
	if (err)
		goto out_release;
	err = sections_put(enc, &out, &sections);
	if (err)
		goto out_release;
	fdry_set32(out.data + offsetof(struct fdry_graph_header, sections), sections);
	fdry_set64(out.data + offsetof(struct fdry_graph_header, size), out.len);
	err = fdry_graph_view_init((struct fdry_span){ out.data, out.len }, &v);
	if (err)
		goto out_release;
	*ret = out;
	return 0;

out_release:
	fdry_buf_release(&out);
	return err;
}

void fdry_graph_enc_release(struct fdry_graph_enc *enc)
{
	uint32_t id;

	fdry_intern_release(&enc->kernels);
	fdry_intern_release(&enc->launches);
	fdry_intern_release(&enc->attr_sets);
	fdry_intern_release(&enc->edge_data);
	fdry_intern_release(&enc->configs);
	for (id = 0; id < FDRY_GSEC_END; id++)
		fdry_buf_release(&enc->column[id]);
	fdry_buf_release(&enc->blocks);
	fdry_buf_release(&enc->starts);
	fdry_buf_release(&enc->recent);
	fdry_buf_release(&enc->conditionals);
	fdry_buf_release(&enc->optional);
	memset(enc, 0, sizeof(*enc));
}
