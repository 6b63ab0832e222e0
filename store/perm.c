// SPDX-License-Identifier: Apache-2.0
/*
 * perm.c - checking who may write to a store: its owner alone, or a group.
 *
 * The mode of the directory decides: if its group may write, the store belongs to the group,
 * otherwise to its owner. Files of a group's store have the directory's group and mode 0660; files
 * of other stores have mode 0600.
 *
 * Kernels are code. So a process uses a store only if it trusts all users who can write there: this
 * user, root, or a group that this process is in.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/config.h"
#include "store/internal.h"

#define LINK_TRIES 6

static bool in_group(gid_t gid)
{
	gid_t *list;
	int i, n = getgroups(0, NULL);
	bool found = gid == getegid();

	if (found || n <= 0)
		return found;
	list = calloc((size_t)n, sizeof(*list));
	n = list ? getgroups(n, list) : 0;
	for (i = 0; i < n && !found; i++)
		found = list[i] == gid;
	free(list);
	return found;
}

/* A read-only medium is trusted: the user who mounted it is responsible. */
static bool is_trusted(const struct fdry_dir *d)
{
	return d->fixed || !d->uid || d->uid == geteuid() || (d->group && in_group(d->gid));
}

static int owner_check(const struct fdry_dir *d, const char *path)
{
	uint64_t any = 0;
	int err;

	if (is_trusted(d))
		return 0;
	err = fdry_config_number(FDRY_CONFIG_STORE_ANY_OWNER, &any);
	if (err || any)
		return err;
	return fdry_fail(FDRY_E_PERM,
			 "%s belongs to user %u, who can put any code there; use a store that "
			 "belongs to you, to root, or to a group that you are in, or set "
			 "FOUNDRY_STORE_ANY_OWNER=1",
			 path, (unsigned int)d->uid);
}

static int file_fail(const char *path, const char *name, const char *text)
{
	return fdry_fail(FDRY_E_PERM, "%s of the store %s %s", name, path, text);
}

/* The modes of LMDB's files must fit the mode of the directory, or some users would fail half
 * way. */
static int file_check(const struct fdry_dir *d, const char *path, const char *name)
{
	struct stat st;
	mode_t mode;

	if (fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return 0; /* no such file, or opening it will report the error */
	mode = st.st_mode;
	if (!S_ISREG(mode))
		return fdry_fail(
			FDRY_E_NOSTORE,
			"%s of the store %s is not a plain file; move the store as a whole, and "
			"name the directory where it lies",
			name, path);
	if (d->fixed)
		return 0;
	if (mode & S_IWOTH)
		return file_fail(
			path, name,
			"can be written by everybody, and kernels are code; run chmod o-w on it");
	if (!d->group && mode & S_IWGRP)
		return file_fail(path, name,
				 "can be written by its group, and the directory cannot; run chmod "
				 "g-w on the file, or chmod 2770 on the directory");
	if (!d->group || ((mode & 0060) == 0060 && st.st_gid == d->gid))
		return 0;
	return fdry_fail(
		FDRY_E_PERM,
		"the store %s is for group %u, but %s has mode %03o and group %u: its members "
		"would differ in rights; run chgrp %u and chmod g+rw on it, or chmod g-w on the "
		"directory",
		path, (unsigned int)d->gid, name, mode & 0777, (unsigned int)st.st_gid,
		(unsigned int)d->gid);
}

static int dir_check(const struct fdry_dir *d, const char *path)
{
	if (d->mode & S_IWOTH)
		return fdry_fail(FDRY_E_PERM,
				 "%s can be written by everybody, and kernels are code; run chmod "
				 "o-w on it, or name another store",
				 path);
	if (d->group && d->mode & S_ISVTX && !d->fixed)
		return fdry_fail(FDRY_E_PERM,
				 "%s keeps members of its group from removing each other's files, "
				 "and a collection must; run chmod -t on it",
				 path);
	return 0;
}

/* While a store is created its data.mdb has two names; if its creator died, until a sweep. */
static bool has_other_names(const struct fdry_dir *d)
{
	struct stat st;
	int i;

	for (i = 0; !fstatat(d->fd, "data.mdb", &st, AT_SYMLINK_NOFOLLOW) && st.st_nlink > 1; i++) {
		if (i == LINK_TRIES || fdry_dir_sweep(d))
			return true;
		if (i)
			fdry_sleep_ms(20);
	}
	return false;
}

/* Each directory has its own lock.mdb, so two writers would not know of each other. */
static int links_check(const struct fdry_dir *d, const char *path)
{
	if (d->fixed || !has_other_names(d))
		return 0;
	return fdry_fail(FDRY_E_STATE,
			 "data.mdb of the store %s has other names (hard links), by which others "
			 "could write to it unseen; make a copy of its own (cp without -l), or "
			 "remove the others",
			 path);
}

int fdry_perm_check(const struct fdry_dir *d, const char *path)
{
	return dir_check(d, path) ?: owner_check(d, path) ?: file_check(d, path, "data.mdb") ?:
	       file_check(d, path, "lock.mdb") ?: links_check(d, path);
}
