// SPDX-License-Identifier: Apache-2.0
/* challenge.c - reads the header WWW-Authenticate (RFC 9110, section 11); see auth.h. */
#include <string.h>
#include <strings.h>

#include "registry/client/auth.h"

struct text {
	const char *at;
};

static bool is_token(char c)
{
	return c > ' ' && c < 127 && !strchr("\"(),/:;<=>?@[\\]{}", c);
}

static void skip(struct text *t, const char *what)
{
	t->at += strspn(t->at, what);
}

/* A word of @size bytes at most. False if there is none, or it is too long. */
static bool word_read(struct text *t, char *ret, size_t size)
{
	size_t n = 0;

	while (is_token(t->at[n]))
		n++;
	if (!n || n >= size)
		return false;
	memcpy(ret, t->at, n);
	ret[n] = '\0';
	t->at += n;
	return true;
}

static bool quoted_read(struct text *t, char *ret, size_t size)
{
	size_t n = 0;

	for (t->at++; *t->at && *t->at != '"'; t->at++) {
		if (*t->at == '\\' && t->at[1])
			t->at++;
		if (n + 1 >= size)
			return false;
		ret[n++] = *t->at;
	}
	ret[n] = '\0';
	if (*t->at != '"')
		return false;
	t->at++;
	return true;
}

/* What follows a parameter's "=". */
static bool value_read(struct text *t, char *ret, size_t size)
{
	skip(t, " \t");
	return *t->at == '"' ? quoted_read(t, ret, size) : word_read(t, ret, size);
}

static bool parameter_set(struct fdry_challenge *c, const char *name, const char *value)
{
	struct { const char *name; char *to; size_t size; } known[] = {
		{ "realm", c->realm, sizeof(c->realm) },
		{ "service", c->service, sizeof(c->service) },
		{ "scope", c->scope, sizeof(c->scope) },
	};
	size_t i, len = strlen(value);

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcasecmp(name, known[i].name))
			continue;
		if (len >= known[i].size)
			return false;
		memcpy(known[i].to, value, len + 1);
	}
	return true;
}

/* One word and what belongs to it: a scheme begins a challenge, "name=value" belongs to the last
 * one. */
static bool item_read(struct text *t, struct fdry_challenge *now)
{
	char word[64], value[1024];

	if (!word_read(t, word, sizeof(word)))
		return false;
	skip(t, " \t");
	if (*t->at != '=') {
		*now = (struct fdry_challenge){ .bearer = !strcasecmp(word, "bearer"),
						.basic = !strcasecmp(word, "basic") };
		return true;
	}
	t->at++;
	return value_read(t, value, sizeof(value)) && parameter_set(now, word, value);
}

int fdry_challenge_parse(const char *text, struct fdry_challenge *ret)
{
	struct fdry_challenge now = { 0 }, best = { 0 };
	struct text t = { text };
	bool good = true;

	for (skip(&t, " \t,"); *t.at && good; skip(&t, " \t,")) {
		good = item_read(&t, &now);
		if (now.bearer || (now.basic && !best.bearer))
			best = now;
	}
	if (!good || !(best.bearer || best.basic) || (best.bearer && !best.realm[0]))
		return fdry_fail(FDRY_E_PERM, "the registry asks for a kind of log-in that this "
				 "program does not know: %.200s", text);
	*ret = best;
	return 0;
}
