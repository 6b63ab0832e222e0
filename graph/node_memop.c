// SPDX-License-Identifier: Apache-2.0
/*
 * node_memop.c - nodes that wait for values in memory, write values, and order such operations.
 *
 * All addresses lie in the region. The driver ignores the members of an operation that its kind
 * does not use, and reports them as they were passed; an object holds zeros there.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "graph/build.h"
#include "graph/read.h"
#include "graph/text.h"

_Static_assert(CU_STREAM_MEM_OP_WAIT_VALUE_32 == 1 && CU_STREAM_MEM_OP_WRITE_VALUE_32 == 2 &&
		       CU_STREAM_MEM_OP_WAIT_VALUE_64 == 4 &&
		       CU_STREAM_MEM_OP_WRITE_VALUE_64 == 5 && CU_STREAM_MEM_OP_BARRIER == 6,
	       "the format uses the driver's numbers");

/* An operation's words in text, and the largest flags. */
static const struct {
	const char *name;
	uint32_t flags;
} kinds[] = {
	[1] = { "wait32", 3 },
	[2] = { "write32", 0 },
	[4] = { "wait64", 3 },
	[5] = { "write64", 0 },
	[6] = { "barrier", 1 },
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* The fault of a record in canonical form, or NULL. */
static const char *memop_fault(const struct fdry_graph_memop *op)
{
	uint32_t bytes = fdry_graph_memop_bytes(op);

	if (op->operation >= KINDS || !kinds[op->operation].name)
		return "an operation that this version does not know";
	if (op->flags > kinds[op->operation].flags)
		return "flags that this version does not know";
	if (!bytes)
		return op->addr || op->value ? "an address and no value" : NULL;
	if (op->addr % bytes || op->addr > UINT64_MAX - bytes)
		return "an address that is no multiple of its size";
	return bytes == 4 && op->value >> 32 ? "a value larger than 32 bits" : NULL;
}

static struct fdry_graph_memop memop_of(const CUstreamBatchMemOpParams *p)
{
	struct fdry_graph_memop op = { .operation = p->operation };

	if (op.operation == CU_STREAM_MEM_OP_BARRIER) {
		op.flags = p->memoryBarrier.flags;
		return op;
	}
	/* A wait has its members at the same places. */
	op.flags = p->writeValue.flags;
	op.addr = p->writeValue.address;
	op.value = fdry_graph_memop_bytes(&op) == 8 ? p->writeValue.value64 : p->writeValue.value;
	return op;
}

/* A value of 64 bits may be an address that kernels use. */
static int value_check(struct fdry_read *rd, const struct fdry_graph_memop *op)
{
	const char *what = NULL;
	bool variable = false;
	int err;

	if (fdry_graph_memop_bytes(op) != 8 || !fdry_read_may_point(op->value))
		return 0;
	err = fdry_read_word(rd, op->value, true, &what, &variable);
	if (err || (!what && !variable))
		return err;
	if (variable)
		what = "a module variable";
	return fdry_fail(FDRY_E_REFUSED,
			 "its value 0x%" PRIx64 " points to %s; use memory of the region",
			 op->value, what);
}

static int memop_add(struct fdry_read *rd, const CUstreamBatchMemOpParams *p)
{
	struct fdry_graph_memop op = memop_of(p);
	const char *fault = memop_fault(&op);
	int err;

	if (fault)
		return fdry_fail(FDRY_E_REFUSED, "it has %s; do that outside of the graph", fault);
	err = value_check(rd, &op);
	if (err)
		return err;
	if (fdry_graph_memop_bytes(&op))
		err = fdry_read_range(rd, "the value's memory", op.addr,
				      fdry_graph_memop_bytes(&op));
	return err ? err : fdry_buf_put(&rd->args, &op, sizeof(op));
}

static int memop_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS p;
	unsigned int i;
	int err;

	memset(&p, 0, sizeof(p));
	rd->args.len = 0;
	err = fdry_call(rd->drv, cuGraphBatchMemOpNodeGetParams, handle, &p);
	if (err)
		return err;
	if (p.flags)
		return fdry_fail(FDRY_E_REFUSED,
				 "its flags are 0x%x, which this version does not know; "
				 "use a newer version",
				 p.flags);
	err = fdry_read_context(rd, p.ctx);
	if (err)
		return err;
	for (i = 0; i < p.count; i++) {
		err = memop_add(rd, &p.paramArray[i]);
		if (err)
			return fdry_fail_at(err, "operation %u", i);
	}
	ret->memops = (struct fdry_span){ rd->args.data, rd->args.len };
	return 0;
}

static int memop_put(struct fdry_graph_enc *enc, const struct fdry_node *node)
{
	struct fdry_buf *ops = &enc->column[FDRY_GSEC_MEMOP];
	int err;

	if ((ops->len + node->memops.len) / sizeof(struct fdry_graph_memop) >
	    FDRY_GRAPH_MEMOPS_MAX)
		return fdry_fail(FDRY_E_LIMIT,
				 "the graph has more than %u memory operations; split it",
				 FDRY_GRAPH_MEMOPS_MAX);
	err = fdry_buf_put(ops, node->memops.data, node->memops.len);
	return err ? err
		   : fdry_buf_put_u32(&enc->column[FDRY_GSEC_MEMOP_END],
				      (uint32_t)(ops->len / sizeof(struct fdry_graph_memop)));
}

static struct fdry_graph_memop memop_at(const uint8_t *ops, uint32_t i)
{
	struct fdry_graph_memop op;

