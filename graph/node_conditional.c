// SPDX-License-Identifier: Apache-2.0
/*
 * node_conditional.c - nodes that run one of their graphs, or repeat it, while a condition holds.
 *
 * Kernels set a condition by its handle, which they have as an argument. The driver numbers the
 * handles of a graph and of the graphs within it 1, 2, 3, ... in the order of their creation. So
 * the builder creates them in the same order, and arguments stay as they are. A handle of a body
 * can be created only when the body exists. So the builder adds some nodes before their turn.
 */
#include <inttypes.h>

#include "graph/build.h"
#include "graph/read.h"
#include "graph/subgraph.h"
#include "graph/text.h"

_Static_assert(CU_GRAPH_COND_TYPE_IF == 0 && CU_GRAPH_COND_TYPE_WHILE == 1 &&
		       CU_GRAPH_COND_TYPE_SWITCH == 2 && CU_GRAPH_COND_ASSIGN_DEFAULT == 1,
	       "the format uses the driver's numbers");

static const char *const types[] = { "if", "while", "switch" };
#define TYPES (sizeof(types) / sizeof(types[0]))

static bool shape_ok(uint32_t type, uint32_t size)
{
	static const uint32_t most[TYPES] = { 2, 1, FDRY_GRAPH_NODES_MAX };

	return type < TYPES && size && size <= most[type];
}

static int conditional_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	struct fdry_conditional c;
	unsigned int i;
	int err;

	if (!rd->in->conditional)
		return fdry_fail(FDRY_E_REFUSED, "no interposer saw how it was made");
	if (rd->in_child)
		return fdry_fail(FDRY_E_REFUSED, "it lies in a child graph; add it to the graph "
				 "itself, or to a body of another conditional node");
	memset(&c, 0, sizeof(c));
	err = rd->in->conditional(rd->in->where_arg, handle, &c);
	if (err)
		return err;
	if (!shape_ok(c.type, c.size) || c.condition.flags > CU_GRAPH_COND_ASSIGN_DEFAULT)
		return fdry_fail(FDRY_E_REFUSED,
				 "its type is %d with %u bodies and flags 0x%x, which this version "
				 "does not know; use a newer version", (int)c.type, c.size,
				 c.condition.flags);
	if (c.handle > FDRY_GRAPH_CONDITIONALS_MAX || c.handles > FDRY_GRAPH_CONDITIONALS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the graph has more than %u conditions; split it",
				 FDRY_GRAPH_CONDITIONALS_MAX);
	err = fdry_read_context(rd, c.ctx);
	if (err)
		return err;
	err = fdry_read_context(rd, c.condition.ctx);
	if (err)
		return err;
	for (i = 0; i < c.size; i++) {
		err = fdry_read_subgraph(rd, c.bodies[i], false);
		if (err)
			return err;
	}
	rd->handles = c.handles;
	ret->conditional.c = (struct fdry_graph_conditional){ .handle = (uint32_t)c.handle,
							      .type = c.type, .size = c.size };
	if (c.condition.flags)
		ret->conditional.h = (struct fdry_graph_condition){ .value = c.condition.value,
								    .flags = 1 };
	return fdry_buf_put(&rd->condition_graphs, &c.condition.graph, sizeof(c.condition.graph));
}

/* The number of @graph among those that were read; UINT32_MAX: none of them. */
static uint32_t graph_number(const struct fdry_read *rd, CUgraph graph)
{
	const struct fdry_read_subgraph *s = fdry_array(rd->subgraphs, struct fdry_read_subgraph);
	size_t i, n = fdry_array_count(rd->subgraphs, struct fdry_read_subgraph);

	if (graph == rd->graph)
		return 0;
	for (i = 0; i < n; i++)
		if (s[i].graph == graph)
			return (uint32_t)i + 1;
	return UINT32_MAX;
}

int fdry_read_conditions(struct fdry_read *rd, struct fdry_graph_enc *enc)
{
	const CUgraph *graphs = fdry_array(rd->condition_graphs, CUgraph);
	struct fdry_graph_conditional_node *c =
		fdry_array(enc->conditionals, struct fdry_graph_conditional_node);
	size_t i, n = fdry_array_count(enc->conditionals, struct fdry_graph_conditional_node);

	for (i = 0; i < n; i++) {
		c[i].h.graph = graph_number(rd, graphs[i]);
		if (c[i].h.graph == UINT32_MAX)
			return fdry_fail(FDRY_E_REFUSED,
					 "the handle %u of a condition was created for a graph "
					 "that is no longer in it; capture the graph again",
					 c[i].c.handle);
	}
	if (n && rd->handles != n)
		return fdry_fail(FDRY_E_REFUSED,
				 "%" PRIu64 " handles of conditions were created for it, and %zu "
				 "conditional nodes use them; give each handle one node",
				 rd->handles, n);
	return 0;
}

