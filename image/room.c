// SPDX-License-Identifier: Apache-2.0
/* room.c - see room.h. */
#include "image/room.h"

#include <string.h>

#include "image/tensor.h"

/* --- how large --- */

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
		return fdry_fail(FDRY_E_OPTS, "%zu external tensors are given at NULL", o->nexternals);
	for (i = 0; i < o->nexternals; i++) {
		if (!o->externals[i].name)
			return fdry_fail(FDRY_E_OPTS, "external tensor %zu has no name", i);
		t = fdry_manifest_tensor(m, o->externals[i].name);
		if (!t)
			return fdry_fail(FDRY_E_NOKEY, "the image has no tensor named '%.80s' to size", o->externals[i].name);
		for (k = 0; k < m->n_rooms && &m->tensors[m->rooms[k].tensor] != t; k++)
			;
		if (k == m->n_rooms)
			return fdry_fail(FDRY_E_STATE, "tensor '%s' has the size that it was captured with: no room was left for it; "
					 "capture it with fdry_capture_room()", o->externals[i].name);
		for (k = 0; k < i; k++)
			if (!strcmp(o->externals[k].name, o->externals[i].name))
				return fdry_fail(FDRY_E_OPTS, "external tensor '%s' is given twice", o->externals[i].name);
	}
	return 0;
}

static int room_size(struct fdry_room *r, const struct fdry_tensor *t, uint64_t bytes)
{
	uint64_t row = row_bytes(t);

	if (!bytes || bytes > r->max || bytes % row)
		return fdry_fail(FDRY_E_RANGE, "tensor '%s' cannot have %llu bytes: give a multiple of %llu, its rows, from 1 to %llu",
				 t->name, (unsigned long long)bytes, (unsigned long long)row,
				 (unsigned long long)(r->max / row * row));
	r->bytes = bytes;
	return 0;
}

/* Another tensor must not lie in what is cut off. */
static int cut_check(const struct fdry_manifest *m, const struct fdry_room *r, const struct fdry_tensor *t)
{
	struct fdry_tensor other;
	uint64_t bytes;
	uint32_t i;
	int err = 0;

	for (i = 0; i < m->n_tensors && !err && r->bytes < r->captured; i++) {
		fdry_manifest_tensor_get(m, &m->tensors[i], &other);
		if (i == r->tensor || other.flags & FDRY_TENSOR_HOST)
			continue;
		err = fdry_tensor_extent(&other, &bytes);
		if (!err && other.addr < r->addr + r->captured && other.addr + bytes > r->addr + r->bytes)
			err = fdry_fail(FDRY_E_RANGE, "with %llu bytes of '%s' backed, tensor '%s' has no memory; back %llu",
					(unsigned long long)r->bytes, t->name, other.name, (unsigned long long)r->captured);
	}
	return err;
}

static int room_make(const struct fdry_manifest *m, const struct fdry_mf_room *mf, const struct fdry_load_opts *o,
		     struct fdry_room *ret)
{
	struct fdry_tensor t;
	size_t i;
	int err;

	fdry_manifest_tensor_get(m, &m->tensors[mf->tensor], &t);
	*ret = (struct fdry_room){ .tensor = mf->tensor, .addr = t.addr, .max = mf->max };
	err = fdry_tensor_extent(&t, &ret->captured);
	ret->bytes = ret->captured;
	for (i = 0; i < o->nexternals && !err; i++)
		if (!strcmp(o->externals[i].name, t.name))
			err = room_size(ret, &t, o->externals[i].bytes);
	return err ? err : cut_check(m, ret, &t);
}

int fdry_rooms_make(const struct fdry_manifest *m, const struct fdry_load_opts *o, struct fdry_buf *ret)
{
	struct fdry_buf rooms = { 0 };
	struct fdry_room r;
	uint32_t i;
	int err = opts_check(m, o);

	for (i = 0; i < m->n_rooms && !err; i++) {
		err = room_make(m, &m->rooms[i], o, &r);
		if (!err)
			err = fdry_buf_put(&rooms, &r, sizeof(r));
	}
	if (err)
		fdry_buf_release(&rooms);
	else
		*ret = rooms;
	return err;
}

const struct fdry_room *fdry_room_of(const struct fdry_buf *rooms, uint32_t i)
{
	size_t low = 0, high = fdry_room_count(rooms), mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (fdry_room_array(rooms)[mid].tensor < i)
			low = mid + 1;
		else
			high = mid;
	}
	return low < fdry_room_count(rooms) && fdry_room_array(rooms)[low].tensor == i ? &fdry_room_array(rooms)[low] : NULL;
}

