// SPDX-License-Identifier: Apache-2.0
/* capacity.c - sizes external tensors, and checks that graphs stay inside them; see capacity.h. */
#include "image/capacity.h"

#include <string.h>

#include "image/tensor.h"
#include "lib/search.h"

/* --- sizes --- */

static uint64_t row_bytes(const struct fdry_tensor *t)
{
	uint64_t row = fdry_dtype_size(t->dtype);
	uint32_t d;

	for (d = 1; d < t->rank; d++)
		row *= (uint64_t)t->shape[d];
	return row;
}

static int opts_check(const struct fdry_manifest *m, const struct fdry_load_opts *o)
{
	const struct fdry_mf_tensor *t;
	size_t i, k;

	if (o->nexternals && !o->externals)
		return fdry_fail(FDRY_E_OPTS, "%zu external tensors are given at NULL",
				 o->nexternals);
	for (i = 0; i < o->nexternals; i++) {
		if (!o->externals[i].name)
			return fdry_fail(FDRY_E_OPTS, "external tensor %zu has no name", i);
		t = fdry_manifest_tensor(m, o->externals[i].name);
		if (!t)
			return fdry_fail(FDRY_E_NOKEY,
					 "the image has no tensor named '%.80s'; "
					 "fdry_image_describe() lists them",
					 o->externals[i].name);
		for (k = 0; k < m->n_capacities && &m->tensors[m->capacities[k].tensor] != t; k++)
			;
		if (k == m->n_capacities)
			return fdry_fail(FDRY_E_STATE,
					 "tensor '%s' was captured without a capacity, so its size "
					 "is fixed; "
					 "capture it with fdry_capture_capacity()",
					 o->externals[i].name);
		for (k = 0; k < i; k++)
			if (!strcmp(o->externals[k].name, o->externals[i].name))
				return fdry_fail(FDRY_E_OPTS, "external tensor '%s' is given twice",
						 o->externals[i].name);
	}
	return 0;
}

static int capacity_size(struct fdry_capacity *r, const struct fdry_tensor *t, uint64_t bytes)
{
	uint64_t row = row_bytes(t);

	if (!bytes || bytes > r->max || bytes % row)
		return fdry_fail(
			FDRY_E_RANGE,
			"tensor '%s' cannot have %llu bytes; ask for a multiple of its row's "
			"%llu bytes, at most %llu",
			t->name, (unsigned long long)bytes, (unsigned long long)row,
			(unsigned long long)(r->max / row * row));
	r->bytes = bytes;
	return 0;
}

/* If the tensor gets fewer bytes than were captured, refuse another tensor in the rest. */
static int cut_check(const struct fdry_manifest *m, const struct fdry_capacity *r,
		     const struct fdry_tensor *t)
{
	struct fdry_tensor other;
	uint64_t bytes;
	uint32_t i;
	int err;

	for (i = 0; i < m->n_tensors && r->bytes < r->captured; i++) {
		fdry_manifest_tensor_get(m, &m->tensors[i], &other);
		if (i == r->tensor || other.flags & FDRY_TENSOR_HOST)
			continue;
		err = fdry_tensor_extent(&other, &bytes);
		if (err)
			return err;
		if (other.addr < r->addr + r->captured &&
		    other.addr + bytes > r->addr + r->bytes)
			return fdry_fail(FDRY_E_RANGE,
					 "with %llu bytes for '%s', tensor '%s' has no memory; "
					 "ask for %llu",
					 (unsigned long long)r->bytes, t->name, other.name,
					 (unsigned long long)r->captured);
	}
	return 0;
}

static int capacity_make(const struct fdry_manifest *m, const struct fdry_mf_capacity *mf,
			 const struct fdry_load_opts *o, struct fdry_capacity *ret)
{
	struct fdry_tensor t;
	size_t i;
	int err;

	fdry_manifest_tensor_get(m, &m->tensors[mf->tensor], &t);
	*ret = (struct fdry_capacity){ .tensor = mf->tensor, .addr = t.addr, .max = mf->max };
	err = fdry_tensor_extent(&t, &ret->captured);
	if (err)
		return err;
	ret->bytes = ret->captured;
	for (i = 0; i < o->nexternals; i++) {
		if (strcmp(o->externals[i].name, t.name))
			continue;
		err = capacity_size(ret, &t, o->externals[i].bytes);
		if (err)
			return err;
	}
	return cut_check(m, ret, &t);
}

int fdry_capacities_make(const struct fdry_manifest *m, const struct fdry_load_opts *o,
			 struct fdry_buf *ret)
{
	struct fdry_buf capacities = { 0 };
	struct fdry_capacity r;
	uint32_t i;
	int err = opts_check(m, o);

	if (err)
		goto out_release;
	for (i = 0; i < m->n_capacities; i++) {
		err = capacity_make(m, &m->capacities[i], o, &r);
		if (err)
			goto out_release;
		err = fdry_buf_put(&capacities, &r, sizeof(r));
		if (err)
			goto out_release;
	}
	*ret = capacities;
	return 0;
out_release:
	fdry_buf_release(&capacities);
	return err;
}

const struct fdry_capacity *fdry_capacity_of(const struct fdry_buf *capacities, uint32_t i)
{
	size_t low = fdry_lower_bound(k, fdry_capacity_count(capacities),
				      fdry_capacity_array(capacities)[k].tensor < i);
	return low < fdry_capacity_count(capacities) &&
			       fdry_capacity_array(capacities)[low].tensor == i
		       ? &fdry_capacity_array(capacities)[low]
		       : NULL;
}

