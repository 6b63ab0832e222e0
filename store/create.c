// SPDX-License-Identifier: Apache-2.0
/*
 * create.c - creating a store: it appears whole, and its name is durable before the first object is
 * written.
 *
 * LMDB writes the first pages of data.mdb in place and reads both meta pages. A power cut while it
 * writes would leave a file that cannot be opened. So data.mdb is created in a temporary folder and
 * then linked to its final name. The folder of a process that died contains no data of a store and
 * may be removed.
 *
 * LMDB creates lock.mdb when it opens the store. So if lock.mdb exists, a process has made the name
 * of data.mdb durable already; if it does not exist, the process that opens the store does that
 * first.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/internal.h"

#define FOLDER_SIZE 32

static int make_fail(const char *path, const char *doing)
{
	int e = errno;

	return fdry_fail(fdry_write_code(e), "cannot %s the store %s: %s", doing, path,
			 strerror(e));
}

/* Create an empty data.mdb, which LMDB then uses: the mode of a file that LMDB creates depends on
 * the umask. */
static int folder_fill(const struct fdry_dir *d, const char *folder)
{
	char file[FOLDER_SIZE + 16];

	snprintf(file, sizeof(file), "%s/data.mdb", folder);
	if (fchmodat(d->fd, folder, 0700, 0))
		return errno;
	return fdry_file_adopt_at(d, file, O_WRONLY | O_CREAT | O_EXCL, NULL);
}

static int folder_make(const struct fdry_dir *d, const char *path, char name[FOLDER_SIZE])
{
	int e = fdry_temp_name(FDRY_NEW_FOLDER, name, FOLDER_SIZE);

	if (e)
		return fdry_fail(FDRY_E_IO, "the kernel returned no random bytes: %s", strerror(e));
	if (mkdirat(d->fd, name, 0700))
		return make_fail(path, "make");
	e = folder_fill(d, name);
	if (!e)
		return 0;
	fdry_new_remove(d->fd, name);
	errno = e;
	return make_fail(path, "make");
}

static int db_make(const struct fdry_dir *d, const char *path, const char *folder,
		   int (*fresh)(struct fdry_txn *t))
{
	struct fdry_db_opts o = { .create = true, .fixed = true, .mode = d->file_mode };
	struct fdry_buf dir = { 0 };
	struct fdry_db *db;
	int err = fdry_buf_printf(&dir, "%s/%s", path, folder);

	if (err)
		goto out_release;
	o.dir = (const char *)dir.data;
	err = fdry_db_open(&o, fresh, &db);
	if (err)
		goto out_release;
	fdry_db_close(db);
out_release:
	fdry_buf_release(&dir);
	return err;
}

/* Another process may have been faster. If the file system has no hard links, LMDB creates the file
 * in place. */
static int db_link(const struct fdry_dir *d, const char *path, const char *folder)
{
	char from[FOLDER_SIZE + 16];

	snprintf(from, sizeof(from), "%s/data.mdb", folder);
	if (!linkat(d->fd, from, d->fd, "data.mdb", 0) || errno == EEXIST || errno == EPERM ||
	    errno == EOPNOTSUPP)
		return 0;
	return make_fail(path, "name");
}

void fdry_new_remove(int dir, const char *folder)
{
	char file[FOLDER_SIZE + 16];

	snprintf(file, sizeof(file), "%.30s/data.mdb", folder);
	(void)unlinkat(dir, file, 0);
	snprintf(file, sizeof(file), "%.30s/lock.mdb", folder);
	(void)unlinkat(dir, file, 0);
	(void)unlinkat(dir, folder, AT_REMOVEDIR);
}

static int make(const struct fdry_dir *d, const char *path, int (*fresh)(struct fdry_txn *t))
{
	char folder[FOLDER_SIZE];
	int err = folder_make(d, path, folder);

	if (err)
		goto out;
	err = db_make(d, path, folder, fresh) ?: db_link(d, path, folder);
	fdry_new_remove(d->fd, folder);
out:
	/* another process may have been faster, and its collection may have removed our folder */
	return err && faccessat(d->fd, "data.mdb", F_OK, 0) ? err : 0;
}

int fdry_dir_prepare(const struct fdry_dir *d, const char *path, bool create,
		     int (*fresh)(struct fdry_txn *t))
{
	int err = 0;

	if (d->fixed)
		return 0;
	if (create && faccessat(d->fd, "data.mdb", F_OK, 0))
		err = make(d, path, fresh);
	if (err)
		return err;
	if (faccessat(d->fd, "lock.mdb", F_OK, 0) && fsync(d->fd))
		return make_fail(path, "make durable");
	return 0;
}
