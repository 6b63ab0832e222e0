// SPDX-License-Identifier: Apache-2.0
/*
 * The cost of updating a number in device memory, beside the driver's own calls, and of launching a
 * captured graph, beside cuGraphLaunch. Prints nanoseconds of the calling thread for each call, and
 * the ratio to the plain call.
 *
 * scalar [DRIVER]: NULL is FOUNDRY_DRIVER or libcuda.so.1; also runs on the software driver, whose
 * figures say nothing about a GPU.
 */
#include <stdio.h>
#include <stdlib.h>

#include "foundry/run.h"
#include "arch/driver.h"
#include "tests/lib/clock.h"
#include "tests/lib/need.h"

#define ROUNDS 15
#define CALLS 2000
#define COUNT 8

struct bench {
	const struct fdry_driver *drv;
	CUstream stream;
	CUdeviceptr own;
	uint8_t *pinned;
	struct fdry_scalars *scalars, *copied; /* copied: in memory of the caller */
	struct fdry_decode_state *decode;
	struct fdry_cudagraph *graph;
	CUgraphExec exec;
	CUcontext ctx;
	CUevent event, past; /* past: complete */
	union fdry_scalars_value v[COUNT];
};

static int plain_pageable(struct bench *b)
{
	return fdry_call(b->drv, cuMemcpyHtoDAsync_v2, b->own, b->v, 8, b->stream);
}

static int plain_pinned(struct bench *b)
{
	return fdry_call(b->drv, cuMemcpyHtoDAsync_v2, b->own, b->pinned, 8, b->stream);
}

/* --- the parts of an update --- */

static int context_enter(struct bench *b)
{
	CUstreamCaptureMode mode;
	int err = fdry_driver_enter(b->drv, b->ctx, &mode);

	if (!err)
		fdry_driver_leave(b->drv, &mode);
	return err;
}

static int context_current(struct bench *b)
{
	CUcontext ctx;

	return fdry_call(b->drv, cuCtxGetCurrent, &ctx);
}

static int mode_exchange(struct bench *b)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	int err = fdry_call(b->drv, cuThreadExchangeStreamCaptureMode, &mode);

	return err ? err : fdry_call(b->drv, cuThreadExchangeStreamCaptureMode, &mode);
}

static int stream_context(struct bench *b)
{
	CUcontext ctx;

	return fdry_call(b->drv, cuStreamGetCtx, b->stream, &ctx);
}

static int stream_capturing(struct bench *b)
{
	CUstreamCaptureStatus status;

	return fdry_call(b->drv, cuStreamIsCapturing, b->stream, &status);
}

static int event_record(struct bench *b)
{
	return fdry_call(b->drv, cuEventRecord, b->event, b->stream);
}

static int event_wait(struct bench *b)
{
	return fdry_call(b->drv, cuEventSynchronize, b->past);
}

