/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.h - executable graphs in slots, found by a 64-bit key. Part of foundry/run.h. The rules of
 * foundry.h for errors, threads, handles and units apply.
 *
 * A program captures one graph for each shape it serves, keeps them all, and launches by key. It
 * may replace or invalidate a slot at any time, while other threads replay. They launch either the
 * old graph or the new one. The old graph is destroyed when no thread uses it any more and its
 * launches have ended.
 */
#ifndef FOUNDRY_RUN_SLOTS_H
#define FOUNDRY_RUN_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As <cuda.h> declares them. */
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUctx_st *CUcontext;

struct fdry_slots;
struct fdry_image;

/* When graphs are uploaded to the device. */
enum fdry_slots_upload {
	FDRY_SLOTS_UPLOAD_DEFAULT = 0, /* FOUNDRY_SLOTS_UPLOAD if it is set, else first */
	FDRY_SLOTS_UPLOAD_FIRST = 1,   /* once, when they are put into their slot */
	FDRY_SLOTS_UPLOAD_ALWAYS = 2,  /* then, and on the launch stream before each launch */
};

/* Whether a replay waits for its launch. */
enum fdry_slots_sync {
	FDRY_SLOTS_SYNC_DEFAULT = 0, /* FOUNDRY_SLOTS_SYNC if it is set, else never */
	FDRY_SLOTS_SYNC_NEVER = 1,
	FDRY_SLOTS_SYNC_ALWAYS = 2,  /* a replay returns when its stream is idle */
};

/**
 * struct fdry_slots_opts - The options of a table.
 * @sz: sizeof(struct fdry_slots_opts)
 * @device: ordinal; graphs and streams belong to its primary context
 * @upload: of enum fdry_slots_upload; graphs of images as fdry_image_build() says
 * @sync: of enum fdry_slots_sync
 * @reserved: zero
 * @ctx: another context to which graphs and streams belong; it must outlive the table. NULL: the
 *         primary context
 * @driver: path of the driver; NULL: FOUNDRY_DRIVER, else libcuda.so.1
 */
struct fdry_slots_opts {
	size_t sz;
	int32_t device;
	uint32_t upload;
	uint32_t sync;
	uint32_t reserved;
	CUcontext ctx;
	const char *driver;
};

/**
 * fdry_slots_new() - Make an empty table.
 * @opts: NULL for the defaults
 * @ret: the table; free it with fdry_slots_free()
 *
 * The table retains the device's primary context. Errors: FDRY_E_NODRIVER, FDRY_E_NOGPU,
 * FDRY_E_OPTS, FDRY_E_ENV (FOUNDRY_SLOTS_UPLOAD, _SYNC or _PROFILE has a value that is not
 * allowed).
 */
int fdry_slots_new(const struct fdry_slots_opts *opts, struct fdry_slots **ret);
/* Wait for launches in flight, destroy what the table owns, and free it. NULL is allowed. No other
 * thread may use the table. In the table's callback the call does nothing, and fdry_last_error()
 * says so. */
void fdry_slots_free(struct fdry_slots *slots);

enum fdry_slots_flags {
	FDRY_SLOTS_OWN_EXEC = 1 << 0,  /* the table destroys the executable graph */
	FDRY_SLOTS_OWN_GRAPH = 1 << 1, /* the table destroys the graph */
};

/**
 * fdry_slots_install() - Put an executable graph into a slot.
 * @key: of the slot; a graph that is in it is replaced
 * @graph: the graph that @exec was made of, for FDRY_SLOTS_OWN_GRAPH; NULL if it is not to be kept
 * @exec: instantiated in the table's context
 * @flags: of enum fdry_slots_flags; what the table does not own must outlive the slot
 *
 * The call uploads @exec and waits for that. Replays that begin after it returns launch the new
 * graph. The call also waits until the launches of the old graph have ended, and destroys it if the
 * table owns it.
 *
 * If the call succeeds the table owns what @flags say. If it fails the slot keeps its graph.
 * Errors: FDRY_E_INVAL (@exec is NULL; FDRY_SLOTS_OWN_GRAPH without a graph; a slot has @exec
 * already, and one of the two owns it; a slot owns @graph already), FDRY_E_DRIVER and
 * FDRY_E_NODEVMEM (uploading), FDRY_E_NOMEM, FDRY_E_STATE (in the table's callback), FDRY_E_FORKED.
 */
int fdry_slots_install(struct fdry_slots *slots, uint64_t key, CUgraph graph, CUgraphExec exec,
		       uint32_t flags);
/**
 * fdry_slots_install_graph() - Instantiate a graph and put it into a slot.
 * @graph: the caller keeps it unless @flags has FDRY_SLOTS_OWN_GRAPH
 * @instantiate: flags of cuGraphInstantiateWithFlags()
 * @flags: 0 or FDRY_SLOTS_OWN_GRAPH; the table owns the executable graph
 *
 * As fdry_slots_install(). If instantiating, uploading or anything else fails, the executable graph
 * is destroyed. FDRY_E_INVAL if @graph is NULL.
 */
int fdry_slots_install_graph(struct fdry_slots *slots, uint64_t key, CUgraph graph,
			     uint64_t instantiate, uint32_t flags);
