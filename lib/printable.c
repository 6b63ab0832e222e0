// SPDX-License-Identifier: Apache-2.0
/* printable.c - see printable.h. */
#include "lib/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

size_t fdry_utf8_next(const void *s, size_t len, uint32_t *ret)
{
	static const struct { uint8_t mask, lead; uint32_t min; } forms[] = {
		{ 0x80, 0x00, 0 }, { 0xE0, 0xC0, 0x80 },
		{ 0xF0, 0xE0, 0x800 }, { 0xF8, 0xF0, 0x10000 },
	};
	const uint8_t *p = s;
	uint32_t c;
	size_t n, i;

	if (!len)
		return 0;
	for (n = 0; n < 4 && (*p & forms[n].mask) != forms[n].lead; n++)
		;
	if (n == 4 || n >= len)
		return 0;
	c = *p & (uint8_t)~forms[n].mask;
	for (i = 1; i <= n; i++) {
		if ((p[i] & 0xC0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3F);
	}
	if (c < forms[n].min || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
		return 0;
	*ret = c;
	return n + 1;
}

bool fdry_is_printable(uint32_t c)
{
	/* Controls, format characters of Unicode (Cf), separators of lines and paragraphs,
	 * noncharacters. */
	static const struct { uint32_t from, to; } hidden[] = {
		{ 0x00, 0x1F }, { 0x7F, 0x9F }, { 0xAD, 0xAD },
		{ 0x600, 0x605 }, { 0x61C, 0x61C }, { 0x6DD, 0x6DD },
		{ 0x70F, 0x70F }, { 0x890, 0x891 }, { 0x8E2, 0x8E2 },
		{ 0x180E, 0x180E }, { 0x200B, 0x200F }, { 0x2028, 0x202E },
		{ 0x2060, 0x206F }, { 0xFDD0, 0xFDEF }, { 0xFEFF, 0xFEFF },
		{ 0xFFF0, 0xFFFB }, { 0x110BD, 0x110BD }, { 0x110CD, 0x110CD },
		{ 0x13430, 0x1343F }, { 0x1BCA0, 0x1BCA3 }, { 0x1D173, 0x1D17A },
		{ 0xE0000, 0xE0FFF },
	};
	size_t i;

	if ((c & 0xFFFE) == 0xFFFE)
		return false;
	for (i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (c >= hidden[i].from && c <= hidden[i].to)
			return false;
	return true;
}

#define ONE_MAX 12 /* of one character's text, with its terminator */

/* The text for the character at @s, or for a byte that begins none. *@taken: how many bytes of @s
 * that is. */
static size_t one(char to[ONE_MAX], const char *s, size_t len, size_t *taken)
{
	uint32_t c = 0;
	size_t n = fdry_utf8_next(s, len, &c);

	*taken = n ? n : 1;
	if (n && fdry_is_printable(c)) {
		memcpy(to, s, n);
		return n;
	}
	if (n == 1 && (c == '\n' || c == '\t' || c == '\r'))
		return (size_t)snprintf(to, ONE_MAX, "\\%c",
					c == '\n'   ? 'n'
					: c == '\t' ? 't'
						    : 'r');
	if (n < 2)
		return (size_t)snprintf(to, ONE_MAX, "\\x%02x", (unsigned int)(uint8_t)*s);
	return (size_t)snprintf(to, ONE_MAX, c > 0xFFFF ? "\\U%08x" : "\\u%04x", c);
}

size_t fdry_printable(char *to, size_t cap, const char *s)
{
	size_t left = strlen(s), at = 0, n, taken;
	char text[ONE_MAX];

	for (; left; s += taken, left -= taken) {
		n = one(text, s, left, &taken);
		if (n >= cap - at)
			break;
		memcpy(to + at, text, n);
		at += n;
	}
	to[at] = 0;
	return at;
}

int fdry_buf_printable(struct fdry_buf *b, const char *s)
{
	size_t left = strlen(s), n, taken;
	char text[ONE_MAX];
	int err = 0;

	for (; left && !err; s += taken, left -= taken) {
		n = one(text, s, left, &taken);
		err = fdry_buf_put(b, text, n);
	}
	if (err)
		return err;
	err = fdry_buf_put(b, "", 1); /* the terminator is not counted, as in fdry_buf_printf() */
	if (err)
		return err;
	b->len--;
	return 0;
}

int fdry_buf_line(struct fdry_buf *b, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;
	int n, err;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return fdry_nomem();
	err = fdry_buf_printable(b, text);
	free(text);
	return err ? err : fdry_buf_printf(b, "\n");
}
