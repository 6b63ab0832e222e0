// SPDX-License-Identifier: Apache-2.0
/*
 * stream.c - streams: queues of operations, each with a thread.
 *
 * An operation starts when the one before it in its stream has run and its fences are done: those
 * of the events that it waits for, and those of the ordering with the legacy stream. An operation
 * of the legacy stream waits for all submitted work of the blocking streams of its context, and
 * their later work waits for it.
 *
 * A destroyed stream has no handle, but stays in the list until its thread has run all submitted
 * work.
 */
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arch/sim/sim.h"

struct sim_task {
	struct sim_task *next;
	struct sim_op op;
	struct sim_fence *done;
	struct sim_fence **before; /* held */
	size_t nbefore;
};

struct fences {
	struct sim_fence **list; /* held */
	size_t count;
};

static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static struct sim_stream *streams;
static unsigned long long next_nr = 1;

struct sim_fence *sim_fence_new(void)
{
	struct sim_fence *f = calloc(1, sizeof(*f));

	if (f)
		f->refs = 1;
	return f;
}

struct sim_fence *sim_fence_get(struct sim_fence *f)
{
	f->refs++;
	return f;
}

void sim_fence_put(struct sim_fence *f)
{
	if (f && !--f->refs)
		free(f);
}

void sim_fence_signal(struct sim_fence *f)
{
	f->done = true;
	clock_gettime(CLOCK_MONOTONIC, &f->when);
	pthread_cond_broadcast(&progress);
}

void sim_fence_wait(struct sim_fence *f)
{
	while (!f->done)
		pthread_cond_wait(&progress, sim_mutex());
}

static void fences_release(struct fences *fs)
{
	while (fs->count)
		sim_fence_put(fs->list[--fs->count]);
	free(fs->list);
	fs->list = NULL;
}

static void fences_wait(struct fences *fs)
{
	size_t i;

	for (i = 0; i < fs->count; i++)
		sim_fence_wait(fs->list[i]);
	fences_release(fs);
}

