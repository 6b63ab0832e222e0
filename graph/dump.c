// SPDX-License-Identifier: Apache-2.0
/*
 * dump.c - graph objects as text, and back.
 *
 * The first line names the format. Each node, edge and unknown section has a line of its own.
 * The text holds everything in the object, so it converts back to the same bytes. Tables and
 * counts follow from the nodes and are not written. '#' starts a comment.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "lib/printable.h"
#include "graph/graph.h"
#include "graph/subgraph.h"
#include "graph/text.h"

#define FIRST_LINE "foundry-graph"

/* --- object -> text --- */

static int head_to_text(const struct fdry_graph_view *v, struct fdry_buf *out)
{
	const struct fdry_graph_header *h = &v->header;
	int err = fdry_buf_printf(
		out, FIRST_LINE " %u\n# %u nodes, %u edges, %u kernels, %" PRIu64 " bytes\n",
		FDRY_GRAPH_TEXT_VERSION, h->nodes, fdry_graph_edge_count(v), h->kernels, h->size);

	if (err)
		return err;
	if (h->compat)
		return fdry_buf_printf(out, "compat 0x%x\n", h->compat);
	return 0;
}

static int kernels_to_text(const struct fdry_graph_view *v, const struct fdry_kernel *kernels,
			   uint32_t nkernels, struct fdry_buf *out)
{
	struct fdry_graph_kernel k;
	uint32_t i;
	int err;

	for (i = 0; i < v->header.kernels; i++) {
		k = fdry_graph_kernel_at(v, i);
		if (k.index >= nkernels)
			continue;
		/* fdry_buf_line() escapes a line break in the name. */
		err = fdry_buf_line(out, "# kernel %u is %s", k.index, kernels[k.index].name);
		if (err)
			return err;
	}
	return 0;
}

/* Write the lines of graphs that begin at the next node, from graph *@i. */
static int subgraphs_to_text(const struct fdry_graph_view *v, uint32_t node, uint32_t *i,
			     struct fdry_buf *out)
{
	int err = 0;

	for (; !err && *i < v->header.subgraphs && fdry_graph_end(v, *i) == node; ++*i)
		err = fdry_buf_printf(out, "graph %u\n", fdry_graph_subgraph_at(v, *i).owner);
	return err;
}

static int nodes_to_text(const struct fdry_graph_view *v, struct fdry_buf *out)
{
	const struct fdry_node_ops *ops;
	struct fdry_graph_cursor c;
	struct fdry_node node;
	uint32_t i = 0;
	int err = fdry_graph_cursor_init(v, &c);

	if (err)
		return err;
	while (fdry_graph_next(&c, &node)) {
		ops = fdry_node_ops(node.kind);
		err = subgraphs_to_text(v, c.node - 1, &i, out);
		if (err)
			goto out_release;
		err = fdry_buf_printf(out, "node %u %s", c.node - 1, ops->name);
		if (err)
			goto out_release;
		if (ops->to_text)
			err = ops->to_text(&node, out);
		if (err)
			goto out_release;
		err = fdry_buf_printf(out, "\n");
		if (err)
			goto out_release;
	}
	err = subgraphs_to_text(v, c.node, &i, out);
out_release:
	fdry_graph_cursor_release(&c);
	return err;
}

static int edges_to_text(const struct fdry_graph_view *v, struct fdry_buf *out)
{
	struct fdry_graph_edges edges = { .v = v };
	struct fdry_graph_edge e;
	CUgraphEdgeData d;
	int err;

	while (fdry_graph_edge_next(&edges, &e)) {
		d = fdry_graph_edge_data_at(v, e.index);
		err = fdry_buf_printf(out, "edge %u %u", e.from, e.to);
		if (err)
			return err;
		if (e.index)
			err = fdry_buf_printf(out, " from_port %u to_port %u type %u", d.from_port,
					      d.to_port, d.type);
		if (err)
			return err;
		err = fdry_buf_printf(out, "\n");
		if (err)
			return err;
	}
	return 0;
}

static int optional_to_text(const struct fdry_graph_view *v, struct fdry_buf *out)
{
	struct fdry_section s;
	uint32_t i;
	int err;

	for (i = 0; i < v->header.sections; i++) {
		memcpy(&s, v->bytes.data + sizeof(v->header) + sizeof(s) * (size_t)i, sizeof(s));
		if (!(s.id & FDRY_SECTION_OPTIONAL))
			continue;
		err = fdry_buf_printf(out, "section 0x%x", s.id);
		if (err)
			return err;
		err = fdry_bytes_to_text((struct fdry_span){ v->bytes.data + s.offset, s.length },
					 out);
		if (err)
			return err;
		err = fdry_buf_printf(out, "\n");
		if (err)
			return err;
	}
	return 0;
}

int fdry_graph_to_text(const struct fdry_graph_view *view, const struct fdry_kernel *kernels,
		       uint32_t nkernels, struct fdry_buf *ret)
{
	struct fdry_buf out = { 0 };
	int err = head_to_text(view, &out) ?:
		  (kernels ? kernels_to_text(view, kernels, nkernels, &out) : 0) ?:
		  nodes_to_text(view, &out) ?: edges_to_text(view, &out) ?:
		  optional_to_text(view, &out);

	if (err) {
		fdry_buf_release(&out);
		return err;
	}
	*ret = out;
	return 0;
}

/* --- text -> object --- */

struct parse {
	struct fdry_text text;
	struct fdry_graph_enc enc;
	struct fdry_buf edges; /* struct fdry_edge each */
	bool begun;            /* the first line was seen */
};

