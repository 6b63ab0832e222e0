/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - a loaded image: load.c makes it, image.c and launch.c use it.
 *
 * The manifest is a verified copy that lives as long as the image. Graph objects are shared with
 * other images. No reader of the store outlives the load. Memory belongs to the device's primary
 * context. Kernels and execs (executable graphs) belong to that, or to a private context of the
 * image.
 *
 * Locking: a thread that builds graphs, restores or compares content holds @ticket. It returns the
 * ticket while it repairs damaged objects in the store, and sets @repairing for that. @lock guards
 * the set of filled tensors, the report, @damaged and @stop, and is never held for long. Nothing
 * else changes after the load.
 */
#ifndef FDRY_IMAGE_IMAGE_H
#define FDRY_IMAGE_IMAGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "image/base.h"
#include "image/budget.h"
#include "foundry.h"
#include "image/identity.h"
#include "image/manifest.h"
#include "image/shared_graph.h"
#include "image/capture/interposer.h"
#include "arch/driver.h"
#include "lib/threads.h"
#include "graph/graph.h"
#include "mm/region.h"
#include "store/store.h"

struct fdry_image_exec {
	struct fdry_shared_graph
		*graph; /* the graph object; NULL if an exec before it has the same */
	struct fdry_graph_view view;
	struct fdry_graph_built built;
	const struct fdry_graph_word *words; /* addresses of variables in its arguments: see
						targets.h */
	uint32_t nwords;
	CUevent *events;           /* by index: those that other graphs use, too, or NULL; see
				      events.h */
	_Atomic(CUgraphExec) exec; /* NULL until built */
	bool counted;              /* its first building is in the report */
};

enum fdry_content_state {
	FDRY_CONTENT_WHOLE,
	FDRY_CONTENT_PARTIAL, /* it is half restored: no graph may run */
	FDRY_CONTENT_DUE,     /* it is to be compared when it is first used */
	FDRY_CONTENT_WRONG,   /* that found a difference: nothing may use it */
};