const struct fdry_room *fdry_room_in(const struct fdry_buf *rooms, uint64_t addr, uint64_t size)
{
	size_t k;

	for (k = 0; k < fdry_room_count(rooms); k++)
		if (fdry_room_array(rooms)[k].addr >= addr && fdry_room_array(rooms)[k].addr - addr < size)
			return &fdry_room_array(rooms)[k];
	return NULL;
}

void fdry_room_shape(const struct fdry_room *room, struct fdry_tensor *t)
{
	t->shape[0] = (int64_t)(room->bytes / row_bytes(t));
	t->stride[0] = (int64_t)(row_bytes(t) / fdry_dtype_size(t->dtype)); /* of a single row it may be any number */
}

/* --- what graphs do with what is not backed --- */

/* The room in whose cut part one of @bytes bytes at @addr lies; NULL: none does. */
static const struct fdry_room *cut_at(const struct fdry_buf *rooms, uint64_t addr, uint64_t bytes)
{
	const struct fdry_room *r = fdry_room_array(rooms);
	size_t k;

	for (k = 0; k < fdry_room_count(rooms); k++)
		if (r[k].bytes < r[k].captured && addr < r[k].addr + r[k].captured && addr + bytes > r[k].addr + r[k].bytes)
			return &r[k];
	return NULL;
}

/* At every multiple of 4, as when the graph was read: packed structs exist. */
static const struct fdry_room *kernel_cut(const struct fdry_buf *rooms, struct fdry_span args)
{
	const struct fdry_room *r = NULL;
	size_t at;

	for (at = 0; at + 8 <= args.len && !r; at += 4)
		r = cut_at(rooms, fdry_get64(args.data + at), 1);
	return r;
}

static uint64_t copy_span(const struct fdry_graph_memcpy *c, uint64_t pitch, uint64_t height)
{
	return ((c->depth - 1) * height + c->height - 1) * pitch + c->width;
}

static const struct fdry_room *copy_cut(const struct fdry_buf *rooms, const struct fdry_graph_memcpy *c)
{
	const struct fdry_room *r = NULL;

	if (!fdry_host_is(c->src))
		r = cut_at(rooms, c->src, copy_span(c, c->src_pitch, c->src_height));
	if (!r && !fdry_host_is(c->dst))
		r = cut_at(rooms, c->dst, copy_span(c, c->dst_pitch, c->dst_height));
	return r;
}

static const struct fdry_room *node_cut(const struct fdry_buf *rooms, const struct fdry_node *n)
{
	const struct fdry_graph_memset *s = &n->memset;

	switch (n->kind) {
	case FDRY_NODE_KERNEL:
		return kernel_cut(rooms, n->kernel.args);
	case FDRY_NODE_MEMSET:
		return cut_at(rooms, s->dst, (s->height - 1) * s->pitch + s->width * s->element_size);
	case FDRY_NODE_MEMCPY:
		return copy_cut(rooms, &n->memcpy);
	default:
		return NULL;
	}
}

static int cut_fail(const struct fdry_manifest *m, const struct fdry_room *r, uint32_t node)
{
	return fdry_fail(FDRY_E_RANGE, "node %u uses memory of tensor '%s' beyond the %llu bytes that are to be backed; back %llu",
			 node, fdry_manifest_str(m, m->tensors[r->tensor].name), (unsigned long long)r->bytes,
			 (unsigned long long)r->captured);
}

static bool any_cut(const struct fdry_buf *rooms)
{
	size_t k;

	for (k = 0; k < fdry_room_count(rooms); k++)
		if (fdry_room_array(rooms)[k].bytes < fdry_room_array(rooms)[k].captured)
			return true;
	return false;
}

int fdry_rooms_check(const struct fdry_manifest *m, const struct fdry_buf *rooms, const struct fdry_graph_view *view)
{
	const struct fdry_room *r = NULL;
	struct fdry_graph_cursor c;
	struct fdry_node node;
	int err;

	if (!any_cut(rooms))
		return 0;
	err = fdry_graph_walk(view, &c);
	if (err)
		return err;
	while (!r && fdry_graph_next(&c, &node))
		r = node_cut(rooms, &node);
	if (r)
		err = cut_fail(m, r, c.node - 1);
	fdry_graph_walk_end(&c);
	return err;
}
