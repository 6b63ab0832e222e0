// SPDX-License-Identifier: Apache-2.0
/* buf_text.c - append printable text to a buffer; see printable.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/err.h"
#include "lib/printable.h"

int fdry_buf_printable(struct fdry_buf *b, const char *s)
{
	size_t left = strlen(s), n, taken;
	char text[FDRY_PRINTABLE_MAX];
	int err;

	for (; left; s += taken, left -= taken) {
		n = fdry_printable_next(text, s, left, &taken);
		err = fdry_buf_put(b, text, n);
		if (err)
			return err;
	}
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