struct fdry_image {
	struct fdry_oid id;
	char name[FDRY_REF_NAME_MAX + 1]; /* by which it was loaded, in messages */
	pid_t pid;                 /* of the process that loaded it */
	struct fdry_store *store;  /* a handle of its own, for restoring content */
	double start_ms;           /* when the load began, by the clock of clock.h */
	bool verify;               /* FDRY_LOAD_VERIFY */
	bool check_overlap;        /* launches are checked (overlap.h) */
	const struct fdry_driver *drv;
	CUdevice device;
	CUcontext primary;         /* retained; callers' streams belong to it */
	CUcontext ctx; /* the context of kernels and graphs: the primary or a private one */
	CUstream stream;           /* for content; shared, see arch/stream.h */
	size_t limit_was[FDRY_MF_LIMITS]; /* by limit: its value before the load raised it; 0: not
					     raised */
	struct fdry_buf bytes;     /* the manifest */
	struct fdry_budget budget; /* limits the host memory that the load allocates */
	struct fdry_manifest m;
	struct fdry_region *region;
	struct fdry_placed placed; /* its addresses */
	const struct fdry_hook *place_hook; /* not NULL: the image lies in the region of this
					       interposer's capture, @region is NULL, and two fields
					       follow */
	struct fdry_buf claimed;   /* CUdeviceptr each: allocations made there for the image */
	struct fdry_buf
		kept; /* struct fdry_memory each, ascending: memory of the process that the load
			 never writes */
	bool reuse;                /* content that is on the device already is not copied: */
	uint8_t *in_place;         /* such chunks, by index in m.chunks, during a load; NULL:
				      none */
	struct fdry_buf capacities; /* struct fdry_capacity each, of the tensors that have one */
	uint8_t *pinned; /* by position in m.pinned: how it was made; see image_pinned.c */
	struct fdry_buf pinned_pages; /* struct fdry_memory each: pages mapped for these */
	bool keep_listed; /* the caller has listed the memory in @kept */
	void *host;                /* pinned: all host segments without a fixed address; NULL:
				      none */
	struct fdry_host_segment *hosts; /* by position in m.hosts */
	struct fdry_cuarray *arrays; /* by position in m.arrays; see arrays.h */
	CUmipmappedArray *mipmaps; /* by position in m.mipmaps; see arrays.h */
	struct fdry_buf functions; /* struct fdry_host_function each: functions.h */
	struct fdry_buf semaphores; /* struct fdry_semaphore each: semaphores.h; whoever holds the
				       ticket changes them */
	struct fdry_kernel *kernels;
	struct fdry_kernel_bank *bank;
	struct fdry_buf *values;      /* by position in m.variables; see variables.h */
	struct fdry_buf writable;     /* the copies of variables.h */
	CUdeviceptr *targets;         /* by position in m.targets; see targets.h */
	struct fdry_image *next_pointing; /* in the list of targets.c */
	struct fdry_graph_word *words; /* by position in m.arg_pointers */
	CUevent *events;              /* by number in m.events; see events.h */
	struct fdry_image_exec *execs; /* by position in m.graphs */
	uint32_t *order; /* positions in m.graphs, in the order of expected first launches */
	struct fdry_ticket ticket;
	struct fdry_builder *builder; /* NULL: none was started */
	struct fdry_private_ctx *private_ctx;      /* NULL: the context is the primary one */
	struct fdry_overlap *overlap; /* NULL: launches are not checked */
	struct fdry_random *random;   /* NULL: no graph draws random numbers */
	_Atomic uint64_t launches;
	pthread_mutex_t lock;
	pthread_mutex_t staging_lock;
	struct fdry_staging *staging; /* NULL until the first asynchronous write */
	pthread_mutex_t progress_lock; /* recursive; guards progress */
	fdry_progress_fn progress; /* may be NULL */
	void *progress_arg;
	uint64_t built_reported;   /* graphs whose building was reported */
	uint8_t *filled;           /* by position in m.tensors: the tensor is external and filled */
	_Atomic uint32_t unfilled; /* the number of external tensors that are not filled */
	_Atomic int content;       /* of enum fdry_content_state */
	struct fdry_saved_err content_err; /* FDRY_CONTENT_WRONG: what each use of it returns */
	bool check_prepared;       /* fdry_check_prepare() has ended */
	struct fdry_shared_fingerprinter *fingerprinter; /* NULL: the host checks content */
	struct fdry_buf damaged;   /* struct fdry_oid each: damaged objects, to be repaired in the
				      store */
	bool repairing;            /* a thread repairs them, without the ticket; whoever holds the
				      ticket changes this */
	fdry_stop_fn stop;         /* NULL, or may end a wait for a repair; @lock guards both */
	void *stop_arg;
	struct fdry_mismatch *mismatch; /* during the load: gets the field that differs; may be
					   NULL */
	struct fdry_load_report report;
};

/* The source of a load. */
struct fdry_load_source {
	struct fdry_store *store;
	const char *name;
	struct fdry_arrival *arrival; /* of the image's objects; NULL: the store has them */
};

/* Do what fdry_image_load() does, without asking a registry. */
int fdry_image_load_stored(const struct fdry_load_source *from, const struct fdry_load_opts *opts,
			   struct fdry_mismatch *mismatch, struct fdry_image **ret) __must_check;
/* Do what fdry_image_load() does. If the image was made for something else, @mismatch gets the
 * field that differs. @mismatch is zeroed, or NULL. */
int fdry_image_load_reporting(struct fdry_store *store, const char *name,
			      const struct fdry_load_opts *opts, struct fdry_mismatch *mismatch,
			      struct fdry_image **ret) __must_check;

/* --- context.c --- */

/* Every public function calls this first. FDRY_E_INVAL for NULL, FDRY_E_FORKED in a child of the
 * process that loaded the image. */
int fdry_image_usable(const struct fdry_image *img) __must_check;

/* Call fdry_driver_enter() with the image's context, or with the primary context, which callers'
 * streams belong to. fdry_image_leave() undoes both. */
