/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudagraph.h - a graph that callers capture, shared by cudagraph.c (captures) and
 * cudagraph_exec.c (executable graphs). cudagraph_run.c uses both.
 *
 * Locking: @lock guards everything. A call that waits for launches holds it.
 */
#ifndef FDRY_RUN_CUDAGRAPH_H
#define FDRY_RUN_CUDAGRAPH_H

#include <pthread.h>

#include "foundry/run/cudagraph.h"
#include "run/graphpool.h"
#include "run/primary.h"

/* All states but the first have joined a pool. */
enum fdry_cudagraph_state {
	FDRY_CUDAGRAPH_EMPTY,
	FDRY_CUDAGRAPH_CAPTURING,
	FDRY_CUDAGRAPH_CAPTURED, /* it has a graph */
	FDRY_CUDAGRAPH_READY,    /* it has a graph and an executable graph */
};

struct fdry_cudagraph {
	struct fdry_primary on;
	pthread_mutex_t lock;
	enum fdry_cudagraph_state state;
	bool was_reset;             /* it is empty because of a reset */
	struct fdry_graphpool *private_pool; /* held */
	struct fdry_graphpool *pool; /* of the last capture; joined unless empty */
	CUstream stream;            /* while it captures */
	CUstream current;           /* the thread's current stream before the side stream */
	pthread_t thread;           /* the thread that began the capture */
	bool side;
	bool bound;                 /* only that thread may end the capture */
	CUgraph graph;
	CUgraphExec exec;
	CUevent done;               /* recorded after the last launch */
	bool launched;
};

/* The first check of every function. FDRY_E_INVAL, FDRY_E_FORKED. */
int fdry_cudagraph_check(const struct fdry_cudagraph *g) __must_check;
/* FDRY_E_STATE: @what, such as "launch", is impossible in the present state. The lock is held. */
int fdry_cudagraph_state_fail(const struct fdry_cudagraph *g, const char *what);
/* Wait until all launches have ended. The lock is held, the context entered. */
int fdry_cudagraph_launches_wait(struct fdry_cudagraph *g) __must_check;
/* Destroy the executable graph, whose launches have ended. The lock is held, the context entered.
 */
void fdry_cudagraph_exec_free(struct fdry_cudagraph *g);

#endif
