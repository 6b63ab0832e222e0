/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opts.h - option and report structs that carry their size.
 *
 * A caller built against an older header passes a shorter struct; the missing members take their
 * defaults. A caller built against a newer header passes a longer one, whose tail must be zero.
 */
#ifndef FDRY_LIB_OPTS_H
#define FDRY_LIB_OPTS_H

#include <stddef.h>

#include "lib/err.h"

/* Copy @len bytes of options at most, from @opts (NULL: defaults, all zero) into @ret.
 * @opts starts with a size_t. */
int fdry_opts_take(const void *opts, void *ret, size_t len) __must_check;

/* FDRY_E_INVAL if a required argument is NULL. */
#define fdry_need(arg) ((arg) ? 0 : fdry_need_fail(__func__, #arg))
/* The message names @fn if it is a public function. */
int fdry_need_fail(const char *fn, const char *arg) __must_check;

/* Check @to (NULL is fine) before any work, so that fdry_report_give() cannot fail after it. */
int fdry_report_check(const void *to) __must_check;
/* Copy a report of @len bytes into the caller's struct (NULL is fine), up to its size. */
int fdry_report_give(const void *report, size_t len, void *to) __must_check;

#endif