/* Only these calls hold the written value in the command itself, and need no memory block. */
static int stream_write(struct bench *b, unsigned int n, unsigned int flags)
{
	CUstreamBatchMemOpParams op[COUNT] = { 0 };
	unsigned int i;

	for (i = 0; i < n; i++) {
		op[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
		op[i].writeValue.address = b->own + 8 * i;
		op[i].writeValue.value64 = b->v[i].u64;
		op[i].writeValue.flags = flags;
	}
	return fdry_call(b->drv, cuStreamBatchMemOp_v2, b->stream, n, op, 0);
}

static int write_1(struct bench *b)
{
	return stream_write(b, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
}

static int write_8(struct bench *b)
{
	return stream_write(b, COUNT, CU_STREAM_WRITE_VALUE_DEFAULT);
}

static int write_1_unordered(struct bench *b)
{
	return stream_write(b, 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
}

static int fill_4(struct bench *b)
{
	return fdry_call(b->drv, cuMemsetD32Async, b->own, b->v[0].u32, 1, b->stream);
}

static int fill_8(struct bench *b)
{
	int err = fdry_call(b->drv, cuMemsetD32Async, b->own, b->v[0].u32, 1, b->stream);

	return err ? err
		   : fdry_call(b->drv, cuMemsetD32Async, b->own + 4, b->v[0].u32, 1, b->stream);
}

static int update_1(struct bench *b)
{
	return fdry_scalars_update(b->scalars, 0, 1, b->v, b->stream);
}

static int update_8(struct bench *b)
{
	return fdry_scalars_update(b->scalars, 0, COUNT, b->v, b->stream);
}

static int update_copied(struct bench *b)
{
	return fdry_scalars_update(b->copied, 0, COUNT, b->v, b->stream);
}

static int decode_set(struct bench *b)
{
	return fdry_decode_state_set(b->decode, b->v[0].u32, 7, b->stream);
}

static int launch_plain(struct bench *b)
{
	return fdry_call(b->drv, cuGraphLaunch, b->exec, b->stream);
}

static int launch_ours(struct bench *b)
{
	return fdry_cudagraph_launch(b->graph, b->stream);
}

static const struct way {
	const char *name;
	int (*fn)(struct bench *b);
	int beside; /* which line it is compared with */
} ways[] = {
	{ "cuMemcpyHtoDAsync, 8 bytes, pageable", plain_pageable, 0 },
	{ "cuMemcpyHtoDAsync, 8 bytes, pinned", plain_pinned, 0 },
	{ "cuMemsetD32Async, 4 bytes", fill_4, 0 },
	{ "cuMemsetD32Async twice, 8 bytes", fill_8, 0 },
	{ "fdry_scalars_update, 1 of 8 bytes", update_1, 0 },
	{ "fdry_scalars_update, 8 of 8 bytes", update_8, 0 },
	{ "the same by a copy", update_copied, 0 },
	{ "fdry_decode_state_set", decode_set, 0 },
	{ "cuGraphLaunch, one node", launch_plain, 8 },
	{ "fdry_cudagraph_launch, one node", launch_ours, 8 },
	{ "context and capture mode, set and back", context_enter, 0 },
	{ "  of it the capture mode", mode_exchange, 0 },
	{ "cuCtxGetCurrent", context_current, 0 },
	{ "cuStreamGetCtx", stream_context, 0 },
	{ "cuStreamIsCapturing", stream_capturing, 0 },
	{ "cuEventRecord", event_record, 0 },
	{ "cuEventSynchronize, complete", event_wait, 0 },
	{ "cuStreamBatchMemOp, 8 bytes", write_1, 0 },
	{ "cuStreamBatchMemOp, 8 of 8 bytes", write_8, 0 },
	{ "cuStreamBatchMemOp, without barrier", write_1_unordered, 0 },
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* A round has so few calls that queues are never full: it measures the call, not the GPU. */
static double round_ns(struct bench *b, const struct way *w)
{
	double sum = 0, from;
	int i, k;

	if (w->fn(b))
		return 0; /* such as operations without a barrier, which a device may lack */

	for (i = 0; i < CALLS / 20; i++) {
		from = now_ns();
		for (k = 0; k < 20; k++)
			need(w->fn(b), w->name);
		sum += now_ns() - from;
		need(fdry_call(b->drv, cuStreamSynchronize, b->stream), "waiting");
	}
	return sum / CALLS;
}

static int one_node(void *arg, CUstream stream)
{
	struct bench *b = arg;

	return fdry_call(b->drv, cuMemsetD32Async, b->own, 1, 1, stream);
}

static void make(struct bench *b, const char *driver)
{
	static const uint32_t dtypes[COUNT] = { FDRY_U64, FDRY_U64, FDRY_U64, FDRY_U64,
						FDRY_U64, FDRY_U64, FDRY_U64, FDRY_U64 };
	struct fdry_scalars_opts so = {
		.sz = sizeof(so), .driver = driver, .count = COUNT, .dtypes = dtypes
	};
	struct fdry_decode_state_opts d = { .sz = sizeof(d), .driver = driver };
	struct fdry_cudagraph_opts go = { .sz = sizeof(go), .driver = driver };
	struct fdry_cudagraph_run_opts ro = { .sz = sizeof(ro), .fn = one_node, .arg = b };

	need(fdry_driver_open(driver, &b->drv), "driver");
	need(fdry_call(b->drv, cuDevicePrimaryCtxRetain, &b->ctx, 0), "context");
	need(fdry_call(b->drv, cuCtxSetCurrent, b->ctx), "context");
	need(fdry_call(b->drv, cuEventCreate, &b->event, CU_EVENT_DISABLE_TIMING), "event");
	need(fdry_call(b->drv, cuEventCreate, &b->past, CU_EVENT_DISABLE_TIMING), "event");
	need(fdry_call(b->drv, cuStreamCreate, &b->stream, CU_STREAM_NON_BLOCKING), "stream");
	need(fdry_call(b->drv, cuEventRecord, b->past, b->stream), "event");
	need(fdry_call(b->drv, cuMemAlloc_v2, &b->own, 64), "memory");
	need(fdry_call(b->drv, cuMemHostAlloc, (void **)&b->pinned, 64, 0), "memory");
	need(fdry_scalars_new(&so, &b->scalars), "scalars");
	so.addr = b->own;
	need(fdry_scalars_new(&so, &b->copied), "scalars");
	need(fdry_decode_state_new(&d, &b->decode), "decode state");
	need(fdry_cudagraph_new(&go, &b->graph), "graph");
	need(fdry_cudagraph_run(b->graph, &ro), "graph");
	need(fdry_cudagraph_exec(b->graph, &b->exec), "graph");
}

int main(int argc, char **argv)
{
	double ns[WAYS][ROUNDS], median[WAYS];
	struct bench b = { 0 };
	size_t w;
	int r;

	make(&b, argc > 1 ? argv[1] : NULL);
	printf("%s; medians of %d rounds of %d calls, in turns\n%-38s %9s %9s %9s %7s\n",
	       b.drv->software ? "software driver" : "GPU", ROUNDS, CALLS, "", "ns", "least",
	       "most", "ratio");
	for (r = 0; r < ROUNDS; r++)
		for (w = 0; w < WAYS; w++)
			ns[w][r] = round_ns(&b, &ways[w]);
	for (w = 0; w < WAYS; w++) {
		qsort(ns[w], ROUNDS, sizeof(double), by_size);
		median[w] = ns[w][ROUNDS / 2];
		printf("%-38s %9.0f %9.0f %9.0f %7.2f\n", ways[w].name, median[w], ns[w][0],
		       ns[w][ROUNDS - 1], median[w] / median[ways[w].beside]);
	}
	fdry_cudagraph_free(b.graph);
	fdry_decode_state_free(b.decode);
	fdry_scalars_free(b.scalars);
	fdry_scalars_free(b.copied);
	return EXIT_SUCCESS;
}
