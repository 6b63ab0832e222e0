// SPDX-License-Identifier: Apache-2.0
/* stored.c - prints the images that import and pull have stored; see stored.h. */
#include "api/cmd/stored.h"

void cmd_stored_begin(struct cmd_stored *s, const struct cmd_args *a, const char *what)
{
	*s = (struct cmd_stored){ .a = a, .j = { .f = stdout } };
	if (cmd_has(a, JSON)) {
		json_open(&s->j, NULL, '{');
		json_open(&s->j, "images", '[');
	}
	cmd_progress_begin(&s->progress, a, what, true);
}

static void print_json(struct json *j, const char *id, const char *ref, const char *was)
{
	json_open(j, NULL, '{');
	json_string(j, "id", id);
	if (ref)
		json_string(j, "ref", ref);
	if (was)
		json_string(j, "was", was);
	json_close(j, '}');
}

void cmd_stored_print(void *arg, const char *id, const char *ref, const char *was)
{
	struct cmd_stored *s = arg;

	cmd_progress_end(&s->progress);
	if (cmd_has(s->a, JSON))
		print_json(&s->j, id, ref, was);
	else if (ref)
		cmd_say(s->a, "%s is %s%s%s\n", ref, id, was ? ", was " : "", was ? was : "");
	else
		cmd_say(s->a, "%s has no name; name it with tag, or the next gc removes it\n", id);
}
