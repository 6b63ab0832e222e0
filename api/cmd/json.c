// SPDX-License-Identifier: Apache-2.0
/*
 * json.c - writing JSON.
 *
 * A library would be a dependency for what is, without reading, a bracket, a comma and an
 * escape. What is written is valid JSON whatever the strings hold: bytes that are not
 * UTF-8 (a path may have some) become U+FFFD.
 */
#include "api/cmd/cmd.h"

#include <inttypes.h>

static void indent(struct json *j)
{
	unsigned int i;

	if (j->comma)
		fputc(',', j->f);
	if (j->depth)
		fputc('\n', j->f);
	for (i = 0; i < j->depth; i++)
		fputc('\t', j->f);
}

/* Bytes of the UTF-8 character at @s, 0 where there is none. */
static size_t utf8_len(const unsigned char *s)
{
	static const struct { unsigned char mask, lead; uint32_t min; } forms[] = {
		{ 0x80, 0x00, 0 }, { 0xE0, 0xC0, 0x80 }, { 0xF0, 0xE0, 0x800 }, { 0xF8, 0xF0, 0x10000 },
	};
	uint32_t c;
	size_t n, i;

	for (n = 0; n < 4 && (*s & forms[n].mask) != forms[n].lead; n++)
		;
	if (n == 4)
		return 0;
	c = *s & (unsigned char)~forms[n].mask;
	for (i = 1; i <= n; i++) {
		if ((s[i] & 0xC0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3F);
	}
	return c < forms[n].min || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000) ? 0 : n + 1;
}

static void text(struct json *j, const char *value)
{
	const unsigned char *s = (const void *)value;
	size_t n;

	fputc('"', j->f);
	for (; *s; s += n ? n : 1) {
		n = utf8_len(s);
		if (!n)
			fputs("\\ufffd", j->f);
		else if (*s == '"' || *s == '\\')
			fprintf(j->f, "\\%c", *s);
		else if (*s < ' ' || *s == 0x7F)
			fprintf(j->f, "\\u%04x", *s);
		else
			fwrite(s, 1, n, j->f);
	}
	fputc('"', j->f);
}

static void before(struct json *j, const char *key)
{
	indent(j);
	j->comma = true;
	if (!key)
		return;
	text(j, key);
	fputs(": ", j->f);
}

void json_open(struct json *j, const char *key, char bracket)
{
	before(j, key);
	fputc(bracket, j->f);
	j->depth++;
	j->comma = false;
}

static struct json document; /* that of standard output, but for its last bracket */

static void close_now(struct json *j, char bracket)
{
	bool empty = !j->comma;

	j->depth--;
	j->comma = false;
	if (!empty) {
		if (!j->depth)
			fputc('\n', j->f);
		indent(j);
	}
	fputc(bracket, j->f);
	j->comma = true;
	if (!j->depth)
		fputc('\n', j->f);
}

void json_close(struct json *j, char bracket)
{
	if (j->depth == 1 && j->f == stdout)
		document = *j;
	else
		close_now(j, bracket);
}

void json_end(int status, const char *error)
{
	struct json *j = &document;

	if (!j->f && !error)
		return;
	if (!j->f) {
		j->f = stdout;
		json_open(j, NULL, '{');
	}
	if (error) {
		json_open(j, "error", '{');
		json_number(j, "status", (uint64_t)status);
		json_string(j, "text", error);
		json_close(j, '}');
	}
	close_now(j, '}');
}

void json_string(struct json *j, const char *key, const char *value)
{
	before(j, key);
	text(j, value);
}

void json_number(struct json *j, const char *key, uint64_t value)
{
	before(j, key);
	fprintf(j->f, "%" PRIu64, value);
}

void json_bool(struct json *j, const char *key, bool value)
{
	before(j, key);
	fputs(value ? "true" : "false", j->f);
}

void json_oid(struct json *j, const char *key, const struct fdry_oid *oid)
{
	char hex[FDRY_OID_HEX_SIZE];

	json_string(j, key, fdry_oid_hex(oid, hex));
}
