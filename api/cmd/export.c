// SPDX-License-Identifier: Apache-2.0
/*
 * export.c - images into a pack: a file, which appears when it is whole, or standard output.
 */
#include "api/cmd/cmd.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/pack.h"

/* Where it goes. A regular file gets its name at the end. */
struct output {
	int fd;
	const char *path; /* NULL: standard output */
	char temp[PATH_MAX]; /* empty: written in place */
};

static int temp_open(struct output *o)
{
	mode_t mask = umask(0);
	int n;

	umask(mask);
	n = snprintf(o->temp, sizeof(o->temp), "%s.XXXXXX", o->path);
	if (n < 0 || (size_t)n >= sizeof(o->temp)) {
		o->temp[0] = '\0';
		return fdry_fail(FDRY_E_INVAL, "the name of the pack is too long");
	}
	o->fd = mkostemp(o->temp, O_CLOEXEC);
	if (o->fd >= 0 && !fchmod(o->fd, 0666 & ~mask))
		return 0;
	n = cmd_write_failed(o->path);
	if (o->fd >= 0) {
		close(o->fd);
		(void)unlink(o->temp);
	}
	return n;
}

static int output_open(const char *path, struct output *o)
{
	struct stat st;

	*o = (struct output){ .fd = STDOUT_FILENO };
	if (!path || !strcmp(path, "-"))
		return isatty(STDOUT_FILENO) ? fdry_fail(FDRY_E_INVAL, "a pack is not for a terminal; give -o FILE, or a pipe") : 0;
	o->path = path;
	if (stat(path, &st) || S_ISREG(st.st_mode))
		return temp_open(o);
	o->fd = open(path, O_WRONLY | O_CLOEXEC);
	return o->fd < 0 ? cmd_write_failed(path) : 0;
}

/* @err: what came of it so far; a file that is not whole goes. */
static int output_close(struct output *o, int err)
{
	if (!o->path)
		return err;
	if (!err && o->temp[0] && fsync(o->fd))
		err = cmd_write_failed(o->path);
	if (close(o->fd) && !err)
		err = cmd_write_failed(o->path);
	if (!err && o->temp[0] && rename(o->temp, o->path))
		err = cmd_write_failed(o->path);
	if (err && o->temp[0])
		(void)unlink(o->temp);
	return err;
}

static void progress(void *arg, uint64_t done, uint64_t total)
{
	cmd_progress_to(arg, done, total);
}

static int images_find(const struct cmd_args *a, struct fdry_store *s, struct fdry_pack_choice *ret)
{
	struct fdry_oid oid;
	int i, err = 0;

	for (i = 0; i < a->argc && !err; i++) {
		err = cmd_resolve(s, a->argv[i], true, &oid); /* which says more where there is none */
		if (!err)
			err = fdry_pack_choose(s, a->argv[i], !cmd_has(a, NO_REFS), ret);
	}
	return err;
}

static int export_to(const struct cmd_args *a, struct fdry_store *s, struct output *o, struct fdry_pack_report *ret)
{
	struct fdry_pack_choice choice = { .refs = { 0 } };
	const struct fdry_pack_image *images = NULL;
	struct cmd_progress p;
	struct fdry_pack_opts opts = { .plain = cmd_has(a, PLAIN), .progress = progress, .progress_arg = &p };
	size_t count = 0;
	int err = images_find(a, s, &choice);

	if (!err)
		err = fdry_pack_chosen(&choice, &images, &count);
	if (!err) {
		cmd_progress_begin(&p, a, "export", true);
		err = fdry_pack_export(s, images, count, &opts, fdry_pack_write_fd, &o->fd, ret);
		cmd_progress_end(&p);
	}
	fdry_pack_choice_release(&choice);
	return err;
}

static void report_json(const struct fdry_pack_report *r)
{
	struct json j = { .f = stdout };

	json_open(&j, NULL, '{');
	json_oid(&j, "pack", &r->id);
	json_number(&j, "images", r->images);
	json_number(&j, "objects", r->objects);
	json_number(&j, "bytes", r->bytes);
	json_number(&j, "packed", r->packed);
	json_close(&j, '}');
}

int cmd_export(const struct cmd_args *a, struct fdry_store *s)
{
	struct fdry_pack_report r;
	struct output o;
	int err;

	if (cmd_has(a, JSON) && (!cmd_value(a, OUTPUT) || !strcmp(cmd_value(a, OUTPUT), "-")))
		return cmd_usage(a->cmd, "--json and a pack on standard output do not go together; give -o FILE");
	err = output_open(cmd_value(a, OUTPUT), &o);
	if (err)
		return cmd_fail(err);
	err = output_close(&o, export_to(a, s, &o, &r));
	if (err)
		return cmd_fail(err);
	if (cmd_has(a, JSON))
		report_json(&r);
	else if (o.path)
		cmd_say(a, "exported %llu object%s (%s) as %s\n", (unsigned long long)r.objects, cmd_plural(r.objects),
			cmd_size(r.bytes).text, cmd_size(r.packed).text);
	return CMD_OK;
}
