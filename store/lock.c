// SPDX-License-Identifier: Apache-2.0
/*
 * lock.c - the store's lock: exclusive for a collection, shared by sessions that cannot create a
 * lease.
 *
 * The lock is flock() on the store's directory. It needs no file of its own and works on read-only
 * media; the kernel releases it when its holder dies; it does not depend on process ids, which
 * repeat between containers. All sessions of a process share one open file. A collection opens
 * another one, so that sessions of its own process keep it out.
 *
 * LMDB's environment is opened and closed under another lock, flock() on data.mdb. The last process
 * that closes it destroys LMDB's mutexes (since 0.9.25); a process that opens it at that moment
 * would use destroyed mutexes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "store/internal.h"
#include "store/step.h"

#define WAIT_MS_MAX 30000
#define REPLACED_MAX 16 /* times that the file is replaced while the process waits for its lock */
#define EXCLUDE_MS_MAX 20 /* another process may be testing whether a collection is alive */
#define NAP_MS_MAX 50

/* "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF": the process id if the lock is on our
 * directory, else 0. */
static long holder(const struct fdry_env *env, const char *line)
{
	const char *p = strstr(line, " FLOCK ");
	unsigned long major_nr, minor_nr;
	char *end;
	long pid;

	if (p)
		p = strpbrk(p, "0123456789"); /* the words in front have none */
	if (!p)
		return 0;
	pid = strtol(p, &end, 10);
	major_nr = strtoul(end, &end, 16);
	minor_nr = strtoul(end + (*end == ':'), &end, 16);
	if (strtoull(end + (*end == ':'), NULL, 10) != env->dir.ino ||
	    makedev(major_nr, minor_nr) != env->dir.dev)
		return 0;
	return pid;
}

/* Process ids that hold the lock, as "12, 345", as far as this PID namespace sees them. */
static void holders(const struct fdry_env *env, char *text, size_t len)
{
	FILE *f = fdry_fopen_read("/proc/locks");
	char line[256];
	size_t used = 0;
	long pid;

	*text = '\0';
	while (f && used < len && fgets(line, sizeof(line), f)) {
		pid = holder(env, line);
		if (pid > 0)
			used += (size_t)snprintf(text + used, len - used, "%s%ld", used ? ", " : "",
						 pid);
	}
	if (f)
		fclose(f);
}

static int locked(const struct fdry_env *env, const char *by)
{
	char pids[128];

	holders(env, pids, sizeof(pids));
	return fdry_fail(FDRY_E_LOCKED,
			 "the store is held by %s%s%s; wait for that to end and try again", by,
			 *pids ? ", process " : "", pids);
}

/* 0 or errno. A longer wait means that the holder is stopped. */
static int flock_wait(int fd, int op, unsigned int ms_max)
{
	unsigned int ms = 1, waited = 0;

	while (fdry_flock(fd, op | LOCK_NB)) {
		if (errno != EWOULDBLOCK || waited >= ms_max)
			return errno;
		fdry_step_wait(ms);
		waited += ms;
		ms = ms * 2 < NAP_MS_MAX ? ms * 2 : NAP_MS_MAX;
	}
	return 0;
}

static int flock_fail(int e)
{
	return fdry_fail(FDRY_E_IO, "cannot lock the store's directory: %s", strerror(e));
}

static int share_wait(struct fdry_env *env)
{
	int e = flock_wait(env->dir.fd, LOCK_SH, WAIT_MS_MAX);

	if (e == EWOULDBLOCK)
		return locked(env, "a collection");
	return e ? flock_fail(e) : 0;
}

int fdry_env_share(struct fdry_env *env)
{
	int err;

	pthread_mutex_lock(&env->lock);
	err = env->sharers ? 0 : share_wait(env);
	if (!err)
		env->sharers++;
	pthread_mutex_unlock(&env->lock);
	return err;
}

void fdry_env_unshare(struct fdry_env *env)
{
	pthread_mutex_lock(&env->lock);
	if (!--env->sharers)
		fdry_flock(env->dir.fd, LOCK_UN);
	pthread_mutex_unlock(&env->lock);
}

