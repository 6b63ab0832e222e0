// SPDX-License-Identifier: Apache-2.0
/* buf.c - growable buffers; see buf.h. */
#include "lib/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int fdry_buf_grow(struct fdry_buf *b, size_t len, void **ret)
{
	size_t need, cap;
	uint8_t *data;

	if (__builtin_add_overflow(b->len, len, &need))
		return fdry_nomem();
	if (need > b->cap || !b->data) {
		cap = need + need / 2 + 64;
		data = cap > need ? realloc(b->data, cap) : NULL;
		if (!data)
			return fdry_nomem();
		b->data = data;
		b->cap = cap;
	}
	/* No offset from a NULL pointer, not even 0. */
	if (ret)
		*ret = len ? b->data + b->len : b->data;
	if (len)
		memset(b->data + b->len, 0, len);
	b->len = need;
	return 0;
}

int fdry_buf_put(struct fdry_buf *b, const void *data, size_t len)
{
	void *p = NULL;
	int ret = fdry_buf_grow(b, len, &p);

	if (ret)
		return ret;
	if (len)
		memcpy(p, data, len);
	return 0;
}

int fdry_buf_align(struct fdry_buf *b, size_t align)
{
	return fdry_buf_grow(b, -b->len & (align - 1), NULL);
}

int fdry_buf_put_u32(struct fdry_buf *b, uint32_t v)
{
	return fdry_buf_put(b, &v, sizeof(v));
}

int fdry_buf_put_u64(struct fdry_buf *b, uint64_t v)
{
	return fdry_buf_put(b, &v, sizeof(v));
}

int fdry_buf_printf(struct fdry_buf *b, const char *fmt, ...)
{
	va_list ap, again;
	void *p = NULL;
	int n, ret;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	ret = n < 0 ? fdry_nomem() : fdry_buf_grow(b, (size_t)n + 1, &p);
	if (!ret) {
		vsnprintf(p, (size_t)n + 1, fmt, again);
		b->len--; /* the terminator stays, but is not counted */
	}
	va_end(again);
	return ret;
}

void fdry_buf_release(struct fdry_buf *b)
{
	free(b->data);
	memset(b, 0, sizeof(*b));
}
