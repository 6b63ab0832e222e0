// SPDX-License-Identifier: Apache-2.0
/* gc.c - removes what no ref reaches. */
#include "api/cmd/cmd.h"

static void report_json(const struct fdry_gc_report *r, bool dry_run)
{
	struct json j = { .f = stdout };

	json_open(&j, NULL, '{');
	json_bool(&j, "dry_run", dry_run);
	json_number(&j, "live", r->live);
	json_number(&j, "dead", r->dead);
	json_number(&j, "dead_bytes", r->dead_bytes);
	json_number(&j, "dead_stored", r->dead_stored);
	json_close(&j, '}');
}

int cmd_gc(const struct cmd_args *a, struct fdry_store *s)
{
	bool dry_run = cmd_has(a, CMD_OPT_DRY_RUN);
	struct fdry_gc_report r;

	if (fdry_store_gc(s, dry_run, &r))
		return cmd_fail();
	if (cmd_has(a, CMD_OPT_JSON))
		report_json(&r, dry_run);
	else
		printf("%s %llu object%s, %s at rest; %llu stay%s\n", dry_run ? "would remove" : "removed",
		       (unsigned long long)r.dead, cmd_plural(r.dead), cmd_size(r.dead_stored).text,
		       (unsigned long long)r.live, r.live == 1 ? "s" : "");
	return CMD_OK;
}