static int conditional_put(struct fdry_graph_enc *enc, const struct fdry_node *node)
{
	struct fdry_graph_conditional_node c = { node->conditional.c, node->conditional.h };

	if (fdry_array_count(enc->conditionals, struct fdry_graph_conditional_node) >=
	    FDRY_GRAPH_CONDITIONALS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the graph has more than %u conditions; split it",
				 FDRY_GRAPH_CONDITIONALS_MAX);
	c.c.first = enc->graphs + 1;
	enc->graphs += c.c.size;
	return fdry_buf_put(&enc->conditionals, &c, sizeof(c));
}

int fdry_graph_enc_conditions(struct fdry_graph_enc *enc)
{
	const struct fdry_graph_conditional_node *c =
		fdry_array(enc->conditionals, struct fdry_graph_conditional_node);
	uint32_t i, n = (uint32_t)fdry_array_count(enc->conditionals,
						   struct fdry_graph_conditional_node);
	struct fdry_buf *nodes = &enc->column[FDRY_GSEC_CONDITIONAL],
			*handles = &enc->column[FDRY_GSEC_CONDITION];
	struct fdry_graph_condition *h;
	void *p;
	int err;

	nodes->len = handles->len = 0;
	err = fdry_buf_grow(handles, n * sizeof(*h), &p);
	if (err)
		return err;
	h = p;
	for (i = 0; i < n; i++)
		h[i].node = UINT32_MAX;
	for (i = 0; i < n; i++) {
		if (c[i].c.handle - 1 >= n || h[c[i].c.handle - 1].node != UINT32_MAX)
			return fdry_fail(FDRY_E_INVAL,
					 "handle %u belongs to two conditional nodes, or is not "
					 "one of %u", c[i].c.handle, n);
		h[c[i].c.handle - 1] = c[i].h;
		h[c[i].c.handle - 1].node = i;
		err = fdry_buf_put(nodes, &c[i].c, sizeof(c[i].c));
		if (err)
			return err;
	}
	return 0;
}

/* --- checks --- */

static int entry_check(const struct fdry_graph_view *v, uint32_t i)
{
	struct fdry_graph_conditional c = fdry_graph_conditional_at(v, i);
	uint32_t n = v->header.conditional_nodes, subgraphs = v->header.subgraphs;
	struct fdry_graph_condition h;

	if (!shape_ok(c.type, c.size) || c.first - 1 >= subgraphs ||
	    c.size > subgraphs - (c.first - 1))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "conditional node %u of type %u has %u graphs from %u of %u", i,
				 c.type, c.size, c.first, subgraphs);
	if (c.handle - 1 >= n || fdry_graph_condition_at(v, c.handle - 1).node != i)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "conditional node %u has handle %u, which is not its own", i,
				 c.handle);
	h = fdry_graph_condition_at(v, i);
	if (h.node >= n || h.graph > subgraphs || h.flags > 1 || (!h.flags && h.value))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "handle %u of graph %u has node %u, flags 0x%x and value %u",
				 i + 1, h.graph, h.node, h.flags, h.value);
	return 0;
}

static int conditional_check(const struct fdry_graph_view *v)
{
	bool says = v->header.incompat & FDRY_GRAPH_INCOMPAT_CONDITIONALS;
	uint32_t i;
	int err = 0;

	if (says != (v->header.conditional_nodes != 0))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "it has %u conditional nodes, but its header says otherwise",
				 v->header.conditional_nodes);
	for (i = 0; !err && i < v->header.conditional_nodes; i++)
		err = entry_check(v, i);
	return err;
}

static void conditional_get(struct fdry_graph_cursor *c, struct fdry_node *ret)
{
	uint32_t i = c->next[FDRY_NODE_CONDITIONAL]++;

	ret->conditional.index = i;
	ret->conditional.c = fdry_graph_conditional_at(c->v, i);
	ret->conditional.h = fdry_graph_condition_at(c->v, ret->conditional.c.handle - 1);
	c->graphs += ret->conditional.c.size;
}

/* --- building --- */

