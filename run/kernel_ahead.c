// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_ahead.c - compiles and loads kernels before a program requests them, in a work queue.
 *
 * Each piece of work is a copy of a request, and fdry_kernels_function() does it. That function
 * repeats nothing that is done already or that another thread is doing.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/opts.h"
#include "run/kernel_cache.h"

struct job {
	struct fdry_work work;
	struct job *next;
	struct fdry_kernels *k;
	struct fdry_kernels_source source;
	char *entry;
	const char **options;
	void *data;
	char *name, *target, *version;
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

static void job_release(struct fdry_work *work)
{
	job_free((struct job *)work); /* work is its first member */
}

static void jobs_free(struct job *j)
{
	struct job *next;

	for (; j; j = next) {
		next = j->next;
		job_free(j);
	}
}

/* NULL stays NULL; *@ok becomes false if there is no memory. */
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

/* Copy the code, unless it has no length, such as a fatbin with its size in its header. */
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
		return fdry_fail(FDRY_E_INVAL, "a source to prepare has no bytes, or more than %u",
				 FDRY_KERNEL_TEXT_MAX);
	if (s->noptions > FDRY_KERNEL_OPTIONS_MAX || (s->noptions && !s->options))
		return fdry_fail(FDRY_E_INVAL,
				 "a source to prepare has %zu options; %u are allowed", s->noptions,
				 FDRY_KERNEL_OPTIONS_MAX);
	return 0;
}

static int job_new(const struct fdry_kernels_request *ask, struct job **ret)
{
	struct job *j = calloc(1, sizeof(*j));
	bool ok = true;
	int err;

	if (!j)
		return fdry_nomem();
	err = fdry_need(ask->source);
	if (err)
		goto out_free;
	err = fdry_opts_take(ask->source, &j->source, sizeof(j->source));
	if (err)
		goto out_free;
	err = job_check(&j->source);
	if (err)
		goto out_free;
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
		err = fdry_nomem();
		goto out_free;
	}
	*ret = j;
	return 0;
out_free:
	job_free(j);
	return err;
}

static int job_compile(struct fdry_work *work, unsigned int worker)
{
	struct job *j = (struct job *)work;
	CUfunction func;

	(void)worker;
	return fdry_kernels_function(j->k, &j->source, j->entry, &func);
}

/* --- the queue --- */

/* The queue of @k, which the first call makes. NULL if there is no memory. */
static struct fdry_workqueue *queue_need(struct fdry_kernels *k)
{
	static const struct fdry_workqueue_opts opts = {
		.name = "fdry-compile", .end_idle = true, .help_all = true, .release = job_release
	};
	struct fdry_workqueue *q;

	pthread_mutex_lock(&k->setup_lock);
	if (!k->ahead) {
		k->ahead = calloc(1, sizeof(*k->ahead));
		if (k->ahead)
			fdry_workqueue_init(k->ahead, &opts);
	}
	q = k->ahead;
	pthread_mutex_unlock(&k->setup_lock);
	return q;
}

/* Copy all requests into a list. */
static int jobs_make(struct fdry_kernels *k, const struct fdry_kernels_request *asks, size_t count,
		     struct job **ret)
{
	struct job *first = NULL, **last = &first;
	size_t i;
	int err;

	for (i = 0; i < count; i++) {
		err = job_new(&asks[i], last);
		if (err) {
			jobs_free(first);
			return err;
		}
		(*last)->work.fn = job_compile;
		(*last)->k = k;
		last = &(*last)->next;
	}
	*ret = first;
	return 0;
}

int fdry_kernels_prepare(struct fdry_kernels *k, const struct fdry_kernels_request *asks,
			 size_t count, uint32_t threads)
{
	struct fdry_workqueue *q;
	struct job *j, *next;
	int err = fdry_kernels_check(k);

	if (err)
		return err;
	if (count)
		err = fdry_need(asks);
	if (err)
		return err;
	q = queue_need(k);
	if (!q)
		return fdry_nomem();
	err = jobs_make(k, asks, count, &j);
	if (err)
		return err;
	for (; j; j = next) {
		next = j->next;
		fdry_workqueue_add(q, &j->work);
	}
	if (!threads)
		threads = fdry_cores();
	fdry_workqueue_start(q, threads < count ? threads : (unsigned int)count);
	return 0;
}

int fdry_kernels_wait(struct fdry_kernels *k)
{
	struct fdry_workqueue *q;
	int err = fdry_kernels_check(k);

	if (err)
		return err;
	pthread_mutex_lock(&k->setup_lock);
	q = k->ahead;
	pthread_mutex_unlock(&k->setup_lock);
	return q ? fdry_workqueue_drain(q) : 0;
}

void fdry_kernels_ahead_free(struct fdry_kernels *k)
{
	if (!k->ahead)
		return;
	fdry_workqueue_release(k->ahead);
	free(k->ahead);
	k->ahead = NULL;
}
