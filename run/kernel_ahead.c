// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_ahead.c - compiling and loading before anybody asks: a list of work, and threads.
 *
 * Each piece is a copy of what was asked for, and is done by fdry_kernels_function(): what it
 * finds done, or being done, it does not do again. Whoever waits works on the list as well,
 * so that nothing depends on there being threads.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/opts.h"
#include "run/kernel_cache.h"

#define THREADS_MAX 64u

struct job {
	struct job *next;
	struct fdry_kernels_source source;
	char *entry;
	const char **options;
	void *data;
	char *name, *target, *version;
};

struct fdry_kernels_workers {
	struct fdry_kernels *k;
	pthread_mutex_t lock;
	pthread_cond_t idle;      /* nothing is left and nobody works */
	struct job *first, **last;
	unsigned int working;
	pthread_t threads[THREADS_MAX];
	unsigned int nthreads;    /* to be joined ... */
	unsigned int running;     /* ... of which these look for work */
	struct fdry_saved_err saved_err; /* the first failure since the last wait */
};

/* --- jobs --- */

static void job_free(struct job *j)
{
	size_t i;

	if (!j)
		return;
	for (i = 0; j->options && i < j->source.noptions; i++)
		free((char *)j->options[i]);
	free(j->options);
	free(j->data);
	free(j->entry);
	free(j->name);
	free(j->target);
	free(j->version);
	free(j);
}

static void jobs_free(struct job *j)
{
	struct job *next;

	for (; j; j = next) {
		next = j->next;
		job_free(j);
	}
}

/* NULL stays NULL; *@ok turns false where there is no memory. */
static char *text_copy(const char *text, bool *ok)
{
	char *copy = text ? strdup(text) : NULL;

	if (text && !copy)
		*ok = false;
	return copy;
}

static void options_copy(struct job *j, bool *ok)
{
	size_t i, n = j->source.noptions;

	j->options = n ? calloc(n, sizeof(*j->options)) : NULL;
	if (n && !j->options) {
		*ok = false;
		return;
	}
	for (i = 0; i < n; i++)
		j->options[i] = text_copy(j->source.options[i], ok);
	j->source.options = j->options;
}

/* A fatbin's length is in its header; what has none is what fdry_devcode_init() takes without a copy. */
static void data_copy(struct job *j, bool *ok)
{
	if (!j->source.len)
		return;
	j->data = malloc(j->source.len);
	if (!j->data) {
		*ok = false;
		return;
	}
	memcpy(j->data, j->source.data, j->source.len);
	j->source.data = j->data;
}

static int job_check(const struct fdry_kernels_source *s)
{
	if (!s->data || s->len > FDRY_KERNEL_TEXT_MAX)
		return fdry_fail(FDRY_E_INVAL, "a source to prepare has no bytes, or more than %u", FDRY_KERNEL_TEXT_MAX);
	if (s->noptions > FDRY_KERNEL_OPTIONS_MAX || (s->noptions && !s->options))
		return fdry_fail(FDRY_E_INVAL, "a source to prepare has %zu options; %u are allowed", s->noptions, FDRY_KERNEL_OPTIONS_MAX);
	return 0;
}

static int job_new(const struct fdry_kernels_request *ask, struct job **ret)
{
	struct job *j = calloc(1, sizeof(*j));
	bool ok = true;
	int err = j ? fdry_need(ask->source) : fdry_nomem();

	if (!err)
		err = fdry_opts_take(ask->source, &j->source, sizeof(j->source));
	if (!err)
		err = job_check(&j->source);
	if (err) {
		free(j);
		return err;
	}
	j->source.sz = sizeof(j->source);
	j->entry = text_copy(ask->entry, &ok);
	j->name = text_copy(j->source.name, &ok);
	j->target = text_copy(j->source.target, &ok);
	j->version = text_copy(j->source.version, &ok);
	j->source.name = j->name;
	j->source.target = j->target;
	j->source.version = j->version;
	options_copy(j, &ok);
	data_copy(j, &ok);
	if (!ok) {
		job_free(j);
		return fdry_nomem();
	}
	*ret = j;
	return 0;
}

/* --- working --- */

