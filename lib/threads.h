/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.h - the library's own threads, and the errors of their work.
 *
 * A thread of ours receives no signals and has a name that begins with "fdry". If the system has no
 * thread to give, the thread that waits for the work does it: a lack of threads is no error. A
 * failure leaves its message in the thread that failed; a saved error carries it to another one.
 */
#ifndef FDRY_LIB_THREADS_H
#define FDRY_LIB_THREADS_H

#include <pthread.h>
#include <stdbool.h>

#include "lib/err.h"

/* An error with its message; zero: no error. */
struct fdry_saved_err {
	int err;
	char why[FDRY_SENTENCE_MAX];
};

/* Save @err and the message of this thread; 0: no error. */
void fdry_saved_err_set(struct fdry_saved_err *o, int err);
/* Make it the last error of this thread. Returns the code, or 0 if there is none. */
int fdry_saved_err_restore(const struct fdry_saved_err *o) __must_check;

/* Start a thread, to be joined. False if the system has none. */
bool fdry_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg);

/* Threads that may run at the same time, as the process's affinity allows; at least 1. */
unsigned int fdry_cores(void);

/* One piece of work. The caller must not move it between start and finish. */
struct fdry_task {
	int (*fn)(void *arg);
	void *arg;
	pthread_t thread;
	bool started;
	struct fdry_saved_err saved_err;
};

/* Prepare work that fdry_task_finish() does. */
void fdry_task_init(struct fdry_task *t, int (*fn)(void *arg), void *arg);
/* Start work in a thread. Each start needs a finish. */
void fdry_task_start(struct fdry_task *t, const char *name, int (*fn)(void *arg), void *arg);
/* Wait for the work, or do it. Returns what it returned, with its message. */
int fdry_task_finish(struct fdry_task *t) __must_check;

/*
 * A ticket: a lock that a background thread takes only while no other thread wants it. Another
 * thread can end that wait.
 */
struct fdry_ticket {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned int waiting; /* threads that wait, without the background thread */
	bool taken;
	bool stopped;         /* the background thread must not wait any more */
};

void fdry_ticket_init(struct fdry_ticket *t);
void fdry_ticket_release(struct fdry_ticket *t);
void fdry_ticket_take(struct fdry_ticket *t);
/* For the background thread: false, without the ticket, once fdry_ticket_stop() was called. */
bool fdry_ticket_take_idle(struct fdry_ticket *t) __must_check;
void fdry_ticket_return(struct fdry_ticket *t);
void fdry_ticket_stop(struct fdry_ticket *t);

#endif