	memcpy(&op, ops + sizeof(op) * (size_t)i, sizeof(op));
	return op;
}

static int memop_check(const struct fdry_graph_view *v)
{
	bool says = v->header.incompat & FDRY_GRAPH_INCOMPAT_MEMOPS;
	struct fdry_graph_memop op;
	uint32_t i, end, before = 0;
	const char *fault;

	if (says != (v->header.memop_nodes != 0))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "it has %u nodes of memory operations, but its header says "
				 "otherwise", v->header.memop_nodes);
	for (i = 0; i < v->header.memop_nodes; i++, before = end) {
		end = fdry_graph_u32(v, FDRY_GSEC_MEMOP_END, i);
		if (end < before || end > v->header.memops)
			return fdry_fail(FDRY_E_BADIMAGE,
					 "the memory operations of node %u end at %u of %u", i,
					 end, v->header.memops);
	}
	if (before != v->header.memops)
		return fdry_fail(FDRY_E_BADIMAGE, "%u memory operations belong to no node",
				 v->header.memops - before);
	for (i = 0; i < v->header.memops; i++) {
		op = memop_at(v->section[FDRY_GSEC_MEMOP], i);
		fault = memop_fault(&op);
		if (fault)
			return fdry_fail(FDRY_E_BADIMAGE, "memory operation %u has %s", i, fault);
	}
	return 0;
}

static void memop_get(struct fdry_graph_cursor *c, struct fdry_node *ret)
{
	uint32_t i = c->next[FDRY_NODE_MEMOP]++,
		 from = i ? fdry_graph_u32(c->v, FDRY_GSEC_MEMOP_END, i - 1) : 0,
		 to = fdry_graph_u32(c->v, FDRY_GSEC_MEMOP_END, i);
	size_t size = sizeof(struct fdry_graph_memop);

	ret->memops = (struct fdry_span){ 0 };
	if (to > from)
		ret->memops = (struct fdry_span){ c->v->section[FDRY_GSEC_MEMOP] + size * from,
						  size * (to - from) };
}

static CUstreamBatchMemOpParams memop_params(const struct fdry_graph_memop *op)
{
	CUstreamBatchMemOpParams p;

	memset(&p, 0, sizeof(p));
	p.operation = op->operation;
	if (op->operation == CU_STREAM_MEM_OP_BARRIER) {
		p.memoryBarrier.flags = op->flags;
		return p;
	}
	p.writeValue.address = op->addr;
	p.writeValue.flags = op->flags;
	p.writeValue.value64 = op->value;
	return p;
}

static int memop_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	uint32_t i, n = (uint32_t)(node->memops.len / sizeof(struct fdry_graph_memop));
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { .ctx = b->in->ctx, .count = n };
	struct fdry_graph_memop op;
	int err;

	p.paramArray = calloc(n + 1, sizeof(*p.paramArray));
	if (!p.paramArray)
		return fdry_nomem();
	for (i = 0; i < n; i++) {
		op = memop_at(node->memops.data, i);
		p.paramArray[i] = memop_params(&op);
	}
	err = fdry_call(b->drv, cuGraphAddBatchMemOpNode, ret, b->graph, NULL, 0, &p);
	free(p.paramArray);
	return err;
}

static int memop_to_text(const struct fdry_node *node, struct fdry_buf *ret)
{
	uint32_t i, n = (uint32_t)(node->memops.len / sizeof(struct fdry_graph_memop));
	struct fdry_graph_memop op;
	int err = 0;

	for (i = 0; !err && i < n; i++) {
		op = memop_at(node->memops.data, i);
		err = fdry_buf_printf(ret, " %s %u", kinds[op.operation].name, op.flags);
		if (!err && fdry_graph_memop_bytes(&op))
			err = fdry_buf_printf(ret, " 0x%" PRIx64 " 0x%" PRIx64, op.addr, op.value);
	}
	return err;
}

static int memop_word(struct fdry_text *t, struct fdry_graph_memop *op)
{
	struct fdry_span s = { 0 };
	int err;

	for (op->operation = 1; op->operation < KINDS; op->operation++)
		if (kinds[op->operation].name && fdry_word_is(&t->w, kinds[op->operation].name))
			break;
	if (op->operation == KINDS) {
		(void)fdry_word(&t->w, &s);
		return fdry_fail(FDRY_E_INVAL, "'%.*s' is no memory operation",
				 (int)(s.len < 40 ? s.len : 40), s.data);
	}
	err = fdry_word_u32(&t->w, "the flags", &op->flags);
	if (err || !fdry_graph_memop_bytes(op))
		return err;
	err = fdry_word_u64(&t->w, "the address", UINT64_MAX, &op->addr);
	return err ? err : fdry_word_u64(&t->w, "the value", UINT64_MAX, &op->value);
}

static int memop_from_text(struct fdry_text *t, struct fdry_node *ret)
{
	struct fdry_words next;
	struct fdry_span s;
	int err = 0;

	t->args.len = 0;
	for (next = t->w; !err && fdry_word(&next, &s); next = t->w) {
		struct fdry_graph_memop op = { 0 };

		err = memop_word(t, &op) ?: fdry_buf_put(&t->args, &op, sizeof(op));
	}
	ret->memops = (struct fdry_span){ t->args.data, t->args.len };
	return err;
}

const struct fdry_node_ops fdry_node_memop_ops = {
	.name = "memop",
	.read = memop_read,
	.put = memop_put,
	.check = memop_check,
	.get = memop_get,
	.build = memop_build,
	.to_text = memop_to_text,
	.from_text = memop_from_text,
};
