// SPDX-License-Identifier: Apache-2.0
/* audit.c - see audit.h. */
#include "api/cmd/audit.h"

#include "api/cmd/cmd.h"

int audit_read(struct fdry_reader *reader, const struct fdry_manifest *m, struct fdry_audit *ret)
{
	struct fdry_audit a = { 0 };
	int err;

	if (!m->n_audits)
		return fdry_audit_make(reader, m, ret);
	err = fdry_buf_put(&a.entries, m->audits, m->n_audits * sizeof(*m->audits)) ?:
	      fdry_buf_put(&a.words, m->audit_words, m->n_audit_words * sizeof(*m->audit_words));
	if (err) {
		fdry_audit_release(&a);
		return err;
	}
	*ret = a;
	return 0;
}

void audit_text(const struct fdry_mf_audit *a, char *ret, size_t len)
{
	size_t n = 0;

	ret[0] = '\0';
#define X(member, text) \
	if (a->member && n < len) \
		n += (size_t)snprintf(ret + n, len - n, "%s%llu %s", n ? ", " : "", \
				      (unsigned long long)a->member, text);
	FDRY_MF_AUDIT_TARGETS(X)
#undef X
}

static void word_print(const struct fdry_manifest *m, const struct fdry_mf_audit_word *w)
{
	if (w->graph == FDRY_MF_AUDIT_CONTENT)
		printf("audit: the word of content at %#llx", (unsigned long long)w->at);
	else
		printf("audit: the word at byte %llu of the arguments of node %u of graph %llu",
		       (unsigned long long)w->at, w->node,
		       (unsigned long long)m->graphs[w->graph].key);
	printf(" is %#llx, which the image does not hold\n", (unsigned long long)w->word);
}

void audit_print(const struct fdry_manifest *m, const struct fdry_audit *a)
{
	const struct fdry_mf_audit *entry = fdry_array(a->entries, struct fdry_mf_audit);
	const struct fdry_mf_audit_word *words = fdry_array(a->words, struct fdry_mf_audit_word);
	char text[400];
	size_t i;

	for (i = 0; i < m->n_graphs; i++, entry++) {
		audit_text(entry, text, sizeof(text));
		printf("audit of the arguments of graph %llu: %s\n",
		       (unsigned long long)m->graphs[i].key, text[0] ? text : "no words");
	}
	audit_text(entry, text, sizeof(text));
	printf("audit of content: %s\n", text[0] ? text : "no words");
	for (i = 0; i < fdry_array_count(a->words, struct fdry_mf_audit_word); i++)
		word_print(m, &words[i]);
}

static void counts_json(struct json *j, const struct fdry_mf_audit *a)
{
#define X(member, text) json_number(j, #member, a->member);
	FDRY_MF_AUDIT_TARGETS(X)
#undef X
}

void audit_json(struct json *j, const struct fdry_manifest *m, const struct fdry_audit *a)
{
	const struct fdry_mf_audit *entry = fdry_array(a->entries, struct fdry_mf_audit);
	uint32_t i;

	json_open(j, "audit", '{');
	json_open(j, "graphs", '[');
	for (i = 0; i < m->n_graphs; i++, entry++) {
		json_open(j, NULL, '{');
		json_number(j, "key", m->graphs[i].key);
		counts_json(j, entry);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_open(j, "content", '{');
	counts_json(j, entry);
	json_close(j, '}');
	json_close(j, '}');
}
