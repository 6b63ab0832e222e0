// SPDX-License-Identifier: Apache-2.0
/*
 * audit.c - counts the words of arguments and content by what they point to; see image/audit.h.
 *
 * No content is read for this. A seal has the words of all content that may be pointers, also of
 * content that it does not read again (content.c); every other word is none. Which pinned memory
 * the image has is known after all content. Until then words that point to any are kept.
 */
#include "image/seal/seal.h"

/* A word that points to pinned memory. */
struct pinned_word {
	uint64_t graph; /* the index of its entry */
	uint64_t word;
};

static struct fdry_audit_memory memory_of(const struct fdry_seal *s)
{
	return (struct fdry_audit_memory){
		s->w.base, s->w.end, fdry_array(s->w.segments, struct fdry_mf_segment),
		fdry_array_count(s->w.segments, struct fdry_mf_segment)
	};
}

/* Arguments are counted before content, as the manifest lists their words. */
static int word_count(struct fdry_seal *s, struct fdry_mf_audit *entry,
		      const struct fdry_mf_audit_word *w)
{
	const struct fdry_audit_memory m = memory_of(s);
	enum fdry_audit_target target = fdry_audit_target(&m, w->word);
	struct pinned_word pinned = { entry->graph, w->word };

	fdry_audit_add(entry, target, 1);
	if (target == FDRY_AUDIT_outside)
		return fdry_audit_list(&s->w.audit_words, w);
	if (target == FDRY_AUDIT_none && fdry_seal_pinned_lists(s, w->word))
		return fdry_buf_put(&s->audit.pinned, &pinned, sizeof(pinned));
	return 0;
}

/* The entry of the graph that entered the manifest last. */
static struct fdry_mf_audit *last_entry(const struct fdry_seal *s)
{
	return &fdry_array(s->w.audits, struct fdry_mf_audit)
		[fdry_array_count(s->w.audits, struct fdry_mf_audit) - 1];
}

static int arg_count(void *arg, uint32_t node, uint64_t at, uint64_t word)
{
	struct fdry_seal *s = arg;
	struct fdry_mf_audit *entry = last_entry(s);
	struct fdry_mf_audit_word w = { entry->graph, node, at, word };

	return word_count(s, entry, &w);
}

/* Count the words, and note the result if it is complete: words that are listed, or that point to
 * pinned memory, are looked at by each seal. */
static int graph_count(struct fdry_seal *s, struct fdry_span bytes, struct fdry_sealed_audit *note)
{
	size_t pinned = s->audit.pinned.len;
	struct fdry_graph_view view;
	int err = fdry_graph_view_init(bytes, &view);

	if (err)
		return err;
	err = fdry_audit_args(&view, arg_count, s);
	note->entry = *last_entry(s);
	note->has = !err && !note->entry.outside && s->audit.pinned.len == pinned;
	return err;
}

int fdry_seal_audit_graph(struct fdry_seal *s, struct fdry_capture_graph *g,
			  struct fdry_span bytes)
{
	uint32_t index = (uint32_t)fdry_array_count(s->w.graphs, struct fdry_mf_graph) - 1;
	const struct fdry_oid *object = &fdry_array(s->w.graphs, struct fdry_mf_graph)[index].oid;
	struct fdry_sealed_audit *note = &g->audit;
	bool has = note->has && fdry_oid_eq(&note->object, object) &&
		   fdry_fingerprint_eq(note->memory, s->audit.memory);
	struct fdry_mf_audit entry = { 0 };
	int err;

	if (has)
		entry = note->entry;
	entry.graph = index;
	err = fdry_buf_put(&s->w.audits, &entry, sizeof(entry));
	if (err || has)
		return err;
	note->object = *object;
	note->memory = s->audit.memory;
	return graph_count(s, bytes, note);
}

int fdry_seal_audit_begin(struct fdry_seal *s)
{
	const uint64_t bounds[] = { s->w.base, s->w.end };
	const struct fdry_alloc *p = s->pinned.list;
	struct fdry_buf all = { 0 };
	size_t i;
	int err = fdry_buf_put(&all, bounds, sizeof(bounds)) ?:
		  fdry_buf_put(&all, s->w.segments.data, s->w.segments.len);

	for (i = 0; i < s->pinned.n && !err; i++)
		err = fdry_buf_put(&all, &(uint64_t[]){ p[i].addr, p[i].size }, 16);
	s->audit.memory = fdry_fingerprint_of(all.data, all.len);
	s->audit.content.graph = FDRY_MF_AUDIT_CONTENT;
	fdry_buf_release(&all);
	return err;
}

int fdry_seal_audit_words(struct fdry_seal *s, const struct fdry_sealed_word *words, size_t n)
{
	struct fdry_mf_audit_word w = { .graph = FDRY_MF_AUDIT_CONTENT };
	int err = 0;

	for (; n && !err; n--, words++) {
		w.at = words->at;
		w.word = words->word;
		err = word_count(s, &s->audit.content, &w);
	}
	return err;
}

int fdry_seal_audit_put(struct fdry_seal *s)
{
	const struct pinned_word *p = fdry_array(s->audit.pinned, struct pinned_word);
	size_t i, graphs = fdry_array_count(s->w.audits, struct fdry_mf_audit);
	struct fdry_mf_audit *content = &s->audit.content, *entries, *entry;
	const struct fdry_audit_memory m = memory_of(s);
	int err;

	content->none = fdry_audit_content_words(&m) - content->inside - content->outside;
	err = fdry_buf_put(&s->w.audits, content, sizeof(*content));
	if (err)
		return err;
	entries = fdry_array(s->w.audits, struct fdry_mf_audit);
	for (i = 0; i < fdry_array_count(s->audit.pinned, struct pinned_word); i++) {
		if (!fdry_seal_pinned_holds(s, p[i].word))
			continue;
		entry = &entries[p[i].graph == FDRY_MF_AUDIT_CONTENT ? graphs : p[i].graph];
		fdry_audit_add(entry, FDRY_AUDIT_host, 1);
		fdry_audit_add(entry, FDRY_AUDIT_none, -1);
	}
	fdry_audit_variables(entries, (uint32_t)graphs,
			     fdry_array(s->w.arg_pointers, struct fdry_mf_arg_pointer),
			     fdry_array_count(s->w.arg_pointers, struct fdry_mf_arg_pointer),
			     fdry_array_count(s->w.content_pointers,
					      struct fdry_mf_content_pointer));
	return 0;
}

void fdry_seal_audit_release(struct fdry_seal *s)
{
	fdry_buf_release(&s->audit.pinned);
}