/* Allocate a list for every stream's tail and one more. */
static CUresult fences_init(struct fences *fs)
{
	const struct sim_stream *s;
	size_t n = 1;

	for (s = streams; s; s = s->next)
		n++;
	fs->count = 0;
	fs->list = calloc(n, sizeof(*fs->list));
	return fs->list ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void fences_add(struct fences *fs, struct sim_fence *f)
{
	if (f && !f->done)
		fs->list[fs->count++] = sim_fence_get(f);
}

/* The fences of other streams that new work on @s must wait for. */
static CUresult fences_before(const struct sim_stream *s, struct fences *ret)
{
	const struct sim_stream *t;

	SIM_TRY(fences_init(ret));
	if (!sim_stream_blocking(s))
		return CUDA_SUCCESS;
	for (t = streams; t; t = t->next)
		if (t != s && t->ctx == s->ctx && sim_stream_blocking(t) &&
		    (s == s->ctx->legacy || t == s->ctx->legacy))
			fences_add(ret, t->tail);
	return CUDA_SUCCESS;
}

static void stream_release(struct sim_obj *obj)
{
	struct sim_stream *s = (struct sim_stream *)obj;
	struct sim_stream **link;

	for (link = &streams; *link != s; link = &(*link)->next)
		;
	*link = s->next;
	sim_fence_put(s->tail);
	sim_obj_put(&s->ctx->obj);
	pthread_cond_destroy(&s->work);
	free(s);
}

static void task_free(struct sim_task *t)
{
	struct fences before = { t->before, t->nbefore };

	fences_release(&before);
	sim_fence_put(t->done);
	sim_op_release(&t->op);
	free(t);
}

/* Run a task, unless the context is broken. */
static void task_run(struct sim_stream *s, struct sim_task *t)
{
	CUresult res = s->ctx->error;
	size_t i;

	for (i = 0; i < t->nbefore; i++)
		sim_fence_wait(t->before[i]);
	if (!res) {
		sim_unlock();
		res = sim_op_run(&t->op, s->ctx);
		sim_lock();
	}
	if (res)
		sim_ctx_break(s->ctx, res);
	if (t->op.kind == SIM_OP_EVENT_RECORD && t->op.event.fence && !t->op.event.fence->done)
		sim_fence_signal(t->op.event.fence);
	sim_fence_signal(t->done);
}

static void *stream_thread(void *arg)
{
	struct sim_stream *s = arg;
	struct sim_task *t;

	sim_lock();
	for (;;) {
		while (!s->first && !s->stopping)
			pthread_cond_wait(&s->work, sim_mutex());
		t = s->first;
		if (!t)
			break;
		s->first = t->next;
		if (!s->first)
			s->last = &s->first;
		task_run(s, t);
		task_free(t);
	}
	sim_obj_put(&s->obj);
	sim_unlock();
	return NULL;
}

static CUresult stream_start(struct sim_stream *s)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	if (s->started)
		return CUDA_SUCCESS;
	if (pthread_attr_init(&attr))
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sim_obj_get(&s->obj);
	err = pthread_create(&thread, &attr, stream_thread, s);
	pthread_attr_destroy(&attr);
	if (err) {
		sim_obj_put(&s->obj);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	s->started = true;
	return CUDA_SUCCESS;
}

static CUresult stream_new(struct sim_ctx *ctx, unsigned int flags, int priority,
			   struct sim_stream **ret)
{
	struct sim_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (pthread_cond_init(&s->work, NULL)) {
		free(s);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	s->obj.refs = 1;
	s->obj.release = stream_release;
	s->ctx = ctx;
	sim_obj_get(&ctx->obj);
	s->flags = flags;
	s->priority = priority;
	s->nr = next_nr++;
	s->last = &s->first;
	s->next = streams;
	streams = s;
	*ret = s;
	return CUDA_SUCCESS;
}

/* Accept no more work: the thread ends after it has run all submitted work. */
static void stream_stop(struct sim_stream *s)
{
	s->stopping = true;
	pthread_cond_signal(&s->work);
	if (s->obj.id)
		sim_obj_close(&s->obj);
	else
		sim_obj_put(&s->obj);
}

/* The legacy stream has no handle, so it is not counted as one. */
CUresult sim_ctx_streams_init(struct sim_ctx *ctx)
{
	return stream_new(ctx, CU_STREAM_DEFAULT, 0, &ctx->legacy);
}

void sim_ctx_streams_release(struct sim_ctx *ctx)
{
	struct sim_stream *s, *next;

	for (s = streams; s; s = next) {
		next = s->next;
		if (s->ctx != ctx || s->stopping)
			continue;
		sim_capture_stream_gone(s);
		stream_stop(s);
	}
	ctx->legacy = NULL;
}

/* glibc has gettid() since 2.30 only. */
static pid_t thread_id(void)
{
	return (pid_t)syscall(SYS_gettid);
}

/* This thread's own default stream in @ctx, created at the first call. */
static CUresult stream_per_thread(struct sim_ctx *ctx, struct sim_stream **ret)
{
	struct sim_stream *s;

	for (s = streams; s; s = s->next)
		if (s->per_thread == thread_id() && s->ctx == ctx && !s->stopping) {
			*ret = s;
			return CUDA_SUCCESS;
		}
	SIM_TRY(stream_new(ctx, CU_STREAM_DEFAULT, 0, ret));
	(*ret)->per_thread = thread_id();
	return CUDA_SUCCESS;
}

CUresult sim_stream_find(CUstream handle, struct sim_stream **ret)
{
	struct sim_ctx *ctx;
	struct sim_stream *s;

	if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
		SIM_TRY(sim_ctx_current(&ctx));
		if (handle == CU_STREAM_PER_THREAD)
			return stream_per_thread(ctx, ret);
		*ret = ctx->legacy;
		return CUDA_SUCCESS;
	}
	s = sim_find(handle, SIM_STREAM);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (s->ctx->error)
		return s->ctx->error;
	*ret = s;
	return CUDA_SUCCESS;
}

static CUresult task_new(struct sim_stream *s, struct sim_op *op, struct sim_task **ret)
{
	struct sim_task *t = calloc(1, sizeof(*t));
	struct fences before;

	if (!t)
		return CUDA_ERROR_OUT_OF_MEMORY;
	t->done = sim_fence_new();
	if (!t->done || fences_before(s, &before))
		goto out_free;
	t->before = before.list;
	t->nbefore = before.count;
	if (op->kind == SIM_OP_EVENT_RECORD && !op->event.fence)
		op->event.fence = sim_event_arm(op->event.event);
	if (op->kind == SIM_OP_EVENT_RECORD && !op->event.fence)
		goto out_free;
	t->op = *op;
	op->kind = SIM_OP_NONE;
	*ret = t;
	return CUDA_SUCCESS;

out_free:
	task_free(t);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult submit(struct sim_stream *s, struct sim_op *op, struct sim_fence **done)
{
	struct sim_task *t;

	if (s == s->ctx->legacy)
		SIM_TRY(sim_capture_legacy(s->ctx));
	if (s->ctx->error)
		return s->ctx->error;
	SIM_TRY(stream_start(s));
	SIM_TRY(task_new(s, op, &t));
	*s->last = t;
	s->last = &t->next;
	sim_fence_put(s->tail);
	s->tail = sim_fence_get(t->done);
	if (done)
		*done = sim_fence_get(t->done);
	pthread_cond_signal(&s->work);
	return CUDA_SUCCESS;
}

CUresult sim_stream_submit(struct sim_stream *s, struct sim_op *op, struct sim_fence **done)
{
	CUresult res;

	if (done)
		*done = NULL;
	if (s->capture)
		return sim_capture_op(s, op);
	if (op->kind == SIM_OP_EVENT_WAIT && !op->event.fence && op->event.event->fence)
		op->event.fence = sim_fence_get(op->event.event->fence);
	res = submit(s, op, done);
	sim_op_release(op);
	return res;
}

CUresult sim_stream_wait(struct sim_stream *s)
{
	struct sim_ctx *ctx = s->ctx;
	struct fences fs;
	CUresult res;

	SIM_TRY(fences_before(s, &fs));
	fences_add(&fs, s->tail);
	sim_obj_get(&ctx->obj);
	fences_wait(&fs);
	res = ctx->error;
	sim_obj_put(&ctx->obj);
	return res;
}

/* Wait for the tails of the streams of one context, or (NULL) of all. */
static CUresult tails_wait(const struct sim_ctx *ctx)
{
	const struct sim_stream *s;
	struct fences fs;

	SIM_TRY(fences_init(&fs));
	for (s = streams; s; s = s->next)
		if (!ctx || s->ctx == ctx)
			fences_add(&fs, s->tail);
	fences_wait(&fs);
	return CUDA_SUCCESS;
}

CUresult sim_ctx_wait(struct sim_ctx *ctx)
{
	CUresult res;

	sim_obj_get(&ctx->obj);
	res = tails_wait(ctx);
	if (!res)
		res = ctx->error;
	sim_obj_put(&ctx->obj);
	return res;
}

CUresult sim_device_wait(void)
{
	return tails_wait(NULL);
}

static CUresult stream_create(CUstream *ret, unsigned int flags, int priority)
{
	struct sim_stream *s;
	struct sim_ctx *ctx;
	CUresult res;

	if (!ret || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	if (priority > SIM_PRIORITY_LEAST)
		priority = SIM_PRIORITY_LEAST;
	if (priority < SIM_PRIORITY_GREATEST)
		priority = SIM_PRIORITY_GREATEST;
	SIM_TRY(stream_new(ctx, flags, priority, &s));
	res = sim_obj_open(&s->obj, SIM_STREAM, stream_release);
	if (res)
		sim_obj_put(&s->obj);
	else
		*ret = SIM_HANDLE(CUstream, s);
	return res;
}

CUresult cuStreamCreate(CUstream *ret, unsigned int flags)
{
	SIM_ENTER(cuStreamCreate);
	return stream_create(ret, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *ret, unsigned int flags, int priority)
{
	SIM_ENTER(cuStreamCreateWithPriority);
	return stream_create(ret, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
	struct sim_stream *s;

	SIM_ENTER(cuStreamDestroy_v2);
	s = sim_find(handle, SIM_STREAM);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	sim_capture_stream_gone(s);
	stream_stop(s);
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle)
{
	struct sim_stream *s;

	SIM_ENTER(cuStreamSynchronize);
	SIM_TRY(sim_stream_find(handle, &s));
	if (s->capture)
		return sim_capture_sync(s);
	if (s == s->ctx->legacy)
		SIM_TRY(sim_capture_legacy(s->ctx));
	return sim_stream_wait(s);
}

CUresult cuStreamQuery(CUstream handle)
{
	struct sim_stream *s;
	struct fences fs;
	bool busy;

	SIM_ENTER(cuStreamQuery);
	SIM_TRY(sim_stream_find(handle, &s));
	if (s->capture)
		return sim_capture_sync(s);
	if (s == s->ctx->legacy)
		SIM_TRY(sim_capture_legacy(s->ctx));
	SIM_TRY(fences_before(s, &fs));
	fences_add(&fs, s->tail);
	busy = fs.count > 0;
	fences_release(&fs);
	return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *ret)
{
	struct sim_stream *s;

	SIM_ENTER(cuStreamGetCtx);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_find(handle, &s));
	*ret = (CUcontext)(uintptr_t)s->ctx->handle;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *ret, CUgreenCtx *green)
{
	struct sim_stream *s;

	SIM_ENTER(cuStreamGetCtx_v2);
	if (!ret || !green)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_find(handle, &s));
	*ret = (CUcontext)(uintptr_t)s->ctx->handle;
	*green = NULL;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
	struct sim_stream *s;

	SIM_ENTER(cuStreamGetFlags);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_find(handle, &s));
	*flags = s->flags;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
	struct sim_stream *s;

	SIM_ENTER(cuStreamGetPriority);
	if (!priority)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_find(handle, &s));
	*priority = s->priority;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
	struct sim_stream *s;

	SIM_ENTER(cuStreamGetId);
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_find(handle, &s));
	if (s->capture)
		return sim_capture_sync(s); /* as observed on the real driver */
	SIM_TRY(sim_unsafe());
	*id = s->nr;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *dev)
{
	struct sim_stream *s;

	SIM_ENTER(cuStreamGetDevice);
	if (!dev)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_find(handle, &s));
	*dev = s->ctx->dev;
	return CUDA_SUCCESS;
}

static CUresult callback_submit(CUstream handle, struct sim_op *op)
{
	struct sim_stream *s;

	SIM_TRY(sim_stream_find(handle, &s));
	return sim_stream_submit(s, op, NULL);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *data)
{
	struct sim_op op = { .kind = SIM_OP_HOST, .host = { .fn = fn, .userData = data } };

	SIM_ENTER(cuLaunchHostFunc);
	return fn ? callback_submit(handle, &op) : CUDA_ERROR_INVALID_VALUE;
}
