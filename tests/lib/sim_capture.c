// SPDX-License-Identifier: Apache-2.0
/* sim_capture.c - see sim_capture.h. */
#include "tests/lib/sim_capture.h"

CUstream capture_stream(void)
{
	CUstream s;

	ok(CU(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

CUevent event_new(void)
{
	CUevent e;

	ok(CU(cuEventCreate)(&e, CU_EVENT_DISABLE_TIMING));
	return e;
}

void capture_begin(CUstreamCaptureMode mode)
{
	ok(CU(cuStreamBeginCapture)(fx.stream, mode));
}

CUgraph capture_end(void)
{
	CUgraph g = NULL;

	ok(CU(cuStreamEndCapture)(fx.stream, &g));
	ck_assert_ptr_nonnull(g);
	return g;
}

void capture_end_fails(CUresult error)
{
	CUgraph g = (CUgraph)1;

	is(error, CU(cuStreamEndCapture)(fx.stream, &g));
	ck_assert_ptr_null(g);
	is(CUDA_ERROR_ILLEGAL_STATE, CU(cuStreamEndCapture)(fx.stream, &g));
}

CUstreamCaptureStatus capture_status(CUstream s)
{
	CUstreamCaptureStatus st = (CUstreamCaptureStatus)-1;

	ok(CU(cuStreamIsCapturing)(s, &st));
	return st;
}
