// SPDX-License-Identifier: Apache-2.0
/* text.c - reads words and numbers of a line; see text.h. The text needs no terminating NUL. */
#include "graph/text.h"

#include <inttypes.h>

/* The beginning of a word, for messages. */
#define SHOWN(s) (int)((s).len < 40 ? (s).len : 40), (s).data

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

bool fdry_word(struct fdry_words *w, struct fdry_span *ret)
{
	const char *start;

	while (w->at < w->end && is_space(*w->at))
		w->at++;
	if (w->at == w->end || *w->at == '#')
		return false;
	for (start = w->at; w->at < w->end && !is_space(*w->at); )
		w->at++;
	*ret = (struct fdry_span){ (const uint8_t *)start, (size_t)(w->at - start) };
	return true;
}

static bool word_eq(struct fdry_span s, const char *word)
{
	return s.len == strlen(word) && !memcmp(s.data, word, s.len);
}

bool fdry_word_is(struct fdry_words *w, const char *word)
{
	struct fdry_words next = *w;
	struct fdry_span s;

	if (!fdry_word(&next, &s) || !word_eq(s, word))
		return false;
	*w = next;
	return true;
}

int fdry_word_expect(struct fdry_words *w, const char *word)
{
	struct fdry_span s;

	if (fdry_word_is(w, word))
		return 0;
	if (!fdry_word(w, &s))
		return fdry_fail(FDRY_E_INVAL, "the line ends where '%s' should stand", word);
	return fdry_fail(FDRY_E_INVAL, "'%.*s' stands where '%s' should", SHOWN(s), word);
}

/* The value of a digit, or 99. */
static unsigned int digit(char c)
{
	if (c >= '0' && c <= '9')
		return (unsigned int)(c - '0');
	if (c >= 'a' && c <= 'f')
		return (unsigned int)(c - 'a') + 10;
	return 99;
}

static bool number(const uint8_t *p, size_t len, unsigned int base, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i;

	for (i = 0; i < len; i++) {
		unsigned int d = digit((char)p[i]);

		if (d >= base || __builtin_mul_overflow(v, base, &v) ||
		    __builtin_add_overflow(v, d, &v))
			return false;
	}
	*ret = v;
	return len > 0;
}

int fdry_word_u64(struct fdry_words *w, const char *what, uint64_t max, uint64_t *ret)
{
	struct fdry_span s = { 0 };
	uint64_t v;
	bool hex, ok;

	if (!fdry_word(w, &s))
		return fdry_fail(FDRY_E_INVAL, "the line ends where %s should stand", what);
	hex = s.len > 2 && s.data[0] == '0' && s.data[1] == 'x';
	ok = hex ? number(s.data + 2, s.len - 2, 16, &v) : number(s.data, s.len, 10, &v);
	if (!ok || v > max)
		return fdry_fail(FDRY_E_INVAL,
				 "%s is '%.*s'; it must be a number from 0 to %" PRIu64, what,
				 SHOWN(s), max);
	*ret = v;
	return 0;
}

int fdry_word_u32(struct fdry_words *w, const char *what, uint32_t *ret)
{
	uint64_t v;
	int err = fdry_word_u64(w, what, UINT32_MAX, &v);

	if (err)
		return err;
	*ret = (uint32_t)v;
	return 0;
}

int fdry_word_i32(struct fdry_words *w, const char *what, int32_t *ret)
{
	struct fdry_words next = *w;
	struct fdry_span s = { 0 };
	uint64_t v;
	int err;

	if (!fdry_word(&next, &s) || s.data[0] != '-') {
		err = fdry_word_u64(w, what, INT32_MAX, &v);
		if (err)
			return err;
		*ret = (int32_t)v;
		return 0;
	}
	if (!number(s.data + 1, s.len - 1, 10, &v) || v > (uint64_t)INT32_MAX + 1 || !v)
		return fdry_fail(FDRY_E_INVAL,
				 "%s is '%.*s'; it must be a number of 32 bits with sign", what,
				 SHOWN(s));
	*w = next;
	*ret = (int32_t)-(int64_t)v;
	return 0;
}

int fdry_named_u64(struct fdry_words *w, const char *name, uint64_t *ret)
{
	int err = fdry_word_expect(w, name);

	return err ? err : fdry_word_u64(w, name, UINT64_MAX, ret);
}

int fdry_words_end(struct fdry_words *w)
{
	struct fdry_span s;

	if (!fdry_word(w, &s))
		return 0;
	return fdry_fail(FDRY_E_INVAL, "'%.*s' stands where the line should end", SHOWN(s));
}

int fdry_bytes_to_text(struct fdry_span bytes, struct fdry_buf *ret)
{
	uint64_t v;
	size_t i, n;
	int err;

	for (i = 0; i < bytes.len; i += n) {
		n = bytes.len - i < 8 ? bytes.len - i : 8;
		v = 0;
		memcpy(&v, bytes.data + i, n);
		err = fdry_buf_printf(ret, " %0*" PRIx64, (int)(2 * n), v);
		if (err)
			return err;
	}
	return 0;
}

int fdry_bytes_from_text(struct fdry_words *w, struct fdry_buf *ret)
{
	struct fdry_span s;
	uint64_t v;
	bool last = false;
	int err;

	while (fdry_word(w, &s)) {
		if (last || s.len > 16 || s.len & 1 || !number(s.data, s.len, 16, &v))
			return fdry_fail(FDRY_E_INVAL,
					 "'%.*s' is not 16 hexadecimal digits, or fewer at the end",
					 SHOWN(s));
		last = s.len < 16;
		err = fdry_buf_put(ret, &v, s.len / 2);
		if (err)
			return err;
	}
	return 0;
}
