// SPDX-License-Identifier: Apache-2.0
/*
 * place.c - do the names data.mdb and lock.mdb still lead to the files that are open?
 *
 * A process keeps the files of an open store even if someone removes them, replaces them by a
 * backup, or moves the folder. Its commits would be lost with those files, and it would read other
 * data than other processes. So every transaction checks the names first, and a writer checks them
 * again before it commits.
 *
 * The names are made absolute when the store is opened, since a program may change its directory
 * later. A program may also lose the right to look up a name later: then the check passes.
 */
#include "store/place.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int file_init(struct fdry_place_file *f, const char *dir, const char *name,
		     const struct stat *st)
{
	char cwd[PATH_MAX] = "";

	if (*dir != '/' && !getcwd(cwd, sizeof(cwd)))
		return errno;
	if (asprintf(&f->path, "%s%s%s/%s", cwd, *cwd ? "/" : "", dir, name) < 0) {
		f->path = NULL;
		return ENOMEM;
	}
	f->dev = st->st_dev;
	f->ino = st->st_ino;
	return 0;
}

int fdry_place_init(struct fdry_place *p, const char *dir, const struct stat *data,
		    const struct stat *lock)
{
	int e = file_init(&p->data, dir, "data.mdb", data);

	return e || !lock ? e : file_init(&p->lock, dir, "lock.mdb", lock);
}

void fdry_place_release(struct fdry_place *p)
{
	free(p->data.path);
	free(p->lock.path);
	*p = (struct fdry_place){ 0 };
}

static int file_check(const struct fdry_place_file *f, const char *dir, const char *name)
{
	struct stat st;
	bool there = f->path && !stat(f->path, &st);

	if (!f->path || (there && st.st_dev == f->dev && st.st_ino == f->ino) ||
	    (!there && errno == EACCES))
		return 0;
	if (!there && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
		return fdry_fail(FDRY_E_IO, "cannot look at %s of the store %s: %s", name, dir,
				 strerror(errno));
	return fdry_fail(FDRY_E_STALE,
			 "%s of the store %s was %s while this process had it open, and nothing "
			 "more is read from or written to the old one; close the store and open it "
			 "again",
			 name, dir, there ? "replaced" : "removed");
}

int fdry_place_check(const struct fdry_place *p, const char *dir)
{
	int err = file_check(&p->data, dir, "data.mdb");

	return err ? err : file_check(&p->lock, dir, "lock.mdb");
}
