// SPDX-License-Identifier: Apache-2.0
/*
 * perm.c - whose a store is: its owner's alone, or a group's.
 *
 * The directory says it: writable for its group, it is the group's store, else its owner's.
 * Every file gets the directory's group and 0660 then, else 0600, whatever the umask of who
 * makes it, and is not seen under its name before: otherwise one member would shut out the
 * others for a moment or for ever.
 *
 * Kernels are code, so a store may be used only if those who can write there are trusted: this
 * user, root, or a group that this process is in.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/config.h"
#include "store/internal.h"

#define TRIES 64
#define LINK_TRIES 6
#define TEMP_SIZE 32

/* --- who may write there --- */

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

/* Who mounted it for reading only has vouched for it. */
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
	return fdry_fail(FDRY_E_PERM, "%s belongs to user %u, who could put any code there; use a store of your own, of root's, "
			 "or of a group that you are in, or set FOUNDRY_STORE_ANY_OWNER=1", path, (unsigned int)d->uid);
}

static int file_fail(const char *path, const char *name, const char *text)
{
	return fdry_fail(FDRY_E_PERM, "%s of the store %s %s", name, path, text);
}

/* What the directory says of its users must hold for LMDB's files, or some would fail half way. */
static int file_check(const struct fdry_dir *d, const char *path, const char *name)
{
	struct stat st;
	mode_t mode;

	if (fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return 0; /* none, or who opens it will say why */
	mode = st.st_mode;
	if (!S_ISREG(mode))
		return fdry_fail(FDRY_E_NOSTORE, "%s of the store %s is not a plain file; move the store as a whole, "
				 "and name the directory where it lies", name, path);
	if (d->fixed)
		return 0;
	if (mode & S_IWOTH)
		return file_fail(path, name, "can be written by everybody, and kernels are code; run chmod o-w on it");
	if (!d->group && mode & S_IWGRP)
		return file_fail(path, name, "can be written by its group, and the directory cannot; run chmod g-w on the file, "
				 "or chmod 2770 on the directory");
	if (!d->group || ((mode & 0060) == 0060 && st.st_gid == d->gid))
		return 0;
	return fdry_fail(FDRY_E_PERM, "the store %s is for group %u, but %s has mode %03o and group %u: its members would differ "
			 "in rights; run chgrp %u and chmod g+rw on it, or chmod g-w on the directory", path, (unsigned int)d->gid,
			 name, mode & 0777, (unsigned int)st.st_gid, (unsigned int)d->gid);
}

static int dir_check(const struct fdry_dir *d, const char *path)
{
	if (d->mode & S_IWOTH)
		return fdry_fail(FDRY_E_PERM, "%s can be written by everybody, and kernels are code; run chmod o-w on it, "
				 "or name another store", path);
	if (d->group && d->mode & S_ISVTX && !d->fixed)
		return fdry_fail(FDRY_E_PERM, "%s keeps members of its group from removing each other's files, and a collection "
				 "must; run chmod -t on it", path);
	return 0;
}

/* While a store is made its data.mdb has two names, and where its maker died, until somebody sweeps. */
static bool has_other_names(const struct fdry_dir *d)
{
	struct timespec nap = { 0, 20000000 };
	struct stat st;
	int i;

	for (i = 0; !fstatat(d->fd, "data.mdb", &st, AT_SYMLINK_NOFOLLOW) && st.st_nlink > 1; i++) {
		if (i == LINK_TRIES || fdry_dir_sweep(d))
			return true;
		if (i)
			nanosleep(&nap, NULL);
	}
	return false;
}

/* Each directory has a lock.mdb of its own: two writers would not know of each other. */
static int links_check(const struct fdry_dir *d, const char *path)
{
	if (d->fixed || !has_other_names(d))
		return 0;
	return fdry_fail(FDRY_E_STATE, "data.mdb of the store %s has other names (hard links), by which others could write to it "
			 "unseen; make a copy of its own (cp without -l), or remove the others", path);
}

int fdry_perm_check(const struct fdry_dir *d, const char *path)
{
	int err = dir_check(d, path);

	if (!err)
		err = owner_check(d, path);
	if (!err)
		err = file_check(d, path, "data.mdb");
	if (!err)
		err = file_check(d, path, "lock.mdb");
	return err ? err : links_check(d, path);
}

/* --- making files --- */

int fdry_file_adopt(const struct fdry_dir *d, int fd)
{
	struct stat st;
	mode_t mode;

	if (fstat(fd, &st))
		return errno;
	mode = d->file_mode;
	if (S_ISDIR(st.st_mode)) /* who may read it may search it, and its files are the group's */
		mode |= (mode & 0440) >> 2 | (d->group ? S_ISGID : 0);
	if (d->group && st.st_gid != d->gid && fchown(fd, (uid_t)-1, d->gid))
		return errno;
	return (st.st_mode & 07777) != mode && fchmod(fd, mode) ? errno : 0;
}

/* Where files cannot have two names, others may see it before it is as it should be. */
static int file_make_plain(const struct fdry_dir *d, const char *name, int flags, int *ret)
{
	int e, fd = fdry_openat(d->fd, name, flags | O_CREAT | O_EXCL, 0600);

	if (fd < 0)
		return errno;
	e = fdry_file_adopt(d, fd);
	if (e)
		close(fd);
	else
		*ret = fd;
	return e;
}

/* EEXIST where somebody else was faster. */
static int file_make(const struct fdry_dir *d, const char *name, int flags, int *ret)
{
	char temp[TEMP_SIZE];
	int fd = -1, e = fdry_temp_name(FDRY_FILE_TEMP, temp, sizeof(temp));

	if (e)
		return e;
	fd = fdry_openat(d->fd, temp, flags | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return errno;
	e = fdry_file_adopt(d, fd);
	if (!e && linkat(d->fd, temp, d->fd, name, 0))
		e = errno;
	(void)unlinkat(d->fd, temp, 0);
	if (!e) {
		*ret = fd;
		return 0;
	}
	close(fd);
	return e == EPERM || e == EOPNOTSUPP ? file_make_plain(d, name, flags, ret) : e;
}

int fdry_file_get(int dir, const char *name, int flags)
{
	struct stat st;
	int e, fd = fdry_openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);

	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode))
		return fd;
	e = errno;
	if (fd >= 0 || e == ELOOP || e == EISDIR || e == ENXIO || e == ENODEV)
		e = FDRY_NOT_REGULAR;
	if (fd >= 0)
		close(fd);
	errno = e;
	return -1;
}

