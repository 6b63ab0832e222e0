/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.h - where processes that share a store can come between each other.
 *
 * Every transaction and every touch of a lease is one step. A test sets the hook and so
 * decides who takes the next one; in a program it is NULL, which costs a load and a branch.
 */
#ifndef FDRY_STORE_STEP_H
#define FDRY_STORE_STEP_H

#include <stddef.h>

enum fdry_step {
	FDRY_STEP_LIST,       /* a directory has no store; about to look at what else is in it */
	FDRY_STEP_READ,       /* about to begin a view */
	FDRY_STEP_WRITE,      /* about to wait for the writers' lock */
	FDRY_STEP_COMMIT,     /* about to commit, with that lock */
	FDRY_STEP_WRITE_DONE, /* the writers' lock was given back */
	FDRY_STEP_NOTE,       /* about to write ids into a lease */
	FDRY_STEP_NOTED,
	FDRY_STEP_LEASE,      /* a lease's file is there, and not locked yet */
	FDRY_STEP_LEASE_END,  /* about to give a lease up */
	FDRY_STEP_SCAN,       /* about to read the leases */
	FDRY_STEP_WAIT,       /* waits for another to get on */
};

extern void (*fdry_step_hook)(enum fdry_step step);

static inline void fdry_step(enum fdry_step step)
{
	if (__builtin_expect(fdry_step_hook != NULL, 0))
		fdry_step_hook(step);
}

#endif
