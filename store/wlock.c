// SPDX-License-Identifier: Apache-2.0
/*
 * wlock.c - the writers' lock in front of LMDB's; one open of a store per process; lock.mdb belongs
 * to data.mdb.
 *
 * LMDB's lock for writers is a robust mutex. It identifies its owner by the thread id, and thread
 * ids repeat between PID namespaces. If a waiting thread dies, and the owner in another container
 * has the same thread id, the kernel believes that the owner died, and a second writer gets the
 * lock. So writers acquire the lock of this file first, and only one thread at a time comes to
 * LMDB's lock.
 *
 * LMDB cannot list a reader if lock.mdb cannot be written (read-only media and mounts,
 * permissions). Then nothing keeps a writer in another process from reusing the pages that this
 * reader needs. Such a reader shares the writers' lock for as long as it reads.
 *
 * LMDB trusts lock.mdb for as long as any process has it open: the file holds the number of the
 * latest transaction and the list of readers. If data.mdb is replaced under a live process,
 * lock.mdb still describes the old file: LMDB would read the wrong meta page, and the store would
 * look empty. So every process marks each of the two files with the inode number of the other one,
 * and looks for marks that differ from its own.
 *
 * The locks belong to the open file (F_OFD_SETLK) and lie on bytes of data.mdb far behind its end.
 * The kernel releases them when the process ends; read-only descriptors can share them; closing
 * another descriptor does not release them, as it releases LMDB's. If a kernel has no such locks,
 * only LMDB's lock is left.
 */
#include "store/wlock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/internal.h"

#define WRITE_AT (1ll << 62)
#define OPEN_AT (1ll << 61) /* and 32 bits of the PID namespace, 22 bits of the process id in it */
#define PID_BITS 22
#define PAIR_AT (1ll << 60) /* and the inode number of the other file */
#define PAIR_SIZE (1ll << 59)

static int byte_lock(int fd, int op, short type, off_t at)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1 };
	int rc;

	do
		rc = fcntl(fd, op, &l);
	while (rc && errno == EINTR);
	return rc ? errno : 0;
}

/* 0 if it is unknown. */
static off_t process_byte(void)
{
	struct stat ns;

	if (stat("/proc/self/ns/pid", &ns))
		return 0;
	return OPEN_AT + ((off_t)(ns.st_ino & UINT32_MAX) << PID_BITS) +
	       (getpid() & ((1 << PID_BITS) - 1));
}

/* Does another open file have a lock on these @len bytes? */
static bool is_taken(int fd, off_t at, off_t len)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = len };

	return len && !fcntl(fd, F_OFD_GETLK, &l) && l.l_type != F_UNLCK;
}

/* A child that is about to execute another program would otherwise keep the locks until then. */
static void unlock_all(int fd)
{
	struct flock l = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	(void)fcntl(fd, F_OFD_SETLK, &l);
}

/* Every process has its own byte, so any lock on that byte belongs to this process. Without such
 * locks this check passes. */
static enum fdry_wlock_answer claim_process(const struct fdry_wlock *t)
{
	off_t at = process_byte();

	if (!at || byte_lock(t->fd, F_OFD_SETLK, F_RDLCK, at))
		return FDRY_WLOCK_OPEN;
	return is_taken(t->fd, at, 1) ? FDRY_WLOCK_SAME_PROCESS : FDRY_WLOCK_OPEN;
}

/* --- lock.mdb and data.mdb --- */

/* Is the file of this name in the directory the open one? */
static bool is_named(int fd, const char *dir, const char *name)
{
	char file[4096 + 16];

	snprintf(file, sizeof(file), "%s/%s", dir, name);
	return fdry_file_is_named(AT_FDCWD, file, fd);
}

static int file_open(const char *dir, const char *name, int flags)
{
	char file[4096 + 16];

	snprintf(file, sizeof(file), "%s/%s", dir, name);
	return fdry_file_get(AT_FDCWD, file, flags);
}

static off_t pair_byte(const struct stat *other)
{
	return PAIR_AT + (off_t)(other->st_ino & (PAIR_SIZE - 1));
}

