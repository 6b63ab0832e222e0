/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.h - what the public header and the layers below it share: error codes and
 * the constants that cross the public surface. Included by foundry.h; needs nothing.
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
};

/* Levels of fdry_log_set() and of FOUNDRY_LOG. */
enum fdry_log_level { FDRY_LOG_ERROR, FDRY_LOG_WARN, FDRY_LOG_INFO, FDRY_LOG_DEBUG };

typedef void (*fdry_log_fn)(void *arg, int level, const char *text);

#endif
