/* SPDX-License-Identifier: Apache-2.0 */
/* sim_capture.h - helpers that begin and end captures, for tests of the software driver. */
#ifndef FDRY_TESTS_LIB_SIM_CAPTURE_H
#define FDRY_TESTS_LIB_SIM_CAPTURE_H

#include "tests/lib/sim_cu.h"

#define GLOBAL CU_STREAM_CAPTURE_MODE_GLOBAL
#define THREAD_LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

CUstream capture_stream(void);

CUevent event_new(void);

void capture_begin(CUstreamCaptureMode mode);

CUgraph capture_end(void);

void capture_end_fails(CUresult error);

CUstreamCaptureStatus capture_status(CUstream s);

#endif