/* Is @fd's file used together with another file than that of the byte @at? */
static bool is_paired_otherwise(int fd, off_t at)
{
	return is_taken(fd, PAIR_AT, at - PAIR_AT) ||
	       is_taken(fd, at + 1, PAIR_AT + PAIR_SIZE - at - 1);
}

/* Mark first, then look: of two processes with different pairs at the same time, one sees the
 * other's mark. */
static enum fdry_wlock_answer claim_pair(struct fdry_wlock *t, const char *dir)
{
	struct stat data, lock;

	t->lock_fd = file_open(dir, "lock.mdb", O_RDONLY);
	if (t->lock_fd < 0 || fstat(t->fd, &data) || fstat(t->lock_fd, &lock))
		return FDRY_WLOCK_OPEN; /* LMDB reports the error, or creates the file */
	if (byte_lock(t->fd, F_OFD_SETLK, F_RDLCK, pair_byte(&lock)) ||
	    byte_lock(t->lock_fd, F_OFD_SETLK, F_RDLCK, pair_byte(&data)))
		return FDRY_WLOCK_OPEN;
	if (is_paired_otherwise(t->fd, pair_byte(&lock)))
		return FDRY_WLOCK_OTHER_LOCK;
	if (!is_paired_otherwise(t->lock_fd, pair_byte(&data)))
		return FDRY_WLOCK_OPEN;
	return is_named(t->fd, dir, "data.mdb") && is_named(t->lock_fd, dir, "lock.mdb")
		       ? FDRY_WLOCK_OTHER_DATA
		       : FDRY_WLOCK_OTHER_LOCK;
}

/* --- opening --- */

enum fdry_wlock_answer fdry_wlock_open(struct fdry_wlock *t, const char *dir, bool shared)
{
	enum fdry_wlock_answer answer;

	*t = (struct fdry_wlock){
		.fd = -1, .lock_fd = -1, .shared = shared, .lock = PTHREAD_MUTEX_INITIALIZER
	};
	t->fd = file_open(dir, "data.mdb", O_RDWR);
	if (t->fd < 0)
		t->fd = file_open(dir, "data.mdb", O_RDONLY);
	if (t->fd < 0 || shared)
		/* LMDB reports the error, or creates the file, which then no other process has
		 * open */
		return FDRY_WLOCK_OPEN;
	/* before lock.mdb: closing that would release locks of another copy of LMDB in this
	 * process */
	answer = claim_process(t);
	if (answer == FDRY_WLOCK_OPEN)
		answer = claim_pair(t, dir);
	if (answer != FDRY_WLOCK_OPEN)
		fdry_wlock_close(t);
	return answer;
}

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void fdry_wlock_close(struct fdry_wlock *t)
{
	if (t->fd >= 0)
		unlock_all(t->fd);
	if (t->lock_fd >= 0)
		unlock_all(t->lock_fd);
	fdry_wlock_forget(t);
}

void fdry_wlock_forget(struct fdry_wlock *t)
{
	fd_close(&t->fd);
	fd_close(&t->lock_fd);
}

/* All threads of a process share the open file: readers are counted, writers hold the mutex. */
int fdry_wlock_lock(struct fdry_wlock *t)
{
	int e = 0;

	if (t->fd < 0)
		return 0;
	pthread_mutex_lock(&t->lock);
	if (!t->shared)
		e = byte_lock(t->fd, F_OFD_SETLKW, F_WRLCK, WRITE_AT);
	else if (!t->count)
		e = byte_lock(t->fd, F_OFD_SETLKW, F_RDLCK, WRITE_AT);
	t->count += !e;
	if (e || t->shared)
		pthread_mutex_unlock(&t->lock);
	return e;
}

void fdry_wlock_unlock(struct fdry_wlock *t)
{
	if (t->fd < 0)
		return;
	if (t->shared)
		pthread_mutex_lock(&t->lock);
	if (!--t->count)
		/* a child may have the file open: closing would not do */
		(void)byte_lock(t->fd, F_OFD_SETLK, F_UNLCK, WRITE_AT);
	pthread_mutex_unlock(&t->lock);
}
