/* SPDX-License-Identifier: Apache-2.0 */
/* capture.h - what a capture has been told, for the seal; everything is owned by the capture. */
#ifndef FDRY_IMAGE_CAPTURE_CAPTURE_H
#define FDRY_IMAGE_CAPTURE_CAPTURE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "image/base.h"
#include "foundry.h"
#include "image/capture/standin.h"
#include "lib/buf.h"
#include "arch/driver.h"
#include "graph/graph.h"

struct fdry_capture_tensor {
	struct fdry_tensor desc; /* desc.name is malloc'ed */
	uint64_t extent;         /* bytes from its first to past its last */
	uint64_t serial;         /* of the allocation that it lies in, see fdry_allocs_under(); 0: pageable host memory */
	uint64_t room;           /* bytes of addresses that are its own; 0: its extent */
};

struct fdry_capture_fact {
	char *key;
	char *value;
};

struct fdry_capture_graph {
	uint64_t key;
	char *name; /* "" where none was given */
	CUgraph graph;
	bool random;
	bool fixed;                  /* see fdry_capture_graph_fixed() */
	struct fdry_graph_kept kept; /* of the last seal, if it is fixed */
};

/* What a graph draws from a generator. */
struct fdry_capture_draw {
	uint64_t key;          /* of the graph */
	struct fdry_rng_use desc; /* desc.generator is malloc'ed */
	uint64_t serial[2];    /* of the allocations that seed and offset lie in */
};

#define FDRY_CELL 8u /* bytes of a seed or offset */

struct fdry_capture {
	const struct fdry_hook *hook;
	const struct fdry_driver *drv; /* the real one, behind the stand-in */
	CUdevice device;
	CUcontext ctx; /* its primary context, retained */
	pid_t pid;     /* of the process that began it */
	bool lent;     /* to a function of the caller's, which does not end it */
	struct fdry_placed placed; /* its region, */
	bool left;                 /* which has ended: another capture's has begun after it */
	pthread_mutex_t lock;
	uint64_t highest; /* offset that the cursor had reached before it was set back */
	struct fdry_buf tensors, facts, graphs, draws; /* arrays of the structs above */
	struct fdry_buf codes;  /* of the last seal's kernels: fdry_kernel_set_yield() */
	struct fdry_intern words; /* of the last seal's graphs: fdry_graph_words_again() */
	struct fdry_buf sealed; /* of struct fdry_mf_chunk: content of the last seal, ascending */
};

/* First of all in every function: FDRY_E_INVAL for NULL, FDRY_E_FORKED in a child of the process that began it. */
int fdry_capture_check(const struct fdry_capture *cap) __must_check;
/* Wait for what the program does in the current context, where that is not the primary one: any context of the device uses the
 * region's memory. Whoever reads that waits for the primary context besides. */
int fdry_capture_wait(const struct fdry_capture *cap) __must_check;
void fdry_capture_graph_release(struct fdry_capture_graph *g);
/* NULL where there is none; cap->lock is held. */
struct fdry_capture_graph *fdry_capture_graph_find(struct fdry_capture *cap, uint64_t key);

/**
 * fdry_allocs_under() - What @len bytes at @addr lie in.
 * @a, @n: a ledger, ascending
 * @shared: set where a part is memory that no image can hold
 * @ret: the serial number of the allocation; 0 where there is none. Of several that the program mapped one behind the other, as
 *       PyTorch does with expandable segments, a number made of theirs: another one when any was replaced.
 */
uint64_t fdry_allocs_under(const struct fdry_alloc *a, size_t n, uint64_t addr, uint64_t len, bool *shared);

#define fdry_array(buf, type) ((type *)(buf).data)
#define fdry_array_count(buf, type) ((buf).len / sizeof(type))

#endif
