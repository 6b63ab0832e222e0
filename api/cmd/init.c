// SPDX-License-Identifier: Apache-2.0
/* init.c - makes a store, for its owner alone or for a group, and prints who may use it. */
#include "api/cmd/cmd.h"

void cmd_sharing_json(struct json *j, const struct fdry_sharing *sh)
{
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", sh->mode);
	json_open(j, "sharing", '{');
	json_bool(j, "group", sh->group);
	json_number(j, "uid", sh->uid);
	json_number(j, "gid", sh->gid);
	json_string(j, "mode", mode);
	json_bool(j, "fixed", sh->fixed);
	json_bool(j, "readonly", sh->readonly);
	json_close(j, '}');
}

struct cmd_owner cmd_owner(const struct fdry_sharing *sh)
{
	struct cmd_owner o;
	const char *more = sh->fixed	  ? ", on read-only media"
			   : sh->readonly ? ", and this process can only read"
					  : "";

	if (sh->group)
		snprintf(o.text, sizeof(o.text), "all of group %u (mode %04o, owner %u%s)", sh->gid,
			 sh->mode, sh->uid, more);
	else
		snprintf(o.text, sizeof(o.text), "user %u alone (mode %04o%s)", sh->uid, sh->mode,
			 more);
	return o;
}

static void report(const struct cmd_args *a, const struct fdry_store *s,
		   const struct fdry_sharing *sh, bool made)
{
	struct json j = { .f = stdout };

	if (!cmd_has(a, JSON)) {
		cmd_say(a, "%s %s, which is for %s\n",
			made ? "made" : "a store exists already:", fdry_store_path(s),
			cmd_owner(sh).text);
		return;
	}
	json_open(&j, NULL, '{');
	json_string(&j, "store", fdry_store_path(s));
	json_bool(&j, "made", made);
	cmd_sharing_json(&j, sh);
	json_close(&j, '}');
}

int cmd_init(const struct cmd_args *a, struct fdry_store *unused)
{
	unsigned int group = cmd_has(a, SHARED) ? FDRY_STORE_GROUP : 0;
	const char *path = a->argc ? a->argv[0] : a->store;
	struct fdry_sharing sh;
	struct fdry_store *s;
	int err = fdry_store_open(path, FDRY_STORE_READONLY, &s);
	bool made = err == -FDRY_E_NOSTORE;

	(void)unused;
	if (err && !made)
		return cmd_fail(err);
	if (!made)
		fdry_store_close(s);
	err = fdry_store_open(path, FDRY_STORE_CREATE | group, &s);
	if (err)
		return cmd_fail(err);
	err = fdry_store_sharing(s, &sh);
	if (!err)
		report(a, s, &sh, made);
	fdry_store_close(s);
	return err ? cmd_fail(err) : CMD_OK;
}
