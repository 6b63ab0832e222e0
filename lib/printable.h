/* SPDX-License-Identifier: Apache-2.0 */
/*
 * printable.h - foreign names as text that a terminal can show safely.
 *
 * Text from a store, a file or a driver may hold escape sequences, newlines and characters that
 * reorder a line. Text for people passes through one of these functions when it leaves the
 * library: messages of errors (err.c), the log (log.c), descriptions, tables. Printable
 * UTF-8 stays as it is; the rest is written as \n, \t, \r, \xNN (a byte) or \uNNNN, \UNNNNNNNN (a
 * character). A backslash stays as it is, so printable text does not change.
 * Formats that programs read have further escapes of their own: JSON, Graphviz, metrics.
 */
#ifndef FDRY_LIB_PRINTABLE_H
#define FDRY_LIB_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"

/* Bytes of the UTF-8 character at the start of the @len bytes at @s, and the character; 0 if there
 * is none. */
size_t fdry_utf8_next(const void *s, size_t len, uint32_t *ret);

/* False for controls (C0, C1), marks that are invisible or change direction, and line separators.
 */
bool fdry_is_printable(uint32_t c);

#define FDRY_PRINTABLE_MAX 12 /* bytes of one character's text, with its terminator */

/* The text for the character at the start of the @len bytes at @s, or for a byte that begins none.
 * Returns the text's length; *@taken: how many bytes of @s it stands for. */
size_t fdry_printable_next(char to[FDRY_PRINTABLE_MAX], const char *s, size_t len, size_t *taken);

/* Write @s as printable text with a terminator into @cap bytes, at least 1; the first character
 * that does not fit ends it. Returns its length. */
size_t fdry_printable(char *to, size_t cap, const char *s);

/* --- buf_text.c --- */

/* Append all of @s to a buffer. */
int fdry_buf_printable(struct fdry_buf *b, const char *s) __must_check;
/* Append a line: the formatted text, made printable as a whole, with one newline at its end. */
int fdry_buf_line(struct fdry_buf *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3))) __must_check;

#endif
