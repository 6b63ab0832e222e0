/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.h - the points where processes that share a store can interleave.
 *
 * Every transaction and every access to a lease is one step. A test sets the hook and decides which
 * process does the next step. In a program the hook is NULL, which costs a load and a branch.
 */
#ifndef FDRY_STORE_STEP_H
#define FDRY_STORE_STEP_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/clock.h"

enum fdry_step {
	FDRY_STEP_LIST,       /* a directory has no store; about to list its other files */
	FDRY_STEP_READ,       /* about to begin a view */
	FDRY_STEP_WRITE,      /* about to wait for the writers' lock */
	FDRY_STEP_COMMIT,     /* about to commit, with that lock */
	FDRY_STEP_WRITE_DONE, /* the writers' lock was released */
	FDRY_STEP_NOTE,       /* about to write ids into a lease */
	FDRY_STEP_NOTED,
	FDRY_STEP_LEASE,      /* a lease's file exists, and is not locked yet */
	FDRY_STEP_LEASE_END,  /* about to end a lease */
	FDRY_STEP_SCAN,       /* about to read the leases */
	FDRY_STEP_SHORTEN,    /* about to lock a long file of uses */
	FDRY_STEP_WAIT,       /* waits for another process */
};

extern void (*fdry_step_hook)(enum fdry_step step);

static inline void fdry_step(enum fdry_step step)
{
	if (__builtin_expect(fdry_step_hook != NULL, 0))
		fdry_step_hook(step);
}

/* Does a test order the steps? Then a collection deletes one object in each transaction and does
 * not pause between two. Otherwise, in a small store, one transaction would delete everything. */
static inline bool fdry_stepping(void)
{
	return fdry_step_hook != NULL;
}

/* Wait for another process. If a test has set the hook, time passes as other processes take steps.
 */
static inline void fdry_step_wait(unsigned int ms)
{
	if (fdry_stepping())
		fdry_step(FDRY_STEP_WAIT);
	else
		fdry_sleep_ms(ms);
}

#endif
