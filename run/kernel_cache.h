/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_cache.h - declarations that the files of the cache of kernels share, grouped by the
 * defining file. foundry/run/kernels.h has the public functions.
 *
 * A unit is one requested source, checked, with its key. A module is the loaded code of a key in
 * this process. A unit never outlives the call, or the background work, that made it.
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
#include "image/compiled.h"

#define FDRY_KERNELS_BUCKETS 1024u
#define FDRY_KERNEL_TEXT_MAX (256u << 20) /* bytes of one source */
#define FDRY_KERNEL_OPTIONS_MAX 256u

/* A requested function. In its module's list only @shared changes. */
struct fdry_kernels_func {
	struct fdry_kernels_func *next;    /* of its module */
	struct fdry_kernels_func *by_func; /* of its bucket */
	CUfunction func;
	char *name;
	_Atomic uint32_t shared; /* limit of dynamic shared memory; raised under the lock */
	uint32_t nparams; /* FDRY_KERNEL_PARAMS_UNKNOWN: the driver cannot report it */
	struct fdry_param *params;
};
#define FDRY_KERNEL_PARAMS_UNKNOWN UINT32_MAX

enum fdry_module_state { FDRY_MODULE_LOADING, FDRY_MODULE_READY, FDRY_MODULE_FAILED };

struct fdry_kernels_module {
	struct fdry_kernels_module *next; /* of its bucket */
	struct fdry_oid key;
	enum fdry_module_state state;
	unsigned int users;              /* calls that read it without the lock */
	CUmodule module;
	uint64_t bytes;
	struct fdry_kernels_func *funcs;
	struct fdry_saved_err saved_err;     /* of a failed load */
};

struct fdry_nvrtc;
struct fdry_kernels_unit;

struct fdry_kernels {
	const struct fdry_driver *drv;
	CUdevice dev;
	CUcontext ctx;
	pid_t pid;
	uint32_t cc;
	bool trace;
	char arch[16];             /* "sm_90" */
	char compiler[128];        /* the driver, in the form that keys have */
	struct fdry_store *store;  /* belongs to the caller; NULL: none */
	char *nvrtc_path;          /* NULL: search for it */
	pthread_mutex_t setup_lock; /* guards the next two members */
	struct fdry_nvrtc *nvrtc;  /* never changes after it is opened */
	struct fdry_workqueue *ahead;

	pthread_mutex_t lock;      /* guards all that follows */
	pthread_cond_t changed;    /* a module is loaded, no call is busy, or a clear has ended */
	struct fdry_kernels_module *modules[FDRY_KERNELS_BUCKETS];
	struct fdry_kernels_func *funcs[FDRY_KERNELS_BUCKETS];
	size_t count;              /* modules that are ready ... */
	uint64_t bytes;            /* ... and bytes of their code */
	unsigned int busy;         /* calls that read a module without the lock */
	bool clearing;             /* no call may become busy */
	struct fdry_kernels_stats stats;
	char *log;                 /* of the last refusal; NULL: none */
};

/* --- kernel_cache.c --- */

/* The first check of each public function: FDRY_E_INVAL, FDRY_E_FORKED. */
int fdry_kernels_check(const struct fdry_kernels *k) __must_check;
/* Add to counters: fdry_kernels_add(k, hits, 1). */
#define fdry_kernels_add(k, member, n) do { \
	pthread_mutex_lock(&(k)->lock); \
	(k)->stats.member += (n); \
	pthread_mutex_unlock(&(k)->lock); \
} while (0)
/* Write a line of the trace if FOUNDRY_TRACE=compile is set. */
void fdry_kernels_trace(const struct fdry_kernels *k, const char *title, const char *stage,
			double ms, uint64_t bytes);
/* Fail with @code and the compiler's @log (terminated, maybe damaged or empty), and keep the log
 * for fdry_kernels_log(). */
int fdry_kernels_refused(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			 enum fdry_errcode code, const char *what, const char *log);

/* --- kernel_func.c --- */

