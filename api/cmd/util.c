// SPDX-License-Identifier: Apache-2.0
/* util.c - sums and sizes that several commands print. */
#include "api/cmd/cmd.h"

#include <stdlib.h>
#include <string.h>

static int sum_add(void *arg, const struct fdry_object_info *info)
{
	struct cmd_sum *sums = arg;
	size_t i, at[] = { 0, info->kind };

	for (i = 0; i < 2; i++) {
		sums[at[i]].objects++;
		sums[at[i]].bytes += info->size;
		sums[at[i]].stored += info->stored;
	}
	return 0;
}

int cmd_reach(struct fdry_store *s, const struct fdry_oid *oid,
	      struct cmd_sum sums[FDRY_OBJECT_MANIFEST + 1])
{
	memset(sums, 0, (FDRY_OBJECT_MANIFEST + 1) * sizeof(*sums));
	return fdry_store_reach(s, oid, sum_add, sums);
}

struct cmd_size cmd_size(uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	struct cmd_size s;
	double x = (double)bytes;
	size_t i = 0;

	for (; x >= 1023.95 && i < 4; i++)
		x /= 1024;
	snprintf(s.text, sizeof(s.text), i ? "%.1f %s" : "%.0f %s", x, units[i]);
	return s;
}

const char *cmd_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* --- words --- */

int cmd_words_split(const char *list, char **text, const char ***names, size_t *count)
{
	size_t n = 1;
	char *rest, *word;
	const char *c;

	for (c = list; *c; c++)
		n += *c == ',';
	*text = strdup(list);
	*names = calloc(n, sizeof(**names));
	if (!*text || !*names)
		return fdry_fail(FDRY_E_NOMEM, "out of host memory");
	for (rest = *text; (word = strsep(&rest, ","));)
		(*names)[(*count)++] = word;
	return 0;
}
