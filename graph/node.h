/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - kinds of nodes: one list (node.def), one ops table a kind, one file a kind.
 *
 * All conversions go through struct fdry_node. Reading a graph goes from driver to node to columns,
 * building from columns to node to driver. A node also becomes text, and text a node. A node owns
 * nothing: its spans point into a view, or into memory of the reader that filled it.
 */
#ifndef FDRY_GRAPH_NODE_H
#define FDRY_GRAPH_NODE_H

#include <cuda.h>

#include "lib/buf.h"
#include "graph/format.h"

/* Kinds in the format; 0 is none. */
enum fdry_node_kind {
#define FDRY_NODE(nr, NAME, name, type, ops) FDRY_NODE_##NAME = nr,
#define FDRY_NODE_REFUSED(type, name, why)
#include "graph/node.def"
#undef FDRY_NODE
#undef FDRY_NODE_REFUSED
	FDRY_NODE_KINDS
};

struct fdry_node_kernel {
	uint32_t kernel;          /* index in the image's kernel table */
	struct fdry_graph_launch launch;
	struct fdry_span attrs;   /* struct fdry_graph_attr each, ascending ids; see attr.h */
	struct fdry_span args;    /* the parameter buffer, without padding, as far as passed */
	bool args_short;          /* fewer bytes than the kernel's parameters have */
};

/* The nodes of a child graph, which is graph @graph: it has @nodes, from @first. */
struct fdry_node_child {
	uint32_t graph, first, nodes;
};

/* A conditional node, and the handle of its condition. */
struct fdry_node_conditional {
	uint32_t index; /* among conditional nodes; like c.first and h.node, 0 if it was read */
	struct fdry_graph_conditional c;
	struct fdry_graph_condition h;
};

struct fdry_node {
	enum fdry_node_kind kind;
	union {
		struct fdry_node_kernel kernel;
		struct fdry_graph_memset memset;
		struct fdry_graph_memcpy memcpy;
		uint32_t event;   /* of record and wait nodes: index of a private event */
		struct fdry_span memops; /* struct fdry_graph_memop each, unaligned */
		struct fdry_span host; /* the name of the function */
		struct fdry_span semaphores; /* struct fdry_graph_semaphore each, with its name */
		struct fdry_node_child child; /* nodes that are read have zeros */
		struct fdry_node_conditional conditional;
	};
};

struct fdry_read;          /* read.h */
struct fdry_build;         /* build.h */
struct fdry_graph_enc;     /* codec.h */
struct fdry_graph_view;
struct fdry_graph_cursor;
struct fdry_text;          /* text.h */

struct fdry_node_ops {
	const char *name;     /* in text and messages */
	/* From driver to node; spans stay valid until the next read. FDRY_E_REFUSED; the caller
	 * adds the node's number to the message. */
	int (*read)(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret);
	/* From node to columns; the caller stores the kind. FDRY_E_LIMIT, FDRY_E_INVAL. NULL: the
	 * kind has no columns. */
	int (*put)(struct fdry_graph_enc *enc, const struct fdry_node *node);
	/* Check all columns of this kind; called once for a view. NULL: nothing to check. */
	int (*check)(const struct fdry_graph_view *v);
	/* From columns to node: the cursor's next node of this kind. NULL: no columns. */
	void (*get)(struct fdry_graph_cursor *c, struct fdry_node *ret);
	/* From node to driver. */
	int (*build)(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret);
	/*
	 * Between node and text: the words after the kind's name on its line, each after a space.
	 * NULL: no words.
	 */
	int (*to_text)(const struct fdry_node *node, struct fdry_buf *ret);
	int (*from_text)(struct fdry_text *t, struct fdry_node *ret);
};

#define FDRY_NODE(nr, NAME, name, type, ops) extern const struct fdry_node_ops ops;
#define FDRY_NODE_REFUSED(type, name, why)
#include "graph/node.def"
#undef FDRY_NODE
#undef FDRY_NODE_REFUSED

/* The ops of a kind; NULL if there is no such kind. */
const struct fdry_node_ops *fdry_node_ops(unsigned int kind);
/* The kind for the driver's @type. If there is none, FDRY_E_REFUSED names type and remedy. */
int fdry_node_kind_of(CUgraphNodeType type, enum fdry_node_kind *ret) __must_check;
/* The semaphore at byte *@at of the records of @n, which signals or awaits, and its name. False
 * after the last one. @at: 0 to start; becomes the next one. */
bool fdry_node_semaphore(const struct fdry_node *n, size_t *at, struct fdry_graph_semaphore *ret,
			 struct fdry_span *name);
/* The kind of a name in text. FDRY_E_INVAL. */
int fdry_node_kind_named(struct fdry_span name, enum fdry_node_kind *ret) __must_check;

#endif
