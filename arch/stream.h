/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - the streams that everything of ours in a context shares.
 *
 * A context that has used 15 streams replays graphs 15 % slower for ever, also when those
 * streams are destroyed: seen on driver 580, where eight loads with two streams each were
 * enough. So a context gets one stream of each use, however many images come and go in it,
 * and they go with the context.
 */
#ifndef FDRY_ARCH_STREAM_H
#define FDRY_ARCH_STREAM_H

#include "arch/driver.h"
#include "lib/telemetry.h"

enum fdry_stream_use {
	FDRY_STREAM_MEMORY, /* memory filled, content copied */
	FDRY_STREAM_GRAPHS, /* graphs uploaded; not behind another image's content */
	FDRY_STREAM_USES
};

/**
 * fdry_stream_shared() - The current context's stream for a use.
 * @ret: a non-blocking stream, the same at every call; never destroyed by the caller
 *
 * Whoever waits for it waits for what others in the process put there, too.
 * Errors: those of the driver. Context: any thread with a current context.
 */
int fdry_stream_shared(const struct fdry_driver *drv, enum fdry_stream_use use, CUstream *ret) __must_check;

/* @ctx is about to be destroyed, and its streams with it: nothing is remembered of it. A context that goes without this costs
 * a few bytes, until one comes at its place. */
void fdry_stream_forget(const struct fdry_driver *drv, CUcontext ctx);

/* Wait for a stream or an event, and count that. Errors: those of the driver. */
static inline __must_check int fdry_stream_wait(const struct fdry_driver *drv, CUstream stream)
{
	fdry_count(FDRY_METRIC_SYNCS, 1);
	return fdry_call(drv, cuStreamSynchronize, stream);
}
static inline __must_check int fdry_event_wait(const struct fdry_driver *drv, CUevent event)
{
	fdry_count(FDRY_METRIC_SYNCS, 1);
	return fdry_call(drv, cuEventSynchronize, event);
}

/* The context of a stream; FDRY_E_INVAL where, as far as the driver tells, the stream is not alive. */
int fdry_stream_context(const struct fdry_driver *drv, CUstream stream, CUcontext *ret) __must_check;
int fdry_stream_is_capturing(const struct fdry_driver *drv, CUstream stream, bool *ret) __must_check;
/* FDRY_E_STATE where it captures; @what was to be put on it, for the sentence: "a launch". */
int fdry_stream_not_capturing(const struct fdry_driver *drv, CUstream stream, const char *what) __must_check;

/* The number of a stream, which no other ever gets; a handle comes again at once when its stream is destroyed, while that one's work
 * goes on. The stream does not capture, and the thread's capture mode is relaxed: the question breaks captures (driver 580). */
static inline __must_check int fdry_stream_number(const struct fdry_driver *drv, CUstream stream, unsigned long long *ret)
{
	return fdry_call(drv, cuStreamGetId, stream, ret);
}

/**
 * fdry_stream_borrow() - A stream of the current context for one user at a time.
 * @ret: a non-blocking stream; given back with fdry_stream_return() in the same context
 *
 * What was given back is lent again, so that there are no more than were in use at once.
 */
int fdry_stream_borrow(const struct fdry_driver *drv, CUstream *ret) __must_check;
/* Nothing captures on it. The sentence of the last failure stays. */
void fdry_stream_return(const struct fdry_driver *drv, CUstream stream);

#endif
