/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_cache.h - what the files behind foundry/run/kernels.h share, grouped by the file that defines it.
 *
 * A unit is one source as it was asked for, checked, with its key. A module is what became of
 * a key in this process. Units never outlive the call (or the background work) that made them.
 */
#ifndef FDRY_RUN_KERNEL_CACHE_H
#define FDRY_RUN_KERNEL_CACHE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "lib/clock.h"
#include "foundry/image.h"
#include "foundry/run.h"
#include "lib/buf.h"
#include "arch/driver.h"
#include "lib/oid.h"
#include "lib/workqueue.h"
#include "graph/fatbin.h"
#include "graph/kernel.h"
#include "graph/ptx.h"

#define FDRY_KERNELS_BUCKETS 1024u
#define FDRY_KERNEL_TEXT_MAX (256u << 20) /* bytes of one source */
#define FDRY_KERNEL_OPTIONS_MAX 256u
#define FDRY_KERNEL_FACTS 8

/* A function that was asked for. Never changes once it is in its module's list, but for what it is allowed. */
struct fdry_kernels_func {
	struct fdry_kernels_func *next;    /* of its module */
	struct fdry_kernels_func *by_func; /* of its bucket */
	CUfunction func;
	char *name;
	_Atomic uint32_t shared; /* bytes of dynamic shared memory that it is allowed; raised with the lock */
	uint32_t nparams; /* FDRY_KERNEL_PARAMS_UNKNOWN: the driver cannot be asked */
	struct fdry_param *params;
};
#define FDRY_KERNEL_PARAMS_UNKNOWN UINT32_MAX

enum fdry_module_state { FDRY_MODULE_LOADING, FDRY_MODULE_READY, FDRY_MODULE_FAILED };

struct fdry_kernels_module {
	struct fdry_kernels_module *next; /* of its bucket */
	struct fdry_oid key;
	enum fdry_module_state state;
	unsigned int users;              /* calls that look at it without the lock */
	CUmodule module;
	uint64_t bytes;
	struct fdry_kernels_func *funcs;
	struct fdry_saved_err saved_err;     /* of one that failed */
};

struct fdry_nvrtc;

struct fdry_kernels {
	const struct fdry_driver *drv;
	CUdevice dev;
	CUcontext ctx;
	pid_t pid;
	uint32_t cc;
	bool trace;
	char arch[16];             /* "sm_90" */
	char compiler[128];        /* the driver, as keys have it */
	struct fdry_store *store;  /* the caller's; NULL: none */
	char *nvrtc_path;          /* NULL: wherever it is */
	pthread_mutex_t setup_lock; /* of the two that follow */
	struct fdry_nvrtc *nvrtc;  /* once it is open, never changes */
	struct fdry_workqueue *ahead;

	pthread_mutex_t lock;      /* of all that follows */
	pthread_cond_t changed;    /* a module is no longer loading, nobody is busy, or clearing is over */
	struct fdry_kernels_module *modules[FDRY_KERNELS_BUCKETS];
	struct fdry_kernels_func *funcs[FDRY_KERNELS_BUCKETS];
	size_t count;              /* modules that are ready ... */
	uint64_t bytes;            /* ... and bytes of their code */
	unsigned int busy;         /* calls that look at a module without the lock */
	bool clearing;             /* nobody may become busy */
	struct fdry_kernels_stats stats;
	char *log;                 /* of the last refusal; NULL: none */
};

/* --- kernel.c --- */

/* The first thing that each entry point does: FDRY_E_INVAL, FDRY_E_FORKED. */
int fdry_kernels_check(const struct fdry_kernels *k) __must_check;
/* Add to counters: fdry_kernels_add(k, hits, 1). */
#define fdry_kernels_add(k, member, n) do { \
	pthread_mutex_lock(&(k)->lock); \
	(k)->stats.member += (n); \
	pthread_mutex_unlock(&(k)->lock); \
} while (0)
/* Unload everything; as fdry_kernels_clear(). */
int fdry_kernels_unload(struct fdry_kernels *k) __must_check;
/* A line of the trace (FOUNDRY_TRACE=compile), where one is wanted. */
void fdry_kernels_trace(const struct fdry_kernels *k, const char *title, const char *stage, double ms, uint64_t bytes);

/* --- kernel_table.c --- */

