/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudagraph.h - capture CUDA graphs and launch them, in the process that captured them. Part
 * of foundry/run.h, whose rules for errors, threads and units hold here.
 *
 * Works on any driver, and needs neither stand-in nor store. A graph that was captured
 * this way while a fdry_capture was going on can be sealed: give fdry_cudagraph_graph()
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
 * Each thread has a current stream, NULL (the legacy default stream) at first: where code
 * puts its work that is not told a stream. The driver knows nothing of it.
 */
CUstream fdry_stream_current(void);
/* Make another one current to this thread; returns the one that was. */
CUstream fdry_stream_make_current(CUstream stream);

/* ------------------------------------------------------------ pools --- */

/*
 * A pool is device memory for what is captured: graphs of one pool share it, so that what
 * one graph freed while it was captured is used again by the next. An allocation of a pool
 * makes no node in a graph, and calls the driver only where nothing that is free fits.
 *
 * Who keeps memory alive: the pool does, until it was given back by everybody who has it
 * (fdry_graphpool_new(), _get()) and every graph that was captured with it was
 * reset or freed. Then all its memory goes, also what was never freed. So a buffer that was
 * used in a capture outlives the graph while somebody has the pool, and lives at least as
 * long as the graph in any case. Memory that comes from elsewhere is its owner's to keep while a graph uses it.
 *
 * Graphs that share a pool may use the same bytes: launches of them must not overlap. Use
 * one stream, or order several by events.
 */
struct fdry_graphpool;

/* Never zero, and never the same for two pools of a process: { n, 0 } for a graph's own pool,
 * { 0, n } for others. */
struct fdry_graphpool_id {
	uint64_t hi, lo;
};

/**
 * struct fdry_graphpool_opts - Where a pool's memory lies.
 * @sz: sizeof(struct fdry_graphpool_opts)
 * @driver: path of a driver; NULL: the stand-in where it is in place, else FOUNDRY_DRIVER,
 *          else libcuda.so.1
 * @device: ordinal
 */
struct fdry_graphpool_opts {
	size_t sz;
	const char *driver;
	int32_t device;
	uint32_t reserved;
};

/* FDRY_E_NODRIVER, FDRY_E_NOGPU, FDRY_E_FORKED. Takes no memory. */
int fdry_graphpool_new(const struct fdry_graphpool_opts *opts, struct fdry_graphpool **ret);
/* The pool of that id, to be given back. FDRY_E_NOKEY where none is alive. */
int fdry_graphpool_get(const struct fdry_graphpool_id *id, struct fdry_graphpool **ret);
/* Give it back. Waits for launches in flight where memory goes. NULL is fine. */
void fdry_graphpool_put(struct fdry_graphpool *pool);
/* The same for its whole life. */
int fdry_graphpool_id(const struct fdry_graphpool *pool, struct fdry_graphpool_id *ret);

/*
 * Sealed pools give no memory, and no capture begins with one: both are FDRY_E_STATE. For
 * programs that allocate everything beforehand and want to be told where they did not.
 */
int fdry_graphpool_seal(struct fdry_graphpool *pool);
int fdry_graphpool_unseal(struct fdry_graphpool *pool);
/* Sets @ret to 1 or 0. */
int fdry_graphpool_sealed(const struct fdry_graphpool *pool, uint32_t *ret);

/**
 * fdry_graphpool_mem_alloc() - Take memory of a pool.
 * @size: at least 1; rounded up to 512
 * @ret: the address, a multiple of 512
 *
 * Inside a capture with this pool (in the thread that began it) memory may be given that
 * was freed, whatever graph used it; outside never memory that a graph of the pool may use.
 * What was there before is still there. New memory comes in pieces of 2 MiB.
 * Errors: FDRY_E_STATE (sealed), FDRY_E_RANGE (@size is 0 or absurd), FDRY_E_NODEVMEM.
 */
