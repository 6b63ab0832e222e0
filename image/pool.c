// SPDX-License-Identifier: Apache-2.0
/* pool.c - see pool.h. */
#include "image/pool.h"

#include <stdlib.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/threads.h"

struct worker {
	struct fdry_pool *pool;
	pthread_t thread;
	struct fdry_reader *reader; /* NULL: none could be had, and the thread ended at once */
};

struct fdry_pool {
	struct fdry_pool_opts opts;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* an item is done, or something failed */
	size_t next;            /* the first item that nobody has begun */
	size_t ndone;
	bool stop;              /* nothing more is to be begun */
	struct fdry_saved_err failed;
	double cpu_ms, done_ms;
	unsigned int nworkers;
	struct worker workers[FDRY_POOL_THREADS_MAX];
	bool done[];            /* by item */
};

/* Under the lock. */
static bool item_take(struct fdry_pool *p, size_t *ret)
{
	if (p->stop || p->next == p->opts.count)
		return false;
	*ret = p->next++;
	return true;
}

/* With the lock, which is given up meanwhile. */
static void item_do(struct fdry_pool *p, struct fdry_reader *reader, size_t i)
{
	double cpu;
	int err;

	pthread_mutex_unlock(&p->lock);
	cpu = fdry_thread_ms();
	err = p->opts.fn(p->opts.arg, reader, i);
	cpu = fdry_thread_ms() - cpu;
	pthread_mutex_lock(&p->lock);
	p->cpu_ms += cpu;
	p->done[i] = !err;
	p->ndone += !err;
	if (p->ndone == p->opts.count)
		p->done_ms = fdry_now_ms();
	if (err && !p->failed.err) {
		fdry_saved_err_set(&p->failed, err);
		p->stop = true;
	}
	pthread_cond_broadcast(&p->changed);
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	struct fdry_pool *p = w->pool;
	size_t i;

	if (fdry_reader_begin(p->opts.store, &w->reader)) {
		fdry_debug("a thread less reads the store: %s", fdry_last_error());
		return NULL;
	}
	pthread_mutex_lock(&p->lock);
	while (item_take(p, &i))
		item_do(p, w->reader, i);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void workers_start(struct fdry_pool *p)
{
	unsigned int want = p->opts.threads < FDRY_POOL_THREADS_MAX ? p->opts.threads : FDRY_POOL_THREADS_MAX;
	struct worker *w;

	while (p->nworkers < want && p->nworkers < p->opts.count) {
		w = &p->workers[p->nworkers];
		w->pool = p;
		if (!fdry_thread_start(&w->thread, p->opts.name, worker_run, w))
			break;
		p->nworkers++;
	}
}

int fdry_pool_start(const struct fdry_pool_opts *opts, struct fdry_pool **ret)
{
	struct fdry_pool *p = calloc(1, sizeof(*p) + opts->count * sizeof(p->done[0]));

	if (!p)
		return fdry_nomem();
	p->opts = *opts;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	workers_start(p);
	*ret = p;
	return 0;
}

int fdry_pool_wait(struct fdry_pool *p, size_t i)
{
	size_t own;
	int err = 0;

	pthread_mutex_lock(&p->lock);
	while (!p->done[i] && !p->failed.err) {
		if (p->next <= i && item_take(p, &own))
			item_do(p, p->opts.reader, own);
		else
			pthread_cond_wait(&p->changed, &p->lock);
	}
	if (!p->done[i])
		err = fdry_saved_err_restore(&p->failed);
	pthread_mutex_unlock(&p->lock);
	return err;
}

int fdry_pool_wait_all(struct fdry_pool *p)
{
	size_t i;
	int err = 0;

	for (i = p->opts.count; i-- > 0 && !err;)
		err = fdry_pool_wait(p, i);
	return err;
}

void fdry_pool_stats(struct fdry_pool *p, struct fdry_pool_stats *ret)
{
	pthread_mutex_lock(&p->lock);
	*ret = (struct fdry_pool_stats){ p->nworkers, p->cpu_ms, p->done_ms };
	pthread_mutex_unlock(&p->lock);
}

void fdry_pool_free(struct fdry_pool *p)
{
	unsigned int i;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_mutex_unlock(&p->lock);
	for (i = 0; i < p->nworkers; i++)
		(void)pthread_join(p->workers[i].thread, NULL);
	/* One after another: each adds to the note of what was verified. */
	for (i = 0; i < p->nworkers; i++)
		fdry_reader_end(p->workers[i].reader);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