/* The function that the cache gave out under that handle; NULL: none. Valid until modules are unloaded. */
struct fdry_kernels_func *fdry_kernels_func(struct fdry_kernels *k, CUfunction func);

/* --- kernel_key.c --- */

struct fdry_kernels_unit {
	struct fdry_kernels_source src;  /* the caller's, as large as ours */
	struct fdry_devcode code;       /* what of it is used: PTX, a cubin; of source its text, and kind PTX */
	bool source;                    /* CUDA C++ */
	bool compiled;                  /* else it is loaded as it is */
	bool keep;                      /* what comes of it may go into a store */
	char target[24];
	char title[64];                 /* for messages */
	char content[FDRY_OID_HEX_SIZE];
	char compiler[192];
	struct fdry_buf options;        /* one a line, terminated */
	struct fdry_fact facts[FDRY_KERNEL_FACTS]; /* what the key is made of, by ascending key; they point into this struct */
	size_t nfacts;
	struct fdry_oid key;
};
/* Check a source and make its key; opens NVRTC for source. Release @ret if it succeeds. */
int fdry_kernels_unit_make(struct fdry_kernels *k, const struct fdry_kernels_source *source, struct fdry_kernels_unit *ret) __must_check;
void fdry_kernels_unit_release(struct fdry_kernels_unit *u);
/* An option of PTX as the driver's JIT has it; false for one that there is not. */
bool fdry_kernels_jit_option(const char *option, CUjit_option *ret, uintptr_t *value);

/* --- kernel_compile.c --- */

/* Compile @u, which is PTX or source, to a cubin. In the cache's context. FDRY_E_COMPILE, FDRY_E_DRIVER, ... */
int fdry_kernels_compile(struct fdry_kernels *k, const struct fdry_kernels_unit *u, struct fdry_buf *ret) __must_check;
/* What a compiler said (@log, terminated, may be damaged or empty) as an error @code, and kept for fdry_kernels_log(). */
int fdry_kernels_refused(struct fdry_kernels *k, const struct fdry_kernels_unit *u, enum fdry_errcode code, const char *what, const char *log);

/* --- kernel_nvrtc.c --- */

/* Open NVRTC unless it is. FDRY_E_NONVRTC. */
int fdry_nvrtc_need(struct fdry_kernels *k, const struct fdry_nvrtc **ret) __must_check;
void fdry_nvrtc_free(struct fdry_nvrtc *n);
void fdry_nvrtc_version(const struct fdry_nvrtc *n, int *major, int *minor);
/* The target for a device: its own, else the highest that NVRTC knows below it, as PTX. FDRY_E_UNABLE. */
int fdry_nvrtc_target(const struct fdry_nvrtc *n, uint32_t cc, char target[24]) __must_check;
/* Compile source; *@ptx tells whether what comes out is PTX (with a NUL, counted), else it is a cubin. */
int fdry_nvrtc_compile(struct fdry_kernels *k, const struct fdry_kernels_unit *u, struct fdry_buf *ret, bool *ptx) __must_check;

/* --- kernel_store.c --- */

#define FDRY_KERNELS_REF "kernels/" /* and the SHA-256 of the content: what compiled code is named in a store */

/* What the store has for a unit: *@found, and a cubin, verified. *@damaged becomes true where what is there is of no use.
 * Whatever else goes wrong is counted and no error. */
void fdry_kernels_store_get(struct fdry_kernels *k, const struct fdry_kernels_unit *u, struct fdry_buf *ret, bool *found, bool *damaged);
/* Put a cubin there. Whatever goes wrong is counted and no error. */
void fdry_kernels_store_put(struct fdry_kernels *k, const struct fdry_kernels_unit *u, struct fdry_span cubin);
/* Be the only process that compiles a unit; NULL where that cannot be had. Drop it with fdry_claim_end(). */
struct fdry_claim *fdry_kernels_store_claim(struct fdry_kernels *k, const struct fdry_kernels_unit *u);

/* --- kernel_ahead.c --- */

/* Wait for the work that was begun and drop the rest; for closing. */
void fdry_kernels_ahead_free(struct fdry_kernels *k);

/* --- kernel_launch.c --- */

/* Ask the driver for a function's parameters, and what it is allowed. In the cache's context. */
int fdry_kernels_func_read(const struct fdry_kernels *k, struct fdry_kernels_func *f) __must_check;

#endif
