/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_lock.h - locks for tables of the whole process, which are free in a child of fork().
 *
 * fork() copies one thread. A lock that another thread held would stay locked in the child for
 * ever. So fork() waits for all of these locks, and parent and child release them. The library
 * registers its handlers (pthread_atfork()) when it is loaded, before any thread can hold a lock:
 * registering waits for a running fork(), and that fork() may wait for the lock.
 *
 * A thread that holds one of these locks takes no other lock and calls no driver.
 */
#ifndef FDRY_LIB_FORK_LOCK_H
#define FDRY_LIB_FORK_LOCK_H

enum fdry_fork_lock {
	FDRY_LOCK_MODULES,	  /* graph/module_table.c */
	FDRY_LOCK_GRAPHS,	  /* image/shared_graph.c, image/targets.c */
	FDRY_LOCK_FINGERPRINTERS, /* image/shared_fingerprinter.c */
	FDRY_LOCK_PINNED,	  /* image/pinned.c */
	FDRY_LOCK_BUILDERS,	  /* image/builder.c */
	FDRY_LOCK_COUNT,
};

void fdry_fork_lock(enum fdry_fork_lock which);
void fdry_fork_unlock(enum fdry_fork_lock which);

/* Return the number of forks between this process and the one that loaded the library. Entries that
 * a table noted with another number belong to a parent. Context: the caller holds any of the
 * locks. */
unsigned int fdry_fork_count(void);

#endif
