/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.h - bytes that grow (for writers) and bytes that are checked (for readers).
 *
 * fdry_span_at() makes every pointer into bytes that came from outside. A bare base + offset
 * elsewhere is a bug.
 */
#ifndef FDRY_LIB_BUF_H
#define FDRY_LIB_BUF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/err.h"

/* A growable buffer. Zero it to start. The buffer owns @data until fdry_buf_release(). */
struct fdry_buf {
	uint8_t *data;
	size_t len;
	size_t cap;
};

/* Append @len zero bytes; @ret (may be NULL) points at them until the buffer grows again. */
int fdry_buf_grow(struct fdry_buf *b, size_t len, void **ret) __must_check;
int fdry_buf_put(struct fdry_buf *b, const void *data, size_t len) __must_check;
/* Append zero bytes until len is a multiple of @align (a power of two). */
int fdry_buf_align(struct fdry_buf *b, size_t align) __must_check;
int fdry_buf_put_u32(struct fdry_buf *b, uint32_t v) __must_check;
int fdry_buf_put_u64(struct fdry_buf *b, uint64_t v) __must_check;
int fdry_buf_printf(struct fdry_buf *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3))) __must_check;
void fdry_buf_release(struct fdry_buf *b);

/* The items of a buffer that holds items of one type. */
#define fdry_array(buf, type) ((type *)(buf).data)
#define fdry_array_count(buf, type) ((buf).len / sizeof(type))

/* Bytes that another structure owns. */
struct fdry_span {
	const uint8_t *data;
	size_t len;
};

/* The @len bytes at @off of @s, or NULL if they do not all lie inside. Any alignment. */
static inline const void *fdry_span_at(struct fdry_span s, uint64_t off, uint64_t len)
{
	if (off > s.len || len > s.len - off)
		return NULL;
	return off ? s.data + off : s.data; /* no data: not even NULL + 0 */
}

/* Little-endian loads and stores at any alignment; all our formats are little-endian. */
static inline uint16_t fdry_get16(const void *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}
static inline uint32_t fdry_get32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}
static inline uint64_t fdry_get64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}
static inline void fdry_set16(void *p, uint16_t v) { memcpy(p, &v, sizeof(v)); }
static inline void fdry_set32(void *p, uint32_t v) { memcpy(p, &v, sizeof(v)); }
static inline void fdry_set64(void *p, uint64_t v) { memcpy(p, &v, sizeof(v)); }

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "the formats are read in place: little-endian hosts only");

#endif
