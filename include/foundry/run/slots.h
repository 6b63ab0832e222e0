/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.h - executable graphs in slots, found by a 64-bit key. Part of foundry/run.h, whose rules for
 * errors, threads and units hold here.
 *
 * A program captures one graph for each shape it serves, keeps them all, and launches by key. A slot
 * is replaced or invalidated at any time, while other threads replay: they launch either the old
 * graph or the new one, and the old one is destroyed when no thread uses it any more and its
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
	FDRY_SLOTS_UPLOAD_DEFAULT = 0, /* what FOUNDRY_SLOTS_UPLOAD says; without it, first */
	FDRY_SLOTS_UPLOAD_FIRST = 1,   /* once, when they are put into their slot */
	FDRY_SLOTS_UPLOAD_ALWAYS = 2,  /* then, and on the launch stream before each launch */
};

/* Whether a replay waits for its launch. */
enum fdry_slots_sync {
	FDRY_SLOTS_SYNC_DEFAULT = 0, /* what FOUNDRY_SLOTS_SYNC says; without it, never */
	FDRY_SLOTS_SYNC_NEVER = 1,
	FDRY_SLOTS_SYNC_ALWAYS = 2,  /* a replay returns when its stream is idle */
};

/**
 * struct fdry_slots_opts - What a table is for.
 * @sz: sizeof(struct fdry_slots_opts)
 * @device: ordinal; graphs and streams belong to its primary context
 * @upload: of enum fdry_slots_upload; images' graphs are uploaded once, always
 * @sync: of enum fdry_slots_sync
 * @reserved: zero
 * @ctx: another context that graphs and streams belong to; it outlives the table. NULL: the primary one
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
 * @ret: the table, yours until fdry_slots_free()
 *
 * Retains the device's primary context. Errors: FDRY_E_NODRIVER, FDRY_E_NOGPU, FDRY_E_OPTS,
 * FDRY_E_ENV (FOUNDRY_SLOTS_UPLOAD, _SYNC or _PROFILE has a value that is not allowed).
 */
int fdry_slots_new(const struct fdry_slots_opts *opts, struct fdry_slots **ret);
/* Wait for launches in flight, destroy what the table owns, free it. NULL is fine. Not while another
 * thread uses the table. From within its callback nothing happens: fdry_last_error() says so. */
void fdry_slots_free(struct fdry_slots *slots);

enum fdry_slots_flags {
	FDRY_SLOTS_OWN_EXEC = 1 << 0,  /* the table destroys the executable graph */
	FDRY_SLOTS_OWN_GRAPH = 1 << 1, /* the table destroys the graph */
};

/**
 * fdry_slots_install() - Put an executable graph into a slot.
 * @key: of the slot; what is in it is replaced
 * @graph: what @exec was made of, for FDRY_SLOTS_OWN_GRAPH; NULL where it is not to be kept
 * @exec: instantiated in the table's context
 * @flags: of enum fdry_slots_flags; what the table does not own outlives the slot
 *
 * Uploads @exec and waits for that. Replays that begin after the return launch the new graph; the
 * old one is destroyed, where the table owns it, when its launches have ended: the call waits.
 *
 * Ownership passes when the call succeeds; what is in the slot stays where it fails.
 * Errors: FDRY_E_INVAL (@exec is NULL, FDRY_SLOTS_OWN_GRAPH without a graph; a slot has @exec already, and one of
 * the two owns it; a slot owns @graph already), FDRY_E_DRIVER and
 * FDRY_E_NODEVMEM (uploading), FDRY_E_NOMEM, FDRY_E_STATE (from the table's callback), FDRY_E_FORKED.
 */
int fdry_slots_install(struct fdry_slots *slots, uint64_t key, CUgraph graph, CUgraphExec exec, uint32_t flags);
/**
 * fdry_slots_install_graph() - Instantiate a graph and put it into a slot.
 * @graph: stays yours unless @flags has FDRY_SLOTS_OWN_GRAPH
 * @instantiate: flags of cuGraphInstantiateWithFlags(), handed on
 * @flags: 0 or FDRY_SLOTS_OWN_GRAPH; the executable graph is the table's
 *
 * As fdry_slots_install(). Where instantiating, uploading or anything else fails, what was
 * instantiated is destroyed. FDRY_E_INVAL for a graph that is NULL.
 */
int fdry_slots_install_graph(struct fdry_slots *slots, uint64_t key, CUgraph graph, uint64_t instantiate, uint32_t flags);
/**
 * fdry_slots_capture_end() - End a stream's capture and put the graph into a slot.
 * @stream: captures, begun by whatever means; usable again after the call, also where it fails
 * @instantiate: flags of cuGraphInstantiateWithFlags()
 *
 * As fdry_slots_install_graph(); graph and executable graph are the table's, and both are destroyed
 * where the call fails. FDRY_E_STATE where @stream does not capture, or where no graph came of it.
 */
