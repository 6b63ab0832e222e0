// SPDX-License-Identifier: Apache-2.0
/* Unit tests of errors, buffers, spans and object ids. */
#include <errno.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/oid.h"
#include "lib/printable.h"
#include "lib/search.h"
#include "tests/lib/test.h"

START_TEST(err_keeps_sentence_and_errno)
{
	errno = ENOENT;
	ck_assert_int_eq(fdry_fail(FDRY_E_NOENT, "no %s", "object"), -FDRY_E_NOENT);
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_str_eq(fdry_last_error(), "no object");
	ck_assert_int_eq(fdry_fail_at(-7, "node %d", 3), -7);
	ck_assert_str_eq(fdry_last_error(), "node 3: no object");
	fdry_fail(FDRY_E_IO, "again: %s", fdry_last_error());
	ck_assert_str_eq(fdry_last_error(), "again: node 3: no object");
}
END_TEST

START_TEST(err_tables)
{
	ck_assert_str_eq(fdry_error_name(-FDRY_E_BADIMAGE), "FDRY_E_BADIMAGE");
	ck_assert_int_eq(fdry_error_errno(FDRY_E_FULL), ENOSPC);
	ck_assert_str_eq(fdry_error_name(0), "FDRY_OK");
	ck_assert_str_eq(fdry_error_name(12345), "FDRY_E_?");
}
END_TEST

static const struct {
	const char *from, *to;
} texts[] = {
	{ "", "" },
	{ "plain text, with 'quotes' and \\ a backslash",
	  "plain text, with 'quotes' and \\ a backslash" },
	{ "gr\xc3\xbc\xc3\x9f \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80",
	  "gr\xc3\xbc\xc3\x9f \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80" },
	{ "\x1b]0;t\a\nedge 0 2\r\t\x7f", "\\x1b]0;t\\x07\\nedge 0 2\\r\\t\\x7f" },
	{ "\xc2\x9b"
	  "31m \x9b"
	  "31m",
	  "\\u009b31m \\x9b31m" }, /* C1, as UTF-8 and as a byte */
	{ "a\xe2\x80\xae"
	  "b\xe2\x81\xa6"
	  "c",
	  "a\\u202eb\\u2066c" }, /* a line's direction turns */
	{ "\xe2\x80\xa8\xef\xbb\xbf\xc2\xad", "\\u2028\\ufeff\\u00ad" },
	{ "\xf3\xa0\x81\x81", "\\U000e0041" }, /* a tag, which nothing shows */
	{ "\xc0\x9b \xed\xa0\x80 \xf5\x80\x80\x80 \xe6\x97",
	  "\\xc0\\x9b \\xed\\xa0\\x80 \\xf5\\x80\\x80\\x80 \\xe6\\x97" },
};

START_TEST(text_becomes_printable)
{
	char to[256], small[8];
	struct fdry_buf b = { 0 };
	size_t i, cap;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		ck_assert_uint_eq(fdry_printable(to, sizeof(to), texts[i].from),
				  strlen(texts[i].to));
		ck_assert_str_eq(to, texts[i].to);
		fdry_printable(to, sizeof(to), texts[i].to); /* which is printable already */
		ck_assert_str_eq(to, texts[i].to);
		b.len = 0;
		ck_assert_int_eq(fdry_buf_printable(&b, texts[i].from), 0);
		ck_assert_str_eq((char *)b.data, texts[i].to);
		fdry_fail(FDRY_E_INVAL, "%s", texts[i].from);
		ck_assert_str_eq(fdry_last_error(), texts[i].to);
	}
	b.len = 0;
	ck_assert_int_eq(fdry_buf_line(&b, "%s|%s", "a\n", "b"), 0);
	ck_assert_str_eq((char *)b.data, "a\\n|b\n");
	for (cap = 1; cap <= sizeof(small); cap++) { /* no half of an escape or a character */
		ck_assert_uint_eq(fdry_printable(small, cap, "\xe6\x97\xa5\x1b"), cap < 4   ? 0
										  : cap < 8 ? 3
											    : 7);
		ck_assert_uint_eq(strlen(small), cap < 4 ? 0 : cap < 8 ? 3 : 7);
	}
	fdry_buf_release(&b);
}
END_TEST