int fdry_graphpool_mem_alloc(struct fdry_graphpool *pool, uint64_t size, fdry_devptr *ret);
/* Give an allocation back to the pool: at once, so what is put on streams later may find it
 * used again. FDRY_E_RANGE where there is none at @addr. */
int fdry_graphpool_mem_free(struct fdry_graphpool *pool, fdry_devptr addr);
/* Give the driver back whole pieces in which nothing is allocated. FDRY_E_STATE while a graph uses the pool or a capture with it goes on. */
int fdry_graphpool_trim(struct fdry_graphpool *pool);

/**
 * struct fdry_graphpool_info - A pool now.
 * @sz: set by the caller: sizeof(struct fdry_graphpool_info)
 * @reserved_bytes: taken from the driver; @used_bytes: of that allocated
 * @graphs: that were captured with it, or are being so
 */
struct fdry_graphpool_info {
	size_t sz;
	uint64_t reserved_bytes, used_bytes;
	uint32_t graphs, sealed, capturing;
};
int fdry_graphpool_info(const struct fdry_graphpool *pool, struct fdry_graphpool_info *ret);

/* ------------------------------------------------------------ graphs --- */

struct fdry_cudagraph;

/* As for a pool. */
struct fdry_cudagraph_opts {
	size_t sz;
	const char *driver;
	int32_t device;
	uint32_t reserved;
};

/* What the driver forbids meanwhile. */
enum fdry_cudagraph_mode {
	FDRY_CUDAGRAPH_MODE_DEFAULT = 0,      /* relaxed */
	FDRY_CUDAGRAPH_MODE_GLOBAL = 1,       /* no thread may make calls that could break it, such as cuMemAlloc */
	FDRY_CUDAGRAPH_MODE_THREAD_LOCAL = 2, /* this thread may not */
	FDRY_CUDAGRAPH_MODE_RELAXED = 3,      /* all may */
};

/* Flags for instantiation, as the driver has them; others are handed on as they are. */
enum fdry_instantiate_flags {
	FDRY_INSTANTIATE_AUTO_FREE = 1 << 0,     /* a launch frees what the one before allocated and left */
	FDRY_INSTANTIATE_DEVICE_LAUNCH = 1 << 2, /* kernels may launch it */
	FDRY_INSTANTIATE_PRIORITY = 1 << 3,      /* nodes run at priorities of their own */
};

/**
 * struct fdry_cudagraph_begin_opts - How to capture.
 * @sz: sizeof(struct fdry_cudagraph_begin_opts)
 * @stream: to capture, of the device's primary context and not the default one; NULL: a side stream,
 *          which is current to this thread until the end, when the one before is so again
 * @pool: for what is allocated meanwhile; NULL: the graph's own
 * @mode: of enum fdry_cudagraph_mode
 */
struct fdry_cudagraph_begin_opts {
	size_t sz;
	CUstream stream;
	struct fdry_graphpool *pool;
	uint32_t mode;
	uint32_t reserved;
};

/* An empty graph, yours until fdry_cudagraph_free(). @opts: NULL for the defaults. FDRY_E_NODRIVER, FDRY_E_NOGPU,
 * FDRY_E_FORKED. */
int fdry_cudagraph_new(const struct fdry_cudagraph_opts *opts, struct fdry_cudagraph **ret);
/**
 * fdry_cudagraph_begin() - Begin a capture into an empty graph.
 * @opts: NULL for the defaults
 *
 * What is put on the stream is recorded and not done. The graph holds the pool from here on. Two captures
 * at a time need two graphs, two streams and two pools, and no more.
 * Errors: FDRY_E_STATE (the graph is not empty; the pool is sealed, or another capture uses it; the
 * stream captures already), FDRY_E_INVAL (the stream is not one that can).
 */
