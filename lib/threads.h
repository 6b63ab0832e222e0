/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.h - work on threads of the library's own, and what came of it.
 *
 * A thread of ours takes no signals and has a name that begins with "fdry". Where the
 * system has no thread to give, the work is done by whoever waits for it: nothing fails
 * for want of threads. The sentence of a failure is kept in the thread that failed; an
 * saved_err carries it over to the one that is told.
 */
#ifndef FDRY_LIB_THREADS_H
#define FDRY_LIB_THREADS_H

#include <pthread.h>
#include <stdbool.h>

#include "lib/err.h"

/* An error with its sentence; zero: none. */
struct fdry_saved_err {
	int err;
	char why[FDRY_SENTENCE_MAX];
};

/* Keep @err and the sentence of this thread; 0 empties it. */
void fdry_saved_err_set(struct fdry_saved_err *o, int err);
/* Say it in this thread; returns the code, 0 where there is none. */
int fdry_saved_err_restore(const struct fdry_saved_err *o) __must_check;

/* Begin a thread; false where there is none to be had. To be joined. */
bool fdry_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg);

/* Threads that may run at the same time, as the process's affinity allows; at least 1. */
unsigned int fdry_cores(void);

/* One piece of work. The caller keeps it where it is from start to finish. */
struct fdry_task {
	int (*fn)(void *arg);
	void *arg;
	pthread_t thread;
	bool started;
	struct fdry_saved_err saved_err;
};

/* Each start needs a finish. */
void fdry_task_start(struct fdry_task *t, const char *name, int (*fn)(void *arg), void *arg);
/* Wait until it is done, or do it; returns what it returned, with its sentence. */
int fdry_task_finish(struct fdry_task *t) __must_check;

/*
 * A turn: one at a time does what the turn is for. One thread may be patient: it gets a
 * turn when nobody else wants one, and can be sent away.
 */
struct fdry_ticket {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned int waiting; /* not counting the patient one */
	bool taken;
	bool stopped;         /* the patient one is to go */
};

void fdry_ticket_init(struct fdry_ticket *t);
void fdry_ticket_release(struct fdry_ticket *t);
void fdry_ticket_take(struct fdry_ticket *t);
/* False once fdry_ticket_stop() was called: no turn then. */
bool fdry_ticket_take_idle(struct fdry_ticket *t) __must_check;
void fdry_ticket_return(struct fdry_ticket *t);
void fdry_ticket_stop(struct fdry_ticket *t);

#endif
