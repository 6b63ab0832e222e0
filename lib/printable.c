// SPDX-License-Identifier: Apache-2.0
/* printable.c - see printable.h. */
#include "lib/printable.h"

#include <stdio.h>
#include <string.h>

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

size_t fdry_printable_next(char to[FDRY_PRINTABLE_MAX], const char *s, size_t len, size_t *taken)
{
	uint32_t c = 0;
	size_t n = fdry_utf8_next(s, len, &c);

	*taken = n ? n : 1;
	if (n && fdry_is_printable(c)) {
		memcpy(to, s, n);
		return n;
	}
	if (n == 1 && (c == '\n' || c == '\t' || c == '\r'))
		return (size_t)snprintf(to, FDRY_PRINTABLE_MAX, "\\%c",
					c == '\n'   ? 'n'
					: c == '\t' ? 't'
						    : 'r');
	if (n < 2)
		return (size_t)snprintf(to, FDRY_PRINTABLE_MAX, "\\x%02x",
					(unsigned int)(uint8_t)*s);
	return (size_t)snprintf(to, FDRY_PRINTABLE_MAX, c > 0xFFFF ? "\\U%08x" : "\\u%04x", c);
}

size_t fdry_printable(char *to, size_t cap, const char *s)
{
	size_t left = strlen(s), at = 0, n, taken;
	char text[FDRY_PRINTABLE_MAX];

	for (; left; s += taken, left -= taken) {
		n = fdry_printable_next(text, s, left, &taken);
		if (n >= cap - at)
			break;
		memcpy(to + at, text, n);
		at += n;
	}
	to[at] = 0;
	return at;
}
