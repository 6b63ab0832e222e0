// SPDX-License-Identifier: Apache-2.0
/* audit.c - see audit.h. */
#include "image/audit.h"

#include "lib/search.h"
#include "mm/region.h"
#include "store/store.h"

enum fdry_audit_target fdry_audit_target(const struct fdry_audit_memory *m, uint64_t word)
{
	const struct fdry_mf_segment *s = m->segments;
	size_t k;

	if (word < m->base || word > m->end)
		return FDRY_AUDIT_none;
	k = fdry_lower_bound(i, m->n, s[i].addr + s[i].size <= word);
	if (k < m->n && s[k].addr <= word)
		return FDRY_AUDIT_inside;
	return k && s[k - 1].addr + s[k - 1].size == word ? FDRY_AUDIT_inside : FDRY_AUDIT_outside;
}

uint64_t fdry_audit_content_words(const struct fdry_audit_memory *m)
{
	uint64_t ret = 0;
	size_t i;

	for (i = 0; i < m->n; i++)
		if (m->segments[i].role == FDRY_ROLE_CONTENT)
			ret += m->segments[i].size / 8;
	return ret;
}

void fdry_audit_add(struct fdry_mf_audit *a, enum fdry_audit_target target, int64_t n)
{
	uint64_t *const member[FDRY_AUDIT_TARGETS] = {
#define X(member, text) &a->member,
		FDRY_MF_AUDIT_TARGETS(X)
#undef X
	};

	*member[target] += (uint64_t)n;
}

/* A pointer in arguments may lie at any byte; one that is not aligned covers no whole word. */
void fdry_audit_variables(struct fdry_mf_audit *entries, uint32_t graphs,
			  const struct fdry_mf_arg_pointer *args, size_t nargs, size_t ncontent)
{
	size_t i;

	for (i = 0; i < nargs; i++) {
		entries[args[i].graph].variables++;
		entries[args[i].graph].none -= args[i].at % 8 == 0;
	}
	entries[graphs].variables = ncontent;
	entries[graphs].none -= ncontent;
}

int fdry_audit_list(struct fdry_buf *words, const struct fdry_mf_audit_word *w)
{
	if (fdry_array_count(*words, struct fdry_mf_audit_word) == FDRY_MF_AUDIT_WORDS_MAX)
		return 0;
	return fdry_buf_put(words, w, sizeof(*w));
}

int fdry_audit_args(const struct fdry_graph_view *view, fdry_audit_fn fn, void *arg)
{
	struct fdry_graph_cursor cursor;
	struct fdry_node node;
	struct fdry_span args;
	uint64_t at;
	int err = fdry_graph_cursor_init(view, &cursor);

	if (err)
		return err;
	while (!err && fdry_graph_next(&cursor, &node)) {
		args = node.kind == FDRY_NODE_KERNEL ? node.kernel.args : (struct fdry_span){ 0 };
		for (at = 0; at + 8 <= args.len && !err; at += 8)
			err = fn(arg, cursor.node - 1, at, fdry_get64(args.data + at));
	}
	fdry_graph_cursor_release(&cursor);
	return err;
}

/* --- the audit of an image in a store --- */

struct making {
	struct fdry_reader *reader;
	const struct fdry_manifest *m;
	struct fdry_audit_memory memory;
	struct fdry_buf *words;
	struct fdry_mf_audit *entry; /* of the graph that is read, or of content */
};

static int word_count(struct making *k, const struct fdry_mf_audit_word *w)
{
	enum fdry_audit_target target = fdry_audit_target(&k->memory, w->word);

	if (target == FDRY_AUDIT_none && fdry_manifest_pinned(k->m, w->word, 1))
		target = FDRY_AUDIT_host;
	fdry_audit_add(k->entry, target, 1);
	return target == FDRY_AUDIT_outside ? fdry_audit_list(k->words, w) : 0;
}

static int arg_count(void *arg, uint32_t node, uint64_t at, uint64_t word)
{
	struct making *k = arg;
	struct fdry_mf_audit_word w = { k->entry->graph, node, at, word };

	return word_count(k, &w);
}

static int graph_count(struct making *k)
{
	struct fdry_graph_view view;
	struct fdry_buf bytes = { 0 };
	int err = fdry_reader_copy(k->reader, &k->m->graphs[k->entry->graph].oid, &bytes);

	if (err)
		return err;
	err = fdry_graph_view_init((struct fdry_span){ bytes.data, bytes.len }, &view);
	if (!err)
		err = fdry_audit_args(&view, arg_count, k);
	fdry_buf_release(&bytes);
	return err;
}

/* Count the words of a chunk. Words that lie in two chunks are counted with the rest of content. */
static int chunk_count(struct making *k, const struct fdry_mf_chunk *chunk)
{
	struct fdry_mf_audit_word w = { .graph = FDRY_MF_AUDIT_CONTENT,
					.at = (chunk->addr + 7) & ~7ull };
	struct fdry_buf bytes = { 0 };
	int err = fdry_reader_copy(k->reader, &chunk->oid, &bytes);

	if (err)
		return err;
	if (bytes.len != chunk->size)
		err = fdry_fail(FDRY_E_BADIMAGE, "a chunk does not have the size that the "
						 "manifest states");
	for (; !err && w.at + 8 <= chunk->addr + chunk->size; w.at += 8) {
		w.word = fdry_get64(bytes.data + (w.at - chunk->addr));
		err = word_count(k, &w);
	}
	fdry_buf_release(&bytes);
	return err;
}

static int content_count(struct making *k)
{
	struct fdry_mf_audit *c = k->entry;
	uint64_t all = fdry_audit_content_words(&k->memory), words;
	uint32_t i;
	int err = 0;

	for (i = 0; i < k->m->n_chunks && !err; i++)
		err = chunk_count(k, &k->m->chunks[i]);
	words = c->inside + c->host + c->outside + c->none;
	if (all > words)
		c->none += all - words; /* zeros */
	return err;
}

int fdry_audit_make(struct fdry_reader *reader, const struct fdry_manifest *m,
		    struct fdry_audit *ret)
{
	struct fdry_audit a = { 0 };
	struct making k = {
		.reader = reader,
		.m = m,
		.memory = { m->header->base, m->header->end, m->segments, m->n_segments },
		.words = &a.words,
	};
	struct fdry_mf_audit entry = { 0 };
	int err = 0;

	for (; entry.graph <= m->n_graphs && !err; entry.graph++)
		err = fdry_buf_put(&a.entries, &entry, sizeof(entry));
	k.entry = fdry_array(a.entries, struct fdry_mf_audit);
	for (; !err && k.entry->graph < m->n_graphs; k.entry++)
		err = graph_count(&k);
	if (!err) {
		k.entry->graph = FDRY_MF_AUDIT_CONTENT;
		err = content_count(&k);
	}
	if (err) {
		fdry_audit_release(&a);
		return err;
	}
	fdry_audit_variables(fdry_array(a.entries, struct fdry_mf_audit), m->n_graphs,
			     m->arg_pointers, m->n_arg_pointers, m->n_content_pointers);
	*ret = a;
	return 0;
}

void fdry_audit_release(struct fdry_audit *a)
{
	fdry_buf_release(&a->entries);
	fdry_buf_release(&a->words);
}