const struct fdry_capacity *fdry_capacity_in(const struct fdry_buf *capacities, uint64_t addr,
					     uint64_t size)
{
	size_t k;

	for (k = 0; k < fdry_capacity_count(capacities); k++)
		if (fdry_capacity_array(capacities)[k].addr >= addr &&
		    fdry_capacity_array(capacities)[k].addr - addr < size)
			return &fdry_capacity_array(capacities)[k];
	return NULL;
}

void fdry_capacity_shape(const struct fdry_capacity *capacity, struct fdry_tensor *t)
{
	t->shape[0] = (int64_t)(capacity->bytes / row_bytes(t));
	t->stride[0] =
		(int64_t)(row_bytes(t) /
			  fdry_dtype_size(t->dtype)); /* the stride of a single row may be any
							 number */
}

/* --- graphs that use memory without backing --- */

/* The capacity that has one of the @bytes bytes at @addr in its part that was captured and is not
 * backed; NULL: none. */
static const struct fdry_capacity *cut_at(const struct fdry_buf *capacities, uint64_t addr,
					  uint64_t bytes)
{
	const struct fdry_capacity *r = fdry_capacity_array(capacities);
	size_t k;

	for (k = 0; k < fdry_capacity_count(capacities); k++)
		if (r[k].bytes < r[k].captured && addr < r[k].addr + r[k].captured &&
		    addr + bytes > r[k].addr + r[k].bytes)
			return &r[k];
	return NULL;
}

/* Look at every multiple of 4, as the reader of graphs does, since structs may be packed. */
static const struct fdry_capacity *kernel_cut(const struct fdry_buf *capacities,
					      struct fdry_span args)
{
	const struct fdry_capacity *r = NULL;
	size_t at;

	for (at = 0; at + 8 <= args.len && !r; at += 4)
		r = cut_at(capacities, fdry_get64(args.data + at), 1);
	return r;
}

static uint64_t copy_span(const struct fdry_graph_memcpy *c, uint64_t pitch, uint64_t height)
{
	return ((c->depth - 1) * height + c->height - 1) * pitch + c->width;
}

static const struct fdry_capacity *copy_cut(const struct fdry_buf *capacities,
					    const struct fdry_graph_memcpy *c)
{
	const struct fdry_capacity *r = NULL;

	if (fdry_place_is_device(c->src))
		r = cut_at(capacities, c->src, copy_span(c, c->src_pitch, c->src_height));
	if (!r && fdry_place_is_device(c->dst))
		r = cut_at(capacities, c->dst, copy_span(c, c->dst_pitch, c->dst_height));
	return r;
}

static const struct fdry_capacity *memops_cut(const struct fdry_buf *capacities,
					      struct fdry_span ops)
{
	const struct fdry_capacity *r = NULL;
	struct fdry_graph_memop op;
	size_t at;

	for (at = 0; !r && at < ops.len; at += sizeof(op)) {
		memcpy(&op, ops.data + at, sizeof(op));
		if (fdry_graph_memop_bytes(&op))
			r = cut_at(capacities, op.addr, fdry_graph_memop_bytes(&op));
	}
	return r;
}

static const struct fdry_capacity *node_cut(const struct fdry_buf *capacities,
					    const struct fdry_node *n)
{
	const struct fdry_graph_memset *s = &n->memset;

	switch (n->kind) {
	case FDRY_NODE_KERNEL:
		return kernel_cut(capacities, n->kernel.args);
	case FDRY_NODE_MEMSET:
		return cut_at(capacities, s->dst,
			      (s->height - 1) * s->pitch + s->width * s->element_size);
	case FDRY_NODE_MEMCPY:
		return copy_cut(capacities, &n->memcpy);
	case FDRY_NODE_MEMOP:
		return memops_cut(capacities, n->memops);
	default:
		return NULL;
	}
}

static int cut_fail(const struct fdry_manifest *m, const struct fdry_capacity *r, uint32_t node)
{
	return fdry_fail(
		FDRY_E_RANGE,
		"node %u uses memory of tensor '%s' beyond the %llu bytes that were asked for; "
		"ask for %llu",
		node, fdry_manifest_str(m, m->tensors[r->tensor].name),
		(unsigned long long)r->bytes, (unsigned long long)r->captured);
}

static bool any_cut(const struct fdry_buf *capacities)
{
	size_t k;

	for (k = 0; k < fdry_capacity_count(capacities); k++)
		if (fdry_capacity_array(capacities)[k].bytes <
		    fdry_capacity_array(capacities)[k].captured)
			return true;
	return false;
}

int fdry_capacities_check(const struct fdry_manifest *m, const struct fdry_buf *capacities,
			  const struct fdry_graph_view *view)
{
	const struct fdry_capacity *r = NULL;
	struct fdry_graph_cursor c;
	struct fdry_node node;
	int err;

	if (!any_cut(capacities))
		return 0;
	err = fdry_graph_cursor_init(view, &c);
	if (err)
		return err;
	while (!r && fdry_graph_next(&c, &node))
		r = node_cut(capacities, &node);
	if (r)
		err = cut_fail(m, r, c.node - 1);
	fdry_graph_cursor_release(&c);
	return err;
}