int fdry_image_enter(const struct fdry_image *img, CUstreamCaptureMode *mode) __must_check;
int fdry_image_enter_primary(const struct fdry_image *img, CUstreamCaptureMode *mode) __must_check;
void fdry_image_leave(const struct fdry_image *img, CUstreamCaptureMode *mode);

/* Prefix the sentence of an error with the image's name; 0 stays 0. */
int fdry_image_fail(const struct fdry_image *img, int err);

/* Check a caller's stream. The primary context is current. FDRY_E_INVAL if the stream belongs to
 * another context, or if the driver reports that it was destroyed; FDRY_E_STATE if it captures. */
int fdry_image_stream_check(const struct fdry_image *img, CUstream stream) __must_check;

/* progress.c: functions that wait for work on the image call this. FDRY_E_STATE if the image's own
 * progress function made the call. */
int fdry_image_check_outside(const struct fdry_image *img) __must_check;
/* Ask the function of fdry_image_stop_set() whether to stop. @img: a struct fdry_image. In that
 * function, calls that wait for work on the image fail as in a progress function. */
int fdry_image_stop_ask(void *img);
/* Report to the caller's function. The calling thread holds no lock of the image, and the ticket
 * only while content is restored. */
void fdry_image_progress(struct fdry_image *img, enum fdry_phase phase, uint64_t done,
			 uint64_t total);
void fdry_image_progress_built(struct fdry_image *img);
/* Whether this thread runs a progress function of any load. */
bool fdry_image_progress_runs(void);

/* image.c: note that no external tensor is filled. FDRY_E_NOMEM. */
int fdry_image_unfilled_make(struct fdry_image *img) __must_check;

/* --- restore.c --- */

/* Compare content when it is first used, if it has fingerprints. */
void fdry_content_delay(struct fdry_image *img);
/* Before content is used: compare it if that is due. The ticket must be free. Costs one load if
 * nothing is due. */
int fdry_content_use(struct fdry_image *img) __must_check;

/* --- content.c: copies content from the store to the device; the image's context is current --- */

struct fdry_content;
struct fdry_content_check;

struct fdry_content_sum {
	uint64_t bytes, hashed; /* bytes copied; of these, bytes hashed */
	uint64_t checked;       /* bytes of host content compared with their fingerprints */
};

/**
 * fdry_content_new() - Start the threads that read and copy content. They open readers of the store
 * and make memory for blocks, then wait.
 * @threads: the most threads that read and copy, the caller among them; 0: as many as are useful
 *
 * Needs the manifest, but no driver. What the process keeps (@kept, @in_place) must be known.
 * fdry_content_end() must follow, also after a failure of a later step.
 */
int fdry_content_new(struct fdry_image *img, unsigned int threads,
		     struct fdry_content **ret) __must_check;
/**
 * fdry_content_begin() - Find, verify and read content, as far as possible before device memory is
 * mapped.
 * @reader: the caller's session, which outlives the content
 * @c: what fdry_content_new() made; if it is NULL, that is called first, with @threads
 *
 * fdry_content_end() must follow, also after a failure.
 */
int fdry_content_begin(struct fdry_image *img, struct fdry_reader *reader, unsigned int threads,
		       struct fdry_content **c) __must_check;
/* The bytes to copy. */
uint64_t fdry_content_bytes(const struct fdry_content *c);
/**
 * fdry_content_copy() - Copy every chunk to its address, and wait until all have arrived.
 * @check: gets a check of the content, which is under way (check.h); NULL: begin none
 *
 * The image's memory must be mapped. Adds to @sum. *@check may be set after a failure, too.
 */
int fdry_content_copy(struct fdry_content *c, struct fdry_content_sum *sum,
		      struct fdry_content_check **check) __must_check;
/* Free the content, also if nothing was copied; @c may be NULL. The message of the last failure
 * stays. */
void fdry_content_end(struct fdry_content *c);
/* Zero all memory of content, on the stream that copies the content later. */
int fdry_content_zero(struct fdry_image *img) __must_check;

#endif
