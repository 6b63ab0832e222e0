// SPDX-License-Identifier: Apache-2.0
/* audit.c - see audit.h. */
#include "api/cmd/audit.h"

#include <stdlib.h>
#include <string.h>

#include "api/cmd/cmd.h"
#include "mm/region.h"

enum target {
#define X(member, text) TARGET_##member,
	AUDIT_CLASSES(X)
#undef X
	TARGETS
};

struct auditing {
	struct fdry_reader *reader;
	const struct fdry_manifest *m;
	struct audit *a;
};

/* A pointer one past the end of memory counts as a pointer into it, as in C. */
static enum target target_of(const struct fdry_manifest *m, uint64_t word)
{
	uint32_t k;

	if (word < m->header->base || word > m->header->end)
		return fdry_manifest_pinned(m, word, 1) ? TARGET_host : TARGET_none;
	k = fdry_manifest_segment(m, word);
	if (k < m->n_segments && m->segments[k].addr <= word)
		return TARGET_inside;
	return k && m->segments[k - 1].addr + m->segments[k - 1].size == word ? TARGET_inside
									       : TARGET_outside;
}

static void count(struct audit_counts *c, enum target target, int64_t n)
{
	uint64_t *member[TARGETS] = {
#define X(member, text) &c->member,
		AUDIT_CLASSES(X)
#undef X
	};

	*member[target] += (uint64_t)n;
}

static void word_count(struct auditing *x, struct audit_counts *c, struct audit_word w)
{
	enum target target = target_of(x->m, w.word);

	count(c, target, 1);
	if (target == TARGET_outside && x->a->nwords < AUDIT_WORDS_MAX)
		x->a->words[x->a->nwords++] = w;
}

/* --- arguments --- */

static void args_count(struct auditing *x, uint32_t graph, uint32_t node, struct fdry_span args)
{
	struct audit_word w = { .graph = graph, .node = node };

	for (; w.at + 8 <= args.len; w.at += 8) {
		w.word = fdry_get64(args.data + w.at);
		word_count(x, &x->a->graphs[graph], w);
	}
}

static int graph_count(struct auditing *x, uint32_t graph)
{
	struct fdry_graph_cursor cursor;
	struct cmd_graph_object g;
	struct fdry_node node;
	int err = cmd_graph_open(x->reader, &x->m->graphs[graph].oid, &g);

	if (err)
		return err;
	err = fdry_graph_cursor_init(&g.view, &cursor);
	if (err)
		goto out_close;
	while (fdry_graph_next(&cursor, &node))
		if (node.kind == FDRY_NODE_KERNEL)
			args_count(x, graph, cursor.node - 1, node.kernel.args);
	fdry_graph_cursor_release(&cursor);
out_close:
	cmd_graph_close(&g);
	return err;
}

/* The image has zeros in place of pointers to variables. Those in arguments may lie at any byte;
 * one that is not aligned covers no whole word. */
static void variables_count(struct auditing *x)
{
	const struct fdry_manifest *m = x->m;
	struct audit_counts *c;
	uint32_t i;

	for (i = 0; i < m->n_arg_pointers; i++) {
		c = &x->a->graphs[m->arg_pointers[i].graph];
		count(c, TARGET_variables, 1);
		if (m->arg_pointers[i].at % 8 == 0)
			count(c, TARGET_none, -1);
	}
	count(&x->a->content, TARGET_variables, m->n_content_pointers);
	count(&x->a->content, TARGET_none, -(int64_t)m->n_content_pointers);
}

/* --- content --- */

/* Count the words of a chunk. Words that lie in two chunks are counted with the rest of content. */
static int chunk_count(struct auditing *x, const struct fdry_mf_chunk *chunk, uint64_t *words)
{
	struct audit_word w = { .graph = -1, .at = (chunk->addr + 7) & ~7ull };
	struct fdry_buf bytes = { 0 };
	int err = fdry_reader_copy(x->reader, &chunk->oid, &bytes);

	if (err)
		return err;
	if (bytes.len != chunk->size)
		err = fdry_fail(FDRY_E_BADIMAGE, "a chunk does not have the size that the "
						 "manifest states");
	for (; !err && w.at + 8 <= chunk->addr + chunk->size; w.at += 8, ++*words) {
		w.word = fdry_get64(bytes.data + (w.at - chunk->addr));
		word_count(x, &x->a->content, w);
	}
	fdry_buf_release(&bytes);
	return err;
}

