/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - the one error convention: 0, or -FDRY_E_NAME with a message.
 *
 * The function that finds an error calls fdry_fail(), which keeps the message for this thread and
 * returns the negative code. Callers clean up and return the code. With fdry_fail_at() they add to
 * the message only facts that the first function could not know.
 */
#ifndef FDRY_LIB_ERR_H
#define FDRY_LIB_ERR_H

#include <assert.h>
#include <stdarg.h>

#include "foundry/types.h"

#define __must_check __attribute__((warn_unused_result))

/* The capacity for a message with its terminator; a longer message is cut. */
#define FDRY_SENTENCE_MAX 1024

/**
 * fdry_fail() - Record why a call failed.
 * @code: the error
 * @fmt: one sentence: what was wrong, and what to do about it
 *
 * The message replaces the thread's earlier one, made printable: see printable.h. errno is
 * preserved.
 *
 * Return: -@code.
 */
int fdry_fail(enum fdry_errcode code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/**
 * fdry_fail_at() - Prefix the message of a callee with the place of the failure.
 * @ret: the callee's negative code, returned unchanged
 * @fmt: the place, such as "graph 'decode/8', node 17"; ": " is added
 */
int fdry_fail_at(int ret, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The message of the last failure in this thread; "" if there was none. Never NULL. */
const char *fdry_last_error(void);

/* Name ("FDRY_E_NOENT"), meaning and errno class of a code of either sign; static strings. */
const char *fdry_error_name(int code);
const char *fdry_error_meaning(int code);
int fdry_error_errno(int code);

/* FDRY_E_NOMEM with the one sentence for it. */
int fdry_nomem(void);

/* A broken invariant: ends a debug build, and is an error in a release build. */
#define fdry_bug(...) (assert(!"broken invariant"), fdry_fail(FDRY_E_BUG, __VA_ARGS__))

#endif
