// SPDX-License-Identifier: Apache-2.0
/*
 * lock.c - the store's lock: shared by seals and loads, exclusive for a collection.
 *
 * It is flock() on the store's directory: there from the start, on read-only media too,
 * released by the kernel when its holder dies, and indifferent to process ids, which
 * containers repeat. All sessions of a process share one open file; a collection opens
 * its own, so that it is kept out by sessions of its own process as well.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "store/internal.h"

#define WAIT_MS_MAX 30000
#define NAP_MS_MAX 50

/* "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF": the process id, where the lock is on our directory; else 0. */
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
	if (strtoull(end + (*end == ':'), NULL, 10) != env->dir.ino || makedev(major_nr, minor_nr) != env->dir.dev)
		return 0;
	return pid;
}

/* Process ids that hold the lock, as "12, 345", as far as this PID namespace sees them. */
static void holders(const struct fdry_env *env, char *text, size_t len)
{
	FILE *f = fopen("/proc/locks", "re");
	char line[256];
	size_t used = 0;
	long pid;

	*text = '\0';
	while (f && used < len && fgets(line, sizeof(line), f)) {
		pid = holder(env, line);
		if (pid > 0)
			used += (size_t)snprintf(text + used, len - used, "%s%ld", used ? ", " : "", pid);
	}
	if (f)
		fclose(f);
}

static int locked(const struct fdry_env *env, const char *by)
{
	char pids[128];

	holders(env, pids, sizeof(pids));
	return fdry_fail(FDRY_E_LOCKED, "the store is held by %s%s%s; wait for that to end and try again",
			 by, *pids ? ", process " : "", pids);
}

static int flock_retry(int fd, int op)
{
	int rc;

	do
		rc = flock(fd, op);
	while (rc && errno == EINTR);
	return rc;
}

static void nap(unsigned int ms)
{
	struct timespec ts = { 0, (long)ms * 1000000 };

	nanosleep(&ts, NULL);
}

/* Collections are short; whoever waits longer than this waits for a stopped process. */
static int share_wait(struct fdry_env *env)
{
	unsigned int ms = 1, waited = 0;

	while (flock_retry(env->dir.fd, LOCK_SH | LOCK_NB)) {
		if (errno != EWOULDBLOCK)
			return fdry_fail(FDRY_E_IO, "cannot lock the store's directory: %s", strerror(errno));
		if (waited >= WAIT_MS_MAX)
			return locked(env, "a collection");
		nap(ms);
		waited += ms;
		ms = ms * 2 < NAP_MS_MAX ? ms * 2 : NAP_MS_MAX;
	}
	return 0;
}

int fdry_env_share(struct fdry_env *env)
{
	int err = 0;

	pthread_mutex_lock(&env->lock);
	if (!env->sharers)
		err = share_wait(env);
	if (!err)
		env->sharers++;
	pthread_mutex_unlock(&env->lock);
	return err;
}

void fdry_env_unshare(struct fdry_env *env)
{
	pthread_mutex_lock(&env->lock);
	if (!--env->sharers)
		flock_retry(env->dir.fd, LOCK_UN);
	pthread_mutex_unlock(&env->lock);
}

int fdry_env_exclude(struct fdry_env *env, int *fd_ret)
{
	int fd = openat(env->dir.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return fdry_fail(FDRY_E_IO, "cannot open the store's directory: %s", strerror(errno));
	if (!flock_retry(fd, LOCK_EX | LOCK_NB)) {
		*fd_ret = fd;
		return 0;
	}
	close(fd);
	if (errno != EWOULDBLOCK)
		return fdry_fail(FDRY_E_IO, "cannot lock the store's directory: %s", strerror(errno));
	return locked(env, "a seal, a load or another collection");
}

void fdry_env_unexclude(int fd)
{
	close(fd);
}
