/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - streams that all images in a context share.
 *
 * On driver 580, a context that has used 15 streams replays graphs 15 % slower for the rest of its
 * life, even after those streams are destroyed; eight loads with two streams each were enough. So a
 * context gets one stream for each use, for any number of images. The streams are destroyed with
 * the context.
 */
#ifndef FDRY_ARCH_STREAM_H
#define FDRY_ARCH_STREAM_H

#include <stdatomic.h>

#include "arch/driver.h"
#include "lib/telemetry.h"

enum fdry_stream_use {
	FDRY_STREAM_MEMORY, /* filling memory, copying content */
	FDRY_STREAM_CHECK,  /* fingerprints of content, beside copies of later content */
	FDRY_STREAM_GRAPHS, /* uploading graphs, without waiting for the content of other images */
	FDRY_STREAM_USES
};

/**
 * fdry_stream_shared() - The current context's stream for a use.
 * @ret: a non-blocking stream, the same at every call; the caller never destroys it
 *
 * Waiting for it also waits for the work of other threads of the process on it.
 * Errors: those of the driver. Context: any thread with a current context.
 */
int fdry_stream_shared(const struct fdry_driver *drv, enum fdry_stream_use use,
		       CUstream *ret) __must_check;

/* Free the entry of @ctx, which the caller is about to destroy together with its streams. Without
 * this call, the entry takes a few bytes until a context with the same handle reuses it. */
void fdry_stream_forget(const struct fdry_driver *drv, CUcontext ctx);

/*
 * Was a graph launched in this process? On driver 580, the first graph that is uploaded after a
 * launch slows down all others of the context by a quarter, until it is launched itself. So graphs
 * of images are uploaded only before the first launch; later ones are uploaded by their own launch.
 * The library cannot see the launches of others.
 */
extern _Atomic bool fdry_stream_launched;

/* Call it before each launch of a graph. */
static inline void fdry_stream_note_launch(void)
{
	if (!atomic_load_explicit(&fdry_stream_launched, memory_order_relaxed))
		atomic_store_explicit(&fdry_stream_launched, true, memory_order_relaxed);
}

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

/* The context of a stream; FDRY_E_INVAL if the driver reports that the stream is not alive. */
int fdry_stream_context(const struct fdry_driver *drv, CUstream stream,
			CUcontext *ret) __must_check;
int fdry_stream_is_capturing(const struct fdry_driver *drv, CUstream stream,
			     bool *ret) __must_check;
/* FDRY_E_STATE if the stream captures. @what names the intended work in the message: "a launch". */
int fdry_stream_not_capturing(const struct fdry_driver *drv, CUstream stream,
			      const char *what) __must_check;

/* The number of a stream, which is never reused. A handle is reused as soon as its stream is
 * destroyed, even while the work of that stream continues. The stream must not capture, and the
 * thread's capture mode must be relaxed, since the query breaks captures (driver 580). */
static inline __must_check int fdry_stream_number(const struct fdry_driver *drv, CUstream stream,
						  unsigned long long *ret)
{
	return fdry_call(drv, cuStreamGetId, stream, ret);
}

/**
 * fdry_stream_borrow() - A stream of the current context for one user at a time.
 * @ret: a non-blocking stream; return it with fdry_stream_return() in the same context
 *
 * Returned streams are reused, so a context has no more than were in use at once.
 */
int fdry_stream_borrow(const struct fdry_driver *drv, CUstream *ret) __must_check;
/* The stream must not capture. The message of the last failure stays. */
void fdry_stream_return(const struct fdry_driver *drv, CUstream stream);

#endif