/* A message that is cut ends in a whole character. */
START_TEST(cut_sentences_are_printable)
{
	char text[2000], twice[2048];
	size_t i, off;

	for (off = 0; off < 3; off++) {
		memset(text, 'x', off);
		for (i = off; i + 3 < sizeof(text); i += 3)
			memcpy(text + i, "\xe6\x97\xa5", 3);
		text[i] = 0;
		fdry_fail(FDRY_E_INVAL, "%s", text);
		ck_assert_uint_ge(strlen(fdry_last_error()), FDRY_SENTENCE_MAX - 4);
		fdry_printable(twice, sizeof(twice), fdry_last_error());
		ck_assert_str_eq(twice, fdry_last_error());
		ck_assert_ptr_null(strchr(fdry_last_error(), '\\'));
		fdry_fail_at(-FDRY_E_INVAL, "\x1b%s", "at");
		ck_assert(!strncmp(fdry_last_error(), "\\x1bat: ", 8));
	}
}
END_TEST

START_TEST(buf_grows_zeroed_and_aligned)
{
	struct fdry_buf b = { 0 };
	int i;

	for (i = 0; i < 1000; i++)
		ck_assert_int_eq(fdry_buf_put_u32(&b, (uint32_t)i), 0);
	ck_assert_int_eq(fdry_buf_put(&b, "x", 1), 0);
	ck_assert_int_eq(fdry_buf_align(&b, 64), 0);
	ck_assert_uint_eq(b.len, 4032);
	for (i = 0; i < 1000; i++)
		ck_assert_uint_eq(fdry_get32(b.data + 4 * i), (uint32_t)i);
	for (i = 4001; i < 4032; i++)
		ck_assert_uint_eq(b.data[i], 0);
	ck_assert_int_eq(fdry_buf_grow(&b, SIZE_MAX - 10, NULL), -FDRY_E_NOMEM);
	ck_assert_uint_eq(b.len, 4032);
	b.len = 0;
	ck_assert_int_eq(fdry_buf_printf(&b, "%d-%s", 7, "seven"), 0);
	ck_assert_uint_eq(b.len, 7);
	ck_assert_mem_eq(b.data, "7-seven", 8);
	fdry_buf_release(&b);
	ck_assert_ptr_null(b.data);
}
END_TEST

START_TEST(span_checks_every_bound)
{
	static const uint8_t bytes[16];
	struct fdry_span s = { bytes, sizeof(bytes) };

	ck_assert_ptr_eq(fdry_span_at(s, 0, 16), bytes);
	ck_assert_ptr_eq(fdry_span_at(s, 16, 0), bytes + 16);
	ck_assert_ptr_null(fdry_span_at(s, 0, 17));
	ck_assert_ptr_null(fdry_span_at(s, 17, 0));
	ck_assert_ptr_null(fdry_span_at(s, 8, UINT64_MAX - 4));
	ck_assert_ptr_null(fdry_span_at(s, UINT64_MAX, 1));
}
END_TEST

START_TEST(oid_known_answers)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid a, b;
	struct fdry_hash h = { 0 };

	/* FIPS 180-2, appendix B.1 */
	ck_assert_int_eq(fdry_oid_of("abc", 3, &a), 0);
	ck_assert_str_eq(fdry_oid_hex(&a, hex),
			 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	ck_assert_int_eq(fdry_oid_parse(hex, &b), 0);
	ck_assert(fdry_oid_eq(&a, &b));
	ck_assert_int_eq(fdry_hash_update(&h, "a", 1), 0);
	ck_assert_int_eq(fdry_hash_update(&h, "bc", 2), 0);
	ck_assert_int_eq(fdry_hash_final(&h, &b), 0);
	ck_assert(fdry_oid_eq(&a, &b));
	b.b[31] ^= 1;
	ck_assert(!fdry_oid_eq(&a, &b));
	hex[3] = 'G';
	ck_assert_int_eq(fdry_oid_parse(hex, &b), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_oid_parse("ba78", &b), -FDRY_E_INVAL);
}
END_TEST

START_TEST(lower_bound_is_the_first_not_below)
{
	static const int items[] = { 1, 3, 3, 3, 7, 9 };
	size_t n, want;
	int key;

	for (n = 0; n <= 6; n++)
		for (key = 0; key <= 10; key++) {
			for (want = 0; want < n && items[want] < key; want++)
				;
			ck_assert_uint_eq(fdry_lower_bound(i, n, items[i] < key), want);
		}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lib_base");
	TCase *tc = tcase_create("base");

	tcase_add_test(tc, err_keeps_sentence_and_errno);
	tcase_add_test(tc, err_tables);
	tcase_add_test(tc, text_becomes_printable);
	tcase_add_test(tc, cut_sentences_are_printable);
	tcase_add_test(tc, buf_grows_zeroed_and_aligned);
	tcase_add_test(tc, span_checks_every_bound);
	tcase_add_test(tc, oid_known_answers);
	tcase_add_test(tc, lower_bound_is_the_first_not_below);
	suite_add_tcase(s, tc);
	return test_main(s);
}
