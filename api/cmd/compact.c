// SPDX-License-Identifier: Apache-2.0
/* compact.c - replaces the store's file by one without free pages, if no process has it open. */
#include "api/cmd/cmd.h"

int cmd_compact(const struct cmd_args *a, struct fdry_store *s)
{
	struct fdry_compact_report r;
	struct json j = { .f = stdout };
	struct cmd_progress p;
	int err;

	(void)s;
	cmd_progress_begin(&p, a, "compact", true);
	err = fdry_store_compact(a->store, cmd_progress_step, &p, &r);
	cmd_progress_end(&p);
	if (err)
		return cmd_fail(err);
	cmd_say(a, "data.mdb has %s on disk, had %s\n", cmd_size(r.after).text,
		cmd_size(r.before).text);
	if (!cmd_has(a, JSON))
		return CMD_OK;
	json_open(&j, NULL, '{');
	json_number(&j, "before", r.before);
	json_number(&j, "after", r.after);
	json_close(&j, '}');
	return CMD_OK;
}
