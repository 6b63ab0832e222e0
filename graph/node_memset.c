// SPDX-License-Identifier: Apache-2.0
/* node_memset.c - memset nodes, with one record each, for device memory of the region. */
#include <inttypes.h>

#include "graph/build.h"
#include "graph/read.h"
#include "graph/text.h"

/*
 * The number of bytes from the first to the last that are written; false if they overflow the
 * address space.
 */
static bool memset_extent(const struct fdry_graph_memset *m, uint64_t *ret)
{
	uint64_t row, rows;

	return !__builtin_mul_overflow(m->width, m->element_size, &row) &&
	       !__builtin_mul_overflow(m->height - 1, m->pitch, &rows) &&
	       !__builtin_add_overflow(rows, row, ret) && *ret <= UINT64_MAX - m->dst &&
	       (m->height == 1 || m->pitch >= row);
}

/* The fault of a record in canonical form, or NULL. */
static const char *memset_fault(const struct fdry_graph_memset *m)
{
	uint64_t extent;

	if (m->element_size != 1 && m->element_size != 2 && m->element_size != 4)
		return "elements of neither 1, 2 nor 4 bytes";
	if (m->element_size < 4 && m->value >> 8 * m->element_size)
		return "a value larger than its elements";
	if (!m->width || !m->height)
		return "a size of 0";
	if (m->height == 1 && m->pitch)
		return "a pitch and only one row";
	if (!memset_extent(m, &extent))
		return "a size that does not fit its pitch or the address space";
	return NULL;
}

static int memset_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	CUDA_MEMSET_NODE_PARAMS p;
	struct fdry_graph_memset m;
	const char *fault;
	uint64_t extent = 0;
	int err;

	memset(&p, 0, sizeof(p));
	err = fdry_call(rd->drv, cuGraphMemsetNodeGetParams, handle, &p);
	if (err)
		return err;
	m = (struct fdry_graph_memset){
		.dst = p.dst,
		.pitch = p.height == 1 ? 0 : p.pitch,
		.width = p.width,
		.height = p.height,
		.value = p.elementSize < 4 ? p.value & ((1u << 8 * p.elementSize) - 1) : p.value,
		.element_size = p.elementSize,
	};
	fault = memset_fault(&m);
	if (fault)
		return fdry_fail(FDRY_E_REFUSED, "it has %s; remove it or write it with a kernel",
				 fault);
	memset_extent(&m, &extent);
	ret->memset = m;
	return fdry_read_range(rd, "what it sets", m.dst, extent);
}

static int memset_put(struct fdry_graph_enc *enc, const struct fdry_node *node)
{
	return fdry_buf_put(&enc->column[FDRY_GSEC_MEMSET], &node->memset, sizeof(node->memset));
}

static void memset_at(const struct fdry_graph_view *v, uint32_t i, struct fdry_graph_memset *ret)
{
	memcpy(ret, v->section[FDRY_GSEC_MEMSET] + sizeof(*ret) * (size_t)i, sizeof(*ret));
}

static int memset_check(const struct fdry_graph_view *v)
{
	struct fdry_graph_memset m;
	const char *fault;
	uint32_t i;

	for (i = 0; i < v->header.memset_nodes; i++) {
		memset_at(v, i, &m);
		fault = memset_fault(&m);
		if (fault)
			return fdry_fail(FDRY_E_BADIMAGE, "memset node %u has %s", i, fault);
	}
	return 0;
}

static void memset_get(struct fdry_graph_cursor *c, struct fdry_node *ret)
{
	memset_at(c->v, c->next[FDRY_NODE_MEMSET]++, &ret->memset);
}

static int memset_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	const struct fdry_graph_memset *m = &node->memset;
	CUDA_MEMSET_NODE_PARAMS p = {
		.dst = m->dst,
		.width = m->width,
		.height = m->height,
		.value = m->value,
		.elementSize = m->element_size,
		/* Drivers ignore the pitch of a single row, but accept the row's length. */
		.pitch = m->height == 1 ? m->width * m->element_size : m->pitch,
	};

	return fdry_call(b->drv, cuGraphAddMemsetNode, ret, b->graph, NULL, 0, &p, b->in->ctx);
}

static int memset_to_text(const struct fdry_node *node, struct fdry_buf *ret)
{
	const struct fdry_graph_memset *m = &node->memset;

	return fdry_buf_printf(ret,
			       " dst 0x%" PRIx64 " pitch %" PRIu64
			       " value 0x%x element %u width %" PRIu64 " height %" PRIu64,
			       m->dst, m->pitch, m->value, m->element_size, m->width, m->height);
}

static int memset_from_text(struct fdry_text *t, struct fdry_node *ret)
{
	struct fdry_graph_memset *m = &ret->memset;
	uint64_t value = 0, element = 0;
	int err = fdry_named_u64(&t->w, "dst", &m->dst);

	if (err)
		return err;
	err = fdry_named_u64(&t->w, "pitch", &m->pitch);
	if (err)
		return err;
	err = fdry_named_u64(&t->w, "value", &value);
	if (err)
		return err;
	err = fdry_named_u64(&t->w, "element", &element);
	if (err)
		return err;
	err = fdry_named_u64(&t->w, "width", &m->width);
	if (err)
		return err;
	err = fdry_named_u64(&t->w, "height", &m->height);
	if (err)
		return err;
	if (value > UINT32_MAX || element > UINT32_MAX)
		return fdry_fail(FDRY_E_INVAL, "value and element have 32 bits");
	m->value = (uint32_t)value;
	m->element_size = (uint32_t)element;
	return 0;
}

const struct fdry_node_ops fdry_node_memset_ops = {
	.name = "memset",
	.read = memset_read,
	.put = memset_put,
	.check = memset_check,
	.get = memset_get,
	.build = memset_build,
	.to_text = memset_to_text,
	.from_text = memset_from_text,
};