int fdry_slots_capture_end(struct fdry_slots *slots, uint64_t key, CUstream stream, uint64_t instantiate);
/**
 * fdry_slots_install_image() - Put a graph of a loaded image into a slot.
 * @img: stays loaded until the slot is replaced or invalidated
 * @graph: its key in the image; FDRY_E_NOKEY
 *
 * Builds the graph, uploaded. A replay is then what fdry_image_launch() is, with its errors.
 * FDRY_E_INVAL where the image is on another device or the table has a context of its own.
 */
int fdry_slots_install_image(struct fdry_slots *slots, uint64_t key, struct fdry_image *img, uint64_t graph);

/**
 * fdry_slots_invalidate() - Empty a slot.
 *
 * When it returns, no replay launches the graph any more and all its launches have ended: memory
 * that it uses may be freed. Replays of the key find nothing then. An empty slot is no error.
 *
 * The streams that it was launched on may be destroyed by then, or capture. FDRY_E_STATE from the
 * table's callback: nothing is changed.
 */
int fdry_slots_invalidate(struct fdry_slots *slots, uint64_t key);
/* The same for every slot. */
int fdry_slots_invalidate_all(struct fdry_slots *slots);

/**
 * fdry_slots_replay() - Launch the graph of a slot.
 * @stream: of the table's context; NULL is its legacy default stream
 * @launched: 1; 0 where the slot is empty, which is no error: do without the graph
 *
 * Asynchronous, unless the table synchronises. From any thread, on any number of streams; no lock is
 * taken. The driver orders launches of one graph one after another. Errors: FDRY_E_STATE (@stream captures; the capture
 * goes on), those of the driver.
 */
int fdry_slots_replay(struct fdry_slots *slots, uint64_t key, CUstream stream, int *launched);

/* Whether the slot holds a graph, as of now: 0 or 1. */
int fdry_slots_has(struct fdry_slots *slots, uint64_t key);
/**
 * fdry_slots_keys() - List the slots that hold graphs, in no particular order.
 * @keys: gets @room of them at most; NULL where only their number is asked
 * @count: how many there are
 */
int fdry_slots_keys(struct fdry_slots *slots, uint64_t *keys, size_t room, size_t *count);

/* --------------------------------------------------------- profiling --- */

/* What one replay took, in nanoseconds; 0 for what it did not do. */
struct fdry_slots_call {
	uint64_t key;
	uint64_t nr; /* of the call, from 1 */
	uint64_t upload_ns, launch_ns, sync_ns;
	uint64_t total_ns; /* of the whole call, the search included */
};

/* Told of every Nth call, in the thread that replays. It may replay; what waits for replays to end
 * (install, invalidate, profile) is refused from here with FDRY_E_STATE. */
typedef void (*fdry_slots_fn)(void *arg, const struct fdry_slots_call *call);

/**
 * struct fdry_slots_profile_opts - What is told while replays run.
 * @sz: sizeof(struct fdry_slots_profile_opts)
 * @every: each so many calls a line is logged (level info) and @fn called; 0: never
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
 * @opts: NULL: no more
 *
 * Times begin anew. FOUNDRY_SLOTS_PROFILE=N does it for every table that is made, with N for @every.
 * When it returns, the function given before is not called any more. While it is off, replays do not
 * look at the clock.
 */
int fdry_slots_profile(struct fdry_slots *slots, const struct fdry_slots_profile_opts *opts);

/* A part of replays, in nanoseconds: half, 90 % and 99 % of them took at most so long, exact to a
 * sixteenth, and never more than @max. */
struct fdry_slots_phase {
	uint64_t calls; /* that did this part */
	uint64_t total_ns, p50_ns, p90_ns, p99_ns, max_ns;
};

/* Set @sz to sizeof(struct fdry_slots_stats). Calls that failed, or found nothing, do not count. */
struct fdry_slots_stats {
	size_t sz;
	struct fdry_slots_phase upload, launch, sync, total;
};

/* What was timed so far. FDRY_E_STATE where profiling is off. Calls that end meanwhile may be in it or not. */
int fdry_slots_stats(struct fdry_slots *slots, struct fdry_slots_stats *ret);
/* Begin anew. FDRY_E_STATE where profiling is off. */
int fdry_slots_stats_reset(struct fdry_slots *slots);

#ifdef __cplusplus
}
#endif

#endif
