/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - messages for debugging; silent by default.
 *
 * FOUNDRY_LOG=error|warn|info|debug sends them to standard error; fdry_log_set() sends
 * them to a callback instead. No message is needed to understand a failure:
 * fdry_last_error() explains it.
 */
#ifndef FDRY_LIB_LOG_H
#define FDRY_LIB_LOG_H

#include "foundry/types.h"

/**
 * fdry_log_set() - Send messages of @level and below to @fn.
 * @fn: called with one line without a newline, from any thread; NULL: use FOUNDRY_LOG again
 * @arg: passed to @fn
 *
 * Context: call it before other threads use the library.
 */
void fdry_log_set(fdry_log_fn fn, void *arg, int level);

int fdry_log_enabled(int level);
void fdry_log_write(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The arguments are evaluated only if the level is enabled. */
#define fdry_log(level, ...) \
	do { if (fdry_log_enabled(level)) fdry_log_write(level, __VA_ARGS__); } while (0)
#define fdry_debug(...) fdry_log(FDRY_LOG_DEBUG, __VA_ARGS__)
#define fdry_info(...) fdry_log(FDRY_LOG_INFO, __VA_ARGS__)
#define fdry_warn(...) fdry_log(FDRY_LOG_WARN, __VA_ARGS__)

#endif
