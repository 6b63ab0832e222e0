// SPDX-License-Identifier: Apache-2.0
/*
 * json.c - writing JSON.
 *
 * Without a parser, JSON is brackets, commas and escapes: too little to depend on a library. The
 * output is valid JSON for any strings. Bytes that are not UTF-8, which a path may contain, become
 * U+FFFD. Characters that are not printable are escaped as \u and their number.
 */
#include "api/cmd/cmd.h"

#include <inttypes.h>
#include <string.h>

#include "lib/printable.h"

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

/* JSON escapes a character beyond 16 bits as two surrogates. */
static void escape(struct json *j, uint32_t c)
{
	if (c > 0xFFFF)
		fprintf(j->f, "\\u%04x\\u%04x", 0xD7C0 + (c >> 10), 0xDC00 | (c & 0x3FF));
	else
		fprintf(j->f, "\\u%04x", c);
}

static void text(struct json *j, const char *s)
{
	size_t n, left = strlen(s);
	uint32_t c = 0;

	fputc('"', j->f);
	for (; left; s += n, left -= n) {
		n = fdry_utf8_next(s, left, &c);
		if (!n)
			escape(j, 0xFFFD);
		else if (*s == '"' || *s == '\\')
			fprintf(j->f, "\\%c", *s);
		else if (!fdry_is_printable(c))
			escape(j, c);
		else
			fwrite(s, 1, n, j->f);
		n = n ? n : 1;
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

static struct json document; /* on standard output; its last bracket is still missing */

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
