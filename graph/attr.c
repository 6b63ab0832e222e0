// SPDX-License-Identifier: Apache-2.0
/*
 * attr.c - attributes of kernel nodes; see attr.h.
 *
 * The attributes of a node depend on the driver and the device. A built graph starts from fresh
 * nodes. So the reader queries all ids, on the nodes that read_node.c chooses, and compares the
 * values with those of a fresh node.
 */
#include "graph/attr.h"

#include <inttypes.h>

#include "graph/text.h"

struct attr_info {
	const char *name;
	const char *fields;
	const char *refused;
};

static const struct attr_info infos[FDRY_ATTR_IDS] = {
#define X(id, name, fields, refused) [id] = { #name, fields, refused },
	FDRY_ATTRS(X)
#undef X
};

/* The size of a field and its format in text, by its letter in the table. */
struct field {
	char letter;
	uint8_t size;
	const char *format;
};

static const struct field fields[] = {
	{ 'u', 4, " %" PRIu64 },
	{ 'x', 4, " 0x%" PRIx64 },
	{ 'i', 4, " %" PRId64 },
	{ 'b', 1, " %" PRIu64 },
	{ 'p', 8, " 0x%" PRIx64 },
	{ 'q', 8, " %" PRIu64 },
};

static const struct field *field_of(char letter)
{
	size_t i;

	for (i = 0; i < sizeof(fields) / sizeof(fields[0]) - 1; i++)
		if (fields[i].letter == letter)
			break;
	return &fields[i];
}

static uint32_t value_size(const struct attr_info *info)
{
	uint32_t n = 0;
	const char *f;

	for (f = info->fields; *f; f++)
		n += field_of(*f)->size;
	return n;
}

/* Convert a value of the driver to canonical encoding. */
static void value_canonical(uint32_t id, uint8_t value[FDRY_GRAPH_ATTR_VALUE])
{
	const struct attr_info *info = &infos[id];
	uint32_t size = info->name ? value_size(info) : FDRY_GRAPH_ATTR_VALUE;

	if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		fdry_set32(value, fdry_get32(value) != 0);
	/* The other fields of a window without bytes have no effect. */
	if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW && !fdry_get64(value + 8))
		size = 0;
	memset(value + size, 0, FDRY_GRAPH_ATTR_VALUE - size);
}

void fdry_attr_value_put(uint32_t id, const CUlaunchAttributeValue *v,
			 struct fdry_attr_values *ret)
{
	memcpy(ret->value[id], v, sizeof(*v));
	value_canonical(id, ret->value[id]);
	ret->readable |= 1u << id;
}

static int attr_read(const struct fdry_driver *drv, CUgraphNode node, uint32_t id,
		     struct fdry_attr_values *ret)
{
	CUlaunchAttributeValue v;
	CUresult res;

	_Static_assert(sizeof(v) == FDRY_GRAPH_ATTR_VALUE, "attribute values fill the union");
	memset(&v, 0, sizeof(v));
	res = fdry_call_raw(drv, cuGraphKernelNodeGetAttribute, node, (CUlaunchAttributeID)id, &v);
	if (res == CUDA_ERROR_INVALID_VALUE || res == CUDA_ERROR_NOT_SUPPORTED)
		return 0;
	if (res)
		return fdry_driver_result(drv, FDRY_DRV_cuGraphKernelNodeGetAttribute, res);
	fdry_attr_value_put(id, &v, ret);
	return 0;
}

int fdry_attrs_read(const struct fdry_driver *drv, CUgraphNode node, uint32_t ids,
		    struct fdry_attr_values *ret)
{
	int err;

	memset(ret, 0, sizeof(*ret));
	for (ids &= FDRY_ATTRS_ALL; ids; ids &= ids - 1) {
		err = attr_read(drv, node, (uint32_t)__builtin_ctz(ids), ret);
		if (err)
			return err;
	}
	return 0;
}

/* Refuse attribute @id, which differs from a fresh node's, if it cannot be restored. */
static int attr_keep(uint32_t id, const struct fdry_attr_values *now)
{
	const struct attr_info *info = &infos[id];

	if (!info->name)
		return fdry_fail(FDRY_E_REFUSED,
				 "it has attribute %u, which this version does not know; "
				 "use a newer version",
				 id);
	if (!(now->readable & 1u << id))
		return fdry_fail(FDRY_E_REFUSED,
				 "its attribute %s cannot be read; use another driver", info->name);
	if (info->refused)
		return fdry_fail(FDRY_E_REFUSED, "it has attribute %s and %s; capture without it",
				 info->name, info->refused);
	return 0;
}

int fdry_attrs_diff(const struct fdry_attr_values *fresh, const struct fdry_attr_values *now,
		    struct fdry_graph_attr *ret, uint32_t *count)
{
	uint32_t id, n = 0;
	int err;

	for (id = 1; id < FDRY_ATTR_IDS; id++) {
		if (!memcmp(fresh->value[id], now->value[id], FDRY_GRAPH_ATTR_VALUE) &&
		    !(fresh->readable & ~now->readable & 1u << id))
			continue;
		err = attr_keep(id, now);
		if (err)
			return err;
		ret[n].id = id;
		ret[n].size = value_size(&infos[id]);
		memcpy(ret[n++].value, now->value[id], FDRY_GRAPH_ATTR_VALUE);
	}
	*count = n;
	return 0;
}

