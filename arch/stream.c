// SPDX-License-Identifier: Apache-2.0
/*
 * stream.c - the shared streams of each context; see stream.h.
 *
 * The driver's number identifies a context, since the handle of a destroyed context may be reused.
 * The entry of a context that was destroyed without fdry_stream_forget() takes a few bytes, and the
 * next context with the same handle reuses it.
 */
#include "arch/stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

_Atomic bool fdry_stream_launched;

#define SPARES_MAX 8

struct shared {
	struct shared *next;
	const struct fdry_driver *drv;
	CUcontext ctx;
	pid_t pid;
	unsigned long long id; /* of the context */
	CUstream streams[FDRY_STREAM_USES];
	CUstream spares[SPARES_MAX]; /* not borrowed */
	unsigned int nspares;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *all;

/* The link to the entry of @ctx, or the end of the list. */
static struct shared **entry_at(const struct fdry_driver *drv, CUcontext ctx)
{
	struct shared **p;

	for (p = &all; *p && ((*p)->drv != drv || (*p)->ctx != ctx); p = &(*p)->next)
		;
	return p;
}

/* A new context with the handle of a destroyed one reuses its entry. */
static struct shared *entry_of(const struct fdry_driver *drv, CUcontext ctx, unsigned long long id)
{
	struct shared *s = *entry_at(drv, ctx);

	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return NULL;
		s->next = all;
		all = s;
	}
	if (s->drv != drv || s->id != id || s->pid != getpid())
		*s = (struct shared){
			.next = s->next, .drv = drv, .ctx = ctx, .pid = getpid(), .id = id
		};
	return s;
}

/* Call it with the lock held. */
static int current_entry(const struct fdry_driver *drv, struct shared **ret)
{
	unsigned long long id;
	CUcontext ctx;
	int err = fdry_call(drv, cuCtxGetCurrent, &ctx);

	if (err)
		return err;
	err = fdry_call(drv, cuCtxGetId, ctx, &id);
	if (err)
		return err;
	*ret = entry_of(drv, ctx, id);
	return *ret ? 0 : fdry_nomem();
}

static int stream_of(const struct fdry_driver *drv, enum fdry_stream_use use, CUstream *ret)
{
	struct shared *s;
	int err = current_entry(drv, &s);

	if (err)
		return err;
	if (!s->streams[use])
		err = fdry_call(drv, cuStreamCreate, &s->streams[use], CU_STREAM_NON_BLOCKING);
	if (err)
		return err;
	*ret = s->streams[use];
	return 0;
}

int fdry_stream_shared(const struct fdry_driver *drv, enum fdry_stream_use use, CUstream *ret)
{
	int err;

	pthread_mutex_lock(&lock);
	err = stream_of(drv, use, ret);
	pthread_mutex_unlock(&lock);
	return err;
}

void fdry_stream_forget(const struct fdry_driver *drv, CUcontext ctx)
{
	struct shared **p, *s;

	pthread_mutex_lock(&lock);
	p = entry_at(drv, ctx);
	s = *p;
	if (s)
		*p = s->next;
	pthread_mutex_unlock(&lock);
	free(s);
}

static int spare_get(const struct fdry_driver *drv, CUstream *ret)
{
	struct shared *s;
	int err = current_entry(drv, &s);

	if (err)
		return err;
	if (!s->nspares)
		return fdry_call(drv, cuStreamCreate, ret, CU_STREAM_NON_BLOCKING);
	*ret = s->spares[--s->nspares];
	return 0;
}

int fdry_stream_borrow(const struct fdry_driver *drv, CUstream *ret)
{
	int err;

	pthread_mutex_lock(&lock);
	err = spare_get(drv, ret);
	pthread_mutex_unlock(&lock);
	return err;
}

/* If the current context is unknown, the stream is destroyed. */
void fdry_stream_return(const struct fdry_driver *drv, CUstream stream)
{
	unsigned long long id;
	struct shared *s = NULL;
	CUcontext ctx;

	pthread_mutex_lock(&lock);
	if (!fdry_call_raw(drv, cuCtxGetCurrent, &ctx) && !fdry_call_raw(drv, cuCtxGetId, ctx, &id))
		s = entry_of(drv, ctx, id);
	if (s && s->nspares < SPARES_MAX)
		s->spares[s->nspares++] = stream;
	else
		(void)fdry_call_raw(drv, cuStreamDestroy_v2, stream);
	pthread_mutex_unlock(&lock);
}

int fdry_stream_context(const struct fdry_driver *drv, CUstream stream, CUcontext *ret)
{
	CUresult res = fdry_call_raw(drv, cuStreamGetCtx, stream, ret);

	if (res == CUDA_ERROR_INVALID_HANDLE || res == CUDA_ERROR_INVALID_CONTEXT ||
	    res == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return fdry_fail(FDRY_E_INVAL,
				 "the stream is not alive; it was destroyed, or its context was");
	return fdry_driver_result(drv, FDRY_DRV_cuStreamGetCtx, res);
}

int fdry_stream_is_capturing(const struct fdry_driver *drv, CUstream stream, bool *ret)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	int err = fdry_call(drv, cuStreamIsCapturing, stream, &status);

	*ret = status != CU_STREAM_CAPTURE_STATUS_NONE;
	return err;
}

int fdry_stream_not_capturing(const struct fdry_driver *drv, CUstream stream, const char *what)
{
	bool captures;
	int err = fdry_stream_is_capturing(drv, stream, &captures);

	if (err || !captures)
		return err;
	return fdry_fail(
		FDRY_E_STATE,
		"the stream captures, and %s cannot be part of a capture; use another stream, or "
		"end the capture",
		what);
}
