// SPDX-License-Identifier: Apache-2.0
/*
 * node_kernel.c - kernel nodes.
 *
 * A node is a configuration (kernel, launch configuration, attribute set) and an argument block:
 * the kernel's parameter buffer, padded to a multiple of 8. A graph has few configurations. args.c
 * encodes the blocks without offsets, so a reader must decode them in order.
 *
 * A program may pass a packed buffer that ends before the parameters do, if the kernel reads no
 * further; NCCL does. Such a block is as long as that buffer, and the node is built with a buffer
 * of that length.
 */
#include <inttypes.h>

#include "graph/args.h"
#include "graph/attr.h"
#include "graph/build.h"
#include "graph/read.h"
#include "graph/text.h"

/* --- driver -> node --- */

/* The packed buffer that a node was launched with, or NULL. */
static int extra_find(void *const *extra, const uint8_t **ret, size_t *len)
{
	const uint8_t *buffer = NULL;
	size_t size = 0;

	for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(const size_t *)extra[1];
		else
			return fdry_fail(
				FDRY_E_REFUSED,
				"its arguments come in a form that this version does not know; "
				"use a newer version");
	}
	*ret = buffer;
	*len = size;
	return 0;
}

/* *@bytes: of all parameters; then of those that the buffer holds. */
static int args_from_buffer(const struct fdry_kernel *k, void *const *extra, uint8_t *args,
			    size_t *bytes)
{
	const uint8_t *buffer = NULL;
	const struct fdry_param *p;
	size_t len = 0, end;
	uint32_t i;
	int err = extra_find(extra, &buffer, &len);

	if (err)
		return err;
	if (!buffer && k->nparams)
		return fdry_fail(FDRY_E_REFUSED,
				 "the driver reports no arguments, and it has %u parameters; "
				 "use another driver",
				 k->nparams);
	if (len < *bytes)
		*bytes = len;
	for (i = 0; i < k->nparams && k->params[i].offset < *bytes; i++) {
		p = &k->params[i];
		end = (size_t)p->offset + p->size < *bytes ? (size_t)p->offset + p->size : *bytes;
		memcpy(args + p->offset, buffer + p->offset, end - p->offset);
	}
	return 0;
}

/* Pack the node's arguments as the parameter buffer, with zeros between the parameters. */
static int args_read(struct fdry_read *rd, const struct fdry_kernel *k,
		     const CUDA_KERNEL_NODE_PARAMS *p)
{
	uint8_t *args;
	uint32_t i;
	void *added;
	int err;

	rd->args.len = 0;
	err = fdry_buf_grow(&rd->args, k->param_bytes, &added);
	if (err)
		return err;
	args = added;
	if (!p->kernelParams)
		return args_from_buffer(k, p->extra, args, &rd->args.len);
	for (i = 0; i < k->nparams; i++)
		memcpy(args + k->params[i].offset, p->kernelParams[i], k->params[i].size);
	return 0;
}

/* The parameter that byte @at is part of. */
static uint32_t param_at(const struct fdry_kernel *k, uint32_t at)
{
	uint32_t i = 0;

	while (i + 1 < k->nparams && k->params[i + 1].offset <= at)
		i++;
	return i;
}

static bool is_whole(const struct fdry_kernel *k, uint32_t at)
{
	uint32_t i = param_at(k, at);

	return i < k->nparams && k->params[i].offset == at && k->params[i].size == 8;
}

static int args_refuse(const struct fdry_kernel *k, uint32_t at, uint64_t word, const char *what)
{
	uint32_t i = param_at(k, at);

	return fdry_fail(FDRY_E_REFUSED,
			 "byte %u of its parameter %u is 0x%" PRIx64 ", which points to %s; "
			 "pass memory of the region instead",
			 at - k->params[i].offset, i, word, what);
}

/*
 * Look for pointers to memory outside the region. In packed structs they may lie at any multiple of
 * 4. A missed pointer would give wrong results in another process.
 */
static int args_check(struct fdry_read *rd, const struct fdry_kernel *k)
{
	struct fdry_graph_word found = { .node = rd->node };
	const char *what;
	uint64_t word;
	bool variable;
	uint32_t at;
	int err;

	for (at = 0; at + 8 <= rd->args.len; at += 4) {
		word = fdry_get64(rd->args.data + at);
		if (!fdry_read_may_point(word))
			continue;
		err = fdry_read_word(rd, word, is_whole(k, at), &what, &variable);
		if (err)
			return err;
		if (what)
			return args_refuse(k, at, word, what);
		if (!variable)
			continue;
		found.offset = at;
		found.value = word;
		err = fdry_buf_put(&rd->pointers, &found, sizeof(found));
		if (err)
			return err;
		memset(rd->args.data + at, 0, 8);
	}
	return 0;
}