int fdry_cudagraph_begin(struct fdry_cudagraph *g, const struct fdry_cudagraph_begin_opts *opts);
/**
 * fdry_cudagraph_end() - End the capture; the graph then has nodes and can be instantiated.
 *
 * In the thread that began it where the stream is a side stream or the mode is not relaxed
 * (FDRY_E_STATE, and the capture goes on). Any other failure (something that a capture forbids was
 * done; another stream was not joined; no graph came of it) ends the capture as well: the graph is
 * empty, and the stream usable. Errors: FDRY_E_STATE (nothing begun, or no graph), FDRY_E_DRIVER.
 */
int fdry_cudagraph_end(struct fdry_cudagraph *g);
/**
 * fdry_cudagraph_instantiate() - Make what can be launched.
 * @flags: of enum fdry_instantiate_flags; to upload is a call of its own
 *
 * A failure makes nothing: the captured graph stays, and other flags may be tried.
 * Errors: FDRY_E_STATE (nothing captured; instantiated already), FDRY_E_INVAL, FDRY_E_NODEVMEM, FDRY_E_DRIVER.
 */
int fdry_cudagraph_instantiate(struct fdry_cudagraph *g, uint64_t flags);
/* Bring it to the device ahead of the first launch, in the order of @stream. A failure undoes
 * the instantiation, so that nothing half uploaded is launched: the captured graph stays. */
int fdry_cudagraph_upload(struct fdry_cudagraph *g, CUstream stream);
/**
 * fdry_cudagraph_launch() - Launch it; asynchronous, from any thread.
 * @stream: of the device's primary context; NULL is its legacy default stream
 *
 * Launches of one graph never overlap. An event behind each says when it is over.
 * Errors: FDRY_E_STATE (nothing captured, not instantiated, or the graph was reset; @stream captures), FDRY_E_INVAL.
 */
int fdry_cudagraph_launch(struct fdry_cudagraph *g, CUstream stream);
/* Wait until its launches so far are over. */
int fdry_cudagraph_synchronize(struct fdry_cudagraph *g);
/* Make it empty again: waits for launches in flight, ends a capture that goes on and throws away what it recorded,
 * destroys, lets go of the pool. On failure (the capture is another thread's) nothing has changed. */
int fdry_cudagraph_reset(struct fdry_cudagraph *g);
/* The same, and free it. No other thread may use it any more. NULL is fine. */
void fdry_cudagraph_free(struct fdry_cudagraph *g);

/* The stream that it captures; FDRY_E_STATE outside of a capture. */
int fdry_cudagraph_stream(struct fdry_cudagraph *g, CUstream *ret);
/* The pool of its last capture, until the graph is reset, else its own. It lives as long as that is so; for longer take another
 * reference: fdry_graphpool_get(). */
int fdry_cudagraph_pool(struct fdry_cudagraph *g, struct fdry_graphpool **ret);
/* The driver's handles, which the graph keeps: FDRY_E_STATE where there is none yet. */
int fdry_cudagraph_graph(struct fdry_cudagraph *g, CUgraph *ret);
int fdry_cudagraph_exec(struct fdry_cudagraph *g, CUgraphExec *ret);

/* Puts work on @stream, which captures in the last run: 0; a negative code of the library's, whose sentence is
 * handed on; or a positive number of its own (FDRY_E_CALLBACK). */
typedef int (*fdry_cudagraph_fn)(void *arg, CUstream stream);

/**
 * struct fdry_cudagraph_run_opts - What to capture, and how.
 * @sz: sizeof(struct fdry_cudagraph_run_opts)
 * @fn, @arg: what to capture
 * @warmups: runs before, on the same stream
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
 * A side stream first waits for the thread's current stream, and is current in the warm-up runs as well. Before the
 * capture everything on the stream is complete.
 * A function that fails ends the capture: the graph is empty, the stream usable, the thread's current
 * stream what it was. So for any other failure.
 */
int fdry_cudagraph_run(struct fdry_cudagraph *g, const struct fdry_cudagraph_run_opts *opts);

#ifdef __cplusplus
}
#endif

#endif
