// SPDX-License-Identifier: Apache-2.0
/*
 * path.c - where a store lies, and whether it may lie there.
 *
 * A store must lie on a local file system: LMDB's map and locks are only coherent there.
 * Its directory must not be writable by everybody, since kernels are code.
 */
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "store/internal.h"

static int path_put(struct fdry_buf *ret, const char *dir, const char *rest)
{
	return fdry_buf_printf(ret, "%s%s", dir, rest);
}

int fdry_store_default_path(struct fdry_buf *ret)
{
	const char *own = getenv("FOUNDRY_STORE");
	const char *cache = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");

	if (own && !*own)
		return fdry_fail(FDRY_E_ENV, "FOUNDRY_STORE is set but empty; set it to the store's directory, or unset it");
	if (own)
		return path_put(ret, own, "");
	if (cache && *cache == '/')
		return path_put(ret, cache, "/foundry/store");
	if (home && *home)
		return path_put(ret, home, "/.cache/foundry/store");
	return fdry_fail(FDRY_E_NOHOME, "no place for the store is known; set FOUNDRY_STORE, XDG_CACHE_HOME or HOME");
}

/* FDRY_NETFS(number in statfs(), name); FUSE is in it since what is behind it cannot be told. */
#define NETFS(X) \
	X(0x6969, "NFS") X(0x517b, "SMB") X(0xff534d42, "CIFS") X(0xfe534d42, "SMB2") \
	X(0x01021997, "9P") X(0x65735546, "FUSE") X(0x6a656a63, "virtiofs") X(0x00c36400, "Ceph") \
	X(0x5346414f, "AFS") X(0x6b414653, "AFS") X(0x73757245, "Coda") X(0x0bd00bd0, "Lustre") \
	X(0x47504653, "GPFS") X(0x7461636f, "OCFS2") X(0x01161970, "GFS2") X(0x19830326, "BeeGFS") \
	X(0xaad7aaea, "PanFS") X(0x564c, "NCP") X(0x786f4256, "vboxsf") X(0x20030528, "OrangeFS")

const char *fdry_fs_refused(unsigned long type)
{
	static const struct { uint32_t type; const char *name; } list[] = {
#define X(number, name) { number, name },
		NETFS(X)
#undef X
	};
	size_t i;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (list[i].type == (uint32_t)type)
			return list[i].name;
	return NULL;
}

/* FOUNDRY_STORE_ANY_FS=1 lets those through who know that one machine alone uses the directory. */
static int any_fs(bool *ret)
{
	const char *s = getenv("FOUNDRY_STORE_ANY_FS");

	if (s && strcmp(s, "0") && strcmp(s, "1"))
		return fdry_fail(FDRY_E_ENV, "FOUNDRY_STORE_ANY_FS is '%.40s'; set it to 0 or 1, or unset it", s);
	*ret = s && *s == '1';
	return 0;
}

static int io_fail(const char *path, const char *doing)
{
	int e = errno;

	if (e == ENOTDIR)
		return fdry_fail(FDRY_E_NOSTORE, "%s is not a directory; name the directory of a store", path);
	if (e == ENOENT)
		return fdry_fail(FDRY_E_NOSTORE, "there is no store at %s; seal an image there first, or name another", path);
	if (e == EACCES || e == EPERM || e == EROFS)
		return fdry_fail(FDRY_E_PERM, "cannot %s %s: %s; change its permissions, or name another store",
				 doing, path, strerror(e));
	if (e == ENOSPC || e == EDQUOT)
		return fdry_fail(FDRY_E_FULL, "cannot %s %s: %s; free space", doing, path, strerror(e));
	return fdry_fail(FDRY_E_IO, "cannot %s %s: %s", doing, path, strerror(e));
}

/* Makes one directory of a path, and all above it that are missing. */
static int dir_make(const char *path, bool *made)
{
	char part[4096];
	size_t i, len = strlen(path);

	if (len >= sizeof(part))
		return fdry_fail(FDRY_E_INVAL, "the store's path is longer than %zu bytes; name a shorter one", sizeof(part) - 1);
	for (i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i])
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		*made = !mkdir(part, 0700);
		if (!*made && errno != EEXIST)
			return io_fail(path, "make");
	}
	return 0;
}

/* A new store goes into an empty directory, so that nobody's files end up beside LMDB's. */
static int dir_check_ours(const char *path, int fd, bool create)
{
	struct dirent *e;
	bool store = !faccessat(fd, "data.mdb", F_OK, 0), other = false;
	DIR *d;
	int copy;

	if (store)
		return 0;
	if (!create)
		return fdry_fail(FDRY_E_NOSTORE, "%s is not a store: it has no data.mdb; seal an image there first, "
				 "or name another", path);
	copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = copy < 0 ? NULL : fdopendir(copy);
	if (!d) {
		if (copy >= 0)
			close(copy);
		return io_fail(path, "list");
	}
	while ((e = readdir(d)))
		other |= *e->d_name != '.' && strcmp(e->d_name, "lock.mdb") && strcmp(e->d_name, "data.mdb");
	closedir(d);
	if (other)
		return fdry_fail(FDRY_E_NOSTORE, "%s is not a store and not empty; name an empty or new directory", path);
	return 0;
}

static int dir_check(const char *path, struct fdry_dir *d)
{
	struct statvfs vfs;
	struct statfs fs;
	struct stat st;
	bool any = false;
	int err;

	if (fstat(d->fd, &st) || fstatfs(d->fd, &fs) || fstatvfs(d->fd, &vfs))
		return io_fail(path, "look at");
	if (st.st_mode & S_IWOTH)
		return fdry_fail(FDRY_E_PERM, "%s can be written by everybody, and kernels are code; run chmod o-w on it, "
				 "or name another store", path);
	err = any_fs(&any);
	if (err)
		return err;
	if (fdry_fs_refused((unsigned long)fs.f_type) && !any)
		return fdry_fail(FDRY_E_NETFS, "%s lies on %s, where LMDB can lose data; name a directory on a local disk "
				 "(FOUNDRY_STORE)", path, fdry_fs_refused((unsigned long)fs.f_type));
	d->dev = st.st_dev;
	d->ino = st.st_ino;
	d->fixed = vfs.f_flag & ST_RDONLY;
	d->file_mode = 0600 | (st.st_mode & S_IWGRP ? 0060 : 0);
	return 0;
}

/* The directory's own entry must be as durable as what is put into it. */
static int dir_sync(const char *path, int fd)
{
	int up = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = up < 0 ? -1 : fsync(up);

	if (up >= 0)
		close(up);
	return rc ? io_fail(path, "make durable") : 0;
}

int fdry_dir_open(const char *path, bool create, struct fdry_dir *ret)
{
	struct fdry_dir d = { .fd = -1 };
	int err = create ? dir_make(path, &d.made) : 0;

	if (err)
		return err;
	d.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d.fd < 0)
		return io_fail(path, "open");
	err = dir_check(path, &d);
	if (!err)
		err = dir_check_ours(path, d.fd, create);
	if (!err && d.made)
		err = dir_sync(path, d.fd);
	if (err) {
		fdry_dir_close(&d, path, true);
		return err;
	}
	*ret = d;
	return 0;
}

void fdry_dir_close(struct fdry_dir *d, const char *path, bool undo)
{
	close(d->fd);
	d->fd = -1;
	if (undo && d->made)
		(void)rmdir(path);
}