static int kernel_fill(struct fdry_read *rd, CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *p,
		       struct fdry_node_kernel *ret)
{
	const struct fdry_kernel *k = fdry_kernel_set_get(rd->in->kernels, ret->kernel);
	uint32_t nattrs = 0;
	int err = args_read(rd, k, p);

	if (err)
		goto out_fail;
	err = args_check(rd, k);
	if (err)
		goto out_fail;
	err = fdry_read_attrs(rd, handle, p, ret->kernel, &nattrs);
	if (err)
		goto out_fail;
	ret->launch = (struct fdry_graph_launch){
		.grid = { p->gridDimX, p->gridDimY, p->gridDimZ },
		.block = { p->blockDimX, p->blockDimY, p->blockDimZ },
		.shared = p->sharedMemBytes,
	};
	ret->args = (struct fdry_span){ rd->args.data, rd->args.len };
	ret->args_short = rd->args.len < k->param_bytes;
	ret->attrs =
		(struct fdry_span){ (const uint8_t *)rd->attrs, nattrs * sizeof(rd->attrs[0]) };
	return 0;

out_fail:
	return fdry_fail_at(err, "kernel %.120s", k->name);
}

static int kernel_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	CUDA_KERNEL_NODE_PARAMS p;
	int err;

	memset(&p, 0, sizeof(p));
	err = fdry_call(rd->drv, cuGraphKernelNodeGetParams_v2, handle, &p);
	if (err)
		return err;
	err = fdry_read_context(rd, p.ctx);
	if (err)
		return err;
	err = fdry_read_kernel(rd, &p, &ret->kernel.kernel);
	return err ? err : kernel_fill(rd, handle, &p, &ret->kernel);
}

/* --- node -> columns --- */

static int config_put(struct fdry_graph_enc *enc, const struct fdry_graph_config *c)
{
	uint32_t index = 0;
	uint8_t column[2];
	int err = fdry_intern(&enc->configs, c, sizeof(*c), &index, NULL);

	if (err)
		return err;
	if (index >= FDRY_GRAPH_CONFIGS_MAX)
		return fdry_fail(
			FDRY_E_LIMIT,
			"the graph's kernel nodes have more than %u configurations; split it",
			FDRY_GRAPH_CONFIGS_MAX);
	fdry_set16(column, (uint16_t)index);
	return fdry_buf_put(&enc->column[FDRY_GSEC_NODE_CONFIG], column, sizeof(column));
}

static int kernel_put(struct fdry_graph_enc *enc, const struct fdry_node *node)
{
	const struct fdry_node_kernel *n = &node->kernel;
	struct fdry_graph_kernel k = { n->kernel, (uint32_t)n->args.len };
	struct fdry_graph_config c = { 0 };
	int err;

	if (n->args_short)
		k.param_bytes |= FDRY_GRAPH_KERNEL_SHORT;
	err = fdry_intern(&enc->kernels, &k, sizeof(k), &c.kernel, NULL);
	if (err)
		return err;
	err = fdry_intern(&enc->launches, &n->launch, sizeof(n->launch), &c.launch, NULL);
	if (err)
		return err;
	if (n->attrs.len) {
		err = fdry_intern(&enc->attr_sets, n->attrs.data, n->attrs.len, &c.attrs, NULL);
		if (err)
			return err;
		c.attrs++; /* 0 is the empty set */
	}
	err = config_put(enc, &c);
	return err ? err : fdry_args_put(enc, c.kernel, n->args);
}

/* --- columns -> node --- */

static struct fdry_graph_launch launch_at(const struct fdry_graph_view *v, uint32_t i)
{
	struct fdry_graph_launch l;

	memcpy(&l, v->section[FDRY_GSEC_LAUNCH] + sizeof(l) * (size_t)i, sizeof(l));
	return l;
}

/* Attribute set @i, which is not the empty one. */
static struct fdry_span attr_set_at(const struct fdry_graph_view *v, uint32_t i)
{
	size_t from = i ? fdry_graph_u32(v, FDRY_GSEC_ATTR_SET, i - 1) : 0;
	size_t end = fdry_graph_u32(v, FDRY_GSEC_ATTR_SET, i);

