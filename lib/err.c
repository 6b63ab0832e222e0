// SPDX-License-Identifier: Apache-2.0
/*
 * err.c - the thread's last error message, and the tables made from errcode.def.
 *
 * The message lives in thread-local storage of fixed size: reporting an error never
 * allocates and never fails. A message quotes foreign names, so this file makes all of it
 * printable.
 */
#include "lib/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/printable.h"
#include "lib/telemetry.h"

static __thread char sentence[FDRY_SENTENCE_MAX];

struct errcode {
	int nr;
	int class;
	const char *name;
	const char *meaning;
};

static const struct errcode errcodes[] = {
#define FDRY_ERRCODE(nr, name, class, text) { nr, class, "FDRY_E_" #name, text },
#include "foundry/errcode.def"
#undef FDRY_ERRCODE
};

static const struct errcode *errcode_find(int code)
{
	static const struct errcode none = { 0, 0, "FDRY_OK", "no error" };
	static const struct errcode unknown = { -1, EINVAL, "FDRY_E_?", "an unknown error code" };
	size_t i;

	if (!code)
		return &none;
	for (i = 0; i < sizeof(errcodes) / sizeof(errcodes[0]); i++)
		if (errcodes[i].nr == (code < 0 ? -code : code))
			return &errcodes[i];
	return &unknown;
}

/* Text that fills its buffer may end in the middle of a character. */
static void cut_trim(char *text, size_t cap)
{
	size_t len = strlen(text), back;
	uint32_t c;

	if (len + 1 < cap)
		return;
	for (back = 1; back <= 3 && back < len && ((uint8_t)text[len - back] & 0xC0) == 0x80;
	     back++)
		;
	if ((uint8_t)text[len - back] & 0x80 && !fdry_utf8_next(text + len - back, back, &c))
		text[len - back] = 0;
}

static int vfail(enum fdry_errcode code, const char *fmt, va_list ap)
{
	int saved = errno;
	char text[FDRY_SENTENCE_MAX];

	fdry_count_error((unsigned int)code);
	/* The local buffer is needed because an argument may be the old message. */
	vsnprintf(text, sizeof(text), fmt, ap);
	cut_trim(text, sizeof(text));
	fdry_printable(sentence, sizeof(sentence), text);
	errno = saved;
	return -(int)code;
}

int fdry_fail(enum fdry_errcode code, const char *fmt, ...)
{
	va_list ap;
	int ret;

	va_start(ap, fmt);
	ret = vfail(code, fmt, ap);
	va_end(ap);
	return ret;
}

int fdry_fail_at(int ret, const char *fmt, ...)
{
	int saved = errno;
	char text[FDRY_SENTENCE_MAX];
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	n = strlen(text);
	snprintf(text + n, sizeof(text) - n, ": %s", sentence);
	cut_trim(text, sizeof(text));
	fdry_printable(sentence, sizeof(sentence), text);
	errno = saved;
	return ret;
}

int fdry_nomem(void)
{
	return fdry_fail(FDRY_E_NOMEM, "out of host memory; free some and try again");
}

const char *fdry_last_error(void)
{
	return sentence;
}

const char *fdry_error_name(int code)
{
	return errcode_find(code)->name;
}

const char *fdry_error_meaning(int code)
{
	return errcode_find(code)->meaning;
}

int fdry_error_errno(int code)
{
	return errcode_find(code)->class;
}
