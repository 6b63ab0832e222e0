// SPDX-License-Identifier: Apache-2.0
/* push.c - sends an image to a container registry. */
#include "api/cmd/registry.h"

#include <stdlib.h>

static void report_json(const struct fdry_registry_report *r)
{
	struct json j = { .f = stdout };

	json_open(&j, NULL, '{');
	json_number(&j, "images", r->images);
	cmd_registry_json(&j, r);
	json_close(&j, '}');
}

static int push(const struct cmd_args *a, struct fdry_store *s, struct fdry_registry_report *r)
{
	struct cmd_progress p;
	struct fdry_registry_opts opts = {
		.sz = sizeof(opts),
		.flags = (cmd_has(a, PRIVATE) ? FDRY_REGISTRY_PRIVATE : 0) |
			 (cmd_has(a, PLAIN_HTTP) ? FDRY_REGISTRY_PLAIN_HTTP : 0) |
			 (cmd_has(a, NO_REFS) ? FDRY_REGISTRY_NO_REFS : 0),
		.watch = cmd_registry_watch,
		.watch_arg = &p,
		.sign_key = cmd_value(a, SIGN_KEY),
	};
	const char **mounts = NULL;
	struct fdry_oid oid;
	char *text = NULL;
	/* Its message for a name that does not exist says more than the plan's. */
	int err = cmd_resolve(s, a->argv[0], true, &oid);

	if (!err && cmd_has(a, MOUNT))
		err = cmd_words_split(cmd_value(a, MOUNT), &text, &mounts, &opts.count_mounts);
	if (err)
		goto out_free;
	opts.mounts = mounts;
	cmd_progress_begin(&p, a, "push", true);
	err = fdry_store_push(s, (const char *const *)a->argv, 1,
			      a->argc > 1 ? a->argv[1] : NULL, &opts, r);
	cmd_progress_end(&p);
out_free:
	free(mounts);
	free(text);
	return err;
}

int cmd_push(const struct cmd_args *a, struct fdry_store *s)
{
	struct fdry_registry_report r = { .sz = sizeof(r) };
	int err = push(a, s, &r);

	if (err)
		return cmd_fail(err);
	if (cmd_has(a, JSON))
		report_json(&r);
	else
		cmd_registry_say(a, "pushed", &r);
	return CMD_OK;
}
