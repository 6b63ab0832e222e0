/* SPDX-License-Identifier: Apache-2.0 */
/* sim_capture.h - beginning and ending captures, for the tests of them. */
#ifndef FDRY_TESTS_SIM_CAPTURE_H
#define FDRY_TESTS_SIM_CAPTURE_H

#include "tests/unit/sim_cu.h"

#define GLOBAL CU_STREAM_CAPTURE_MODE_GLOBAL
#define THREAD_LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

static inline CUstream stream_new(void)
{
	CUstream s;

	ok(CU(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

static inline CUevent event_new(void)
{
	CUevent e;

	ok(CU(cuEventCreate)(&e, CU_EVENT_DISABLE_TIMING));
	return e;
}

static inline void begin(CUstreamCaptureMode mode)
{
	ok(CU(cuStreamBeginCapture)(fx.stream, mode));
}

static inline CUgraph end(void)
{
	CUgraph g = NULL;

	ok(CU(cuStreamEndCapture)(fx.stream, &g));
	ck_assert_ptr_nonnull(g);
	return g;
}

static inline void end_fails(CUresult error)
{
	CUgraph g = (CUgraph)1;

	is(error, CU(cuStreamEndCapture)(fx.stream, &g));
	ck_assert_ptr_null(g);
	is(CUDA_ERROR_ILLEGAL_STATE, CU(cuStreamEndCapture)(fx.stream, &g));
}

static inline CUstreamCaptureStatus status(CUstream s)
{
	CUstreamCaptureStatus st = (CUstreamCaptureStatus)-1;

	ok(CU(cuStreamIsCapturing)(s, &st));
	return st;
}

#endif
