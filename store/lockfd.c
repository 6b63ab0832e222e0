// SPDX-License-Identifier: Apache-2.0
/*
 * lockfd.c - locked descriptors whose locks end with this process, even if a child of fork() lives
 * on.
 *
 * flock() belongs to the open file, which a child inherits: the lock would last as long as either
 * process. So a child of fork() closes the descriptors that are listed here. fdry_lockfd_close()
 * also unlocks, for children that did not go through fork().
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "store/internal.h"

struct lockfd {
	struct lockfd *next;
	int fd;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct lockfd *all;
static unsigned int forks; /* written only by a child that has one thread */

void fdry_lockfd_lock(void)
{
	pthread_mutex_lock(&lock);
}

void fdry_lockfd_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void fdry_lockfd_after_fork_child(void)
{
	struct lockfd *h;

	while ((h = all)) {
		all = h->next;
		close(h->fd);
		free(h);
	}
	forks++;
	fdry_lockfd_unlock(); /* fdry_lockfd_lock() was called before the fork */
}

unsigned int fdry_lockfd_forks(void)
{
	return forks;
}

int fdry_lockfd_add(int fd)
{
	struct lockfd *h = malloc(sizeof(*h));

	if (!h)
		return ENOMEM;
	*h = (struct lockfd){ .next = all, .fd = fd };
	all = h;
	return 0;
}

int fdry_lockfd_open(const struct fdry_dir *d, const char *name)
{
	int fd;

	fdry_lockfd_lock();
	fd = fdry_file_open(d, name, O_RDWR);
	if (fd >= 0 && fdry_lockfd_add(fd)) {
		close(fd);
		errno = ENOMEM;
		fd = -1;
	}
	fdry_lockfd_unlock();
	return fd;
}

void fdry_lockfd_close(int fd)
{
	struct lockfd **p, *h;

	fdry_lockfd_lock();
	for (p = &all; *p && (*p)->fd != fd; p = &(*p)->next)
		;
	h = *p;
	if (h)
		*p = h->next;
	free(h);
	(void)flock(fd, LOCK_UN);
	close(fd);
	fdry_lockfd_unlock();
}
