// SPDX-License-Identifier: Apache-2.0
/*
 * compact.c - replaces data.mdb by a copy without free pages, which is smaller.
 *
 * No process may have the store open: LMDB's readers and writers map the file. So the call refuses
 * if another process has it open, and keeps processes from opening it while it copies. It holds the
 * lock under which environments are opened (lock.c), and looks for the locks of processes that have
 * the file open (wlock.c). A process that is killed leaves the old file, or the new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/threads.h"
#include "store/internal.h"
#include "store/step.h"

#define PID_AT (1ll << 61) /* as in wlock.c: a process that has data.mdb open ... */
#define PID_END (1ll << 62)
#define PID_BITS 22
#define USED_AT (1ll << 60) /* ... and all locks of processes that use the file */
#define LOOK_MS 50

struct compact {
	const char *path;
	struct fdry_dir dir;
	int data;		/* the old file, with the lock */
	int fd;			/* the copy */
	char name[32];		/* its name meanwhile */
	uint64_t before, after; /* bytes on the disk */
	_Atomic bool copied;
};

/* --- is the store in use? --- */

/* Is a byte of [@from, @to) locked? @at: the first byte of such a lock. @to 0: no end. */
static bool is_locked(int fd, off_t from, off_t to, off_t *at)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from,
			   .l_len = to ? to - from : 0 };

	if (fcntl(fd, F_OFD_GETLK, &l) || l.l_type == F_UNLCK)
		return false;
	*at = l.l_start;
	return true;
}

static int in_use(const struct compact *c)
{
	char pids[128] = "";
	size_t used = 0;
	off_t at = PID_AT;

	while (used < sizeof(pids) - 16 && is_locked(c->data, at, PID_END, &at)) {
		used += (size_t)snprintf(pids + used, sizeof(pids) - used, "%s%u",
					 used ? ", " : ": ",
					 (unsigned int)(at & ((1 << PID_BITS) - 1)));
		at++;
	}
	return fdry_fail(FDRY_E_LOCKED,
			 "other processes have the store %s open%s; stop them, and try again",
			 c->path, pids);
}

/* LMDB's programs lock the first byte of lock.mdb, and know nothing of our locks. */
static bool lmdb_uses(const struct compact *c)
{
	int fd = fdry_file_get(c->dir.fd, "lock.mdb", O_RDWR);
	bool locked;
	off_t at;

	if (fd < 0)
		return false;
	locked = is_locked(fd, 0, 1, &at);
	close(fd);
	return locked;
}

/* Keep other processes from opening the store, and check that none has it open. */
static int store_take(struct compact *c)
{
	off_t at;
	int err = fdry_dir_enter(&c->dir, c->path, false, &c->data);

	if (err)
		return err;
	if (!is_locked(c->data, USED_AT, 0, &at) && !lmdb_uses(c))
		return 0;
	err = in_use(c);
	fdry_dir_leave(c->data);
	return err;
}

/* --- the copy --- */

static int write_fail(const struct compact *c, int e)
{
	return fdry_fail(fdry_write_code(e),
			 "cannot write a smaller data.mdb of the store %s: %s; the old one stays",
			 c->path, strerror(e));
}

/* The copy has its name, but the directory could not be written to the disk. */
static int rename_fail(const struct compact *c, int e)
{
	return fdry_fail(fdry_write_code(e),
			 "the store %s has a smaller data.mdb, but after a power failure it may "
			 "have the old one: %s; run compact again",
			 c->path, strerror(e));
}

static int disk_bytes(int fd, uint64_t *ret)
{
	struct stat st;

	if (fstat(fd, &st))
		return errno;
	*ret = (uint64_t)st.st_blocks * 512;
	return 0;
}

static int copy_run(void *arg)
{
	struct compact *c = arg;
	int err = fdry_env_copy(c->path, &c->dir, c->fd);

	atomic_store(&c->copied, true);
	return err;
}

/* Copy in a thread, and report how far the file has grown. If none can be started, the end of the
 * task copies. */
static int copy(struct compact *c, uint64_t used, fdry_step_fn step, void *arg)
{
	struct fdry_task task;
	struct stat st;

	fdry_task_start(&task, "fdry-compact", copy_run, c);
	while (task.started && !atomic_load(&c->copied)) {
		if (step && !fstat(c->fd, &st))
			step(arg, (uint64_t)st.st_size, used);
		fdry_step_wait(LOOK_MS);
	}
	return fdry_task_finish(&task);
}

static int copy_make(struct compact *c, uint64_t used, fdry_step_fn step, void *arg)
{
	int err, e = fdry_temp_name(FDRY_FILE_TEMP, c->name, sizeof(c->name));

	if (e)
		return write_fail(c, e);
	c->fd = fdry_openat(c->dir.fd, c->name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (c->fd < 0)
		return write_fail(c, errno);
	e = fdry_file_adopt(&c->dir, c->fd);
	err = e ? write_fail(c, e) : copy(c, used, step, arg);
	if (err)
		goto out_remove;
	e = fsync(c->fd) ? errno : disk_bytes(c->fd, &c->after);
	if (!e && renameat(c->dir.fd, c->name, c->dir.fd, "data.mdb"))
		e = errno;
	if (e) {
		err = write_fail(c, e);
		goto out_remove;
	}
	if (fsync(c->dir.fd))
		err = rename_fail(c, errno);
	close(c->fd);
	return err;
out_remove:
	(void)unlinkat(c->dir.fd, c->name, 0);
	close(c->fd);
	return err;
}

/* --- the whole call --- */

/* Check permissions, the format, and the pages, as a writer does; read how large the copy will be.
 */
static int store_check(const char *path, uint64_t *used)
{
	struct fdry_store *s;
	struct fdry_txn t;
	int err = fdry_store_open(path, 0, &s);

	if (err)
		return err;
	err = fdry_store_check_write(s) ?: fdry_txn_write(s->env->db, 0, &t);
	if (err)
		goto out_close;
	fdry_txn_abort(&t);
	err = fdry_store_limit(s, NULL, used);
out_close:
	fdry_store_close(s);
	return err;
}

static int compact(struct compact *c, fdry_step_fn step, void *arg)
{
	uint64_t used = 0;
	int e, err = store_check(c->path, &used) ?: fdry_dir_open(c->path, 0, &c->dir);

	if (err)
		return err;
	err = store_take(c);
	if (err)
		goto out_close;
	e = disk_bytes(c->data, &c->before);
	err = e ? write_fail(c, e) : copy_make(c, used, step, arg);
	fdry_dir_leave(c->data);
out_close:
	fdry_dir_close(&c->dir, c->path, false);
	return err;
}

int fdry_store_compact(const char *path, fdry_step_fn step, void *arg,
		       struct fdry_compact_report *ret)
{
	struct fdry_buf full = { 0 };
	struct compact c = { .data = -1 };
	int err = fdry_store_locate(path, &full);

	if (err)
		return err;
	c.path = (const char *)full.data;
	err = compact(&c, step, arg);
	if (!err)
		*ret = (struct fdry_compact_report){ c.before, c.after };
	fdry_buf_release(&full);
	return err;
}
