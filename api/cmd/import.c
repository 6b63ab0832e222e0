// SPDX-License-Identifier: Apache-2.0
/* import.c - stores the images of a pack, from a file or standard input. */
#include "api/cmd/stored.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "lib/fd.h"
#include "store/pack.h"

static int input_open(const char *path, int *ret)
{
	int fd;

	if (!path || !strcmp(path, "-")) {
		if (isatty(STDIN_FILENO))
			return fdry_fail(
				FDRY_E_INVAL,
				"a pack is not read from a terminal; name a file, or use a pipe");
		*ret = STDIN_FILENO;
		return 0;
	}
	fd = fdry_open(path, O_RDONLY, 0);
	if (fd < 0)
		return fdry_fail(errno == EACCES   ? FDRY_E_PERM
				 : errno == ENOENT ? FDRY_E_NOENT
						   : FDRY_E_IO,
				 "cannot read %s: %s", path, strerror(errno));
	*ret = fd;
	return 0;
}

/* Nothing may follow the pack: an export writes nothing after it. */
static int end_check(int fd)
{
	ssize_t n;
	char c;

	do
		n = read(fd, &c, 1);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return fdry_fail(FDRY_E_IO, "cannot read the pack: %s", strerror(errno));
	if (!n)
		return 0;
	return fdry_fail(FDRY_E_BADIMAGE, "data follows the pack; the pack itself was imported");
}

static void report(struct cmd_stored *stored, const struct fdry_pack_report *r)
{
	const struct cmd_args *a = stored->a;
	struct json *j = &stored->j;

	if (!cmd_has(a, JSON)) {
		cmd_say(a, "%s %llu of %llu object%s, %s of %s\n",
			cmd_has(a, DRY_RUN) ? "would import" : "imported",
			(unsigned long long)r->objects_new, (unsigned long long)r->objects,
			cmd_plural(r->objects), cmd_size(r->bytes_new).text,
			cmd_size(r->bytes).text);
		return;
	}
	json_close(j, ']');
	json_bool(j, "dry_run", cmd_has(a, DRY_RUN));
	json_string(j, "pack", r->id);
	json_number(j, "objects", r->objects);
	json_number(j, "objects_new", r->objects_new);
	json_number(j, "bytes", r->bytes);
	json_number(j, "bytes_new", r->bytes_new);
	json_number(j, "stored_new", r->stored_new);
	json_number(j, "packed", r->packed);
	json_close(j, '}');
}

static int import_from(const struct cmd_args *a, struct fdry_store *s,
		       struct fdry_pack_reader *head)
{
	uint32_t flags = (cmd_has(a, DRY_RUN) ? FDRY_IMPORT_DRY_RUN : 0) |
			 (cmd_has(a, NO_REFS) ? FDRY_IMPORT_NO_REFS : 0);
	struct cmd_stored stored;
	struct fdry_import_opts opts = { .sz = sizeof(opts),
					 .flags = flags,
					 .progress = cmd_progress_step,
					 .progress_arg = &stored.progress,
					 .image = cmd_stored_print,
					 .image_arg = &stored };
	struct fdry_pack_report r = { .sz = sizeof(r) };
	int err, fd = head->fd;

	memset(r.id, '0', sizeof(r.id) - 1); /* the JSON document of an import that fails */
	cmd_stored_begin(&stored, a, "import");
	err = fdry_pack_import(s, head, fd, &opts, &r);
	cmd_progress_end(&stored.progress);
	if (!err || cmd_has(a, JSON))
		report(&stored, &r);
	return err ? err : end_check(fd);
}

/* Make no store unless the input is a pack. */
int cmd_import(const struct cmd_args *a, struct fdry_store *s)
{
	int fd = -1, err = input_open(a->argc ? a->argv[0] : NULL, &fd);
	struct fdry_pack_reader head = { .fd = -1 };

	if (err)
		return cmd_fail(err);
	err = fdry_pack_open(&head, fd) ?: cmd_store_open(a, FDRY_STORE_CREATE, &s);
	if (!err)
		err = import_from(a, s, &head);
	fdry_pack_reader_release(&head);
	fdry_store_close(s);
	if (fd > STDIN_FILENO)
		close(fd);
	return err ? cmd_fail(err) : CMD_OK;
}
