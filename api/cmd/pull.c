// SPDX-License-Identifier: Apache-2.0
/* pull.c - fetches an image from a container registry. */
#include "api/cmd/registry.h"

struct pull {
	const struct cmd_args *a;
	struct json j;
	struct cmd_progress progress;
};

static void pulled(void *arg, const char *id, const char *ref, const char *was)
{
	struct pull *p = arg;

	cmd_progress_end(&p->progress);
	if (cmd_has(p->a, JSON)) {
		cmd_stored_json(&p->j, id, ref, was);
		return;
	}
	cmd_stored_say(p->a, id, ref, was);
}

int cmd_pull(const struct cmd_args *a, struct fdry_store *s)
{
	struct pull p = { .a = a, .j = { .f = stdout } };
	struct fdry_registry_opts opts = {
		.sz = sizeof(opts),
		.flags = (cmd_has(a, PLAIN_HTTP) ? FDRY_REGISTRY_PLAIN_HTTP : 0) |
			 (cmd_has(a, NO_REFS) ? FDRY_REGISTRY_NO_REFS : 0),
		.ref = a->argc > 1 ? a->argv[1] : NULL,
		.progress = cmd_progress_step,
		.progress_arg = &p.progress,
		.image = pulled,
		.image_arg = &p,
	};
	struct fdry_registry_report r = { .sz = sizeof(r) };
	int err;

	if (cmd_has(a, JSON)) {
		json_open(&p.j, NULL, '{');
		json_open(&p.j, "images", '[');
	}
	cmd_progress_begin(&p.progress, a, "pull", true);
	err = fdry_store_pull(s, a->argv[0], &opts, &r);
	cmd_progress_end(&p.progress);
	if (cmd_has(a, JSON)) {
		json_close(&p.j, ']');
		cmd_registry_json(&p.j, &r);
		json_close(&p.j, '}');
	} else if (!err) {
		cmd_registry_say(a, "pulled", &r);
	}
	return err ? cmd_fail(err) : CMD_OK;
}
