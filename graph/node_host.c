// SPDX-License-Identifier: Apache-2.0
/*
 * node_host.c - nodes that call functions of the program.
 *
 * The address of a function means nothing in another process. So the program names the functions
 * that its graphs call, each with the argument that it gets, and a node holds the name. A loading
 * program says which of its functions has that name, and which argument.
 */
#include <inttypes.h>

#include "graph/build.h"
#include "graph/name.h"
#include "graph/read.h"
#include "graph/text.h"

static int host_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	const struct fdry_graph_reader *in = rd->in;
	CUDA_HOST_NODE_PARAMS p;
	size_t i;
	int err;

	memset(&p, 0, sizeof(p));
	err = fdry_call(rd->drv, cuGraphHostNodeGetParams, handle, &p);
	if (err)
		return err;
	for (i = 0; i < in->nfunctions; i++)
		if (in->functions[i].fn == p.fn && in->functions[i].data == p.userData) {
			ret->host = (struct fdry_span){ (const uint8_t *)in->functions[i].name,
							strlen(in->functions[i].name) };
			return 0;
		}
	return fdry_fail(FDRY_E_REFUSED,
			 "it calls the function at 0x%" PRIxPTR " with the argument %p, which has "
			 "no name for other processes; name both with "
			 "fdry_capture_host_function()",
			 (uintptr_t)p.fn, p.userData);
}

static int host_put(struct fdry_graph_enc *enc, const struct fdry_node *node)
{
	struct fdry_buf *names = &enc->column[FDRY_GSEC_HOST_NAME];
	int err;

	if (names->len + node->host.len > FDRY_GRAPH_HOST_BYTES_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the names of host functions have more than %u "
				 "bytes in all; use shorter ones", FDRY_GRAPH_HOST_BYTES_MAX);
	err = fdry_buf_put(names, node->host.data, node->host.len);
	return err ? err
		   : fdry_buf_put_u32(&enc->column[FDRY_GSEC_HOST_END], (uint32_t)names->len);
}

/* The name in host node @i; its end was checked. */
static struct fdry_span name_at(const struct fdry_graph_view *v, uint32_t i)
{
	uint32_t from = i ? fdry_graph_u32(v, FDRY_GSEC_HOST_END, i - 1) : 0,
		 to = fdry_graph_u32(v, FDRY_GSEC_HOST_END, i);

	return (struct fdry_span){ v->section[FDRY_GSEC_HOST_NAME] + from, to - from };
}

static int host_check(const struct fdry_graph_view *v)
{
	bool says = v->header.incompat & FDRY_GRAPH_INCOMPAT_FUNCTIONS;
	uint32_t i, end, before = 0;

	if (says != (v->header.host_nodes != 0))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "it has %u host nodes, but its header says otherwise",
				 v->header.host_nodes);
	for (i = 0; i < v->header.host_nodes; i++, before = end) {
		end = fdry_graph_u32(v, FDRY_GSEC_HOST_END, i);
		if (end <= before || end > v->header.host_bytes ||
		    !fdry_graph_name_ok(name_at(v, i)))
			return fdry_fail(FDRY_E_BADIMAGE,
					 "the name of host node %u, which ends at byte %u of %u, "
					 "is no name", i, end, v->header.host_bytes);
	}
	if (before != v->header.host_bytes)
		return fdry_fail(FDRY_E_BADIMAGE, "%u bytes of names belong to no host node",
				 v->header.host_bytes - before);
	return 0;
}

static void host_get(struct fdry_graph_cursor *c, struct fdry_node *ret)
{
	ret->host = name_at(c->v, c->next[FDRY_NODE_HOST]++);
}

static const struct fdry_host_function *bound(const struct fdry_host_function *functions, size_t n,
					      struct fdry_span name)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (fdry_graph_name_is(name, functions[i].name))
			return &functions[i];
	return NULL;
}

int fdry_graph_view_check_functions(const struct fdry_graph_view *v,
				    const struct fdry_host_function *functions, size_t count)
{
	struct fdry_span name;
	uint32_t i;

	for (i = 0; i < v->header.host_nodes; i++) {
		name = name_at(v, i);
		if (!bound(functions, count, name))
			return fdry_fail(FDRY_E_NOKEY,
					 "it calls host function '%.*s', which the load does not "
					 "name; name it in fdry_load_opts.functions",
					 (int)name.len, name.data);
	}
	return 0;
}

static int host_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	const struct fdry_host_function *f = bound(b->in->functions, b->in->nfunctions, node->host);
	CUDA_HOST_NODE_PARAMS p;

	memset(&p, 0, sizeof(p));
	p.fn = f->fn;
	p.userData = f->data;
	return fdry_call(b->drv, cuGraphAddHostNode, ret, b->graph, NULL, 0, &p);
}

static int host_to_text(const struct fdry_node *node, struct fdry_buf *ret)
{
	return fdry_buf_printf(ret, " %.*s", (int)node->host.len, node->host.data);
}

static int host_from_text(struct fdry_text *t, struct fdry_node *ret)
{
	if (fdry_word(&t->w, &ret->host))
		return 0;
	return fdry_fail(FDRY_E_INVAL, "the line ends where the host function should stand");
}

const struct fdry_node_ops fdry_node_host_ops = {
	.name = "host",
	.read = host_read,
	.put = host_put,
	.check = host_check,
	.get = host_get,
	.build = host_build,
	.to_text = host_to_text,
	.from_text = host_from_text,
};
