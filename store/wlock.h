/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wlock.h - the lock in front of LMDB's; see wlock.c. For lmdb.c alone.
 */
#ifndef FDRY_STORE_WLOCK_H
#define FDRY_STORE_WLOCK_H

#include <pthread.h>
#include <stdbool.h>

struct fdry_wlock {
	int fd;      /* data.mdb; -1: no lock is used */
	/* lock.mdb; -1: not used. Closed after LMDB: closing any descriptor releases LMDB's
	 * locks */
	int lock_fd;
	bool shared; /* this process reads without LMDB's list, and never writes */
	pthread_mutex_t lock;
	unsigned int count; /* threads that hold the lock; under @lock */
};

enum fdry_wlock_answer {
	FDRY_WLOCK_OPEN,
	FDRY_WLOCK_SAME_PROCESS, /* this process has data.mdb open already, but not through us */
	FDRY_WLOCK_OTHER_DATA, /* live processes use lock.mdb with another data.mdb */
	/* live processes use data.mdb with another lock.mdb; or the files changed at this moment */
	FDRY_WLOCK_OTHER_LOCK,
};
/* Before LMDB opens the environment in @dir. Anything but FDRY_WLOCK_OPEN leaves it closed. */
enum fdry_wlock_answer fdry_wlock_open(struct fdry_wlock *t, const char *dir, bool shared);
/* No thread holds the lock, and LMDB's environment is closed. */
void fdry_wlock_close(struct fdry_wlock *t);
/* In a forked child: close its copies of the descriptors; the parent keeps its locks. */
void fdry_wlock_forget(struct fdry_wlock *t);
/* Wait for the lock; readers without a lock file share it. 0 or errno. The same thread unlocks
 * it. */
int fdry_wlock_lock(struct fdry_wlock *t);
void fdry_wlock_unlock(struct fdry_wlock *t);

#endif
