// SPDX-License-Identifier: Apache-2.0
/*
 * event.c - events: each record is a fence of its own, and the event holds the last one.
 *
 * A wait for an event waits for the last record before the wait. Later records and the
 * destruction of the event do not affect it.
 */
#include <stdlib.h>

#include "arch/sim/sim.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

static struct sim_event *events;

static void event_release(struct sim_obj *obj)
{
	struct sim_event *ev = (struct sim_event *)obj;
	struct sim_event **link;

	for (link = &events; *link != ev; link = &(*link)->next)
		;
	*link = ev->next;
	sim_fence_put(ev->fence);
	free(ev);
}

CUresult sim_event_find(CUevent handle, struct sim_event **ret)
{
	struct sim_event *ev = sim_find(handle, SIM_EVENT);

	if (!ev)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret = ev;
	return CUDA_SUCCESS;
}

struct sim_fence *sim_event_arm(struct sim_event *ev)
{
	struct sim_fence *f = sim_fence_new();

	if (!f)
		return NULL;
	sim_fence_put(ev->fence);
	ev->fence = sim_fence_get(f);
	sim_capture_event_gone(ev);
	return f;
}

static void event_close(struct sim_event *ev)
{
	sim_capture_event_gone(ev);
	ev->ctx = NULL;
	sim_obj_close(&ev->obj);
}

void sim_events_release(struct sim_ctx *ctx)
{
	struct sim_event *ev, *next;

	for (ev = events; ev; ev = next) {
		next = ev->next;
		if (ev->ctx == ctx)
			event_close(ev);
	}
}

CUresult cuEventCreate(CUevent *ret, unsigned int flags)
{
	struct sim_event *ev;
	struct sim_ctx *ctx;
	CUresult res;

	SIM_ENTER(cuEventCreate);
	if (!ret || flags & ~(unsigned int)EVENT_FLAGS ||
	    ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	ev = calloc(1, sizeof(*ev));
	if (!ev)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ev->ctx = ctx;
	ev->flags = flags;
	res = sim_obj_open(&ev->obj, SIM_EVENT, event_release);
	if (res) {
		free(ev);
		return res;
	}
	ev->next = events;
	events = ev;
	*ret = SIM_HANDLE(CUevent, ev);
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle)
{
	struct sim_event *ev;

	SIM_ENTER(cuEventDestroy_v2);
	SIM_TRY(sim_event_find(handle, &ev));
	event_close(ev);
	return CUDA_SUCCESS;
}

static CUresult event_submit(enum sim_op_kind kind, struct sim_stream *s, struct sim_event *ev,
			     bool external)
{
	struct sim_op op = { .kind = kind, .event = { .event = ev, .external = external } };

	sim_obj_get(&ev->obj);
	return sim_stream_submit(s, &op, NULL);
}

static CUresult event_record(CUevent event, CUstream stream, bool external)
{
	struct sim_stream *s;
	struct sim_event *ev;

	SIM_TRY(sim_event_find(event, &ev));
	SIM_TRY(sim_stream_find(stream, &s));
	if (ev->ctx != s->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (external && !s->capture)
		return CUDA_ERROR_INVALID_VALUE;
	return event_submit(SIM_OP_EVENT_RECORD, s, ev, external);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	SIM_ENTER(cuEventRecord);
	return event_record(event, stream, false);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	SIM_ENTER(cuEventRecordWithFlags);
	if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	return event_record(event, stream, flags & CU_EVENT_RECORD_EXTERNAL);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	struct sim_stream *s;
	struct sim_event *ev;

	SIM_ENTER(cuStreamWaitEvent);
	if (flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_find(stream, &s));
	SIM_TRY(sim_event_find(event, &ev));
	if (flags && !s->capture)
		return CUDA_ERROR_INVALID_VALUE;
	if (ev->capture && !s->capture)
		return sim_capture_join(s, ev);
	if (!s->capture && !ev->fence)
		return CUDA_SUCCESS;
	return event_submit(SIM_OP_EVENT_WAIT, s, ev, flags & CU_EVENT_WAIT_EXTERNAL);
}

CUresult cuEventQuery(CUevent event)
{
	struct sim_event *ev;

	SIM_ENTER(cuEventQuery);
	SIM_TRY(sim_event_find(event, &ev));
	if (ev->capture)
		return sim_capture_event(ev);
	SIM_TRY(sim_unsafe());
	if (ev->ctx && ev->ctx->error)
		return ev->ctx->error;
	return !ev->fence || ev->fence->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
	struct sim_event *ev;
	struct sim_fence *f;
	CUresult res;

	SIM_ENTER(cuEventSynchronize);
	SIM_TRY(sim_event_find(event, &ev));
	if (ev->capture)
		return sim_capture_event(ev);
	SIM_TRY(sim_unsafe());
	sim_obj_get(&ev->obj);
	if (ev->fence) {
		f = sim_fence_get(ev->fence);
		sim_fence_wait(f);
		sim_fence_put(f);
	}
	res = ev->ctx ? ev->ctx->error : CUDA_SUCCESS;
	sim_obj_put(&ev->obj);
	return res;
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
	struct sim_event *a, *b;

	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_event_find(start, &a));
	SIM_TRY(sim_event_find(end, &b));
	if ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING || !a->fence || !b->fence ||
	    a->ctx != b->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!a->fence->done || !b->fence->done)
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(b->fence->when.tv_sec - a->fence->when.tv_sec) * 1e3 +
		      (double)(b->fence->when.tv_nsec - a->fence->when.tv_nsec) / 1e6);
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	SIM_ENTER(cuEventElapsedTime);
	return elapsed(ms, start, end);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	SIM_ENTER(cuEventElapsedTime_v2);
	return elapsed(ms, start, end);
}
