// SPDX-License-Identifier: Apache-2.0
/*
 * gate.c - whose turn it is to write, and that a process has a store open once.
 *
 * LMDB's lock for writers is a robust mutex: it knows its owner by the thread's number, and
 * such numbers repeat between PID namespaces. If a thread dies that waits for it, and the owner,
 * in another container, has the same number, the kernel takes the owner for dead and lets the
 * next one in beside it. So whoever writes takes its turn here first, and comes to LMDB's
 * lock alone.
 *
 * Where LMDB cannot list a reader (read-only media and mounts, a lock file that it may not write), nothing
 * would keep a writer elsewhere from using the pages again that it reads. Such a reader
 * shares the turn for as long as it looks.
 *
 * The locks are of the open file (F_OFD_SETLK), on bytes of data.mdb far behind its end: the kernel
 * ends them with the process, whatever its number, read-only descriptors can share them, and no
 * other descriptor that is closed drops them, as it would LMDB's. Where a kernel has none, LMDB is alone.
 */
#include "store/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define TURN_AT (1ll << 62)
#define OPEN_AT (1ll << 61) /* and a process' number: 32 bits of its namespace, 22 of its id in there */
#define PID_BITS 22

static int turn_lock(const struct fdry_gate *t, int op, short type, off_t at)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1 };
	int rc;

	do
		rc = fcntl(t->fd, op, &l);
	while (rc && errno == EINTR);
	return rc ? errno : 0;
}

/* 0 where it cannot be told. */
static off_t own_byte(void)
{
	struct stat ns;

	if (stat("/proc/self/ns/pid", &ns))
		return 0;
	return OPEN_AT + ((off_t)(ns.st_ino & UINT32_MAX) << PID_BITS) + (getpid() & ((1 << PID_BITS) - 1));
}

/* Whoever has it, is in this process: every other has another byte. */
static bool is_taken(const struct fdry_gate *t, off_t at)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1 };

	return !fcntl(t->fd, F_OFD_GETLK, &l) && l.l_type != F_UNLCK;
}

/* Without it a child that is about to execute another program would keep the locks that long. */
static void unlock_all(const struct fdry_gate *t)
{
	struct flock l = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	(void)fcntl(t->fd, F_OFD_SETLK, &l);
}

static int claim_process(const struct fdry_gate *t)
{
	off_t at = own_byte();
	int e = at ? turn_lock(t, F_OFD_SETLK, F_RDLCK, at) : 0;

	if (!e && at && is_taken(t, at))
		return EBUSY;
	return e;
}

int fdry_gate_open(struct fdry_gate *t, const char *dir, bool shared)
{
	char file[4096 + 16];
	int e;

	*t = (struct fdry_gate){ .fd = -1, .shared = shared, .lock = PTHREAD_MUTEX_INITIALIZER };
	snprintf(file, sizeof(file), "%s/data.mdb", dir);
	t->fd = open(file, O_RDWR | O_CLOEXEC);
	if (t->fd < 0)
		t->fd = open(file, O_RDONLY | O_CLOEXEC);
	if (t->fd < 0)
		return 0; /* LMDB will say why, or makes it: then nobody else has it open */
	e = shared ? 0 : claim_process(t);
	if (e)
		fdry_gate_close(t);
	return e == EBUSY ? e : 0;
}

void fdry_gate_close(struct fdry_gate *t)
{
	if (t->fd >= 0)
		unlock_all(t);
	fdry_gate_forget(t);
}

void fdry_gate_forget(struct fdry_gate *t)
{
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
}

/* All threads of a process share the open file: those that read count themselves, those that write go one by one. */
int fdry_gate_take(struct fdry_gate *t)
{
	int e = 0;

	if (t->fd < 0)
		return 0;
	pthread_mutex_lock(&t->lock);
	if (!t->shared)
		e = turn_lock(t, F_OFD_SETLKW, F_WRLCK, TURN_AT);
	else if (!t->count)
		e = turn_lock(t, F_OFD_SETLKW, F_RDLCK, TURN_AT);
	t->count += !e;
	if (e || t->shared)
		pthread_mutex_unlock(&t->lock);
	return e;
}

void fdry_gate_give(struct fdry_gate *t)
{
	if (t->fd < 0)
		return;
	if (t->shared)
		pthread_mutex_lock(&t->lock);
	if (!--t->count)
		(void)turn_lock(t, F_OFD_SETLK, F_UNLCK, TURN_AT); /* a child may have the file open: closing would not do */
	pthread_mutex_unlock(&t->lock);
}
