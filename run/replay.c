// SPDX-License-Identifier: Apache-2.0
/*
 * replay.c - checks a table, launches its slots, and waits for their launches; see slots.h.
 *
 * A slot has an event for each stream on which it was ever launched, recorded after the last launch
 * there. A thread that empties the slot waits for these events. It makes no call with the streams,
 * because the driver crashes if they were destroyed. Launches of one executable graph end in their
 * order, so the last one on a stream is enough.
 */
#include <stdlib.h>

#include "lib/opts.h"
#include "foundry/image.h"
#include "run/slots.h"
#include "lib/live.h"
#include "lib/log.h"
#include "arch/stream.h"

/* --- checks: a forked child cannot use its copy of a table --- */

/* The number of calls of users' functions that this thread is in. */
static _Thread_local unsigned int inside;

static atomic_uint forks;
static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

static void forked(void)
{
	atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void forks_watch(void)
{
	(void)pthread_atfork(NULL, NULL, forked);
}

unsigned int fdry_slots_forks(void)
{
	(void)pthread_once(&forks_once, forks_watch);
	return atomic_load_explicit(&forks, memory_order_relaxed);
}

int fdry_slots_check(const struct fdry_slots *t)
{
	int err = fdry_need(t) ?: fdry_live_check(t, "the table of slots");

	if (err)
		return err;
	if (t->forks != atomic_load_explicit(&forks, memory_order_relaxed))
		return fdry_fail(FDRY_E_FORKED,
				 "the table was made before fork(), and CUDA does not work in the "
				 "child; use it in the process that made it");
	return 0;
}

int fdry_slots_check_outside(const struct fdry_slots *t)
{
	int err = fdry_slots_check(t);

	if (err)
		return err;
	if (inside)
		return fdry_fail(FDRY_E_STATE,
				 "this call waits for replays to end, and a replay is calling it "
				 "through a profiling or logging function; call it elsewhere");
	return 0;
}

/* --- streams of launches --- */

/* Identifies the thread, since default streams of all threads have one handle. */
static const void *thread_of(CUstream stream)
{
	static _Thread_local char here;

	return stream == CU_STREAM_PER_THREAD ? &here : NULL;
}

/* A stream captures also if its work waits for a capturing stream. */
static bool is_capturing(const struct fdry_slots *t, CUstream stream)
{
	CUstreamCaptureStatus status;

	return fdry_call_raw(t->drv, cuStreamIsCapturing, stream, &status) ||
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static int stream_note(const struct fdry_slots *t, struct fdry_slot *slot, CUstream stream,
		       struct fdry_slot_stream **ret)
{
	struct fdry_slot_stream *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return fdry_nomem();
	err = fdry_call(t->drv, cuEventCreate, &s->done, CU_EVENT_DISABLE_TIMING);
	if (err) {
		free(s);
		return err;
	}
	s->stream = stream;
	s->thread = thread_of(stream);
	s->next = atomic_load_explicit(&slot->streams, memory_order_relaxed);
	/* The release makes the contents of @s visible to readers of the list. */
	while (!atomic_compare_exchange_weak_explicit(&slot->streams, &s->next, s,
						      memory_order_release, memory_order_relaxed))
		;
	*ret = s;
	return 0;
}

static int slot_note(const struct fdry_slots *t, struct fdry_slot *slot, CUstream stream,
		     struct fdry_slot_stream **ret)
{
	struct fdry_slot_stream *s = atomic_load_explicit(&slot->streams, memory_order_acquire);

	if (is_capturing(t, stream))
		return fdry_fail(FDRY_E_STATE,
				 "the stream is capturing, or was destroyed; a capture cannot "
				 "contain a replay: use another stream, or end the capture");
	for (; s; s = s->next) {
		if (s->stream == stream && s->thread == thread_of(stream)) {
			*ret = s;
			return 0;
		}
	}
	return stream_note(t, slot, stream, ret);
}

/* Record the event after a launch. If that fails, the wait is for the whole context. */
static void launch_mark(const struct fdry_slots *t, struct fdry_slot_stream *s)
{
	if (fdry_call_raw(t->drv, cuEventRecord, s->done, s->stream))
		atomic_store_explicit(&s->lost, true, memory_order_relaxed);
}

void fdry_slot_wait(const struct fdry_slots *t, struct fdry_slot *slot)
{
	struct fdry_slot_stream *s = atomic_load_explicit(&slot->streams, memory_order_acquire);
	bool lost = false;

	for (; s; s = s->next) {
		lost = lost || atomic_load_explicit(&s->lost, memory_order_relaxed);
		fdry_count(FDRY_METRIC_SYNCS, 1);
		if (fdry_call_raw(t->drv, cuEventSynchronize, s->done))
			fdry_info("slot %llu: a launch ended with an error",
				  (unsigned long long)slot->key);
		(void)fdry_call_raw(t->drv, cuEventDestroy_v2, s->done);
	}
	if (lost && fdry_call_raw(t->drv, cuCtxSynchronize))
		fdry_info("slot %llu: the context ended with an error",
			  (unsigned long long)slot->key);
}

/* --- the context --- */

struct entered {
	CUstreamCaptureMode mode;
	bool pushed;
};

/* A launch does not break a capture of another thread. So if the context is current already,
 * neither the context nor the capture mode needs to change. */
static int context_enter(const struct fdry_slots *t, struct entered *e)
{
	CUcontext ctx;
	int err;

	e->pushed = false;
	if (!t->upload && !t->sync && !fdry_call_raw(t->drv, cuCtxGetCurrent, &ctx) &&
	    ctx == t->ctx)
		return 0;
	err = fdry_driver_enter(t->drv, t->ctx, &e->mode);
	e->pushed = !err;
	return err;
}

static void context_leave(const struct fdry_slots *t, struct entered *e)
{
	if (e->pushed)
		fdry_driver_leave(t->drv, &e->mode);
}

/* --- replay --- */

/* A replay's times: all zero if profiling is off. */
struct timer {
	bool on;
	uint64_t start, mark;
	struct fdry_slots_call call;
};

static void timer_start(const struct fdry_slots *t, struct timer *c, uint64_t key)
{
	c->on = atomic_load_explicit(&t->profile, memory_order_relaxed);
	if (!c->on)
		return;
	c->call = (struct fdry_slots_call){ .key = key };
	c->start = c->mark = fdry_profile_now();
}

static void timer_elapsed(struct timer *c, uint64_t *ns)
{
	uint64_t now;

	if (!c->on)
		return;
	now = fdry_profile_now();
	if (ns)
		*ns = now - c->mark;
	c->mark = now;
}

/* An image counts its launches itself. */
static int exec_launch(const struct fdry_slots *t, const struct fdry_slot *slot, CUstream stream)
{
	int err;

	if (!slot->exec)
		return fdry_image_launch(slot->img, slot->img_key, stream);
	fdry_stream_note_launch();
	err = fdry_call(t->drv, cuGraphLaunch, slot->exec, stream);
	if (err)
		return err;
	fdry_count(FDRY_METRIC_LAUNCHES_CAPTURED, 1);
	return 0;
}

static int slot_launch(const struct fdry_slots *t, struct fdry_slot *slot, CUstream stream,
		       struct timer *c)
{
	struct fdry_slot_stream *s;
	int err = slot_note(t, slot, stream, &s);

	timer_elapsed(c, NULL);
	if (err)
		return err;
	if (t->upload && slot->exec) {
		err = fdry_call(t->drv, cuGraphUpload, slot->exec, stream);
		if (err)
			return err;
		timer_elapsed(c, &c->call.upload_ns);
	}
	err = exec_launch(t, slot, stream);
	if (!err)
		launch_mark(t, s);
	timer_elapsed(c, &c->call.launch_ns);
	return err;
}

/* The slot cannot be destroyed while this thread is a reader, so not before the launch is on its
 * stream. The thread waits for the launch when it is no reader any more, because a thread that
 * empties another slot waits for all readers. */
static int key_launch(struct fdry_slots *t, uint64_t key, CUstream stream, struct timer *c,
		      int *found)
{
	_Atomic uint64_t *in = fdry_rcu_enter(&t->readers);
	struct fdry_slot *slot = fdry_slot_map_find(atomic_load(&t->map), key);
	struct entered e;
	int err = 0;

	*found = slot != NULL;
	if (!slot)
		goto out_leave;
	err = context_enter(t, &e);
	if (err)
		goto out_leave;
	err = slot_launch(t, slot, stream, c);
	context_leave(t, &e);
out_leave:
	fdry_rcu_leave(in);
	return err;
}

static int stream_sync(const struct fdry_slots *t, CUstream stream, struct timer *c)
{
	struct entered e;
	int err = context_enter(t, &e);

	if (err)
		return err;
	timer_elapsed(c, NULL);
	err = fdry_stream_wait(t->drv, stream);
	timer_elapsed(c, &c->call.sync_ns);
	context_leave(t, &e);
	return err;
}

/* Another thread may have turned profiling off or on since the start. */
static void timer_stop(struct fdry_slots *t, struct timer *c)
{
	_Atomic uint64_t *in;
	struct fdry_profile *profile;

	c->call.total_ns = fdry_profile_now() - c->start;
	in = fdry_rcu_enter(&t->readers);
	profile = atomic_load(&t->profile);
	inside++;
	if (profile)
		fdry_profile_add(profile, &c->call);
	inside--;
	fdry_rcu_leave(in);
}

int fdry_slots_replay(struct fdry_slots *t, uint64_t key, CUstream stream, int *launched)
{
	struct timer c;
	int found = 0, err = fdry_slots_check(t);

	if (err)
		return err;
	err = fdry_need(launched);
	if (err)
		return err;
	timer_start(t, &c, key);
	err = key_launch(t, key, stream, &c, &found);
	if (!err && found && t->sync)
		err = stream_sync(t, stream, &c);
	if (err)
		return fdry_fail_at(err, "slot %llu", (unsigned long long)key);
	if (found && c.on)
		timer_stop(t, &c);
	*launched = found;
	return 0;
}

/* --- queries --- */

int fdry_slots_has(struct fdry_slots *t, uint64_t key)
{
	_Atomic uint64_t *in;
	int found;

	if (fdry_slots_check(t))
		return 0;
	in = fdry_rcu_enter(&t->readers);
	found = fdry_slot_map_find(atomic_load(&t->map), key) != NULL;
	fdry_rcu_leave(in);
	return found;
}

int fdry_slots_keys(struct fdry_slots *t, uint64_t *keys, size_t capacity, size_t *count)
{
	const struct fdry_slot_map *map;
	_Atomic uint64_t *in;
	size_t i, n = 0;
	int err = fdry_slots_check(t) ?: fdry_need(count);

	if (err)
		return err;
	in = fdry_rcu_enter(&t->readers);
	map = atomic_load(&t->map);
	for (i = 0; keys && i < fdry_slot_map_places(map) && n < capacity; i++)
		if (map->places[i])
			keys[n++] = map->places[i]->key;
	*count = map->count;
	fdry_rcu_leave(in);
	return 0;
}

/* --- profiling --- */

int fdry_slots_profile(struct fdry_slots *t, const struct fdry_slots_profile_opts *opts)
{
	struct fdry_slots_profile_opts o;
	struct fdry_profile *profile = NULL, *old;
	int err = fdry_slots_check_outside(t);

	if (err)
		return err;
	err = fdry_opts_take(opts, &o, sizeof(o));
	if (err)
		return err;
	if (opts)
		err = fdry_profile_new(&o, &profile);
	if (err)
		return err;
	pthread_mutex_lock(&t->lock);
	old = atomic_exchange(&t->profile, profile);
	fdry_rcu_wait(&t->readers);
	pthread_mutex_unlock(&t->lock);
	fdry_profile_free(old);
	return 0;
}

static int profile_do(struct fdry_slots *t,
		      void (*fn)(struct fdry_profile *, struct fdry_slots_stats *),
		      struct fdry_slots_stats *times)
{
	_Atomic uint64_t *in;
	struct fdry_profile *profile;
	int err = fdry_slots_check(t);

	if (err)
		return err;
	in = fdry_rcu_enter(&t->readers);
	profile = atomic_load(&t->profile);
	if (profile)
		fn(profile, times);
	else
		err = fdry_fail(
			FDRY_E_STATE,
			"replays of this table are not timed; call fdry_slots_profile() first");
	fdry_rcu_leave(in);
	return err;
}

int fdry_slots_stats(struct fdry_slots *t, struct fdry_slots_stats *ret)
{
	struct fdry_slots_stats times = { .sz = sizeof(times) };
	int err = fdry_need(ret) ?: fdry_report_check(ret);

	if (err)
		return err;
	err = profile_do(t, fdry_profile_read, &times);
	if (err)
		return err;
	return fdry_report_give(&times, sizeof(times), ret);
}

int fdry_slots_stats_reset(struct fdry_slots *t)
{
	return profile_do(t, fdry_profile_reset, NULL);
}
