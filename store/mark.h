/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark.h - finding live objects: everything that refs and leases lead to, in small steps.
 */
#ifndef FDRY_STORE_MARK_H
#define FDRY_STORE_MARK_H

#include "store/lease.h"

/* Zero it to start, but for @env. */
struct fdry_mark {
	struct fdry_env *env;
	struct fdry_idset live; /* marked; only grows */
	struct fdry_buf stack;  /* live objects whose links are still to be followed */
	struct fdry_leases leases;
	bool seen_refs;   /* refs were read ... */
	uint64_t changes; /* ... when the change counter stood here */
	char ref[FDRY_REF_NAME_MAX + 1]; /* the ref whose links are being followed; "" for leases */
};

/* How long a transaction of the collector may work. */
struct fdry_timeslice {
	uint64_t until_ns; /* of CLOCK_MONOTONIC; 0: for ever */
	uint32_t steps;    /* until the clock is looked at again */
};
struct fdry_timeslice fdry_timeslice(uint64_t ns);
bool fdry_timeslice_over(struct fdry_timeslice *slice);

/*
 * Mark everything that is new since the last call, in short views: first the refs that were set,
 * then the leases.
 * @tick is called between views and may be NULL; if it returns nonzero, marking ends with that.
 * FDRY_E_CORRUPT if a ref leads to a missing object.
 */
int fdry_mark_update(struct fdry_mark *m, int (*tick)(void *arg), void *arg) __must_check;
/*
 * The same under the writers' lock, in @t: afterwards everything that a session may rely on is
 * marked until @t ends.
 * @done: false if the time slice was over first.
 */
int fdry_mark_finish(struct fdry_mark *m, struct fdry_txn *t, struct fdry_timeslice *slice,
		     bool *done) __must_check;
void fdry_mark_release(struct fdry_mark *m);

#endif
