// SPDX-License-Identifier: Apache-2.0
/* open.c - opens the store of the command line. */
#include "api/cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "lib/file.h"

/* True if the command would make a store in this directory: it is missing or empty. */
static bool is_vacant(const char *path)
{
	struct fdry_names names;
	bool vacant = true;
	const char *name;
	int e = fdry_names_open(AT_FDCWD, path, 0, &names);

	if (e)
		return e == ENOENT;
	while ((name = fdry_names_next(&names)))
		vacant &= *name == '.';
	return !fdry_names_close(&names) && vacant;
}

/* @err: why the store cannot be opened. A dry run continues without a store if the command would
 * make it. */
static int without_store(const struct cmd_args *a, int flags, int err)
{
	char sentence[FDRY_SENTENCE_MAX];
	struct fdry_buf path = { 0 };
	bool vacant = false;

	if (err != -FDRY_E_NOSTORE || flags != FDRY_STORE_CREATE)
		return err;
	snprintf(sentence, sizeof(sentence), "%s", fdry_last_error());
	if (!fdry_store_locate(a->store, &path))
		vacant = is_vacant((const char *)path.data);
	fdry_buf_release(&path);
	return vacant ? 0 : fdry_fail(FDRY_E_NOSTORE, "%s", sentence);
}

/* A dry run opens the store for reading, so it needs no permission to write. */
int cmd_store_open(const struct cmd_args *a, int flags, struct fdry_store **ret)
{
	bool dry_run = cmd_has(a, DRY_RUN);
	int err = fdry_store_open(a->store, dry_run ? FDRY_STORE_READONLY : (unsigned int)flags,
				  ret);

	return err && dry_run ? without_store(a, flags, err) : err;
}
