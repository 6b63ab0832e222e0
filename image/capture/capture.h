/* SPDX-License-Identifier: Apache-2.0 */
/* capture.h - the state of a capture: the tensors, facts and graphs that a program declared. */
#ifndef FDRY_IMAGE_CAPTURE_CAPTURE_H
#define FDRY_IMAGE_CAPTURE_CAPTURE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "image/base.h"
#include "foundry.h"
#include "image/capture/interposer.h"
#include "image/capture/sealed.h"
#include "lib/buf.h"
#include "arch/driver.h"
#include "graph/graph.h"
#include "graph/heap.h"

struct fdry_capture_tensor {
	struct fdry_tensor desc; /* desc.name is malloc'ed */
	uint64_t extent;         /* bytes from its first to past its last */
	uint64_t serial;         /* fdry_allocs_under(); 0: pageable host memory */
	uint64_t capacity;       /* bytes of addresses for it, see capacity.c; 0: its extent */
};

struct fdry_capture_fact {
	char *key;
	char *value;
};

struct fdry_capture_graph {
	uint64_t key;
	char *name; /* "" if it has none */
	CUgraph graph;
	bool random;
	bool fixed;                  /* see fdry_capture_graph_fixed() */
	bool skip;                   /* see fdry_capture_graph_skip() */
	struct fdry_graph_kept kept; /* of the last seal, if it is fixed */
	struct fdry_sealed_audit audit;
};

/* A generator from which a graph draws. */
struct fdry_capture_rng_use {
	uint64_t key;          /* of the graph */
	struct fdry_rng_use desc; /* desc.generator is malloc'ed */
	uint64_t serial[2];    /* of the allocations that seed and offset lie in */
};

#define FDRY_RNG_SLOT_BYTES 8u /* bytes of a seed or offset */

struct fdry_capture {
	const struct fdry_hook *hook;
	const struct fdry_driver *drv; /* the real one, behind the interposer */
	CUdevice device;
	CUcontext ctx; /* its primary context, retained */
	pid_t pid;     /* of the process that began it */
	bool lent;     /* fdry_load_or_capture() made it, and the caller's function must not end
			  it */
	struct fdry_placed placed; /* the addresses of its region */
	bool pinned; /* FDRY_CAPTURE_PINNED */
	bool left;                 /* the region has ended, because another capture began */
	pthread_mutex_t lock;
	uint64_t highest; /* the highest offset that the cursor had before the program set it
			     back */
	struct fdry_buf tensors, facts, graphs, rng_uses; /* arrays of the structs above */
	struct fdry_buf functions; /* struct fdry_host_function each: functions.h */
	struct fdry_buf semaphores; /* struct fdry_semaphore each: semaphores.h */
	struct fdry_buf codes;  /* of the last seal's kernels: fdry_kernel_set_yield() */
	struct fdry_graph_memo memo; /* of the last seal's reader of graphs */
	struct fdry_sealed sealed; /* memory of the last seal */
	struct fdry_heap heap;     /* the device's, if a seal has looked for it */
	double begun_ms;   /* when it was begun, by fdry_now_ms() */
	uint64_t selftest; /* the seed of the next seals' self-tests; 0: none */
	fdry_seal_fn progress; /* called with @progress_arg during seals; NULL: none */
	void *progress_arg;
};

/* Report the progress of a seal, which began at @start_ms. cap->lock is held. */
void fdry_capture_report(struct fdry_capture *cap, enum fdry_seal_phase phase, uint64_t done,
			 uint64_t total, double start_ms);

/* Every public function calls this first. FDRY_E_INVAL for NULL; FDRY_E_FORKED in a child of the
 * process that began the capture; FDRY_E_STATE in the capture's own progress function. */
int fdry_capture_check(const struct fdry_capture *cap) __must_check;
/* Wait for the work in the current context, if that is not the primary one: all contexts of the
 * device use the region's memory. Before it reads that memory, the caller must also wait for the
 * primary context. */
int fdry_capture_wait(const struct fdry_capture *cap) __must_check;
/* Make the capture's context current on this thread, until fdry_capture_leave(). */
int fdry_capture_enter(const struct fdry_capture *cap) __must_check;
void fdry_capture_leave(const struct fdry_capture *cap);
void fdry_capture_graph_release(struct fdry_capture_graph *g);
/* NULL if there is none. cap->lock is held. */
struct fdry_capture_graph *fdry_capture_graph_find(struct fdry_capture *cap, uint64_t key);

/**
 * fdry_allocs_under() - Find the allocation that holds @len bytes at @addr.
 * @a, @n: a ledger, ascending
 * @shared: set to true if a part of it is memory that no image can hold
 * Return: the serial number of the allocation, or 0. PyTorch's expandable segments are several
 * adjacent mappings. For these, it is a number computed from the serial numbers of all, which
 * changes if any of them is replaced.
 */
uint64_t fdry_allocs_under(const struct fdry_alloc *a, size_t n, uint64_t addr, uint64_t len,
			   bool *shared);
/* Do that in the ledger of the capture's region. Errors are those of the interposer. */
int fdry_capture_find(struct fdry_capture *cap, uint64_t addr, uint64_t len, uint64_t *serial,
		      bool *shared) __must_check;

#endif
