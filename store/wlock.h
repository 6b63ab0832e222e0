/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wlock.h - the lock in front of LMDB's; see wlock.c. For lmdb.c alone.
 */
#ifndef FDRY_STORE_WLOCK_H
#define FDRY_STORE_WLOCK_H

#include <pthread.h>
#include <stdbool.h>

struct fdry_wlock {
	int fd;      /* data.mdb; -1: there are no turns */
	int lock_fd; /* lock.mdb; -1: not used. To be closed after LMDB, whose locks on it go with any descriptor */
	bool shared; /* this process reads without LMDB's list, and never writes */
	pthread_mutex_t lock;
	unsigned int count; /* of those that have the turn; under the lock */
};

enum fdry_wlock_answer {
	FDRY_WLOCK_OPEN,
	FDRY_WLOCK_SAME_PROCESS,        /* this process has data.mdb open already, but not through us */
	FDRY_WLOCK_OTHER_DATA, /* live processes use lock.mdb with another data.mdb */
	FDRY_WLOCK_OTHER_LOCK, /* live processes use data.mdb with another lock.mdb; or the files changed at this moment */
};
/* Before LMDB opens the environment in @dir. Anything but FDRY_WLOCK_OPEN leaves it closed. */
enum fdry_wlock_answer fdry_wlock_open(struct fdry_wlock *t, const char *dir, bool shared);
/* Nobody has the turn, and LMDB's environment is closed. */
void fdry_wlock_close(struct fdry_wlock *t);
/* In a forked child: its copy alone, with which the parent's locks stay. */
void fdry_wlock_forget(struct fdry_wlock *t);
/* Wait for the turn: alone, or where it is shared together with others that read; 0 or errno. The same thread gives it back. */
int fdry_wlock_lock(struct fdry_wlock *t);
void fdry_wlock_unlock(struct fdry_wlock *t);

#endif
