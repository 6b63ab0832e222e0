// SPDX-License-Identifier: Apache-2.0
/* node.c - the tables of node kinds, made from node.def. */
#include "graph/node.h"

static const struct fdry_node_ops *const kinds[FDRY_NODE_KINDS] = {
#define FDRY_NODE(nr, NAME, name, type, ops) [FDRY_NODE_##NAME] = &ops,
#define FDRY_NODE_REFUSED(type, name, why)
#include "graph/node.def"
#undef FDRY_NODE
#undef FDRY_NODE_REFUSED
};

struct driver_type {
	CUgraphNodeType type;
	enum fdry_node_kind kind; /* 0: refused */
	const char *name;
	const char *why;
};

static const struct driver_type driver_types[] = {
#define FDRY_NODE(nr, NAME, name, type, ops) { type, FDRY_NODE_##NAME, name, NULL },
#define FDRY_NODE_REFUSED(type, name, why) { type, 0, name, why },
#include "graph/node.def"
#undef FDRY_NODE
#undef FDRY_NODE_REFUSED
};

const struct fdry_node_ops *fdry_node_ops(unsigned int kind)
{
	return kind < FDRY_NODE_KINDS ? kinds[kind] : NULL;
}

int fdry_node_kind_of(CUgraphNodeType type, enum fdry_node_kind *ret)
{
	size_t i;

	for (i = 0; i < sizeof(driver_types) / sizeof(driver_types[0]); i++) {
		const struct driver_type *t = &driver_types[i];

		if (t->type != type)
			continue;
		if (!t->kind)
			return fdry_fail(FDRY_E_REFUSED, "its kind is %s: %s", t->name, t->why);
		*ret = t->kind;
		return 0;
	}
	return fdry_fail(FDRY_E_REFUSED,
			 "it is a node of type %d, which this version does not know; "
			 "use a newer version",
			 (int)type);
}

int fdry_node_kind_named(struct fdry_span name, enum fdry_node_kind *ret)
{
	unsigned int k;

	for (k = 1; k < FDRY_NODE_KINDS; k++)
		if (kinds[k] && strlen(kinds[k]->name) == name.len &&
		    !memcmp(kinds[k]->name, name.data, name.len)) {
			*ret = k;
			return 0;
		}
	return fdry_fail(FDRY_E_INVAL, "'%.*s' is no kind of node",
			 (int)(name.len < 40 ? name.len : 40), name.data);
}
