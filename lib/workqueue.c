// SPDX-License-Identifier: Apache-2.0
/* workqueue.c - see workqueue.h. */
#include "lib/workqueue.h"

void fdry_workqueue_init(struct fdry_workqueue *q, const struct fdry_workqueue_opts *opts)
{
	*q = (struct fdry_workqueue){ .opts = *opts };
	q->last = &q->first;
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->added, NULL);
	pthread_cond_init(&q->changed, NULL);
}

/* Take the next piece of work out of the queue; NULL if none may begin. */
static struct fdry_work *work_next(struct fdry_workqueue *q)
{
	struct fdry_work *w = q->stopped ? NULL : q->first;

	if (!w)
		return NULL;
	q->first = w->next;
	if (!q->first)
		q->last = &q->first;
	w->begun = true;
	return w;
}

/* Begin nothing more. The lock is held. */
static void stop(struct fdry_workqueue *q)
{
	q->stopped = true;
	pthread_cond_broadcast(&q->added);
}

/* Do @w. The lock is held on entry and on return, and is released in between. */
static void work_do(struct fdry_workqueue *q, struct fdry_work *w, unsigned int worker)
{
	int err;

	q->working++;
	pthread_mutex_unlock(&q->lock);
	err = w->fn(w, worker);
	if (w->saved_err)
		fdry_saved_err_set(w->saved_err, err);
	if (q->opts.release)
		q->opts.release(w);
	pthread_mutex_lock(&q->lock);
	q->working--;
	if (!q->opts.release) {
		w->err = err;
		w->done = true;
	}
	if (err && !q->failed.err)
		fdry_saved_err_set(&q->failed, err);
	if (err && q->opts.stop_at_error)
		stop(q);
	pthread_cond_broadcast(&q->changed);
}

static void *worker_main(void *arg)
{
	struct fdry_workqueue *q = arg;
	struct fdry_work *w;
	unsigned int worker;
	bool ready = true;

	pthread_mutex_lock(&q->lock);
	worker = ++q->numbered;
	if (q->opts.begin) {
		pthread_mutex_unlock(&q->lock);
		ready = !q->opts.begin(q->opts.arg, worker);
		pthread_mutex_lock(&q->lock);
	}
	while (ready && !q->stopped) {
		w = work_next(q);
		if (w)
			work_do(q, w, worker);
		else if (q->opts.end_idle && !q->expecting)
			break;
		else
			pthread_cond_wait(&q->added, &q->lock);
	}
	q->running--;
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

/* Take the threads that are to be joined. The lock is held. */
static unsigned int threads_take(struct fdry_workqueue *q)
{
	unsigned int n = q->nthreads;

	q->nthreads = 0;
	return n;
}

/* Join @n threads that have ended, or will without the lock. */
static void threads_join(struct fdry_workqueue *q, unsigned int n)
{
	while (n)
		(void)pthread_join(q->threads[--n], NULL);
}

unsigned int fdry_workqueue_start(struct fdry_workqueue *q, unsigned int threads)
{
	unsigned int ret;

	pthread_mutex_lock(&q->lock);
	if (!q->running) { /* they have left the lock for the last time */
		threads_join(q, threads_take(q));
		q->numbered = 0;
	}
	while (!q->stopped && q->running < threads && q->nthreads < FDRY_WORKQUEUE_THREADS_MAX &&
	       fdry_thread_start(&q->threads[q->nthreads], q->opts.name, worker_main, q)) {
		q->nthreads++;
		q->running++;
	}
	ret = q->nthreads;
	pthread_mutex_unlock(&q->lock);
	return ret;
}

void fdry_workqueue_release(struct fdry_workqueue *q)
{
	struct fdry_work *w;
	unsigned int n;

	pthread_mutex_lock(&q->lock);
	stop(q);
	n = threads_take(q); /* work that is under way may still ask for their number */
	pthread_mutex_unlock(&q->lock);
	threads_join(q, n);
	while (q->opts.release && (w = q->first)) {
		q->first = w->next;
		q->opts.release(w);
	}
	pthread_cond_destroy(&q->changed);
	pthread_cond_destroy(&q->added);
	pthread_mutex_destroy(&q->lock);
}

/* The lock is held. */
static void work_append(struct fdry_workqueue *q, struct fdry_work *work)
{
	work->next = NULL;
	work->err = 0;
	work->begun = work->done = false;
	*q->last = work;
	q->last = &work->next;
}

void fdry_workqueue_add(struct fdry_workqueue *q, struct fdry_work *work)
{
	pthread_mutex_lock(&q->lock);
	work_append(q, work);
	pthread_cond_signal(&q->added);
	pthread_mutex_unlock(&q->lock);
}

void fdry_workqueue_add_array(struct fdry_workqueue *q, void *array, size_t count, size_t size)
{
	size_t i;

	pthread_mutex_lock(&q->lock);
	for (i = 0; i < count; i++)
		work_append(q, (struct fdry_work *)((char *)array + i * size));
	pthread_cond_broadcast(&q->added);
	pthread_mutex_unlock(&q->lock);
}

void fdry_workqueue_expect(struct fdry_workqueue *q, bool more)
{
	pthread_mutex_lock(&q->lock);
	q->expecting = more;
	pthread_cond_broadcast(&q->added);
	pthread_mutex_unlock(&q->lock);
}

int fdry_workqueue_wait(struct fdry_workqueue *q, struct fdry_work *work)
{
	struct fdry_work *next;
	int err = 0;

	pthread_mutex_lock(&q->lock);
	while (!work->done && !q->stopped) {
		next = q->opts.help_all || !work->begun ? work_next(q) : NULL;
		if (next)
			work_do(q, next, 0);
		else
			pthread_cond_wait(&q->changed, &q->lock);
	}
	if (!work->done || work->err)
		err = fdry_saved_err_restore(work->done && work->saved_err ? work->saved_err
									   : &q->failed);
	pthread_mutex_unlock(&q->lock);
	return err;
}

int fdry_workqueue_drain(struct fdry_workqueue *q)
{
	struct fdry_work *next;
	int err;

	pthread_mutex_lock(&q->lock);
	while ((next = work_next(q)) || q->working) {
		if (next)
			work_do(q, next, 0);
		else
			pthread_cond_wait(&q->changed, &q->lock);
	}
	err = fdry_saved_err_restore(&q->failed);
	if (!q->stopped)
		q->failed.err = 0; /* a queue that has stopped has failed for good */
	pthread_mutex_unlock(&q->lock);
	return err;
}

unsigned int fdry_worker_threads(unsigned int workers)
{
	unsigned int n = workers ? workers : fdry_cores();

	return (n < FDRY_WORKERS_MAX ? n : FDRY_WORKERS_MAX) - 1;
}
