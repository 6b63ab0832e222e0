// SPDX-License-Identifier: Apache-2.0
/* fork_lock.c - see fork_lock.h. */
#include "lib/fork_lock.h"

#include <pthread.h>

static pthread_mutex_t locks[FDRY_LOCK_COUNT] = {
	[0 ... FDRY_LOCK_COUNT - 1] = PTHREAD_MUTEX_INITIALIZER
};
static unsigned int forks; /* changes while a child holds all locks */

void fdry_fork_lock(enum fdry_fork_lock which)
{
	pthread_mutex_lock(&locks[which]);
}

void fdry_fork_unlock(enum fdry_fork_lock which)
{
	pthread_mutex_unlock(&locks[which]);
}

unsigned int fdry_fork_count(void)
{
	return forks;
}

static void before_fork(void)
{
	unsigned int i;

	for (i = 0; i < FDRY_LOCK_COUNT; i++)
		pthread_mutex_lock(&locks[i]);
}

static void after_fork(void)
{
	unsigned int i;

	for (i = FDRY_LOCK_COUNT; i--;)
		pthread_mutex_unlock(&locks[i]);
}

static void after_fork_child(void)
{
	forks++;
	after_fork();
}

__attribute__((constructor)) static void fork_prepare(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork_child);
}
