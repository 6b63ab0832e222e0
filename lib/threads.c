// SPDX-License-Identifier: Apache-2.0
/* threads.c - see threads.h. */
#include "lib/threads.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>

void fdry_saved_err_set(struct fdry_saved_err *o, int err)
{
	o->err = err;
	snprintf(o->why, sizeof(o->why), "%s", err ? fdry_last_error() : "");
}

int fdry_saved_err_restore(const struct fdry_saved_err *o)
{
	return o->err ? fdry_fail((enum fdry_errcode)-o->err, "%s", o->why) : 0;
}

bool fdry_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg)
{
	sigset_t all, before;
	int rc;

	/* A new thread inherits the mask, so the program's signal handlers run only in its own
	 * threads. */
	sigfillset(&all);
	if (pthread_sigmask(SIG_SETMASK, &all, &before))
		return false;
	rc = pthread_create(thread, NULL, fn, arg);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!rc)
		(void)pthread_setname_np(*thread, name);
	return !rc;
}

unsigned int fdry_cores(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1; /* more than CPU_SETSIZE of them, or the call is forbidden */
	return CPU_COUNT(&set) > 0 ? (unsigned int)CPU_COUNT(&set) : 1;
}

static void *task_run(void *arg)
{
	struct fdry_task *t = arg;

	fdry_saved_err_set(&t->saved_err, t->fn(t->arg));
	return NULL;
}

void fdry_task_init(struct fdry_task *t, int (*fn)(void *arg), void *arg)
{
	*t = (struct fdry_task){ .fn = fn, .arg = arg };
}

void fdry_task_start(struct fdry_task *t, const char *name, int (*fn)(void *arg), void *arg)
{
	fdry_task_init(t, fn, arg);
	t->started = fdry_thread_start(&t->thread, name, task_run, t);
}

int fdry_task_finish(struct fdry_task *t)
{
	if (t->started)
		(void)pthread_join(t->thread, NULL);
	else
		(void)task_run(t);
	t->started = false;
	return fdry_saved_err_restore(&t->saved_err);
}

/* --- tickets --- */

void fdry_ticket_init(struct fdry_ticket *t)
{
	*t = (struct fdry_ticket){ .waiting = 0 };
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->changed, NULL);
}

void fdry_ticket_release(struct fdry_ticket *t)
{
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
}

void fdry_ticket_take(struct fdry_ticket *t)
{
	pthread_mutex_lock(&t->lock);
	t->waiting++;
	while (t->taken)
		pthread_cond_wait(&t->changed, &t->lock);
	t->waiting--;
	t->taken = true;
	pthread_mutex_unlock(&t->lock);
}

bool fdry_ticket_take_idle(struct fdry_ticket *t)
{
	bool got;

	pthread_mutex_lock(&t->lock);
	while ((t->taken || t->waiting) && !t->stopped)
		pthread_cond_wait(&t->changed, &t->lock);
	got = !t->stopped;
	if (got)
		t->taken = true;
	pthread_mutex_unlock(&t->lock);
	return got;
}

void fdry_ticket_return(struct fdry_ticket *t)
{
	pthread_mutex_lock(&t->lock);
	t->taken = false;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
}

void fdry_ticket_stop(struct fdry_ticket *t)
{
	pthread_mutex_lock(&t->lock);
	t->stopped = true;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
}
