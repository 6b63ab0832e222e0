// SPDX-License-Identifier: Apache-2.0
/*
 * sweep.c - removing files that dead processes left in the store's directory.
 *
 * Live processes may use the store meanwhile. Removed are: a claim that no process holds; the file
 * of a group that is a day old; a temporary file that is about to be renamed (losing it costs
 * little); the folder of a store that was being created, although the store exists by now.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/internal.h"

#define OLD_S 86400 /* of a group's file */

static void plain_remove(int dir, const char *name)
{
	(void)unlinkat(dir, name, 0);
}

/* Under its lock: a process that waits for the lock then finds that the file lost its name
 * (claim.c). */
static void claim_remove(int dir, const char *name)
{
	int fd = fdry_file_get(dir, name, O_RDWR);

	if (fd < 0)
		return;
	if (!flock(fd, LOCK_EX | LOCK_NB) && fdry_file_is_named(dir, name, fd))
		(void)unlinkat(dir, name, 0);
	close(fd);
}

/* Ranks may still come, but not after a day. */
static void group_remove(int dir, const char *name)
{
	struct stat st;

	if (!fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && st.st_mtime < time(NULL) - OLD_S)
		claim_remove(dir, name);
}

static const struct {
	const char *prefix;
	void (*remove)(int dir, const char *name);
} kinds[] = {
	{ FDRY_NEW_FOLDER, fdry_new_remove },
	{ FDRY_CLAIM_FILE, claim_remove },
	{ FDRY_GROUP_FILE, group_remove },
	{ FDRY_VERIFIED_TEMP, plain_remove },
	{ FDRY_FILE_TEMP, plain_remove },
};

int fdry_dir_sweep(const struct fdry_dir *dir)
{
	struct fdry_names names;
	const char *name;
	size_t i;
	int e = fdry_names_open(dir->fd, ".", 0, &names);

	if (!e) {
		while ((name = fdry_names_next(&names)))
			for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
				if (!strncmp(name, kinds[i].prefix, strlen(kinds[i].prefix)))
					kinds[i].remove(dir->fd, name);
		e = fdry_names_close(&names);
	}
	return e ? fdry_fail(FDRY_E_IO, "cannot list the store's directory: %s", strerror(e)) : 0;
}
