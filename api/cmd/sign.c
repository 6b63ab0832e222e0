// SPDX-License-Identifier: Apache-2.0
/* sign.c - signs an image that was pushed to a container registry. */
#include "api/cmd/registry.h"

int cmd_sign(const struct cmd_args *a, struct fdry_store *s)
{
	struct fdry_registry_opts opts = {
		.sz = sizeof(opts),
		.flags = (cmd_has(a, PLAIN_HTTP) ? FDRY_REGISTRY_PLAIN_HTTP : 0) |
			 (cmd_has(a, NO_REFS) ? FDRY_REGISTRY_NO_REFS : 0),
		.sign_key = cmd_value(a, SIGN_KEY),
	};
	struct fdry_registry_report r = { .sz = sizeof(r) };
	struct json j = { .f = stdout };
	struct fdry_oid oid;
	int err = cmd_resolve(s, a->argv[0], true, &oid) ?:
		  fdry_store_sign(s, (const char *const *)a->argv, 1,
				  a->argc > 1 ? a->argv[1] : NULL, &opts, &r);

	if (err)
		return cmd_fail(err);
	if (!cmd_has(a, JSON)) {
		cmd_say(a, "signed sha256:%s\n", r.id);
		return CMD_OK;
	}
	json_open(&j, NULL, '{');
	json_string(&j, "digest", r.id);
	json_number(&j, "requests", r.requests);
	json_number(&j, "retries", r.retries);
	json_close(&j, '}');
	return CMD_OK;
}
