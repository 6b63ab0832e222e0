// SPDX-License-Identifier: Apache-2.0
/* pin.c - pin keeps refs, or single images of them, from being evicted; unpin ends that. */
#include "api/cmd/cmd.h"

#include <stdlib.h>

static void report(const struct cmd_args *a, const struct fdry_ref *ref, struct json *j)
{
	char hex[FDRY_OID_HEX_SIZE];

	cmd_say(a, "%s is %spinned: %s\n", ref->name, ref->pinned ? "" : "not ",
		fdry_oid_hex(&ref->oid, hex));
	if (!cmd_has(a, JSON))
		return;
	json_open(j, NULL, '{');
	json_string(j, "ref", ref->name);
	json_oid(j, "id", &ref->oid);
	json_bool(j, "pinned", ref->pinned);
	json_close(j, '}');
}

static int pin_one(const struct cmd_args *a, struct fdry_store *s, const char *name, bool pinned,
		   struct json *j)
{
	struct fdry_ref *refs = NULL;
	size_t i, count = 0;
	int err = (pinned ? fdry_store_pin(s, name) : fdry_store_unpin(s, name))
			  ?: fdry_ref_list(s, name, &refs, &count);

	if (err)
		return cmd_fail(cmd_suggest_ref(s, name, err));
	for (i = 0; i < count; i++)
		report(a, &refs[i], j);
	free(refs);
	return CMD_OK;
}

static int pin_all(const struct cmd_args *a, struct fdry_store *s, bool pinned)
{
	struct json j = { .f = stdout };
	int i, one, status = CMD_OK;

	if (cmd_has(a, JSON)) {
		json_open(&j, NULL, '{');
		json_open(&j, "refs", '[');
	}
	for (i = 0; i < a->argc; i++) {
		one = pin_one(a, s, a->argv[i], pinned, &j);
		status = status ? status : one;
	}
	if (cmd_has(a, JSON)) {
		json_close(&j, ']');
		json_close(&j, '}');
	}
	return status;
}

int cmd_pin(const struct cmd_args *a, struct fdry_store *s)
{
	return pin_all(a, s, true);
}

int cmd_unpin(const struct cmd_args *a, struct fdry_store *s)
{
	return pin_all(a, s, false);
}
