/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - a loaded image, as load.c makes it and image.c and launch.c use it.
 *
 * The manifest is a verified copy that lives as long as the image; graph objects are shared with
 * other images. No store session outlives the load. Memory belongs to the device's primary context,
 * kernels and execs to that or to a private context of the image.
 *
 * Locking: a thread that builds or restores holds @ticket. @lock guards the set of filled tensors,
 * the report and @damaged, and is never held for long. Nothing else changes after the load.
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
	CUevent *events;           /* by index: those that other graphs use, too, or NULL; see
				      events.h */
	_Atomic(CUgraphExec) exec; /* NULL until built */
};

struct fdry_image {
	struct fdry_oid id;
	char name[FDRY_REF_NAME_MAX + 1]; /* by which it was loaded, in messages */
	pid_t pid;                 /* of the process that loaded it */
	struct fdry_store *store;  /* a handle of its own, for restoring content */
	double start_ms;           /* when the load began, by the clock of clock.h */
	bool verify;               /* FDRY_LOAD_VERIFY */
	bool check_overlap;        /* launches are to be checked */
	const struct fdry_driver *drv;
	CUdevice device;
	CUcontext primary;         /* retained; callers' streams belong to it */
	CUcontext ctx; /* what kernels and graphs belong to: the primary one, or the image's own */
	CUstream stream;           /* for content; shared, see arch/stream.h */
	size_t stack_was;          /* the context's limit before it was raised; 0: it was not */
	struct fdry_buf bytes;     /* the manifest */
	struct fdry_budget budget; /* host memory that the load may take for it */
	struct fdry_manifest m;
	struct fdry_region *region;
	struct fdry_placed placed; /* its addresses */
	const struct fdry_hook *place_hook; /* NULL, or whose region it was placed into: there is no
					       @region then, */
	struct fdry_buf claimed;   /* CUdeviceptr: allocations made there for the image, */
	struct fdry_buf
		kept; /* struct fdry_memory, ascending: what the process keeps its own bytes in */
	bool reuse;                /* content that is there already is not copied: */
	uint8_t *in_place;         /* by position in m.chunks, during a load; NULL: none is */
	struct fdry_buf capacities; /* of struct fdry_capacity: of tensors that have one */
	void *host;                /* pinned: all host segments; NULL: none */
	struct fdry_host_segment *hosts; /* by position in m.hosts */
	struct fdry_kernel *kernels;
	struct fdry_kernel_bank *bank;
	struct fdry_buf *values;      /* by position in m.variables; see variables.h */
	CUevent *events;              /* by number in m.events; see events.h */
	struct fdry_image_exec *execs; /* by position in m.graphs */
	uint32_t *order; /* positions in m.graphs, the graph that is expected first at the front */
	struct fdry_ticket ticket;
	struct fdry_builder *builder; /* NULL: none was started */
	struct fdry_private_ctx *private_ctx;      /* NULL: the context is the primary one */
	struct fdry_overlap *overlap; /* NULL: launches are not checked */
	struct fdry_random *random;   /* NULL: no graph draws random numbers */
	_Atomic uint64_t launches;
	pthread_mutex_t lock;
	pthread_mutex_t staging_lock;
	struct fdry_staging *staging; /* NULL until something was written asynchronously */
	pthread_mutex_t progress_lock; /* of progress */
	fdry_progress_fn progress; /* may be NULL */
	void *progress_arg;
	uint64_t built_reported;   /* graphs whose building was reported */
	uint8_t *filled;           /* by position in m.tensors: external and filled */
	_Atomic uint32_t unfilled; /* external tensors that are not */
	_Atomic bool partial;      /* content is half restored */
	struct fdry_shared_fingerprinter *fingerprinter; /* NULL: the processor checks content */
	struct fdry_buf damaged;   /* of struct fdry_oid: objects to bring back into the store */
	struct fdry_mismatch *mismatch; /* while it loads: where to note what differs; or NULL */
	struct fdry_load_report report;
};

/* Prefix the sentence of an error with the image's name; 0 stays 0. */
int fdry_image_fail(const struct fdry_image *img, int err);

/* fdry_image_load(), which also notes in @mismatch (zeroed, may be NULL) which field differs where
 * the image was made for something else. */
int fdry_image_load_reporting(struct fdry_store *store, const char *name,
			      const struct fdry_load_opts *opts, struct fdry_mismatch *mismatch,
			      struct fdry_image **ret) __must_check;

/* --- context.c --- */

/* First of all in every function: FDRY_E_INVAL for NULL, FDRY_E_FORKED in a child of the process
 * that loaded it. */
int fdry_image_usable(const struct fdry_image *img) __must_check;

/* As fdry_driver_enter() with the image's context, or with the one that callers' streams belong to;
 * leave undoes either. */
int fdry_image_enter(const struct fdry_image *img, CUstreamCaptureMode *mode) __must_check;
int fdry_image_enter_primary(const struct fdry_image *img, CUstreamCaptureMode *mode) __must_check;
void fdry_image_leave(const struct fdry_image *img, CUstreamCaptureMode *mode);

/* A caller's stream, in the primary context. FDRY_E_INVAL if it belongs to another context or is
 * not alive, as far as the driver tells; FDRY_E_STATE if it captures. */
int fdry_image_stream_check(const struct fdry_image *img, CUstream stream) __must_check;

/* progress.c: FDRY_E_STATE within the image's own progress function, for calls that wait for work
 * on the image. */
int fdry_image_check_outside(const struct fdry_image *img) __must_check;
/* Report to the caller's function. No lock of the image is held; the turn only while content is
 * restored. */
void fdry_image_progress(struct fdry_image *img, enum fdry_phase phase, uint64_t done,
			 uint64_t total);
void fdry_image_progress_built(struct fdry_image *img);

/* --- content.c: what lies in the store, to the device; the image's context is current --- */

struct fdry_content;

struct fdry_content_sum {
	uint64_t bytes, hashed; /* copied, and of that hashed */
	uint64_t checked;       /* of host content: compared with its fingerprint */
};

/**
 * fdry_content_begin() - Find, verify and read content, as far as that goes without device memory.
 * @reader: the caller's session, which outlives the content
 * @threads: that do it and copy, at most; 0: as many as pay
 *
 * Needs an end, whatever comes of it.
 */
int fdry_content_begin(struct fdry_image *img, struct fdry_reader *reader, unsigned int threads,
		       struct fdry_content **ret) __must_check;
/* The image's memory is mapped: copy every chunk to its address, and wait until all have arrived.
 * Adds to @sum. */
int fdry_content_copy(struct fdry_content *c, struct fdry_content_sum *sum) __must_check;
/* Also if nothing was copied. The sentence of the last failure stays. NULL is fine. */
void fdry_content_end(struct fdry_content *c);
/* Zero all memory with content, on the stream that content is then copied on. */
int fdry_content_zero(struct fdry_image *img) __must_check;

#endif
