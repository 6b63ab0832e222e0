/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudagraph.h - capture CUDA graphs and launch them, in the process that captured them. Part of
 * foundry/run.h. The rules of foundry.h for errors, threads, handles and units apply.
 *
 * These functions work with any driver, and need neither the interposer nor a store. If a graph is
 * captured this way while a fdry_capture is active, it can be sealed: pass fdry_cudagraph_graph()
 * to fdry_capture_graph().
 *
 *	fdry_cudagraph_new()            fdry_cudagraph_new()
 *	fdry_cudagraph_begin()          fdry_cudagraph_run()   warms up, captures a callback,
 *	... work on the stream ...                             instantiates
 *	fdry_cudagraph_end()            fdry_cudagraph_launch()
 *	fdry_cudagraph_instantiate()
 *	fdry_cudagraph_launch()
 */
#ifndef FOUNDRY_RUN_CUDAGRAPH_H
#define FOUNDRY_RUN_CUDAGRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------ the current stream --- */

/*
 * Each thread has a current stream. It is NULL at first, the legacy default stream. Code that gets
 * no stream from its caller uses the current one. The driver does not know it.
 */
CUstream fdry_stream_current(void);
/* Make @stream current to this thread, and return the stream that was current before. */
CUstream fdry_stream_make_current(CUstream stream);

/* ------------------------------------------------------------ pools --- */

/*
 * A pool is device memory for captures. Graphs of one pool share it: the next graph uses again what
 * one graph freed while it was captured. An allocation from a pool makes no node in a graph. It
 * calls the driver only if no free memory fits.
 *
 * The pool keeps its memory alive until every reference (fdry_graphpool_new(), _get()) is put and
 * every graph that was captured with it is reset or freed. Then all its memory is released, even
 * allocations that were never freed. So a buffer that was used in a capture lives at least as long
 * as the graph, and longer while the program has a reference to the pool. Memory from elsewhere is
 * kept by its owner while a graph uses it.
 *
 * Graphs that share a pool may use the same bytes, so their launches must not overlap: use one
 * stream, or order several streams by events.
 */
struct fdry_graphpool;

/* Never zero, and unique among the pools of a process: { n, 0 } for a graph's own pool, { 0, n }
 * for others. */
struct fdry_graphpool_id {
	uint64_t hi, lo;
};

/**
 * struct fdry_graphpool_opts - The place of a pool's memory.
 * @sz: sizeof(struct fdry_graphpool_opts)
 * @driver: path of a driver. NULL: the interposer if it is in place, else FOUNDRY_DRIVER, else
 *         libcuda.so.1
 * @device: ordinal
 */
struct fdry_graphpool_opts {
	size_t sz;
	const char *driver;
	int32_t device;
	uint32_t reserved;
};

/* Make a pool, which has no memory yet. The caller gets the first reference. Errors:
 * FDRY_E_NODRIVER, FDRY_E_NOGPU, FDRY_E_FORKED. */
int fdry_graphpool_new(const struct fdry_graphpool_opts *opts, struct fdry_graphpool **ret);
/* Get another reference to the pool with that id. FDRY_E_NOKEY if no such pool is alive. */
int fdry_graphpool_get(const struct fdry_graphpool_id *id, struct fdry_graphpool **ret);
/* Put a reference. If memory is released the call waits for launches in flight. NULL is allowed. */
void fdry_graphpool_put(struct fdry_graphpool *pool);
/* The pool's id, which never changes. */
int fdry_graphpool_id(const struct fdry_graphpool *pool, struct fdry_graphpool_id *ret);

/*
 * A sealed pool allocates nothing, and no capture can begin with it: both fail with FDRY_E_STATE. A
 * program that allocates everything beforehand finds the places that do not.
 */
int fdry_graphpool_seal(struct fdry_graphpool *pool);
int fdry_graphpool_unseal(struct fdry_graphpool *pool);
/* Set @ret to 1 if the pool is sealed, else to 0. */
int fdry_graphpool_sealed(struct fdry_graphpool *pool, uint32_t *ret);

/**
 * fdry_graphpool_mem_alloc() - Allocate memory of a pool.
 * @size: at least 1; rounded up to a multiple of 512
 * @ret: the address, a multiple of 512
 *
 * Inside a capture with this pool, in the thread that began it, the call may return freed memory,
 * whichever graph used it. Outside of a capture it never returns memory that a graph of the pool
 * may use. The memory keeps its former content. The pool grows in pieces of 2 MiB.
 *
 * Errors: FDRY_E_STATE (the pool is sealed), FDRY_E_RANGE (@size is 0 or far too large),
 * FDRY_E_NODEVMEM.
 */
