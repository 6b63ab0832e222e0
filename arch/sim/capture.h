/* SPDX-License-Identifier: Apache-2.0 */
/* capture.h - the state of captures in progress; capture.c and record.c use it. */
#ifndef FDRY_ARCH_SIM_CAPTURE_H
#define FDRY_ARCH_SIM_CAPTURE_H

#include "arch/sim/graph.h"

/* One stream of a capture. The stream's capture_data points to it. */
struct capture_stream {
	struct capture_stream *next;
	struct sim_stream *stream;
	struct sim_edges deps;
	CUgraphNode *nodes;    /* the arrays that cuStreamGetCaptureInfo returned last */
	CUgraphEdgeData *data;
};

struct sim_capture {
	struct sim_capture *next; /* in captures */
	int refs;                 /* one for the list, and one for each event recorded in the
				     capture */
	CUstreamCaptureStatus status; /* NONE once it has ended */
	CUstreamCaptureMode mode;
	unsigned long long nr;
	const void *thread;       /* the thread that began it */
	struct sim_graph *graph;
	bool owns_graph;          /* the capture made the graph */
	struct sim_stream *origin;
	struct capture_stream *streams;
};

extern struct sim_capture *sim_captures; /* those that have not ended */
extern _Thread_local CUstreamCaptureMode sim_capture_mode; /* of this thread */

/* Identifies the calling thread. */
const void *sim_capture_thread(void);
void sim_capture_put(struct sim_capture *c);
void sim_capture_invalidate(struct sim_capture *c);
/* Invalidate @c. Returns @error, or if it was invalid before, the error of an invalidated capture.
 */
CUresult sim_capture_spoil(struct sim_capture *c, CUresult error);
/* Make @s a stream of @c, depending on @deps, which are consumed. */
CUresult sim_capture_enter(struct sim_capture *c, struct sim_stream *s, struct sim_edges *deps);
void sim_capture_leave(struct sim_stream *s);
/* End @c, and destroy the graph if it was made for @c. */
void sim_capture_abort(struct sim_capture *c);
/* A capture that has a stream of @ctx which is ordered with the legacy stream, or NULL. */
struct sim_capture *sim_capture_blocking(const struct sim_ctx *ctx);

#endif