static int node_line(struct parse *p)
{
	const struct fdry_node_ops *ops;
	struct fdry_node node;
	struct fdry_span name;
	uint64_t index;
	int err = fdry_word_u64(&p->text.w, "the node", UINT32_MAX, &index);

	memset(&node, 0, sizeof(node));
	if (err)
		return err;
	if (index != p->enc.column[FDRY_GSEC_KIND].len)
		return fdry_fail(FDRY_E_INVAL, "node %" PRIu64 " stands where node %zu should",
				 index, p->enc.column[FDRY_GSEC_KIND].len);
	if (!fdry_word(&p->text.w, &name))
		return fdry_fail(FDRY_E_INVAL, "the line ends where the node's kind should stand");
	err = fdry_node_kind_named(name, &node.kind);
	if (err)
		return err;
	ops = fdry_node_ops(node.kind);
	if (ops->from_text)
		err = ops->from_text(&p->text, &node);
	return err ? err : fdry_graph_enc_node(&p->enc, &node);
}

static int graph_line(struct parse *p)
{
	uint32_t owner = 0;
	int err = fdry_word_u32(&p->text.w, "the node that holds the graph", &owner);

	return err ? err : fdry_graph_enc_subgraph(&p->enc, owner);
}

static int edge_data_words(struct fdry_words *w, CUgraphEdgeData *ret)
{
	uint64_t port = 0, to = 0, type = 0;
	int err = fdry_word_u64(w, "from_port", UINT8_MAX, &port) ?:
		  fdry_word_expect(w, "to_port") ?: fdry_word_u64(w, "to_port", UINT8_MAX, &to) ?:
		  fdry_word_expect(w, "type") ?: fdry_word_u64(w, "type", UINT8_MAX, &type);

	if (err)
		return err;
	ret->from_port = (uint8_t)port;
	ret->to_port = (uint8_t)to;
	ret->type = (uint8_t)type;
	return 0;
}

static int edge_line(struct parse *p)
{
	struct fdry_words *w = &p->text.w;
	struct fdry_edge e = { 0 };
	int err = fdry_word_u32(w, "the edge's source", &e.from);

	if (err)
		return err;
	err = fdry_word_u32(w, "the edge's target", &e.to);
	if (err)
		return err;
	if (fdry_word_is(w, "from_port"))
		err = edge_data_words(w, &e.data);
	if (err)
		return err;
	return fdry_buf_put(&p->edges, &e, sizeof(e));
}

static int section_line(struct parse *p)
{
	uint32_t id = 0;
	int err = fdry_word_u32(&p->text.w, "the section", &id);

	p->text.args.len = 0;
	if (err)
		return err;
	err = fdry_bytes_from_text(&p->text.w, &p->text.args);
	if (err)
		return err;
	return fdry_graph_enc_optional(&p->enc, id,
				       (struct fdry_span){ p->text.args.data, p->text.args.len });
}

static int first_line(struct parse *p)
{
	uint64_t version;
	int err = fdry_word_expect(&p->text.w, FIRST_LINE);

	if (err)
		return err;
	err = fdry_word_u64(&p->text.w, "the version", UINT32_MAX, &version);
	if (err)
		return err;
	if (version != FDRY_GRAPH_TEXT_VERSION)
		return fdry_fail(FDRY_E_INVAL,
				 "it has format version %" PRIu64 ", and this version writes %u",
				 version, FDRY_GRAPH_TEXT_VERSION);
	p->begun = true;
	return 0;
}

static int line_parse(struct parse *p)
{
	struct fdry_words *w = &p->text.w;
	struct fdry_words before = *w;
	struct fdry_span word;
	int err;

	if (!fdry_word(w, &word))
		return 0;
	*w = before;
	if (!p->begun)
		err = first_line(p);
	else if (fdry_word_is(w, "node"))
		err = node_line(p);
	else if (fdry_word_is(w, "graph"))
		err = graph_line(p);
	else if (fdry_word_is(w, "edge"))
		err = edge_line(p);
	else if (fdry_word_is(w, "section"))
		err = section_line(p);
	else if (fdry_word_is(w, "compat"))
		err = fdry_word_u32(w, "compat", &p->enc.compat);
	else
		err = fdry_fail(FDRY_E_INVAL, "it begins with '%.*s', which is no kind of line",
				(int)(word.len < 40 ? word.len : 40), word.data);
	return err ? err : fdry_words_end(w);
}

static int lines_parse(struct parse *p, struct fdry_span text)
{
	const char *at = (const char *)text.data, *end = at + text.len, *newline;
	unsigned int line;
	int err;

	for (line = 1; at < end; line++) {
		newline = memchr(at, '\n', (size_t)(end - at));
		p->text.w = (struct fdry_words){ at, newline ? newline : end };
		err = line_parse(p);
		if (err)
			return fdry_fail_at(err, "line %u", line);
		at = newline ? newline + 1 : end;
	}
	if (!p->begun)
		return fdry_fail(FDRY_E_INVAL, "the text does not begin with '" FIRST_LINE " %u'",
				 FDRY_GRAPH_TEXT_VERSION);
	return 0;
}

int fdry_graph_from_text(struct fdry_span text, struct fdry_buf *ret)
{
	struct parse *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return fdry_nomem();
	err = text.len ? lines_parse(p, text) : fdry_fail(FDRY_E_INVAL, "the text is empty");
	if (err)
		goto out_free;
	err = fdry_graph_enc_edges(&p->enc, (struct fdry_edge *)p->edges.data,
				   (uint32_t)(p->edges.len / sizeof(struct fdry_edge)));
	if (err)
		goto out_free;
	err = fdry_graph_enc_finish(&p->enc, ret);
out_free:
	fdry_graph_enc_release(&p->enc);
	fdry_buf_release(&p->text.args);
	fdry_buf_release(&p->edges);
	free(p);
	return err;
}
