// SPDX-License-Identifier: Apache-2.0
/* limit.c - prints or sets how large the store may be. */
#include "api/cmd/cmd.h"

#include <string.h>

static int limit_set(struct fdry_store *s, const char *text)
{
	uint64_t bytes = 0;
	int err = strcmp(text, "none") ? cmd_parse_size(text, "the limit", &bytes) : 0;

	if (err)
		return err;
	if (!bytes && strcmp(text, "none"))
		return fdry_fail(FDRY_E_INVAL,
				 "a store of 0 bytes holds nothing; name a larger size, or none");
	return fdry_store_set_limit(s, bytes);
}

static void report(const struct cmd_args *a, uint64_t limit, uint64_t used)
{
	struct json j = { .f = stdout };

	if (cmd_has(a, JSON)) {
		json_open(&j, NULL, '{');
		json_number(&j, "limit", limit);
		json_number(&j, "used", used);
		json_close(&j, '}');
	} else if (limit) {
		cmd_say(a, "%s of %s in use%s\n", cmd_size(used).text, cmd_size(limit).text,
			used > limit ? "; foundry-store evict removes the excess" : "");
	} else {
		cmd_say(a, "%s in use, no limit\n", cmd_size(used).text);
	}
}

int cmd_limit(const struct cmd_args *a, struct fdry_store *s)
{
	uint64_t limit, used;
	int err =
		(a->argc ? limit_set(s, a->argv[0]) : 0) ?: fdry_store_limit(s, &limit, &used);

	if (err)
		return cmd_fail(err);
	report(a, limit, used);
	return CMD_OK;
}
