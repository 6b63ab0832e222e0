/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workqueue.h - pieces of work, done by threads in the order in which they were added.
 *
 * The owner adds pieces of work and starts threads. A thread that waits for a piece works too,
 * so a queue without threads is slower and nothing else. Work begins in the order in which it
 * was added. The data that a piece reads and writes belongs to the thread that works on it, from
 * fdry_workqueue_add() until fdry_workqueue_wait() returns.
 *
 * A piece of work may add others, but it may not wait for the queue.
 *
 * Locking: the queue has a lock of its own. Any thread may add, start and wait. One thread
 * initialises and releases the queue. A forked child has none of the threads: it must not use
 * a queue of its parent.
 */
#ifndef FDRY_LIB_WORKQUEUE_H
#define FDRY_LIB_WORKQUEUE_H

#include "lib/threads.h"

#define FDRY_WORKQUEUE_THREADS_MAX 64

/* Workers of a queue whose users keep state for each worker; the owner counts as one. */
#define FDRY_WORKERS_MAX 16

/* One piece of work, in the storage of the thread that adds it. */
struct fdry_work {
	/* @worker is 0 in a thread that waits, and another number in each thread of the queue. */
	int (*fn)(struct fdry_work *work, unsigned int worker);
	struct fdry_saved_err
		*saved_err; /* keeps a failure; NULL: only the queue keeps its first */

	/* The queue sets the rest, under its lock. */
	struct fdry_work *next;
	int err;
	bool begun, done;
};

struct fdry_workqueue_opts {
	const char *name;   /* of the threads, at most 15 bytes */
	bool stop_at_error; /* begin no more work after a failure */
	bool end_idle;      /* a thread ends when no work is queued */
	bool help_all;      /* a waiting thread also begins work that was added later */
	/* The first call of each thread of the queue; the thread ends if it fails. NULL: no call.
	 */
	int (*begin)(void *arg, unsigned int worker);
	void *arg;
	/* Free @work after it was done or dropped. No thread may wait for such work by itself. */
	void (*release)(struct fdry_work *work);
};

/* Everything is under the lock except @opts. */
struct fdry_workqueue {
	struct fdry_workqueue_opts opts;
	pthread_mutex_t lock;
	pthread_cond_t added, changed;
	struct fdry_work *first, **last;
	unsigned int working;         /* pieces that were begun and are not done */
	bool stopped;                 /* begin nothing more */
	bool expecting;               /* fdry_workqueue_expect() */
	struct fdry_saved_err failed; /* the first failure */
	pthread_t threads[FDRY_WORKQUEUE_THREADS_MAX];
	unsigned int nthreads; /* threads to join */
	unsigned int running;  /* threads that still look for work */
	unsigned int numbered; /* workers that have a number */
};

void fdry_workqueue_init(struct fdry_workqueue *q, const struct fdry_workqueue_opts *opts);
/* Begin nothing more, wait for work that was begun, join the threads and drop the other work. */
void fdry_workqueue_release(struct fdry_workqueue *q);

void fdry_workqueue_add(struct fdry_workqueue *q, struct fdry_work *work);
/* Add @count pieces of work, each the first member of an element of an array. @size: bytes of an
 * element. */
void fdry_workqueue_add_array(struct fdry_workqueue *q, void *array, size_t count, size_t size);
/* Is more work to come? If so, a thread waits for it, also with @end_idle. */
void fdry_workqueue_expect(struct fdry_workqueue *q, bool more);
/* Start threads until @threads of them look for work, or the system has no more. Returns the
 * number of threads that were started since the queue last had none. */
unsigned int fdry_workqueue_start(struct fdry_workqueue *q, unsigned int threads);

/* Wait for @work. Returns what it returned, with its message. If the queue has stopped before
 * @work was done, or if @work kept no failure, that is the first failure of the queue. */
int fdry_workqueue_wait(struct fdry_workqueue *q, struct fdry_work *work) __must_check;
/* Wait until no work is queued or being done. Returns the first failure since the last call. */
int fdry_workqueue_drain(struct fdry_workqueue *q) __must_check;

/* Threads to start beside the owner for @workers workers; 0: as many as the process may run. */
unsigned int fdry_worker_threads(unsigned int workers);

#endif
