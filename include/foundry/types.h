/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.h - error codes and constants that all public headers and all layers share. Needs nothing.
 */
#ifndef FOUNDRY_TYPES_H
#define FOUNDRY_TYPES_H

/* Errors, grouped by cause: 1xx caller, 2xx image, 3xx store, 4xx driver, 5xx environment, 9xx
 * Foundry itself. */
enum fdry_errcode {
#define FDRY_ERRCODE(nr, name, class, text) FDRY_E_##name = nr,
#include "foundry/errcode.def"
#undef FDRY_ERRCODE
};

/* How a store is opened. */
enum fdry_store_flags {
	FDRY_STORE_CREATE = 1 << 0,   /* make it if there is none */
	FDRY_STORE_READONLY = 1 << 1, /* never write; works on read-only media */
	FDRY_STORE_GROUP = 1 << 2,    /* with CREATE: make it for its group, with directory 2770 and
				       * files 0660, for any umask */
};

/* Levels of fdry_log_set() and of FOUNDRY_LOG. */
enum fdry_log_level { FDRY_LOG_ERROR, FDRY_LOG_WARN, FDRY_LOG_INFO, FDRY_LOG_DEBUG };

typedef void (*fdry_log_fn)(void *arg, int level, const char *text);

/* Long calls ask it in the calling thread, several times a second, whether they should stop. It
 * returns 0; or another number, and the call fails with FDRY_E_CALLBACK. */
typedef int (*fdry_stop_fn)(void *arg);

/* The driver's handles, declared as in <cuda.h>, which is not needed. */
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUstream_st *CUstream;
typedef struct CUextSemaphore_st *CUexternalSemaphore;
typedef unsigned long long fdry_devptr; /* a CUdeviceptr */

/* A function that graphs call on the host (cuLaunchHostFunc), with its argument. */
struct fdry_host_function {
	const char *name;
	void (*fn)(void *data);
	void *data;
};

/* A semaphore of another API that graphs signal or wait for. @add is added to the values that the
 * graphs have from their capture; binary semaphores have no values. */
struct fdry_semaphore {
	const char *name;
	CUexternalSemaphore semaphore;
	unsigned long long add;
};

#define FDRY_ID_SIZE 65 /* an image's id as text: 64 hexadecimal digits and a terminator */

#endif
