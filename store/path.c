// SPDX-License-Identifier: Apache-2.0
/*
 * path.c - the directory of a store, and checks of its file system.
 *
 * A store must lie on a local file system, since LMDB's map and locks are coherent only there.
 * perm.c checks who may write to the directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/config.h"
#include "store/internal.h"
#include "store/step.h"

int fdry_store_locate(const char *path, struct fdry_buf *ret)
{
	if (!path)
		return fdry_config_cache(FDRY_CONFIG_STORE, "store", ret);
	if (!*path)
		return fdry_fail(FDRY_E_INVAL, "the store's path is empty; name a directory, or "
					       "none for the default");
	return fdry_buf_printf(ret, "%s", path);
}

/* X(number in statfs(), name). FUSE is included, since the file system behind it is unknown. */
#define NETFS(X) \
	X(0x6969, "NFS") \
	X(0x517b, "SMB") \
	X(0xff534d42, "CIFS") \
	X(0xfe534d42, "SMB2") \
	X(0x01021997, "9P") \
	X(0x65735546, "FUSE") \
	X(0x6a656a63, "virtiofs") \
	X(0x00c36400, "Ceph") \
	X(0x5346414f, "AFS") \
	X(0x6b414653, "AFS") \
	X(0x73757245, "Coda") \
	X(0x0bd00bd0, "Lustre") \
	X(0x47504653, "GPFS") \
	X(0x7461636f, "OCFS2") \
	X(0x01161970, "GFS2") \
	X(0x19830326, "BeeGFS") \
	X(0xaad7aaea, "PanFS") \
	X(0x7c7c6673, "prl_fs") \
	X(0xbacbacbc, "vmhgfs") \
	X(0xbeefdead, "SNFS") \
	X(0x013111a8, "IBRIX") \
	X(0x61636673, "ACFS") \
	X(0x00c0ffee, "hostfs") \
	X(0x53464846, "wslfs") \
	X(0x564c, "NCP") \
	X(0x786f4256, "vboxsf") \
	X(0x20030528, "OrangeFS")

/* The name of a network file system by its number from statfs(); NULL for other file systems. */
static const char *fs_refused(unsigned long type)
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

static int io_fail(const char *path, const char *doing)
{
	int e = errno;

	if (e == ENOTDIR)
		return fdry_fail(FDRY_E_NOSTORE,
				 "%s is not a directory; name the directory of a store", path);
	if (e == ENOENT)
		return fdry_fail(
			FDRY_E_NOSTORE,
			"there is no store at %s; seal an image there first, or name another",
			path);
	if (e == EACCES || e == EPERM || e == EROFS)
		return fdry_fail(FDRY_E_PERM,
				 "cannot %s %s: %s; change its permissions, or name another store",
				 doing, path, strerror(e));
	if (e == ENOSPC || e == EDQUOT)
		return fdry_fail(FDRY_E_FULL, "cannot %s %s: %s; free space", doing, path,
				 strerror(e));
	return fdry_fail(FDRY_E_IO, "cannot %s %s: %s", doing, path, strerror(e));
}

/* Create a directory and its missing parents; a group may search the parents. */
static int dir_make(const char *path, bool group, bool *made)
{
	char part[4096];
	size_t i, len = strlen(path);

	if (len >= sizeof(part))
		return fdry_fail(FDRY_E_INVAL,
				 "the store's path is longer than %zu bytes; name a shorter one",
				 sizeof(part) - 1);
	for (i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i])
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		*made = !mkdir(part, 0700);
		/* whatever the umask is */
		if (*made ? chmod(part, group ? 02750 : 0700) : errno != EEXIST)
			return io_fail(path, "make");
	}
	return 0;
}

static bool has_other_names(struct fdry_names *names)
{
	const char *name;

	while ((name = fdry_names_next(names)))
		if (*name != '.' && strcmp(name, "lock.mdb") && strcmp(name, "data.mdb") &&
		    strcmp(name, "leases"))
			return true;
	return false;
}

/* A new store needs an empty directory, so that no other files lie beside LMDB's. */
static int dir_check_ours(const char *path, int fd, bool create)
{
	struct fdry_names names;
	bool other;
	int e;

	if (!faccessat(fd, "data.mdb", F_OK, 0))
		return 0;
	if (!create)
		return fdry_fail(
			FDRY_E_NOSTORE,
			"%s is not a store: it has no data.mdb; seal an image there first, or name "
			"another",
			path);
	fdry_step(FDRY_STEP_LIST);
	e = fdry_names_open(fd, ".", 0, &names);
	if (e)
		goto out_fail;
	other = has_other_names(&names);
	e = fdry_names_close(&names);
	if (e)
		goto out_fail;
	/* else another process created a store meanwhile */
	if (other && faccessat(fd, "data.mdb", F_OK, 0))
		return fdry_fail(FDRY_E_NOSTORE,
				 "%s is not a store and not empty; name an empty or new directory",
				 path);
	return 0;
out_fail:
	errno = e;
	return io_fail(path, "list");
}

