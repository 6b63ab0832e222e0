// SPDX-License-Identifier: Apache-2.0
/* manifest_check_audit.c - checks the audit of a manifest (audit.h), after its graphs. */
#include "image/manifest_check.h"

#define bad fdry_manifest_bad

/* Whether a word of the audit has a place, and points into the region. */
static bool audit_word_ok(const struct fdry_manifest *m, const struct fdry_mf_audit_word *w)
{
	if (w->graph == FDRY_MF_AUDIT_CONTENT ? w->node != 0
					      : w->graph >= m->n_graphs ||
							w->node >= m->graphs[w->graph].nodes)
		return false;
	return w->at % 8 == 0 && w->word >= m->header->base && w->word <= m->header->end;
}

static bool audit_word_ordered(const struct fdry_mf_audit_word *a,
			       const struct fdry_mf_audit_word *b)
{
	if (a->graph != b->graph)
		return a->graph < b->graph;
	return a->node != b->node ? a->node < b->node : a->at < b->at;
}

int fdry_manifest_check_audit(const struct fdry_manifest *m)
{
	const struct fdry_mf_audit_word *w = m->audit_words;
	uint64_t listed = 0;
	uint32_t i;

	if (m->n_audits && m->n_audits != m->n_graphs + 1)
		return bad("the audit has not one entry for each graph and one for content");
	for (i = 0; i < m->n_audits; i++) {
		if (m->audits[i].graph != (i < m->n_graphs ? i : FDRY_MF_AUDIT_CONTENT) ||
		    m->audits[i].reserved)
			return bad("entry %u of the audit is out of order", i);
		listed += m->audits[i].outside < FDRY_MF_AUDIT_WORDS_MAX - listed
				  ? m->audits[i].outside
				  : FDRY_MF_AUDIT_WORDS_MAX - listed;
	}
	if (m->n_audit_words != listed)
		return bad("the audit does not list the words that it counts");
	for (i = 0; i < m->n_audit_words; i++, w++)
		if (!audit_word_ok(m, w) || (i && !audit_word_ordered(w - 1, w)))
			return bad("word %u of the audit has no place, or is out of order", i);
	return 0;
}