/* Lock through a new descriptor. @e: errno on failure. */
static int private_lock(const struct fdry_env *env, int op, unsigned int ms, int *e)
{
	int fd;

	fdry_lockfd_lock();
	fd = fdry_openat(env->dir.fd, ".", O_RDONLY | O_DIRECTORY, 0);
	*e = fd < 0 ? errno : fdry_lockfd_add(fd);
	fdry_lockfd_unlock();
	if (fd < 0)
		return -1;
	if (!*e)
		*e = flock_wait(fd, op, ms);
	if (!*e)
		return fd;
	fdry_lockfd_close(fd);
	return -1;
}

static int private_lock_or_fail(struct fdry_env *env, int op, const char *by, int *fd_ret)
{
	int e = 0, fd = private_lock(env, op, EXCLUDE_MS_MAX, &e);

	if (fd < 0)
		return e == EWOULDBLOCK ? locked(env, by) : flock_fail(e);
	*fd_ret = fd;
	return 0;
}

int fdry_env_exclude(struct fdry_env *env, int *fd_ret)
{
	return private_lock_or_fail(env, LOCK_EX,
				    "another collection, or a session that cannot create a lease",
				    fd_ret);
}

int fdry_env_look(struct fdry_env *env, int *fd_ret)
{
	return private_lock_or_fail(env, LOCK_SH, "a collection", fd_ret);
}

int fdry_env_try(struct fdry_env *env)
{
	int e = 0;

	return private_lock(env, LOCK_EX, 0, &e);
}

void fdry_env_unexclude(int fd)
{
	if (fd >= 0)
		fdry_lockfd_close(fd);
}

static int data_open(const struct fdry_dir *d, bool create)
{
	if (create)
		return fdry_file_open(d, "data.mdb", O_RDWR);
	return fdry_file_get(d->fd, "data.mdb", O_RDONLY);
}

/* The mode of a file that LMDB creates depends on the umask. Only if it is missing: closing it
 * releases this process' locks. */
static void lock_make(const struct fdry_dir *d)
{
	int fd;

	if (!faccessat(d->fd, "lock.mdb", F_OK, 0))
		return;
	/* if it cannot be created, LMDB reports the error */
	fd = fdry_file_open(d, "lock.mdb", O_RDWR);
	if (fd >= 0)
		close(fd);
}

void fdry_lock_renew(const struct fdry_dir *d)
{
	(void)unlinkat(d->fd, "lock.mdb", 0);
	lock_make(d);
}

static int enter_fail(const char *path, int e)
{
	if (e == EWOULDBLOCK)
		return fdry_fail(FDRY_E_LOCKED,
				 "another process has been opening the store %s for half a minute; "
				 "check whether it is stopped, and try again",
				 path);
	return fdry_fail(e == EACCES || e == EPERM ? FDRY_E_PERM : FDRY_E_IO,
			 "cannot open data.mdb of the store %s: %s", path, fdry_file_text(e));
}

/* Lock the file that has the name data.mdb. While this process waits, another one may replace the
 * file (compact.c); the lock of the old file would keep no process out. */
static int data_lock(const struct fdry_dir *d, bool create, int *ret)
{
	int i, e, fd;

	for (i = 0; i < REPLACED_MAX; i++) {
		fd = data_open(d, create);
		if (fd < 0)
			return errno;
		e = flock_wait(fd, LOCK_EX, WAIT_MS_MAX);
		if (!e && fdry_file_is_named(d->fd, "data.mdb", fd)) {
			*ret = fd;
			return 0;
		}
		fdry_dir_leave(fd);
		if (e)
			return e;
	}
	return EWOULDBLOCK;
}

int fdry_dir_enter(const struct fdry_dir *d, const char *path, bool create, int *fd_ret)
{
	int e;

	*fd_ret = -1;
	if (d->fixed)
		return 0;
	e = data_lock(d, create, fd_ret);
	if (e)
		return enter_fail(path, e);
	lock_make(d);
	return 0;
}

void fdry_dir_leave(int fd)
{
	if (fd < 0)
		return;
	/* a child that did not go through fork() may have it open */
	(void)fdry_flock(fd, LOCK_UN);
	close(fd);
}