/* Find the kernel @entry in @m, and read its parameters and its limit of shared memory from the
 * driver. FDRY_E_NOENT. */
int fdry_kernels_func_new(struct fdry_kernels *k, const struct fdry_kernels_module *m,
			  const char *entry, struct fdry_kernels_func **ret) __must_check;
void fdry_kernels_func_free(struct fdry_kernels_func *f);

/* --- kernel_table.c --- */

/* The cache's function with that handle; NULL: none. Valid until modules are unloaded. */
struct fdry_kernels_func *fdry_kernels_func(struct fdry_kernels *k, CUfunction func);
/* Unload all modules, like fdry_kernels_clear(). */
int fdry_kernels_unload(struct fdry_kernels *k) __must_check;

/* --- kernel_key.c --- */

struct fdry_kernels_unit {
	struct fdry_kernels_source src;  /* the caller's, in the present size */
	struct fdry_devcode
		code; /* the used part: PTX, a cubin; source has its text, and kind PTX */
	bool source;                    /* CUDA C++ */
	bool compiled;                  /* it is compiled; else it is loaded unchanged */
	bool keep;                      /* a store may keep the result */
	char target[24];
	char title[64];                 /* for messages */
	char content[FDRY_OID_HEX_SIZE];
	char compiler[192];
	struct fdry_buf options;        /* one a line, terminated */
	struct fdry_fact facts[FDRY_COMPILED_FACTS]; /* of the key; they point into this struct */
	struct fdry_oid key;
};
/* Check a source and make its key; opens NVRTC for source. Release @ret if it succeeds. */
int fdry_kernels_unit_init(struct fdry_kernels *k, const struct fdry_kernels_source *source,
			   struct fdry_kernels_unit *ret) __must_check;
void fdry_kernels_unit_release(struct fdry_kernels_unit *u);
/* Translate an option of PTX for the driver's JIT; false if there is no such option. */
bool fdry_kernels_jit_option(const char *option, CUjit_option *ret, uintptr_t *value);

/* --- kernel_compile.c --- */

/* Compile @u, which is PTX or source, to a cubin. In the cache's context. FDRY_E_COMPILE,
 * FDRY_E_DRIVER, ... */
int fdry_kernels_compile(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			 struct fdry_buf *ret) __must_check;
/* --- kernel_nvrtc.c --- */

/* Open NVRTC unless it is open. FDRY_E_NONVRTC. */
int fdry_nvrtc_need(struct fdry_kernels *k, const struct fdry_nvrtc **ret) __must_check;
void fdry_nvrtc_free(struct fdry_nvrtc *n);
void fdry_nvrtc_version(const struct fdry_nvrtc *n, int *major, int *minor);
/* Choose the target for a device: its own, else PTX for the highest target below it that NVRTC
 * knows. FDRY_E_UNABLE. */
int fdry_nvrtc_target(const struct fdry_nvrtc *n, uint32_t cc, char target[24]) __must_check;
/* Compile source to PTX (*@ptx is true; the terminating NUL counts) or to a cubin. */
int fdry_nvrtc_compile(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
		       struct fdry_buf *ret, bool *ptx) __must_check;

/* --- kernel_store.c --- */

/* Read and verify a unit's cubin from the store. *@found: whether it is there. *@damaged: set if
 * the stored code cannot be used. Other failures are only counted. */
void fdry_kernels_store_get(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			    struct fdry_buf *ret, bool *found, bool *damaged);
/* Write a cubin to the store. Failures are only counted. */
void fdry_kernels_store_put(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			    struct fdry_span cubin);
/* Claim the compilation of a unit among all processes; NULL if that fails. End it with
 * fdry_claim_end(). */
struct fdry_claim *fdry_kernels_store_claim(struct fdry_kernels *k,
					    const struct fdry_kernels_unit *u);

/* --- kernel_ahead.c --- */

/* Wait for work in progress and discard the rest, before the cache is freed. */
void fdry_kernels_ahead_free(struct fdry_kernels *k);

#endif