/**
 * fdry_slots_capture_end() - End a stream's capture and put the graph into a slot.
 * @stream: a capturing stream, however its capture began. It can be used after the call, even if
 *         the call fails
 * @instantiate: flags of cuGraphInstantiateWithFlags()
 *
 * As fdry_slots_install_graph(). The table owns the graph and the executable graph; if the call
 * fails both are destroyed. FDRY_E_STATE if @stream is not capturing, or the capture made no graph.
 */
int fdry_slots_capture_end(struct fdry_slots *slots, uint64_t key, CUstream stream,
			   uint64_t instantiate);
/**
 * fdry_slots_install_image() - Put a graph of a loaded image into a slot.
 * @img: must stay loaded until the slot is replaced or invalidated
 * @graph: the graph's key in the image; FDRY_E_NOKEY
 *
 * The call builds the graph (fdry_image_build()). A replay then does what fdry_image_launch() does,
 * with its errors. FDRY_E_INVAL if the image is on another device, or the table has a context of
 * its own.
 */
int fdry_slots_install_image(struct fdry_slots *slots, uint64_t key, struct fdry_image *img,
			     uint64_t graph);

/**
 * fdry_slots_invalidate() - Empty a slot.
 *
 * When the call returns, no replay launches the graph any more and all its launches have ended:
 * memory that it uses may be freed. Later replays of the key find nothing. An empty slot is no
 * error.
 *
 * The streams on which the graph was launched may be destroyed by then, or be capturing.
 * FDRY_E_STATE in the table's callback: nothing has changed.
 */
int fdry_slots_invalidate(struct fdry_slots *slots, uint64_t key);
/* The same for every slot. */
int fdry_slots_invalidate_all(struct fdry_slots *slots);

/**
 * fdry_slots_replay() - Launch the graph of a slot.
 * @stream: of the table's context; NULL is its legacy default stream
 * @launched: 1; 0 if the slot is empty, which is no error: run without the graph
 *
 * Asynchronous, unless the table synchronises. Any thread may call it, on any number of streams;
 * the call takes no lock. The driver runs launches of one graph one after another. Errors:
 * FDRY_E_STATE (@stream is capturing; the capture continues), those of the driver.
 */
int fdry_slots_replay(struct fdry_slots *slots, uint64_t key, CUstream stream, int *launched);

/* Whether the slot holds a graph now: 0 or 1. */
int fdry_slots_has(struct fdry_slots *slots, uint64_t key);
/**
 * fdry_slots_keys() - List the slots that hold graphs, in no particular order.
 * @keys: gets at most @capacity keys; NULL if only their number is asked for
 * @count: the number of such slots
 */
int fdry_slots_keys(struct fdry_slots *slots, uint64_t *keys, size_t capacity, size_t *count);

/* --------------------------------------------------------- profiling --- */

/* The times of one replay, in nanoseconds; 0 for a part that it did not do. */
struct fdry_slots_call {
	uint64_t key;
	uint64_t nr; /* of the call, from 1 */
	uint64_t upload_ns, launch_ns, sync_ns;
	uint64_t total_ns; /* of the whole call, the search included */
};

/* Called after every Nth replay, in the thread that replays. It may replay. Calls that wait for
 * replays to end (install, invalidate, profile) fail in it with FDRY_E_STATE. */
typedef void (*fdry_slots_fn)(void *arg, const struct fdry_slots_call *call);

/**
 * struct fdry_slots_profile_opts - What is reported while replays run.
 * @sz: sizeof(struct fdry_slots_profile_opts)
 * @every: after this many calls a line is logged (level info) and @fn is called; 0: never
 * @fn, @arg: may be NULL
 */
struct fdry_slots_profile_opts {
	size_t sz;
	uint64_t every;
	fdry_slots_fn fn;
	void *arg;
};

/**
 * fdry_slots_profile() - Time replays from now on.
 * @opts: NULL: stop
 *
 * All times begin again. FOUNDRY_SLOTS_PROFILE=N does the same for every new table, with N as
 * @every. When the call returns, the former function is not called any more. While profiling is
 *         off, replays do not read the clock.
 */
int fdry_slots_profile(struct fdry_slots *slots, const struct fdry_slots_profile_opts *opts);

/* The times of one part of replays, in nanoseconds. Half, 90 % and 99 % of the calls took at most
 * so long, exact to a sixteenth, and never more than @max. */
struct fdry_slots_phase {
	uint64_t calls; /* that did this part */
	uint64_t total_ns, p50_ns, p90_ns, p99_ns, max_ns;
};

/* Set @sz to sizeof(struct fdry_slots_stats). Calls that failed, or found no graph, do not count.
 */
struct fdry_slots_stats {
	size_t sz;
	struct fdry_slots_phase upload, launch, sync, total;
};

/* The times so far. FDRY_E_STATE if profiling is off. Calls that end at the same moment may be in
 * them or not. */
int fdry_slots_stats(struct fdry_slots *slots, struct fdry_slots_stats *ret);
/* Begin again. FDRY_E_STATE if profiling is off. */
int fdry_slots_stats_reset(struct fdry_slots *slots);

#ifdef __cplusplus
}
#endif

#endif
