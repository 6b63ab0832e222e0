// SPDX-License-Identifier: Apache-2.0
/*
 * capture.c - notes when captures begin and end, so that allocations during captures can be marked.
 *
 * If cuStreamEndCapture() fails, the capture may have ended or not, so the driver is asked. The
 * driver destroys the graph of a capture that failed, so the notes of its nodes end. It reports the
 * number of a capture only before the failure, so the number is noted at the beginning. A capture
 * that cannot be noted does not begin.
 */
#include "hook/internal.h"

/* The number of the capture that has begun on @stream; 0 if it is unknown. */
static cuuint64_t id_of(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	cuuint64_t id = 0;

	if (fdry_start_is_forked() ||
	    fdry_real(cuStreamGetCaptureInfo_v3)(stream, &status, &id, NULL, NULL, NULL, NULL) ||
	    status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return 0;
	return id;
}

/* End a capture that cannot be noted. @own: its graph is the program's. */
static CUresult begin_undo(CUstream stream, bool own)
{
	CUgraph graph = NULL;

	if (!fdry_real(cuStreamEndCapture)(stream, &graph) && graph && !own)
		(void)fdry_real(cuGraphDestroy)(graph);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* @age: of the graph that the capture makes. */
static CUresult note_begin(CUresult res, CUstream stream, uint64_t age)
{
	if (!res && !fdry_capture_add(stream, &(struct fdry_capture_note){ id_of(stream), age }))
		return begin_undo(stream, false);
	return res;
}

/* A capture to a graph of the program, which no failure destroys. */
static CUresult note_begin_to_graph(CUresult res, CUstream stream)
{
	if (!res && !fdry_capture_add(stream, &(struct fdry_capture_note){ 0 }))
		return begin_undo(stream, true);
	return res;
}

/* @made: the graph of the capture; NULL: it failed. */
static void note_end(CUstream stream, const CUgraph *made)
{
	struct fdry_capture_note note = { 0 };

	if (fdry_capture_remove(stream, &note))
		fdry_dispatch_captured();
	if (made)
		fdry_graph_age_begin(*made, note.age);
	else
		fdry_attributes_lost(note.id);
}

/* The handle of stream 0 in the variants for the per-thread default stream. */
static CUstream per_thread(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

CUresult cuStreamBeginCapture(CUstream stream)
{
	uint64_t age = fdry_array_age();
	CUresult res = fdry_real(cuStreamBeginCapture)(stream);

	return note_begin(res, stream, age);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
	uint64_t age = fdry_array_age();
	CUresult res = fdry_real(cuStreamBeginCapture_ptsz)(stream);

	return note_begin(res, per_thread(stream), age);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	uint64_t age = fdry_array_age();
	CUresult res = fdry_real(cuStreamBeginCapture_v2)(stream, mode);

	return note_begin(res, stream, age);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
	uint64_t age = fdry_array_age();
	CUresult res = fdry_real(cuStreamBeginCapture_v2_ptsz)(stream, mode);

	return note_begin(res, per_thread(stream), age);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *deps,
				     const CUgraphEdgeData *data, size_t n,
				     CUstreamCaptureMode mode)
{
	return note_begin_to_graph(
		fdry_real(cuStreamBeginCaptureToGraph)(stream, graph, deps, data, n, mode), stream);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *deps,
					  const CUgraphEdgeData *data, size_t n,
					  CUstreamCaptureMode mode)
{
	return note_begin_to_graph(
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
		note_end(stream, res ? NULL : ret);
	return res;
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *ret)
{
	CUresult res = fdry_real(cuStreamEndCapture_ptsz)(stream, ret);
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (res)
		fdry_real(cuStreamIsCapturing)(per_thread(stream), &status);
	if (status == CU_STREAM_CAPTURE_STATUS_NONE)
		note_end(per_thread(stream), res ? NULL : ret);
	return res;
}

/* After an update of its dependencies, the stream's next nodes need not follow its last ones. So
 * they must not reuse memory that those freed. */
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

/* End the notes of a destroyed stream, since another stream may get its handle. */
static CUresult gone(CUresult res, CUstream stream)
{
	if (!res && fdry_capture_count()) {
		fdry_dispatch_forget();
		note_end(stream, NULL);
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
