// SPDX-License-Identifier: Apache-2.0
/*
 * export.c - writes images to a pack: to a file, which appears when it is complete, or to
 * standard output.
 */
#include "api/cmd/cmd.h"

#include <string.h>
#include <unistd.h>

#include "api/cmd/output.h"

/* A pack is binary. */
static int output_open(const char *path, struct cmd_output *o)
{
	if ((!path || !strcmp(path, "-")) && isatty(STDOUT_FILENO))
		return fdry_fail(FDRY_E_INVAL,
				 "a pack is not written to a terminal; use -o FILE, or a pipe");
	return cmd_output_open(path, o);
}

static int export_to(const struct cmd_args *a, struct fdry_store *s, int fd,
		     struct fdry_pack_report *ret)
{
	struct cmd_progress p;
	struct fdry_export_opts opts = { .sz = sizeof(opts),
					 .flags = (cmd_has(a, ALL) ? FDRY_EXPORT_ALL : 0) |
						  (cmd_has(a, PLAIN) ? FDRY_EXPORT_PLAIN : 0) |
						  (cmd_has(a, NO_REFS) ? FDRY_EXPORT_NO_REFS : 0),
					 .progress = cmd_progress_step,
					 .progress_arg = &p };
	struct fdry_oid oid;
	int i, err = 0;

	/* Its message for a name that does not exist says more than the pack's. */
	for (i = 0; i < a->argc && !err; i++)
		err = cmd_resolve(s, a->argv[i], true, &oid);
	if (err)
		return err;
	cmd_progress_begin(&p, a, "export", true);
	err = fdry_store_export(s, (const char *const *)a->argv, (size_t)a->argc, fd, &opts, ret);
	cmd_progress_end(&p);
	return err;
}

static void report_json(const struct fdry_pack_report *r)
{
	struct json j = { .f = stdout };

	json_open(&j, NULL, '{');
	json_string(&j, "pack", r->id);
	json_number(&j, "images", r->images);
	json_number(&j, "objects", r->objects);
	json_number(&j, "bytes", r->bytes);
	json_number(&j, "packed", r->packed);
	json_close(&j, '}');
}

int cmd_export(const struct cmd_args *a, struct fdry_store *s)
{
	struct fdry_pack_report r = { .sz = sizeof(r) };
	struct cmd_output o;
	int err;

	if (!cmd_has(a, ALL) != !!a->argc)
		return cmd_usage(a->cmd, "name images to export, or use --all");
	if (cmd_has(a, JSON) && (!cmd_value(a, OUTPUT) || !strcmp(cmd_value(a, OUTPUT), "-")))
		return cmd_usage(
			a->cmd,
			"--json and the pack cannot both be on standard output; use -o FILE");
	err = output_open(cmd_value(a, OUTPUT), &o);
	if (err)
		return cmd_fail(err);
	err = cmd_output_close(&o, export_to(a, s, o.fd, &r));
	if (err)
		return cmd_fail(err);
	if (cmd_has(a, JSON))
		report_json(&r);
	else if (o.path)
		cmd_say(a, "exported %llu object%s (%s) as %s\n", (unsigned long long)r.objects,
			cmd_plural(r.objects), cmd_size(r.bytes).text, cmd_size(r.packed).text);
	return CMD_OK;
}