/* Add conditional node @i to the graph that it belongs to, which exists, as does its handle. */
static int node_add(struct fdry_build *b, uint32_t i)
{
	struct fdry_graph_conditional c = fdry_graph_conditional_at(b->view, i);
	uint32_t k, owner = fdry_graph_subgraph_at(b->view, c.first - 1).owner;
	CUgraphNodeParams p;
	int err;

	memset(&p, 0, sizeof(p));
	p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
	p.conditional.handle = c.handle;
	p.conditional.type = (CUgraphConditionalNodeType)c.type;
	p.conditional.size = c.size;
	p.conditional.ctx = b->in->ctx;
	err = fdry_call(b->drv, cuGraphAddNode_v2, &b->conditionals[i],
			b->graphs[fdry_graph_find(b->view, owner)], NULL, NULL, 0, &p);
	for (k = 0; !err && k < c.size; k++)
		b->graphs[c.first + k] = p.conditional.phGraph_out[k];
	return err;
}

/* Make sure that graph @i exists, which is the graph itself or a body. The handles of the nodes
 * around it exist. */
static int graph_ensure(struct fdry_build *b, uint32_t i)
{
	uint32_t owner;
	int err;

	if (b->graphs[i])
		return 0;
	owner = fdry_graph_subgraph_at(b->view, i - 1).owner;
	err = graph_ensure(b, fdry_graph_find(b->view, owner));
	return err ? err : node_add(b, fdry_graph_conditional_of(b->view, i));
}

static int handle_create(struct fdry_build *b, uint32_t i)
{
	struct fdry_graph_condition h = fdry_graph_condition_at(b->view, i);
	CUgraphConditionalHandle got = 0;
	int err = graph_ensure(b, h.graph);

	if (err)
		return err;
	err = fdry_call(b->drv, cuGraphConditionalHandleCreate, &got, b->graphs[h.graph],
			b->in->ctx, h.value, h.flags);
	if (!err && got != i + 1)
		err = fdry_fail(FDRY_E_DRIVER,
				"the driver's handle of condition %u is 0x%" PRIx64 ", so kernels "
				"cannot set it; use the driver that sealed the image", i + 1,
				(uint64_t)got);
	return err;
}

static int conditional_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	uint32_t i = node->conditional.index;
	int err = 0;

	for (; !err && b->handles < node->conditional.c.handle; b->handles++)
		err = handle_create(b, b->handles);
	if (!err && !b->conditionals[i])
		err = node_add(b, i);
	*ret = b->conditionals[i];
	return err;
}

/* --- text --- */

static int conditional_to_text(const struct fdry_node *node, struct fdry_buf *ret)
{
	const struct fdry_graph_conditional *c = &node->conditional.c;
	const struct fdry_graph_condition *h = &node->conditional.h;
	int err = fdry_buf_printf(ret, " %s %u handle %u of %u", types[c->type], c->size,
				  c->handle, h->graph);

	return err || !h->flags ? err : fdry_buf_printf(ret, " default %u", h->value);
}

static int conditional_from_text(struct fdry_text *t, struct fdry_node *ret)
{
	struct fdry_graph_conditional *c = &ret->conditional.c;
	struct fdry_graph_condition *h = &ret->conditional.h;
	int err;

	while (c->type < TYPES && !fdry_word_is(&t->w, types[c->type]))
		c->type++;
	if (c->type == TYPES)
		return fdry_fail(FDRY_E_INVAL, "a conditional node is none of if, while, switch");
	err = fdry_word_u32(&t->w, "the number of bodies", &c->size) ?:
	      fdry_word_expect(&t->w, "handle") ?:
	      fdry_word_u32(&t->w, "the handle", &c->handle) ?:
	      fdry_word_expect(&t->w, "of") ?:
	      fdry_word_u32(&t->w, "the graph of the handle", &h->graph);
	if (err)
		return err;
	if (!shape_ok(c->type, c->size))
		return fdry_fail(FDRY_E_INVAL, "a node of type %s cannot have %u bodies",
				 types[c->type], c->size);
	h->flags = fdry_word_is(&t->w, "default");
	return h->flags ? fdry_word_u32(&t->w, "the default", &h->value) : 0;
}

const struct fdry_node_ops fdry_node_conditional_ops = {
	.name = "conditional",
	.read = conditional_read,
	.put = conditional_put,
	.check = conditional_check,
	.get = conditional_get,
	.build = conditional_build,
	.to_text = conditional_to_text,
	.from_text = conditional_from_text,
};
