// SPDX-License-Identifier: Apache-2.0
/*
 * capture.c - the streams that capture, so that allocations made meanwhile are marked.
 *
 * The list has the stream that began each capture. An end that fails may or may not end the
 * capture, so the driver decides. The per-thread default stream has one handle in all threads, so
 * its captures are listed with their thread.
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
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static uint64_t count;

static bool is_of(const struct capture *c, CUstream stream)
{
	return c->stream == stream &&
	       (stream != CU_STREAM_PER_THREAD || pthread_equal(c->owner, pthread_self()));
}

static CUresult note_begin(CUresult res, CUstream stream)
{
	struct capture *c;

	if (res || fdry_find_forked())
		return res;
	c = malloc(sizeof(*c));
	if (!c)
		return res; /* then allocations count as content, which is always correct */
	c->stream = stream;
	c->owner = pthread_self();
	pthread_mutex_lock(&lock);
	c->next = captures;
	captures = c;
	__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
	return res;
}

static void note_end(CUstream stream)
{
	struct capture **p, *c = NULL;
	bool last = false;

	if (fdry_find_forked())
		return;
	pthread_mutex_lock(&lock);
	for (p = &captures; *p; p = &(*p)->next)
		if (is_of(*p, stream)) {
			c = *p;
			*p = c->next;
			last = !__atomic_sub_fetch(&count, 1, __ATOMIC_RELAXED);
			break;
		}
	pthread_mutex_unlock(&lock);
	free(c);
	if (last)
		fdry_dispatch_captured();
}

/* The handle of stream 0 in the variants for the per-thread default stream. */
static CUstream per_thread(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

uint64_t fdry_capture_count(void)
{
	return __atomic_load_n(&count, __ATOMIC_RELAXED);
}

CUresult cuStreamBeginCapture(CUstream stream)
{
	return note_begin(fdry_real(cuStreamBeginCapture)(stream), stream);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
	return note_begin(fdry_real(cuStreamBeginCapture_ptsz)(stream), per_thread(stream));
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	return note_begin(fdry_real(cuStreamBeginCapture_v2)(stream, mode), stream);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
	return note_begin(fdry_real(cuStreamBeginCapture_v2_ptsz)(stream, mode),
			  per_thread(stream));
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *deps,
				     const CUgraphEdgeData *data, size_t n,
				     CUstreamCaptureMode mode)
{
	return note_begin(
		fdry_real(cuStreamBeginCaptureToGraph)(stream, graph, deps, data, n, mode), stream);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *deps,
					  const CUgraphEdgeData *data, size_t n,
					  CUstreamCaptureMode mode)
{
	return note_begin(
		fdry_real(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, deps, data, n, mode),
		per_thread(stream));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *ret)
{
	CUresult res = fdry_real(cuStreamEndCapture)(stream, ret);
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (res)
		fdry_real(cuStreamIsCapturing)(stream, &status);
	if (status == CU_STREAM_CAPTURE_STATUS_NONE)
		note_end(stream);
	return res;
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *ret)
{
	CUresult res = fdry_real(cuStreamEndCapture_ptsz)(stream, ret);
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (res)
		fdry_real(cuStreamIsCapturing)(per_thread(stream), &status);
	if (status == CU_STREAM_CAPTURE_STATUS_NONE)
		note_end(per_thread(stream));
	return res;
}

/* The stream's next nodes need not follow its last ones, so they must not reuse memory of those. */
static CUresult forgets(CUresult res, unsigned int flags)
{
	if (!res && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		fdry_dispatch_forget();
	return res;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *deps, size_t n,
					   unsigned int flags)
{
	return forgets(fdry_real(cuStreamUpdateCaptureDependencies)(stream, deps, n, flags), flags);
}

CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream stream, CUgraphNode *deps, size_t n,
						unsigned int flags)
{
	return forgets(fdry_real(cuStreamUpdateCaptureDependencies_ptsz)(stream, deps, n, flags),
		       flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *deps,
					      const CUgraphEdgeData *data, size_t n,
					      unsigned int flags)
{
	return forgets(
		fdry_real(cuStreamUpdateCaptureDependencies_v2)(stream, deps, data, n, flags),
		flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode *deps,
						   const CUgraphEdgeData *data, size_t n,
						   unsigned int flags)
{
	return forgets(
		fdry_real(cuStreamUpdateCaptureDependencies_v2_ptsz)(stream, deps, data, n, flags),
		flags);
}

/* Another stream may get the same handle. */
static CUresult gone(CUresult res, CUstream stream)
{
	if (!res && fdry_capture_count()) {
		fdry_dispatch_forget();
		note_end(stream);
	}
	return res;
}

CUresult cuStreamDestroy(CUstream stream)
{
	return gone(fdry_real(cuStreamDestroy)(stream), stream);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	return gone(fdry_real(cuStreamDestroy_v2)(stream), stream);
}
