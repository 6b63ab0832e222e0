/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew.h - threads that work off jobs, whose results are taken in order.
 *
 * One thread, the owner, adds jobs and waits for each; the others take them from the
 * front. Whoever waits works as well, so that nothing fails for want of threads. What a
 * job reads and writes belongs to whoever works on it, from adding to waiting.
 */
#ifndef FDRY_STORE_CREW_H
#define FDRY_STORE_CREW_H

#include "lib/threads.h"

#define FDRY_CREW_MAX 16 /* workers, the owner among them */

/* One job, in the owner's storage. */
struct fdry_job {
	/* @worker: below FDRY_CREW_MAX, another one for each thread: what it works with can be kept for each. */
	int (*fn)(struct fdry_job *job, unsigned int worker);
	struct fdry_job *next;
	struct fdry_saved_err saved_err;
	bool done;
};

struct fdry_crew {
	pthread_mutex_t lock;
	pthread_cond_t added, done;
	struct fdry_job *first, *last;
	unsigned int count; /* of @threads */
	unsigned int named; /* workers that have a number */
	bool stopped;
	pthread_t threads[FDRY_CREW_MAX - 1];
};

/* @workers: how many, the owner among them; 0: as many as the process may run at the same time. */
void fdry_crew_start(struct fdry_crew *c, unsigned int workers);
/* Jobs that nobody has begun are dropped. */
void fdry_crew_stop(struct fdry_crew *c);
void fdry_crew_add(struct fdry_crew *c, struct fdry_job *job);
/* Wait until it is done, working on what is before it; returns what it returned, with its sentence. */
int fdry_crew_wait(struct fdry_crew *c, struct fdry_job *job) __must_check;

#endif