	return (struct fdry_span){ v->section[FDRY_GSEC_ATTR] +
					   from * sizeof(struct fdry_graph_attr),
				   (end - from) * sizeof(struct fdry_graph_attr) };
}

static int launches_check(const struct fdry_graph_view *v)
{
	struct fdry_graph_launch l;
	uint32_t i, d;

	for (i = 0; i < v->header.launches; i++) {
		l = launch_at(v, i);
		for (d = 0; d < 3; d++)
			if (!l.grid[d] || !l.block[d])
				return fdry_fail(FDRY_E_BADIMAGE,
						 "launch configuration %u has a size of 0", i);
	}
	return 0;
}

static int attr_sets_check(const struct fdry_graph_view *v)
{
	uint32_t i, end, from = 0;
	int err;

	for (i = 0; i < v->header.attr_sets; i++, from = end) {
		end = fdry_graph_u32(v, FDRY_GSEC_ATTR_SET, i);
		if (end <= from || end > v->header.attrs || end - from > FDRY_GRAPH_ATTR_SET_MAX)
			return fdry_fail(
				FDRY_E_BADIMAGE,
				"attribute set %u ends at attribute %u of %u and begins at %u", i,
				end, v->header.attrs, from);
		err = fdry_attrs_check(attr_set_at(v, i));
		if (err)
			return fdry_fail_at(err, "attribute set %u", i);
	}
	if (from != v->header.attrs)
		return fdry_fail(FDRY_E_BADIMAGE, "%u attributes are in no attribute set",
				 v->header.attrs - from);
	return 0;
}

static int kernels_check(const struct fdry_graph_view *v)
{
	struct fdry_graph_kernel k;
	bool any = false;
	uint32_t i;

	for (i = 0; i < v->header.kernels; i++) {
		k = fdry_graph_kernel_at(v, i);
		if (fdry_graph_kernel_args(&k) > FDRY_KERNEL_PARAM_BYTES_MAX)
			return fdry_fail(FDRY_E_LIMIT,
					 "kernel %u of the graph takes %u bytes of arguments, more "
					 "than the limit of %u",
					 i, fdry_graph_kernel_args(&k),
					 FDRY_KERNEL_PARAM_BYTES_MAX);
		any = any || k.param_bytes & FDRY_GRAPH_KERNEL_SHORT;
	}
	if (any != !!(v->header.incompat & FDRY_GRAPH_INCOMPAT_SHORT))
		return fdry_fail(FDRY_E_BADIMAGE, "its header and its kernels disagree whether "
						  "arguments are shorter than parameters");
	return 0;
}

static int kernel_check(const struct fdry_graph_view *v)
{
	const struct fdry_graph_header *h = &v->header;
	int err = kernels_check(v);

	if (err)
		return err;
	err = launches_check(v);
	if (err)
		return err;
	err = attr_sets_check(v);
	if (err)
		return err;
	err = fdry_graph_index_check(v, FDRY_GSEC_CONFIG_KERNEL, 0, h->kernels);
	if (err)
		return err;
	err = fdry_graph_index_check(v, FDRY_GSEC_CONFIG_LAUNCH, 0, h->launches);
	if (err)
		return err;
	err = fdry_graph_index_check(v, FDRY_GSEC_CONFIG_ATTRS, 1, h->attr_sets);
	if (err)
		return err;
	err = fdry_graph_index_check(v, FDRY_GSEC_NODE_CONFIG, 0, h->configs);
	return err ? err : fdry_args_check(v);
}

static void kernel_get(struct fdry_graph_cursor *c, struct fdry_node *ret)
{
	const struct fdry_graph_view *v = c->v;
	struct fdry_node_kernel *n = &ret->kernel;
	uint32_t i = c->next[FDRY_NODE_KERNEL]++;
	uint32_t config = fdry_graph_u16(v, FDRY_GSEC_NODE_CONFIG, i);
	struct fdry_graph_kernel k =
		fdry_graph_kernel_at(v, fdry_graph_u32(v, FDRY_GSEC_CONFIG_KERNEL, config));
	uint32_t attrs = fdry_graph_u32(v, FDRY_GSEC_CONFIG_ATTRS, config);

	n->kernel = k.index;
	n->launch = launch_at(v, fdry_graph_u32(v, FDRY_GSEC_CONFIG_LAUNCH, config));
	n->attrs = (struct fdry_span){ 0 };
	if (attrs)
		n->attrs = attr_set_at(v, attrs - 1);
	n->args.len = fdry_graph_kernel_args(&k);
	n->args.data = fdry_args_get(c, i, (uint32_t)n->args.len);
	n->args_short = k.param_bytes & FDRY_GRAPH_KERNEL_SHORT;
}