int fdry_graphpool_mem_alloc(struct fdry_graphpool *pool, uint64_t size, fdry_devptr *ret);
/* Free an allocation of the pool at once: work that is put on streams later may get the same
 * memory. FDRY_E_RANGE if no allocation begins at @addr. */
int fdry_graphpool_mem_free(struct fdry_graphpool *pool, fdry_devptr addr);
/* Return pieces without allocations to the driver. FDRY_E_STATE while a graph or a capture uses the
 * pool. */
int fdry_graphpool_trim(struct fdry_graphpool *pool);

/**
 * struct fdry_graphpool_info - The present state of a pool.
 * @sz: set by the caller: sizeof(struct fdry_graphpool_info)
 * @reserved_bytes: memory from the driver; @used_bytes: the part of it that is allocated
 * @graphs: graphs that were captured with the pool or are being captured
 */
struct fdry_graphpool_info {
	size_t sz;
	uint64_t reserved_bytes, used_bytes;
	uint32_t graphs, sealed, capturing;
};
int fdry_graphpool_info(struct fdry_graphpool *pool, struct fdry_graphpool_info *ret);

/* ------------------------------------------------------------ graphs --- */

struct fdry_cudagraph;

/* As for a pool. */
struct fdry_cudagraph_opts {
	size_t sz;
	const char *driver;
	int32_t device;
	uint32_t reserved;
};

/* The calls that the driver forbids during a capture. */
enum fdry_cudagraph_mode {
	FDRY_CUDAGRAPH_MODE_DEFAULT = 0,      /* relaxed */
	FDRY_CUDAGRAPH_MODE_GLOBAL = 1,       /* unsafe calls, such as cuMemAlloc, in all threads */
	FDRY_CUDAGRAPH_MODE_THREAD_LOCAL = 2, /* unsafe calls in this thread */
	FDRY_CUDAGRAPH_MODE_RELAXED = 3,      /* none */
};

/* Flags for instantiation, with the driver's numbers. Other flags are passed to the driver. */
enum fdry_instantiate_flags {
	FDRY_INSTANTIATE_AUTO_FREE =
		1 << 0, /* a launch frees what the launch before left allocated */
	FDRY_INSTANTIATE_DEVICE_LAUNCH = 1 << 2, /* kernels may launch it */
	FDRY_INSTANTIATE_PRIORITY = 1 << 3,	 /* nodes run at priorities of their own */
};

/**
 * struct fdry_cudagraph_begin_opts - How to capture.
 * @sz: sizeof(struct fdry_cudagraph_begin_opts)
 * @stream: the stream to capture: of the device's primary context, and not the default stream.
 *         NULL: a side stream, which is current to this thread until the capture ends
 * @pool: for allocations during the capture; NULL: the graph's own pool
 * @mode: of enum fdry_cudagraph_mode
 */
struct fdry_cudagraph_begin_opts {
	size_t sz;
	CUstream stream;
	struct fdry_graphpool *pool;
	uint32_t mode;
	uint32_t reserved;
};

/* Make an empty graph; free it with fdry_cudagraph_free(). @opts: NULL for the defaults. Errors:
 * FDRY_E_NODRIVER, FDRY_E_NOGPU, FDRY_E_FORKED. */
int fdry_cudagraph_new(const struct fdry_cudagraph_opts *opts, struct fdry_cudagraph **ret);
/**
 * fdry_cudagraph_begin() - Begin a capture into an empty graph.
 * @opts: NULL for the defaults
 *
 * The driver records work that is put on the stream, and does not run it. From here on the graph
 * holds a reference to the pool. Two captures at the same time need two graphs, two streams and two
 * pools, and nothing else.
 *
 * Errors: FDRY_E_STATE (the graph is not empty; the pool is sealed, or another capture uses it; the
 * stream is capturing already), FDRY_E_INVAL (the stream cannot be captured).
 */
int fdry_cudagraph_begin(struct fdry_cudagraph *g, const struct fdry_cudagraph_begin_opts *opts);
/**
 * fdry_cudagraph_end() - End the capture. The graph then has nodes and can be instantiated.
 *
 * If the stream is a side stream, or the mode is not relaxed, the thread that began the capture
 * must end it; otherwise the call fails with FDRY_E_STATE and the capture continues. Any other
 * failure ends the capture as well: a call that a capture forbids, a stream that was not joined, no
 * graph. The graph is then empty, and the stream can be used.
 *
 * Errors: FDRY_E_STATE (no capture has begun, or it made no graph), FDRY_E_DRIVER.
 */
