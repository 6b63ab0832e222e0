// SPDX-License-Identifier: Apache-2.0
/*
 * held.c - descriptors whose locks end with this process, also where a child of fork() lives on.
 *
 * flock() is of the open file, which a child inherits: the lock would last as long as either of them.
 * So the child closes what is listed here, and whoever gives one up unlocks it first, for children that
 * did not go through fork().
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "store/internal.h"

struct held {
	struct held *next;
	int fd;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *all;
static unsigned int forks; /* written only by a child that has one thread */

void fdry_held_enter(void)
{
	pthread_mutex_lock(&lock);
}

void fdry_held_leave(void)
{
	pthread_mutex_unlock(&lock);
}

void fdry_held_after_fork_child(void)
{
	struct held *h;

	while ((h = all)) {
		all = h->next;
		close(h->fd);
		free(h);
	}
	forks++;
	fdry_held_leave(); /* fdry_held_enter() was called before the fork */
}

unsigned int fdry_held_forks(void)
{
	return forks;
}

int fdry_held_add(int fd)
{
	struct held *h = malloc(sizeof(*h));

	if (!h)
		return ENOMEM;
	*h = (struct held){ .next = all, .fd = fd };
	all = h;
	return 0;
}

void fdry_held_close(int fd)
{
	struct held **p, *h;

	fdry_held_enter();
	for (p = &all; *p && (*p)->fd != fd; p = &(*p)->next)
		;
	h = *p;
	if (h)
		*p = h->next;
	free(h);
	(void)flock(fd, LOCK_UN);
	close(fd);
	fdry_held_leave();
}