/* --- node -> driver --- */

/* The driver only reads through these pointers; its prototype lacks const. */
static void args_pass(struct fdry_build *b, const struct fdry_node_kernel *n,
		      const struct fdry_kernel *k, CUDA_KERNEL_NODE_PARAMS *p)
{
	uint32_t i;

	if (!n->args_short) {
		for (i = 0; i < k->nparams; i++)
			b->params[i] = (void *)(n->args.data + k->params[i].offset);
		p->kernelParams = b->params;
		return;
	}
	b->packed = n->args.len;
	b->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	b->extra[1] = (void *)n->args.data;
	b->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	b->extra[3] = &b->packed;
	b->extra[4] = CU_LAUNCH_PARAM_END;
	p->extra = b->extra;
}

static int kernel_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	const struct fdry_node_kernel *n = &node->kernel;
	const struct fdry_kernel *k = &b->in->kernels[n->kernel];
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = fdry_kernel_bank_get(b->in->bank, n->kernel),
		.gridDimX = n->launch.grid[0],
		.gridDimY = n->launch.grid[1],
		.gridDimZ = n->launch.grid[2],
		.blockDimX = n->launch.block[0],
		.blockDimY = n->launch.block[1],
		.blockDimZ = n->launch.block[2],
		.sharedMemBytes = n->launch.shared,
	};
	int err;

	args_pass(b, n, k, &p);
	err = fdry_call(b->drv, cuGraphAddKernelNode_v2, ret, b->graph, NULL, 0, &p) ?:
	      fdry_attrs_set(b->drv, *ret, n->attrs);
	return err ? fdry_fail_at(err, "kernel %.120s", k->name) : 0;
}

/* --- node <-> text --- */

static int kernel_to_text(const struct fdry_node *node, struct fdry_buf *ret)
{
	const struct fdry_node_kernel *n = &node->kernel;
	const struct fdry_graph_launch *l = &n->launch;
	int err = fdry_buf_printf(ret, " %u grid %u %u %u block %u %u %u shared %u", n->kernel,
				  l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
				  l->block[2], l->shared);

	if (err)
		return err;
	err = fdry_attrs_to_text(n->attrs, ret);
	if (err)
		return err;
	err = fdry_buf_printf(ret, "%s args", n->args_short ? " short" : "");
	if (err)
		return err;
	return fdry_bytes_to_text(n->args, ret);
}

static int sizes_from_text(struct fdry_words *w, const char *what, uint32_t sizes[3])
{
	int d, err = fdry_word_expect(w, what);

	if (err)
		return err;
	for (d = 0; d < 3; d++) {
		err = fdry_word_u32(w, what, &sizes[d]);
		if (err)
			return err;
	}
	return 0;
}

static int kernel_from_text(struct fdry_text *t, struct fdry_node *ret)
{
	struct fdry_node_kernel *n = &ret->kernel;
	uint32_t nattrs = 0;
	int err = fdry_word_u32(&t->w, "the kernel", &n->kernel);

	if (err)
		return err;
	err = sizes_from_text(&t->w, "grid", n->launch.grid);
	if (err)
		return err;
	err = sizes_from_text(&t->w, "block", n->launch.block);
	if (err)
		return err;
	err = fdry_word_expect(&t->w, "shared");
	if (err)
		return err;
	err = fdry_word_u32(&t->w, "shared", &n->launch.shared);
	if (err)
		return err;
	err = fdry_attrs_from_text(&t->w, t->attrs, &nattrs);
	if (err)
		return err;
	n->args_short = fdry_word_is(&t->w, "short");
	err = fdry_word_expect(&t->w, "args");
	if (err)
		return err;
	t->args.len = 0;
	err = fdry_bytes_from_text(&t->w, &t->args);
	if (err)
		return err;
	n->attrs = (struct fdry_span){ (const uint8_t *)t->attrs, nattrs * sizeof(t->attrs[0]) };
	n->args = (struct fdry_span){ t->args.data, t->args.len };
	return 0;
}

const struct fdry_node_ops fdry_node_kernel_ops = {
	.name = "kernel",
	.read = kernel_read,
	.put = kernel_put,
	.check = kernel_check,
	.get = kernel_get,
	.build = kernel_build,
	.to_text = kernel_to_text,
	.from_text = kernel_from_text,
};
