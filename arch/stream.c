// SPDX-License-Identifier: Apache-2.0
/*
 * stream.c - see stream.h.
 *
 * Contexts are told apart by the number that the driver gives each, since handles of those
 * that are gone come again. What is remembered of a context that is gone is a few bytes,
 * and is used for the next one.
 */
#include "arch/stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct shared {
	struct shared *next;
	const struct fdry_driver *drv;
	CUcontext ctx;
	pid_t pid;
	unsigned long long id; /* of the context */
	CUstream streams[FDRY_STREAM_USES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *all;

/* A context at the same place as one that is gone takes its entry over. */
static struct shared *entry_of(const struct fdry_driver *drv, CUcontext ctx, unsigned long long id)
{
	struct shared *s;

	for (s = all; s && (s->drv != drv || s->ctx != ctx); s = s->next)
		;
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return NULL;
		s->next = all;
		all = s;
	}
	if (s->drv != drv || s->id != id || s->pid != getpid())
		*s = (struct shared){ .next = s->next, .drv = drv, .ctx = ctx, .pid = getpid(), .id = id };
	return s;
}

static int stream_of(const struct fdry_driver *drv, CUcontext ctx, enum fdry_stream_use use, CUstream *ret)
{
	unsigned long long id;
	struct shared *s;
	int err = fdry_call(drv, cuCtxGetId, ctx, &id);

	if (err)
		return err;
	s = entry_of(drv, ctx, id);
	if (!s)
		return fdry_nomem();
	if (!s->streams[use])
		err = fdry_call(drv, cuStreamCreate, &s->streams[use], CU_STREAM_NON_BLOCKING);
	if (!err)
		*ret = s->streams[use];
	return err;
}

int fdry_stream_shared(const struct fdry_driver *drv, enum fdry_stream_use use, CUstream *ret)
{
	CUcontext ctx;
	int err = fdry_call(drv, cuCtxGetCurrent, &ctx);

	if (err)
		return err;
	pthread_mutex_lock(&lock);
	err = stream_of(drv, ctx, use, ret);
	pthread_mutex_unlock(&lock);
	return err;
}
