// SPDX-License-Identifier: Apache-2.0
/* pull.c - fetches an image from a container registry. */
#include "api/cmd/registry.h"
#include "api/cmd/stored.h"
#include "registry/name.h"

/* Wrong operands make no store. */
static int store_open(const struct cmd_args *a, struct fdry_store **ret)
{
	struct fdry_registry_name name;

	return fdry_registry_name_parse(a->argv[0], &name) ?:
	       (a->argc > 1 ? fdry_ref_check(a->argv[1]) : 0) ?:
	       fdry_store_open(a->store, FDRY_STORE_CREATE, ret);
}

static int pull(const struct cmd_args *a, struct fdry_store *s)
{
	struct cmd_stored stored;
	struct fdry_registry_opts opts = {
		.sz = sizeof(opts),
		.flags = (cmd_has(a, PLAIN_HTTP) ? FDRY_REGISTRY_PLAIN_HTTP : 0) |
			 (cmd_has(a, NO_REFS) ? FDRY_REGISTRY_NO_REFS : 0),
		.ref = a->argc > 1 ? a->argv[1] : NULL,
		.policy = cmd_value(a, POLICY),
		.watch = cmd_registry_watch,
		.watch_arg = &stored.progress,
		.image = cmd_stored_print,
		.image_arg = &stored,
	};
	struct fdry_registry_report r = { .sz = sizeof(r) };
	int err;

	cmd_stored_begin(&stored, a, "pull");
	err = fdry_store_pull(s, a->argv[0], &opts, &r);
	cmd_progress_end(&stored.progress);
	if (cmd_has(a, JSON)) {
		json_close(&stored.j, ']');
		cmd_registry_json(&stored.j, &r);
		json_close(&stored.j, '}');
	} else if (!err) {
		cmd_registry_say(a, "pulled", &r);
	}
	return err ? cmd_fail(err) : CMD_OK;
}

int cmd_pull(const struct cmd_args *a, struct fdry_store *unused)
{
	struct fdry_store *s;
	int status, err = store_open(a, &s);

	(void)unused;
	if (err)
		return cmd_fail(err);
	status = pull(a, s);
	fdry_store_close(s);
	return status;
}