/* Do what there is; with the lock, which is given up meanwhile. */
static void work(struct fdry_kernels_workers *c)
{
	CUfunction func;
	struct job *j;
	int err;

	c->working++;
	while ((j = c->first)) {
		c->first = j->next;
		if (!c->first)
			c->last = &c->first;
		pthread_mutex_unlock(&c->lock);
		err = fdry_kernels_function(c->k, &j->source, j->entry, &func);
		job_free(j);
		pthread_mutex_lock(&c->lock);
		if (err && !c->saved_err.err)
			fdry_saved_err_set(&c->saved_err, err);
	}
	if (!--c->working)
		pthread_cond_broadcast(&c->idle);
}

static void *worker(void *arg)
{
	struct fdry_kernels_workers *c = arg;

	pthread_mutex_lock(&c->lock);
	work(c);
	c->running--;
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* Those that have ended make room; with the lock, and nobody running. */
static void threads_join(struct fdry_kernels_workers *c)
{
	while (c->nthreads)
		pthread_join(c->threads[--c->nthreads], NULL);
}

/* With the lock. */
static void threads_start(struct fdry_kernels_workers *c, unsigned int want)
{
	if (!c->running)
		threads_join(c);
	for (; c->running < want && c->nthreads < THREADS_MAX; c->running++)
		if (!fdry_thread_start(&c->threads[c->nthreads], "fdry-compile", worker, c))
			return;
		else
			c->nthreads++;
}

/* --- the crew --- */

static int crew_need(struct fdry_kernels *k, struct fdry_kernels_workers **ret)
{
	struct fdry_kernels_workers *c;
	int err = 0;

	pthread_mutex_lock(&k->setup_lock);
	if (!k->crew) {
		c = calloc(1, sizeof(*c));
		if (c) {
			c->k = k;
			c->last = &c->first;
			pthread_mutex_init(&c->lock, NULL);
			pthread_cond_init(&c->idle, NULL);
		}
		k->crew = c;
	}
	*ret = k->crew;
	if (!k->crew)
		err = fdry_nomem();
	pthread_mutex_unlock(&k->setup_lock);
	return err;
}

static struct fdry_kernels_workers *crew_peek(struct fdry_kernels *k)
{
	struct fdry_kernels_workers *c;

	pthread_mutex_lock(&k->setup_lock);
	c = k->crew;
	pthread_mutex_unlock(&k->setup_lock);
	return c;
}

static int jobs_make(const struct fdry_kernels_request *asks, size_t count, struct job **first, struct job ***last)
{
	size_t i;
	int err = 0;

	*last = first;
	for (i = 0; i < count && !err; i++) {
		err = job_new(&asks[i], *last);
		if (!err)
			*last = &(**last)->next;
	}
	return err;
}

int fdry_kernels_prepare(struct fdry_kernels *k, const struct fdry_kernels_request *asks, size_t count, uint32_t threads)
{
	struct job *first = NULL, **last;
	struct fdry_kernels_workers *c;
	int err = fdry_kernels_check(k);

	if (!err && count)
		err = fdry_need(asks);
	if (!err)
		err = crew_need(k, &c);
	if (!err)
		err = jobs_make(asks, count, &first, &last);
	if (err || !count) {
		jobs_free(first);
		return err;
	}
	if (!threads)
		threads = fdry_cores();
	if (threads > count)
		threads = (uint32_t)count;
	pthread_mutex_lock(&c->lock);
	*c->last = first;
	c->last = last;
	threads_start(c, threads);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

int fdry_kernels_wait(struct fdry_kernels *k)
{
	struct fdry_saved_err saved_err = { .err = 0 };
	struct fdry_kernels_workers *c;
	int err = fdry_kernels_check(k);

	if (err)
		return err;
	c = crew_peek(k);
	if (!c)
		return 0;
	pthread_mutex_lock(&c->lock);
	work(c);
	while (c->first || c->working)
		pthread_cond_wait(&c->idle, &c->lock);
	saved_err = c->saved_err;
	c->saved_err.err = 0;
	pthread_mutex_unlock(&c->lock);
	return fdry_saved_err_restore(&saved_err);
}

void fdry_kernels_workers_free(struct fdry_kernels *k)
{
	struct fdry_kernels_workers *c = k->crew;
	struct job *left;

	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	left = c->first;
	c->first = NULL;
	c->last = &c->first;
	pthread_mutex_unlock(&c->lock);
	threads_join(c); /* nobody calls any more, so that nothing else starts one */
	jobs_free(left);
	pthread_cond_destroy(&c->idle);
	pthread_mutex_destroy(&c->lock);
	free(c);
	k->crew = NULL;
}
