// SPDX-License-Identifier: Apache-2.0
/*
 * suggest.c - finds the words that a mistyped word may mean.
 *
 * Two words are near if few letters must be inserted, removed, replaced or exchanged with a
 * neighbour, or if one contains the other.
 */
#include "api/cmd/cmd.h"

#include <string.h>

#define PART_MIN 3 /* letters that a word must share with a longer one */

static unsigned int least(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

/* The number of such edits between two words of at most FDRY_REF_NAME_MAX bytes. */
static unsigned int distance(const char *a, const char *b)
{
	unsigned int rows[3][FDRY_REF_NAME_MAX + 2], *row, *last, *older;
	size_t i, j, n = strlen(a), m = strlen(b);

	for (j = 0; j <= m; j++)
		rows[0][j] = (unsigned int)j;
	for (i = 1; i <= n; i++) {
		row = rows[i % 3];
		last = rows[(i + 2) % 3];
		older = rows[(i + 1) % 3];
		row[0] = (unsigned int)i;
		for (j = 1; j <= m; j++) {
			row[j] = least(least(last[j], row[j - 1]) + 1,
				       last[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], older[j - 2] + 1);
		}
	}
	return rows[n % 3][m];
}

static bool is_part(const char *word, const char *of)
{
	return strlen(word) >= PART_MIN && strstr(of, word);
}

void cmd_guess_offer(struct cmd_guess *g, const char *word)
{
	size_t len = strlen(g->typed);
	unsigned int d, i;

	if (!len || len > FDRY_REF_NAME_MAX || strlen(word) > FDRY_REF_NAME_MAX)
		return;
	d = distance(g->typed, word);
	if (d > (len + 2) / 3)
		d = is_part(g->typed, word) || is_part(word, g->typed) ? CMD_GUESS_PART
								       : UINT32_MAX;
	for (i = 0; i < g->count; i++)
		if (!strcmp(g->found[i].word, word))
			return;
	for (i = g->count; i > 0 && d < g->found[i - 1].distance; i--)
		if (i < CMD_GUESSES)
			g->found[i] = g->found[i - 1];
	if (d == UINT32_MAX || i == CMD_GUESSES)
		return;
	g->found[i].distance = d;
	snprintf(g->found[i].word, sizeof(g->found[i].word), "%s", word);
	g->count += g->count < CMD_GUESSES;
}

const char *cmd_guess_text(struct cmd_guess *g, const char *before)
{
	size_t at = 0;
	unsigned int i;

	*g->text = '\0';
	for (i = 0; i < g->count; i++)
		at += (size_t)snprintf(g->text + at, sizeof(g->text) - at, "%s%s%s",
				       i == 0              ? " (did you mean "
				       : i + 1 == g->count ? " or "
							   : ", ",
				       before, g->found[i].word);
	if (at)
		snprintf(g->text + at, sizeof(g->text) - at, "?)");
	return g->text;
}

static int ref_offer(void *arg, const struct fdry_ref *ref)
{
	cmd_guess_offer(arg, ref->name);
	return 0;
}

int cmd_suggest_ref(struct fdry_store *s, const char *name, int err)
{
	struct cmd_guess g = { .typed = name };
	char sentence[FDRY_SENTENCE_MAX], *see;

	if (err != -FDRY_E_NOENT)
		return err;
	snprintf(sentence, sizeof(sentence), "%s", fdry_last_error());
	if (fdry_ref_each(s, ref_offer, &g))
		g.count = 0;
	see = strstr(sentence, "; see ");
	return fdry_fail(FDRY_E_NOENT, "%.*s%s%s", (int)(see ? see - sentence : 900), sentence,
			 cmd_guess_text(&g, ""), see ? see : "");
}
