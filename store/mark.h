/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark.h - what is alive: everything that refs and leases lead to, found in small steps.
 */
#ifndef FDRY_STORE_MARK_H
#define FDRY_STORE_MARK_H

#include "store/lease.h"

/* Zero it to start, but for @env. */
struct fdry_mark {
	struct fdry_env *env;
	struct fdry_idset live; /* marked; only grows */
	struct fdry_buf stack;  /* of these, those whose links are still to be followed */
	struct fdry_leases leases;
	bool seen_refs;   /* refs were read ... */
	uint64_t changes; /* ... when the change counter stood here */
	char ref[FDRY_REF_NAME_MAX + 1]; /* the one that is being followed; "" for leases */
};

/* How long a transaction of the collector may work. */
struct fdry_timeslice {
	uint64_t until_ns; /* of CLOCK_MONOTONIC; 0: for ever */
	uint32_t steps;    /* until the clock is looked at again */
};
struct fdry_timeslice fdry_timeslice(uint64_t ns);
bool fdry_timeslice_over(struct fdry_timeslice *slice);

/*
 * Mark what is new since the last call, in views of its own: each ref that was set, then leases. @tick is asked
 * now and then whether to go on, and its answer handed up if it is not 0; may be NULL. FDRY_E_CORRUPT where a ref leads to what
 * is not there.
 */
int fdry_mark_update(struct fdry_mark *m, int (*tick)(void *arg), void *arg) __must_check;
/*
 * The same under the writers' lock, in @t: afterwards everything that anybody may rely on is marked until @t ends.
 * @done: false where the turn was over first.
 */
int fdry_mark_finish(struct fdry_mark *m, struct fdry_txn *t, struct fdry_timeslice *slice, bool *done) __must_check;
void fdry_mark_release(struct fdry_mark *m);

#endif