static int attr_set(const struct fdry_driver *drv, CUgraphNode node,
		    const struct fdry_graph_attr *a)
{
	CUlaunchAttributeValue v;
	CUresult res;

	memcpy(&v, a->value, sizeof(v));
	res = fdry_call_raw(drv, cuGraphKernelNodeSetAttribute, node, (CUlaunchAttributeID)a->id,
			    &v);
	if (res == CUDA_ERROR_INVALID_VALUE || res == CUDA_ERROR_NOT_SUPPORTED)
		return fdry_fail(
			FDRY_E_REFUSED,
			"the driver does not accept its attribute %s again; capture without it",
			infos[a->id].name);
	return fdry_driver_result(drv, FDRY_DRV_cuGraphKernelNodeSetAttribute, res);
}

int fdry_attrs_set(const struct fdry_driver *drv, CUgraphNode node, struct fdry_span attrs)
{
	struct fdry_graph_attr a;
	size_t off;
	int err;

	for (off = 0; off < attrs.len; off += sizeof(a)) {
		memcpy(&a, attrs.data + off, sizeof(a));
		err = attr_set(drv, node, &a);
		if (err)
			return err;
	}
	return 0;
}

static int attr_check(const struct fdry_graph_attr *a, uint32_t after)
{
	struct fdry_graph_attr c = *a;
	const struct attr_info *info;

	if (a->id >= FDRY_ATTR_IDS || !infos[a->id].name || infos[a->id].refused)
		return fdry_fail(FDRY_E_VERSION, "attribute %u is unknown; use a newer version",
				 a->id);
	info = &infos[a->id];
	if (a->id <= after)
		return fdry_fail(FDRY_E_BADIMAGE, "attribute %s is not in ascending order",
				 info->name);
	if (a->size != value_size(info))
		return fdry_fail(FDRY_E_BADIMAGE, "attribute %s has %u bytes, not %u", info->name,
				 a->size, value_size(info));
	value_canonical(a->id, c.value);
	if (memcmp(c.value, a->value, sizeof(c.value)))
		return fdry_fail(FDRY_E_BADIMAGE, "attribute %s is not in canonical encoding",
				 info->name);
	return 0;
}

int fdry_attrs_check(struct fdry_span attrs)
{
	struct fdry_graph_attr a = { 0 };
	uint32_t after = 0;
	size_t off;
	int err;

	for (off = 0; off < attrs.len; off += sizeof(a)) {
		memcpy(&a, attrs.data + off, sizeof(a));
		err = attr_check(&a, after);
		if (err)
			return err;
		after = a.id;
	}
	return 0;
}

static uint64_t field_get(const struct field *f, const uint8_t *p)
{
	uint64_t v = 0;

	memcpy(&v, p, f->size);
	return f->letter == 'i' ? (uint64_t)(int64_t)(int32_t)v : v;
}

static int attr_to_text(const struct fdry_graph_attr *a, struct fdry_buf *ret)
{
	const struct attr_info *info = &infos[a->id];
	const uint8_t *p = a->value;
	const struct field *field;
	const char *f;
	int err = fdry_buf_printf(ret, " attr %s", info->name);

	if (err)
		return err;
	for (f = info->fields; *f; f++, p += field->size) {
		field = field_of(*f);
		err = fdry_buf_printf(ret, field->format, field_get(field, p));
		if (err)
			return err;
	}
	return 0;
}

int fdry_attrs_to_text(struct fdry_span attrs, struct fdry_buf *ret)
{
	struct fdry_graph_attr a;
	size_t off;
	int err;

	for (off = 0; off < attrs.len; off += sizeof(a)) {
		memcpy(&a, attrs.data + off, sizeof(a));
		err = attr_to_text(&a, ret);
		if (err)
			return err;
	}
	return 0;
}

static int field_from_text(struct fdry_words *w, const struct field *f, const char *name,
			   uint8_t *p)
{
	uint64_t v = 0;
	int32_t i = 0;
	int err;

	if (f->letter == 'i') {
		err = fdry_word_i32(w, name, &i);
		v = (uint32_t)i;
	} else {
		err = fdry_word_u64(w, name, f->size == 8 ? UINT64_MAX : (1ull << 8 * f->size) - 1,
				    &v);
	}
	memcpy(p, &v, f->size);
	return err;
}

static int attr_from_text(struct fdry_words *w, struct fdry_graph_attr *ret)
{
	uint8_t *p = ret->value;
	const char *f;
	uint32_t id;
	int err;

	memset(ret, 0, sizeof(*ret));
	for (id = 1; id < FDRY_ATTR_IDS; id++)
		if (infos[id].name && fdry_word_is(w, infos[id].name))
			break;
	if (id == FDRY_ATTR_IDS)
		return fdry_fail(FDRY_E_INVAL, "an attribute has an unknown name");
	ret->id = id;
	ret->size = value_size(&infos[id]);
	for (f = infos[id].fields; *f; p += field_of(*f++)->size) {
		err = field_from_text(w, field_of(*f), infos[id].name, p);
		if (err)
			return err;
	}
	return 0;
}

int fdry_attrs_from_text(struct fdry_words *w, struct fdry_graph_attr *ret, uint32_t *count)
{
	uint32_t n = 0;
	int err = 0;

	while (!err && fdry_word_is(w, "attr")) {
		if (n == FDRY_ATTR_IDS)
			return fdry_fail(FDRY_E_INVAL, "a node has more than %u attributes", n);
		err = attr_from_text(w, &ret[n]);
		n += !err;
	}
	*count = n;
	return err;
}