int fdry_cudagraph_end(struct fdry_cudagraph *g);
/**
 * fdry_cudagraph_instantiate() - Make the executable graph.
 * @flags: of enum fdry_instantiate_flags; fdry_cudagraph_upload() uploads
 *
 * If the call fails it makes nothing. The captured graph stays, so other flags may be tried.
 * Errors: FDRY_E_STATE (nothing is captured, or the graph is instantiated already), FDRY_E_INVAL,
 * FDRY_E_NODEVMEM, FDRY_E_DRIVER.
 */
int fdry_cudagraph_instantiate(struct fdry_cudagraph *g, uint64_t flags);
/* Upload the graph to the device before its first launch, in the order of @stream. A failure undoes
 * the instantiation, so no launch uses a half uploaded graph. The captured graph stays. */
int fdry_cudagraph_upload(struct fdry_cudagraph *g, CUstream stream);
/**
 * fdry_cudagraph_launch() - Launch the graph; asynchronous, from any thread.
 * @stream: of the device's primary context; NULL is its legacy default stream
 *
 * Launches of one graph never overlap. The library records an event after each launch to know when
 * it has ended.
 * Errors: FDRY_E_STATE (nothing is captured, the graph is not instantiated or was reset; @stream is
 * capturing), FDRY_E_INVAL.
 */
int fdry_cudagraph_launch(struct fdry_cudagraph *g, CUstream stream);
/* Wait until all launches so far have ended. */
int fdry_cudagraph_synchronize(struct fdry_cudagraph *g);
/* Make the graph empty again. The call waits for launches in flight, ends an active capture and
 * discards what it recorded, destroys the driver's graphs and puts the pool. If the call fails (the
 * capture belongs to another thread) nothing has changed. */
int fdry_cudagraph_reset(struct fdry_cudagraph *g);
/* Reset the graph and free it. No other thread may use it any more. NULL is allowed. */
void fdry_cudagraph_free(struct fdry_cudagraph *g);

/* The stream that the graph captures; FDRY_E_STATE outside of a capture. */
int fdry_cudagraph_stream(struct fdry_cudagraph *g, CUstream *ret);
/* The pool of the last capture, or the graph's own pool after a reset. The graph holds it until the
 * next reset; fdry_graphpool_get() makes a longer reference. */
int fdry_cudagraph_pool(struct fdry_cudagraph *g, struct fdry_graphpool **ret);
/* The driver's handles, which the graph owns. FDRY_E_STATE if there is none yet. */
int fdry_cudagraph_graph(struct fdry_cudagraph *g, CUgraph *ret);
int fdry_cudagraph_exec(struct fdry_cudagraph *g, CUgraphExec *ret);

/* Puts work on @stream, which is capturing in the last run. Returns 0; a negative code of the
 * library, whose message the caller then gets; or a positive number of its own (FDRY_E_CALLBACK).
 */
typedef int (*fdry_cudagraph_fn)(void *arg, CUstream stream);

/**
 * struct fdry_cudagraph_run_opts - What to capture, and how.
 * @sz: sizeof(struct fdry_cudagraph_run_opts)
 * @fn, @arg: the function to capture, and its argument
 * @warmups: runs before the capture, on the same stream
 * @mode, @stream, @pool: as for fdry_cudagraph_begin()
 * @flags: for the instantiation
 */
struct fdry_cudagraph_run_opts {
	size_t sz;
	fdry_cudagraph_fn fn;
	void *arg;
	CUstream stream;
	struct fdry_graphpool *pool;
	uint64_t flags;
	uint32_t warmups;
	uint32_t mode;
};

/**
 * fdry_cudagraph_run() - Warm up, wait, capture one run of a function, instantiate and upload.
 *
 * A side stream first waits for the thread's current stream, and is current during the warm-up runs
 * as well. Before the capture begins all work on the stream is complete.
 *
 * If the function fails, or anything else does, the capture ends: the graph is empty, the stream
 * can be used, and the thread's current stream is the one from before the call.
 */
int fdry_cudagraph_run(struct fdry_cudagraph *g, const struct fdry_cudagraph_run_opts *opts);

#ifdef __cplusplus
}
#endif

#endif