static int content_count(struct auditing *x)
{
	const struct fdry_manifest *m = x->m;
	uint64_t words = 0, all = 0;
	uint32_t i;
	int err = 0;

	for (i = 0; i < m->n_chunks && !err; i++)
		err = chunk_count(x, &m->chunks[i], &words);
	for (i = 0; i < m->n_segments; i++)
		if (m->segments[i].role == FDRY_ROLE_CONTENT)
			all += m->segments[i].size / 8;
	if (all > words)
		count(&x->a->content, TARGET_none, (int64_t)(all - words)); /* zeros */
	return err;
}

int audit_make(struct fdry_reader *reader, const struct fdry_manifest *m, struct audit *ret)
{
	struct audit a = { .graphs = calloc((size_t)m->n_graphs + 1, sizeof(*a.graphs)) };
	struct auditing x = { reader, m, &a };
	uint32_t i;
	int err = a.graphs ? 0 : -FDRY_E_NOMEM;

	for (i = 0; i < m->n_graphs && !err; i++)
		err = graph_count(&x, i);
	if (!err)
		err = content_count(&x);
	if (err) {
		audit_release(&a);
		return err;
	}
	variables_count(&x);
	*ret = a;
	return 0;
}

void audit_release(struct audit *a)
{
	free(a->graphs);
	a->graphs = NULL;
}

/* --- output --- */

void audit_text(const struct audit_counts *c, char *ret, size_t len)
{
	size_t n = 0;

	ret[0] = '\0';
#define X(member, text) \
	if (c->member && n < len) \
		n += (size_t)snprintf(ret + n, len - n, "%s%llu %s", n ? ", " : "", \
				      (unsigned long long)c->member, text);
	AUDIT_CLASSES(X)
#undef X
}

static void word_print(const struct fdry_manifest *m, const struct audit_word *w)
{
	if (w->graph < 0)
		printf("audit: the word of content at %#llx", (unsigned long long)w->at);
	else
		printf("audit: the word at byte %llu of the arguments of node %u of graph %llu",
		       (unsigned long long)w->at, w->node,
		       (unsigned long long)m->graphs[w->graph].key);
	printf(" is %#llx, which the image does not hold\n", (unsigned long long)w->word);
}

void audit_print(const struct fdry_manifest *m, const struct audit *a)
{
	char text[400];
	uint32_t i;

	for (i = 0; i < m->n_graphs; i++) {
		audit_text(&a->graphs[i], text, sizeof(text));
		printf("audit of the arguments of graph %llu: %s\n",
		       (unsigned long long)m->graphs[i].key, text[0] ? text : "no words");
	}
	audit_text(&a->content, text, sizeof(text));
	printf("audit of content: %s\n", text[0] ? text : "no words");
	for (i = 0; i < a->nwords; i++)
		word_print(m, &a->words[i]);
}

static void counts_json(struct json *j, const struct audit_counts *c)
{
#define X(member, text) json_number(j, #member, c->member);
	AUDIT_CLASSES(X)
#undef X
}

void audit_json(struct json *j, const struct fdry_manifest *m, const struct audit *a)
{
	uint32_t i;

	json_open(j, "audit", '{');
	json_open(j, "graphs", '[');
	for (i = 0; i < m->n_graphs; i++) {
		json_open(j, NULL, '{');
		json_number(j, "key", m->graphs[i].key);
		counts_json(j, &a->graphs[i]);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_open(j, "content", '{');
	counts_json(j, &a->content);
	json_close(j, '}');
	json_close(j, '}');
}
