/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_lock.h - the locks of tables that belong to the process, which a child of fork() finds free.
 *
 * fork() copies one thread. A lock that another thread held would stay locked in the child for
 * ever. So a fork waits for all of these locks, and parent and child release them. Handlers are
 * registered when the library is loaded, before any of its threads can hold a lock: registering
 * waits for a fork that is under way, and that fork may wait for the lock.
 *
 * A thread that holds one of these locks takes no other lock and calls no driver.
 */
#ifndef FDRY_LIB_FORK_LOCK_H
#define FDRY_LIB_FORK_LOCK_H

enum fdry_fork_lock {
	FDRY_LOCK_MODULES,	  /* graph/module_table.c */
	FDRY_LOCK_GRAPHS,	  /* image/shared_graph.c */
	FDRY_LOCK_FINGERPRINTERS, /* image/shared_fingerprinter.c */
	FDRY_LOCK_PINNED,	  /* image/pinned.c */
	FDRY_LOCK_BUILDERS,	  /* image/builder.c */
	FDRY_LOCK_COUNT,
};

void fdry_fork_lock(enum fdry_fork_lock which);
void fdry_fork_unlock(enum fdry_fork_lock which);

/* How many forks lie between this process and the one that loaded the library. What a table notes
 * with another number belongs to a parent. Context: any of the locks is held. */
unsigned int fdry_fork_count(void);

#endif
