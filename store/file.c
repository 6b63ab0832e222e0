// SPDX-License-Identifier: Apache-2.0
/*
 * file.c - opening and making the files of a store's directory.
 *
 * A new file has its group and mode before it gets its name, whatever the umask of the process is:
 * otherwise one member of a group would shut out the others, for a moment or for ever.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/internal.h"

#define TRIES 64
#define TEMP_SIZE 32

int fdry_file_adopt(const struct fdry_dir *d, int fd)
{
	struct stat st;
	mode_t mode;

	if (fstat(fd, &st))
		return errno;
	mode = d->file_mode;
	/* users who may read it may search it; its files belong to the group */
	if (S_ISDIR(st.st_mode))
		mode |= (mode & 0440) >> 2 | (d->group ? S_ISGID : 0);
	if (d->group && st.st_gid != d->gid && fchown(fd, (uid_t)-1, d->gid))
		return errno;
	return (st.st_mode & 07777) != mode && fchmod(fd, mode) ? errno : 0;
}

int fdry_file_adopt_at(const struct fdry_dir *d, const char *name, int flags, int *ret)
{
	int e, fd = fdry_openat(d->fd, name, flags, 0600);

	if (fd < 0)
		return errno;
	e = fdry_file_adopt(d, fd);
	if (!e && ret)
		*ret = fd;
	else
		close(fd);
	return e;
}

/* EEXIST if another process was faster. */
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
	if (e != EPERM && e != EOPNOTSUPP)
		return e;
	/* Without hard links others may see the file before it has its mode and group. */
	return fdry_file_adopt_at(d, name, flags | O_CREAT | O_EXCL, ret);
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

	/* Other processes create and remove the file, too. */
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

/* For a moment another member may not enter it; a session of that member then has no lease. */
int fdry_folder_make(const struct fdry_dir *d, const char *name)
{
	if (mkdirat(d->fd, name, 0700))
		return errno == EEXIST ? 0 : errno;
	if (fchmodat(d->fd, name, 0700, 0)) /* whatever the umask is */
		return errno;
	return fdry_file_adopt_at(d, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, NULL);
}

int fdry_flock(int fd, int op)
{
	int rc;

	do
		rc = flock(fd, op);
	while (rc && errno == EINTR);
	return rc;
}

bool fdry_file_is_named(int dir, const char *name, int fd)
{
	struct stat open, named;

	return !fstat(fd, &open) && !fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) &&
	       open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}
