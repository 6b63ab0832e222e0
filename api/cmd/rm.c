// SPDX-License-Identifier: Apache-2.0
/* rm.c - removes refs, or single images of them; reports those that it cannot remove. */
#include "api/cmd/cmd.h"

#include <stdlib.h>

static void rm_report(const struct cmd_args *a, const struct fdry_ref *ref, struct json *j)
{
	char hex[FDRY_OID_HEX_SIZE];

	cmd_say(a, "%s %s, which %s %s\n", cmd_has(a, DRY_RUN) ? "would remove" : "removed",
		ref->name, cmd_has(a, DRY_RUN) ? "is" : "was", fdry_oid_hex(&ref->oid, hex));
	if (!cmd_has(a, JSON))
		return;
	json_open(j, NULL, '{');
	json_string(j, "ref", ref->name);
	json_oid(j, "id", &ref->oid);
	json_close(j, '}');
}

/* A ref whose record is damaged can still be removed, but its image is not known. */
static int rm_ref(const struct cmd_args *a, struct fdry_store *s, const char *name, struct json *j)
{
	struct fdry_ref *refs = NULL;
	size_t i, count = 0;
	int err = fdry_ref_list(s, name, &refs, &count);

	if ((!err || err == -FDRY_E_CORRUPT) && !cmd_has(a, DRY_RUN))
		err = fdry_store_remove(s, name);
	for (i = 0; i < count && !err; i++)
		rm_report(a, &refs[i], j);
	free(refs);
	return err ? cmd_fail(cmd_suggest_ref(s, name, err)) : CMD_OK;
}

/* Ask, and list the images that would lose their names. rm_ref() reports missing refs. */
static int question(const struct cmd_args *a, struct fdry_store *s, bool *yes)
{
	struct cmd_names names = { .count = 0 };
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_ref *refs;
	size_t i, count;
	int k, err;

	for (k = 0; k < a->argc; k++) {
		refs = NULL;
		count = 0;
		err = fdry_ref_list(s, a->argv[k], &refs, &count);
		if (err == -FDRY_E_CORRUPT)
			cmd_names_add(&names, a->argv[k], NULL);
		for (i = 0; i < count && !err; i++)
			cmd_names_add(&names, refs[i].name, fdry_oid_hex(&refs[i].oid, hex));
		free(refs);
	}
	err = cmd_names_end(&names);
	if (!err && names.count)
		*yes = cmd_confirm(
			a, "Remove %s? The next gc removes objects that no other ref reaches.",
			(const char *)names.text.data);
	cmd_names_release(&names);
	return err;
}

int cmd_rm(const struct cmd_args *a, struct fdry_store *s)
{
	struct json j = { .f = stdout };
	int i, one, status = CMD_OK;
	bool yes = true;

	if (cmd_asks(a) && question(a, s, &yes))
		return cmd_fail(-FDRY_E_NOMEM);
	if (!yes)
		return cmd_declined();
	if (cmd_has(a, JSON)) {
		json_open(&j, NULL, '{');
		json_bool(&j, "dry_run", cmd_has(a, DRY_RUN));
		json_open(&j, "removed", '[');
	}
	for (i = 0; i < a->argc; i++) {
		one = rm_ref(a, s, a->argv[i], &j);
		status = status ? status : one;
	}
	if (cmd_has(a, JSON)) {
		json_close(&j, ']');
		json_close(&j, '}');
	}
	return status;
}
