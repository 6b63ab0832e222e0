/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opts.h - option and report structs that carry their size.
 *
 * A caller built against an older header passes a shorter struct (the rest takes its
 * defaults), one built against a newer header a longer one, whose tail must be zero.
 */
#ifndef FDRY_LIB_OPTS_H
#define FDRY_LIB_OPTS_H

#include <stddef.h>

#include "lib/err.h"

/* Copy @len bytes of options at most, from @opts (NULL: defaults, all zero) into @ret.
 * @opts starts with a size_t. */
int fdry_opts_take(const void *opts, void *ret, size_t len) __must_check;

/* FDRY_E_INVAL where an argument that a function cannot do without is NULL. */
#define fdry_need(arg) ((arg) ? 0 : fdry_need_fail(__func__, #arg))
/* Names @fn where it is one that callers know: a helper's name, or "", tells them nothing. */
int fdry_need_fail(const char *fn, const char *arg) __must_check;

/* Whether fdry_report_give() will take @to (NULL is fine): asked before anything is done. */
int fdry_report_check(const void *to) __must_check;
/* Copy a report of @len bytes into the caller's struct (NULL is fine), as much as it has room for. */
int fdry_report_give(const void *report, size_t len, void *to) __must_check;

#endif
