/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.h - what the public headers and the layers below it share: error codes and
 * the constants that cross the public surface. Needs nothing.
 */
#ifndef FOUNDRY_TYPES_H
#define FOUNDRY_TYPES_H

/* Errors, grouped by blame: 1xx caller, 2xx image, 3xx store, 4xx driver, 5xx environment, 9xx us. */
enum fdry_errcode {
#define FDRY_ERRCODE(nr, name, class, text) FDRY_E_##name = nr,
#include "foundry/errcode.def"
#undef FDRY_ERRCODE
};

/* How a store is opened. */
enum fdry_store_flags {
	FDRY_STORE_CREATE = 1 << 0,   /* make it where there is none */
	FDRY_STORE_READONLY = 1 << 1, /* never write; works on read-only media */
	FDRY_STORE_GROUP = 1 << 2,    /* make it for its group: directory 2770, files 0660, whatever the umask; with CREATE */
};

/* Levels of fdry_log_set() and of FOUNDRY_LOG. */
enum fdry_log_level { FDRY_LOG_ERROR, FDRY_LOG_WARN, FDRY_LOG_INFO, FDRY_LOG_DEBUG };

typedef void (*fdry_log_fn)(void *arg, int level, const char *text);

/* The driver's own handles, declared as <cuda.h> does, so that it need not be there. */
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUstream_st *CUstream;
typedef unsigned long long fdry_devptr; /* a CUdeviceptr */

#define FDRY_ID_SIZE 65 /* an image's id as text: 64 hexadecimal digits and a terminator */

#endif
