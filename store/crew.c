// SPDX-License-Identifier: Apache-2.0
/* crew.c - see crew.h. Everything in the struct is under its lock, but for the threads' handles. */
#include "store/crew.h"

/* The next job, taken out; NULL where there is none. */
static struct fdry_job *job_take(struct fdry_crew *c)
{
	struct fdry_job *job = c->first;

	if (!job)
		return NULL;
	c->first = job->next;
	if (!c->first)
		c->last = NULL;
	return job;
}

/* With the lock held, which is given up meanwhile. */
static void job_do(struct fdry_crew *c, struct fdry_job *job, unsigned int worker)
{
	pthread_mutex_unlock(&c->lock);
	fdry_saved_err_set(&job->saved_err, job->fn(job, worker));
	pthread_mutex_lock(&c->lock);
	job->done = true;
	pthread_cond_signal(&c->done);
}

static void *crew_main(void *arg)
{
	struct fdry_crew *c = arg;
	struct fdry_job *job;
	unsigned int worker;

	pthread_mutex_lock(&c->lock);
	worker = ++c->named;
	while (!c->stopped) {
		job = job_take(c);
		if (job)
			job_do(c, job, worker);
		else
			pthread_cond_wait(&c->added, &c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

void fdry_crew_start(struct fdry_crew *c, unsigned int workers)
{
	unsigned int n = workers ? workers : fdry_cores();

	*c = (struct fdry_crew){ .count = 0 };
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->added, NULL);
	pthread_cond_init(&c->done, NULL);
	n = n < FDRY_CREW_MAX ? n : FDRY_CREW_MAX;
	while (c->count + 1 < n && fdry_thread_start(&c->threads[c->count], "fdry-crew", crew_main, c))
		c->count++;
}

void fdry_crew_stop(struct fdry_crew *c)
{
	pthread_mutex_lock(&c->lock);
	c->stopped = true;
	pthread_cond_broadcast(&c->added);
	pthread_mutex_unlock(&c->lock);
	while (c->count)
		(void)pthread_join(c->threads[--c->count], NULL);
	pthread_cond_destroy(&c->done);
	pthread_cond_destroy(&c->added);
	pthread_mutex_destroy(&c->lock);
}

void fdry_crew_add(struct fdry_crew *c, struct fdry_job *job)
{
	job->next = NULL;
	job->done = false;
	pthread_mutex_lock(&c->lock);
	if (c->last)
		c->last->next = job;
	else
		c->first = job;
	c->last = job;
	pthread_cond_signal(&c->added);
	pthread_mutex_unlock(&c->lock);
}

int fdry_crew_wait(struct fdry_crew *c, struct fdry_job *job)
{
	struct fdry_job *other;

	pthread_mutex_lock(&c->lock);
	while (!job->done) {
		other = job_take(c);
		if (other)
			job_do(c, other, 0);
		else
			pthread_cond_wait(&c->done, &c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return fdry_saved_err_restore(&job->saved_err);
}