static int fs_check(const char *path, unsigned long type)
{
	const char *name = fs_refused(type);
	uint64_t any = 0;
	int err = fdry_config_number(FDRY_CONFIG_STORE_ANY_FS, &any);

	/* The user who sets it knows that only one machine uses the directory. */
	if (err || !name || any)
		return err;
	return fdry_fail(
		FDRY_E_NETFS,
		"%s lies on %s, where LMDB can lose data; name a directory on a local disk "
		"(FOUNDRY_STORE)",
		path, name);
}

static void dir_users(struct fdry_dir *d, const struct stat *st)
{
	d->mode = st->st_mode & 07777;
	d->uid = st->st_uid;
	d->gid = st->st_gid;
	d->group = st->st_mode & S_IWGRP;
	d->file_mode = 0600 | (d->group ? 0060 : 0);
}

static int dir_check(const char *path, struct fdry_dir *d)
{
	struct statvfs vfs;
	struct statfs fs;
	struct stat st;
	int err;

	if (fstat(d->fd, &st) || fstatfs(d->fd, &fs) || fstatvfs(d->fd, &vfs))
		return io_fail(path, "look at");
	err = fs_check(path, (unsigned long)fs.f_type);
	if (err)
		return err;
	d->dev = st.st_dev;
	d->ino = st.st_ino;
	d->fixed = vfs.f_flag & ST_RDONLY;
	dir_users(d, &st);
	return fdry_perm_check(d, path);
}

/* Open an empty directory, which belongs to its owner alone, to its group. */
static int dir_to_group(const char *path, struct fdry_dir *d)
{
	struct stat st;

	if (!faccessat(d->fd, "data.mdb", F_OK, 0))
		return fdry_fail(FDRY_E_PERM,
				 "the store %s exists already and belongs to its owner alone; "
				 "export its images into a new store that is made for the group",
				 path);
	if (fchmod(d->fd, 02770) || fstat(d->fd, &st))
		return io_fail(path, "open to the group");
	dir_users(d, &st);
	return 0;
}

/* Sync the parent directory and return it; -1 at the root of the file system, or if it cannot be
 * opened. */
static int sync_above(int fd)
{
	int up = fdry_openat(fd, "..", O_RDONLY | O_DIRECTORY, 0);
	struct stat at, above;

	if (up < 0)
		return -1;
	if (!fstat(fd, &at) && !fstat(up, &above) && at.st_dev == above.st_dev &&
	    at.st_ino != above.st_ino && !fsync(up))
		return up;
	close(up);
	return -1;
}

/*
 * A new store is only as durable as the names of all directories that lead there; another process
 * may have created some of them just before. A directory that we may not open was created by
 * another user.
 */
static int path_sync(const char *path, int fd, bool made)
{
	int next, up = sync_above(fd);

	if (up < 0 && made)
		return io_fail(path, "make durable");
	while (up >= 0) {
		next = sync_above(up);
		close(up);
		up = next;
	}
	return 0;
}

int fdry_dir_open(const char *path, unsigned int flags, struct fdry_dir *ret)
{
	bool create = flags & FDRY_STORE_CREATE, group = flags & FDRY_STORE_GROUP;
	struct fdry_dir d = { .fd = -1 };
	int err = create ? dir_make(path, group, &d.made) : 0;

	if (err)
		return err;
	d.fd = fdry_open(path, O_RDONLY | O_DIRECTORY, 0);
	if (d.fd < 0)
		return io_fail(path, "open");
	err = dir_check(path, &d);
	if (err)
		goto out_close;
	err = dir_check_ours(path, d.fd, create);
	if (err)
		goto out_close;
	err = group && !d.group ? dir_to_group(path, &d) : 0;
	if (err)
		goto out_close;
	if (create && faccessat(d.fd, "data.mdb", F_OK, 0))
		err = path_sync(path, d.fd, d.made);
	if (err)
		goto out_close;
	*ret = d;
	return 0;
out_close:
	fdry_dir_close(&d, path, true);
	return err;
}

void fdry_dir_close(struct fdry_dir *d, const char *path, bool undo)
{
	close(d->fd);
	d->fd = -1;
	if (undo && d->made)
		(void)rmdir(path);
}
