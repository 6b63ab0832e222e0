/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - the one error convention: 0, or -FDRY_E_NAME with a sentence.
 *
 * The function that finds an error says so with fdry_fail(), which keeps the sentence
 * for this thread and returns the negative code; callers hand the code up and clean up,
 * and add to the sentence only what the finder could not know (fdry_fail_at()).
 */
#ifndef FDRY_LIB_ERR_H
#define FDRY_LIB_ERR_H

#include <assert.h>
#include <stdarg.h>

#include "foundry/types.h"

#define __must_check __attribute__((warn_unused_result))

/* Room for any sentence, with its terminator; what is longer is cut. */
#define FDRY_SENTENCE_MAX 1024

/**
 * fdry_fail() - Record why something failed and return the code to hand up.
 * @code: which error
 * @fmt: one sentence: what was wrong, and what to do about it
 *
 * The sentence replaces the thread's earlier one, made printable: see printable.h. errno is preserved.
 *
 * Return: -@code.
 */
int fdry_fail(enum fdry_errcode code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int fdry_vfail(enum fdry_errcode code, const char *fmt, va_list ap);

/**
 * fdry_fail_at() - Put the place in front of the sentence that a callee left.
 * @ret: the callee's negative code, returned unchanged
 * @fmt: the place, such as "graph 'decode/8', node 17"; ": " is added
 */
int fdry_fail_at(int ret, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The sentence of the last failure in this thread, "" where there was none. Never NULL. */
const char *fdry_last_error(void);

/* Name ("FDRY_E_NOENT"), meaning and errno class of a code of either sign; static strings. */
const char *fdry_error_name(int code);
const char *fdry_error_meaning(int code);
int fdry_error_errno(int code);

/* Out of host memory, said the same way everywhere. */
int fdry_nomem(void);

/* A broken invariant of ours: stops a debug build, is an error in a release build. */
#define fdry_bug(...) (assert(!"broken invariant"), fdry_fail(FDRY_E_BUG, __VA_ARGS__))

#endif
