/* SPDX-License-Identifier: Apache-2.0 */
/*
 * printable.h - names and facts of others as text that a terminal only shows.
 *
 * Whatever came out of a store, a file or a driver may hold escape sequences, newlines and
 * characters that reorder a line. Text for people goes through one of these functions where it
 * leaves the library: sentences of errors (err.c), the log (log.c), descriptions, tables. Printable
 * UTF-8 stays as it is; the rest is written as \n, \t, \r, \xNN (a byte) or \uNNNN, \UNNNNNNNN (a
 * character). A backslash stays one, so that text which is printable already does not change.
 * Formats that must be read back have escapes of their own on top: JSON, Graphviz, metrics.
 */
#ifndef FDRY_LIB_PRINTABLE_H
#define FDRY_LIB_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"

/* Bytes of the UTF-8 character at the start of the @len bytes at @s, and the character; 0 if there is none. */
size_t fdry_utf8_next(const void *s, size_t len, uint32_t *ret);

/* Whether a character only shows: no control (C0, C1), no mark that is invisible or changes direction, no line separator. */
bool fdry_is_printable(uint32_t c);

/* @s as printable text in @cap bytes (1 at least), terminated, cut in front of a character that does not fit. Its length. */
size_t fdry_printable(char *to, size_t cap, const char *s);

/* The same appended to a buffer, whole. */
int fdry_buf_printable(struct fdry_buf *b, const char *s) __must_check;
/* A line: the formatted text made printable as a whole, so that it has no newline but the one at its end. */
int fdry_buf_line(struct fdry_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3))) __must_check;

#endif
