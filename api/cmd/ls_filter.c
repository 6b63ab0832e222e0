// SPDX-License-Identifier: Apache-2.0
/*
 * ls_filter.c - the filters of ls: KEY=VALUE.
 *
 * A ref is listed if it matches every key; several filters of one key are alternatives.
 */
#include "api/cmd/ls.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define FACT "fact."

struct subject {
	const struct row *r;
	const struct fdry_manifest *m;
};

static bool by_name(const struct subject *s, const char *value)
{
	return !fnmatch(value, s->r->name, 0);
}

static bool by_id(const struct subject *s, const char *value)
{
	char hex[FDRY_OID_HEX_SIZE];

	return !strncmp(fdry_oid_hex(&s->r->oid, hex), value, strlen(value));
}

static bool by_gpu(const struct subject *s, const char *value)
{
	return !fnmatch(value, s->r->arch, 0);
}

static bool is_yes(const char *value)
{
	return !strcmp(value, "true");
}

static bool by_pinned(const struct subject *s, const char *value)
{
	return s->r->pinned == is_yes(value);
}

static bool by_broken(const struct subject *s, const char *value)
{
	return s->r->broken == is_yes(value);
}

static bool by_graph(const struct subject *s, const char *value)
{
	uint64_t key = strtoull(value, NULL, 10);
	uint32_t i;

	for (i = 0; s->m && i < s->m->n_graphs; i++)
		if (s->m->graphs[i].key == key)
			return true;
	return false;
}

/* The value was checked before. A time that is not known matches neither. */
static uint64_t time_of(const char *value)
{
	uint64_t t = 0;

	return cmd_parse_when(value, "a time", &t) ? 0 : t;
}

static bool by_created_before(const struct subject *s, const char *value)
{
	return s->r->times.created && s->r->times.created < time_of(value);
}

static bool by_created_since(const struct subject *s, const char *value)
{
	return s->r->times.created && s->r->times.created >= time_of(value);
}

static bool by_used_before(const struct subject *s, const char *value)
{
	return s->r->times.used && s->r->times.used < time_of(value);
}

static bool by_used_since(const struct subject *s, const char *value)
{
	return s->r->times.used && s->r->times.used >= time_of(value);
}

enum form { TEXT, BOOL, NUMBER, TIME };

static const struct {
	const char *key;
	enum form form;
	bool (*match)(const struct subject *s, const char *value);
} filters[] = {
	{ "name", TEXT, by_name },
	{ "id", TEXT, by_id },
	{ "gpu", TEXT, by_gpu },
	{ "pinned", BOOL, by_pinned },
	{ "broken", BOOL, by_broken },
	{ "graph", NUMBER, by_graph },
	{ "created-before", TIME, by_created_before },
	{ "created-since", TIME, by_created_since },
	{ "used-before", TIME, by_used_before },
	{ "used-since", TIME, by_used_since },
};
#define FILTERS (sizeof(filters) / sizeof(filters[0]))

static size_t filter_of(const char *word, size_t len)
{
	size_t i;

	for (i = 0; i < FILTERS; i++)
		if (strlen(filters[i].key) == len && !strncmp(filters[i].key, word, len))
			break;
	return i;
}

static int key_unknown(const struct cmd_args *a, const char *key)
{
	struct cmd_guess g = { .typed = key };
	size_t i;

	for (i = 0; i < FILTERS; i++)
		cmd_guess_offer(&g, filters[i].key);
	return cmd_usage(a->cmd,
			 "there is no filter '%.80s'%s; use name, id, gpu, pinned, broken, graph, "
			 "created-before, created-since, used-before, used-since or fact.KEY",
			 key, cmd_guess_text(&g, ""));
}

static int filter_check(const struct cmd_args *a, const char *word)
{
	const char *value = strchr(word, '=');
	char key[80];
	uint64_t n;
	size_t i;

	if (!value++)
		return cmd_usage(a->cmd, "the filter '%.80s' is not KEY=VALUE", word);
	snprintf(key, sizeof(key), "%.*s", (int)(value - 1 - word), word);
	if (!strncmp(word, FACT, strlen(FACT)))
		return -1;
	i = filter_of(word, (size_t)(value - 1 - word));
	if (i == FILTERS)
		return key_unknown(a, key);
	if (filters[i].form == BOOL && !is_yes(value) && strcmp(value, "false"))
		return cmd_usage(a->cmd, "the filter %s must be true or false, not '%.80s'", key,
				 value);
	if ((filters[i].form == TIME && cmd_parse_when(value, "a time", &n)) ||
	    (filters[i].form == NUMBER && cmd_parse_number(value, "a graph's key", &n)))
		return cmd_usage(a->cmd, "%s", fdry_last_error());
	return -1;
}

int ls_filters_check(const struct cmd_args *a)
{
	int status = -1;
	unsigned int i;

	for (i = 0; i < a->nfilters && status < 0; i++)
		status = filter_check(a, a->filters[i]);
	return status;
}

/* "fact.KEY=PATTERN": a fact's key may contain any character, but no '='. */
static bool by_fact(const struct subject *s, const char *word, size_t len)
{
	const char *value;
	char *key = strndup(word, len);

	value = key && s->m ? fdry_manifest_fact(s->m, key) : NULL;
	free(key);
	return value && !fnmatch(word + len + 1, value, 0);
}

static bool matches(const struct subject *s, const char *word)
{
	size_t len = strcspn(word, "="), fact = strlen(FACT);

	if (!strncmp(word, FACT, fact))
		return by_fact(s, word + fact, len - fact);
	return filters[filter_of(word, len)].match(s, word + len + 1);
}

static bool same_key(const char *a, const char *b)
{
	size_t len = strcspn(a, "=") + 1;

	return !strncmp(a, b, len);
}

bool ls_filters_match(const struct cmd_args *a, const struct row *r, const struct fdry_manifest *m)
{
	const struct subject s = { r, m };
	unsigned int i, k;
	bool any;

	for (i = 0; i < a->nfilters; i++) {
		any = false;
		for (k = 0; k < a->nfilters; k++)
			any |= same_key(a->filters[i], a->filters[k]) &&
			       matches(&s, a->filters[k]);
		if (!any)
			return false;
	}
	return true;
}
