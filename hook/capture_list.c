// SPDX-License-Identifier: Apache-2.0
/*
 * capture_list.c - the list of streams that capture now.
 *
 * The list has the stream that began each capture. The per-thread default stream has one handle in
 * all threads, so its captures are listed with their thread.
 *
 * Locking: a lock around the list; threads read the count without it.
 */
#include "hook/internal.h"

#include <pthread.h>
#include <stdlib.h>

struct capture {
	struct capture *next;
	CUstream stream;
	pthread_t owner;
	struct fdry_capture_note note;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static uint64_t count;

static bool is_of(const struct capture *c, CUstream stream)
{
	return c->stream == stream &&
	       (stream != CU_STREAM_PER_THREAD || pthread_equal(c->owner, pthread_self()));
}

bool fdry_capture_add(CUstream stream, const struct fdry_capture_note *note)
{
	struct capture *c;

	if (fdry_start_is_forked())
		return true;
	c = malloc(sizeof(*c));
	if (!c)
		return false;
	c->stream = stream;
	c->owner = pthread_self();
	c->note = *note;
	pthread_mutex_lock(&lock);
	c->next = captures;
	captures = c;
	__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
	return true;
}

bool fdry_capture_remove(CUstream stream, struct fdry_capture_note *ret)
{
	struct capture **p, *c = NULL;
	bool last = false;

	if (fdry_start_is_forked())
		return false;
	pthread_mutex_lock(&lock);
	for (p = &captures; *p; p = &(*p)->next)
		if (is_of(*p, stream)) {
			c = *p;
			*p = c->next;
			*ret = c->note;
			last = !__atomic_sub_fetch(&count, 1, __ATOMIC_RELAXED);
			break;
		}
	pthread_mutex_unlock(&lock);
	free(c);
	return last;
}

uint64_t fdry_capture_count(void)
{
	return __atomic_load_n(&count, __ATOMIC_RELAXED);
}

unsigned int fdry_capture_alloc_flags(void)
{
	return fdry_capture_count() ? FDRY_ALLOC_CAPTURING : 0;
}