const char *fdry_file_text(int e)
{
	return e == FDRY_NOT_REGULAR ? "it is no regular file; remove it" : strerror(e);
}

int fdry_file_open(const struct fdry_dir *d, const char *name, int flags)
{
	int i, fd = -1, e = EEXIST;

	/* Gone again, or there all of a sudden: others make and remove it, too. */
	for (i = 0; i < TRIES && (e == EEXIST || e == ENOENT); i++) {
		fd = fdry_file_get(d->fd, name, flags);
		if (fd >= 0 || errno != ENOENT)
			return fd;
		e = file_make(d, name, flags, &fd);
		if (!e)
			return fd;
	}
	errno = e;
	return -1;
}

/* For a moment a member may find it closed; a session then does without a lease. */
int fdry_folder_make(const struct fdry_dir *d, const char *name)
{
	int e, fd;

	if (mkdirat(d->fd, name, 0700))
		return errno == EEXIST ? 0 : errno;
	if (fchmodat(d->fd, name, 0700, 0)) /* whatever the umask is */
		return errno;
	fd = fdry_openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (fd < 0)
		return errno;
	e = fdry_file_adopt(d, fd);
	close(fd);
	return e;
}

/* --- asking --- */

int fdry_store_sharing(struct fdry_store *s, struct fdry_sharing *ret)
{
	const struct fdry_dir *d;
	struct stat st;
	int err = fdry_store_check(s);

	if (err)
		return err;
	d = &s->env->dir;
	if (fstat(d->fd, &st))
		return fdry_fail(FDRY_E_IO, "cannot look at the directory of the store %s: %s", s->path, strerror(errno));
	*ret = (struct fdry_sharing){
		.uid = st.st_uid, .gid = st.st_gid, .mode = st.st_mode & 07777,
		.group = d->group, .fixed = d->fixed, .readonly = s->env->readonly,
	};
	return 0;
}
