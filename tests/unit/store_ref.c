// SPDX-License-Identifier: Apache-2.0
/* Unit tests of refs, of finding images by name, and of two seals under one name. */
#include "tests/lib/store_fixture.h"

START_TEST(names_are_checked)
{
	static const char *const good[] = {
		"a", "A.b", "qwen3-0.6b/decode@h200", "a/b/c", "x=1+2", "...", ".a", "a..", "abcd",
	};
	static const char *const bad[] = {
		"", "/",
		"/a", "a/",
		"a//b", "a:b",
		".", "..",
		"a/./b", "a/..",
		"../a", "a b",
		"a\n", "a\x7f",
		"a\x01", "\t",
		"\xc3\xa4", "a\\b",
		"*", "-",
		"-a", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	};
	char name[FDRY_REF_NAME_MAX + 2];
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		ok(fdry_ref_check(good[i]));
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(fdry_ref_check(bad[i]) == -FDRY_E_NAME, "'%s' was accepted", bad[i]);
	memset(name, 'a', sizeof(name));
	name[FDRY_REF_NAME_MAX + 1] = '\0';
	fails(NAME, "256 bytes", fdry_ref_check(name));
	name[FDRY_REF_NAME_MAX] = '\0';
	ok(fdry_ref_check(name));
	/* 64 digits, but not lower case: no id */
	memset(name, 'A', 64);
	name[64] = '\0';
	ok(fdry_ref_check(name));
}
END_TEST

/* A requested name may have any bytes; the message about it has no bytes that control a terminal.
 */
START_TEST(sentences_about_bad_names_are_harmless)
{
	struct fdry_oid oid;
	const char *p;

	fails(NAME, "'a\\x1b[31mb'", fdry_ref_check("a\033[31mb"));
	fails(NAME, "'a:\\x1b]0;b\\x07'", fdry_store_resolve(s, "a:\033]0;b\a", &oid));
	fails(NAME, "'\\u202e'", fdry_ref_get(s, "\xe2\x80\xae", &oid));
	fails(NAME, "'\\xc3'", fdry_ref_get(s, "\xc3", &oid));
	for (p = fdry_last_error(); *p; p++)
		ck_assert(*p >= ' ' && *p <= '~');
}
END_TEST

static int ignore_ref(void *arg, const struct fdry_ref *ref)
{
	(void)arg, (void)ref;
	return 0;
}

/* A process that may write the file can put any key into it: the store never returns an invalid
 * name. */
START_TEST(names_in_the_store_are_checked)
{
	static const char *const bad[] = { "a\033[2J", "..", "a//b", "-x", "a b" };
	struct fdry_oid image = seal(s, 1, 1, 100, "good");
	uint8_t key[FDRY_REF_KEY_MAX] = { 0 };
	struct fdry_span good, k;
	struct fdry_txn t;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memset(key, 0, sizeof(key));
		memcpy(key, "good", 4);
		ok(fdry_txn_write(s->env->db, 0, &t));
		ok(fdry_txn_get(&t, FDRY_TABLE_REFS, (struct fdry_span){ key, 5 + FDRY_OID_SIZE },
				&good));
		ck_assert_ptr_nonnull(good.data);
		memset(key, 0, sizeof(key));
		memcpy(key, bad[i], strlen(bad[i]));
		k = (struct fdry_span){ key, strlen(bad[i]) + 1 + FDRY_OID_SIZE };
		ok(fdry_txn_put(&t, FDRY_TABLE_REFS, k, good));
		ok(fdry_txn_commit(&t));
		fails(CORRUPT, "damaged name", fdry_ref_each(s, ignore_ref, NULL));
		ok(fdry_txn_write(s->env->db, 0, &t));
		ok(fdry_txn_delete(&t, FDRY_TABLE_REFS, k));
		ok(fdry_txn_commit(&t));
		ok(fdry_ref_each(s, ignore_ref, NULL));
	}
	ok(fdry_ref_get(s, "good", &image));
}
END_TEST

static int collect_names(void *arg, const struct fdry_ref *ref)
{
	struct fdry_oid again;

	ok(fdry_ref_get(s, ref->name, &again)); /* a walk may use the store */
	ck_assert(fdry_oid_eq(&ref->oid, &again));
	return fdry_buf_printf(arg, "%s ", ref->name);
}

START_TEST(refs_are_set_listed_and_deleted)
{
	struct fdry_oid a = seal(s, 1, 2, 100, "b/1"), b = seal(s, 10, 2, 100, "a"), got, chunk;
	struct fdry_buf names = { 0 };
	uint8_t data[100];

	ok(fdry_ref_set(s, "c", &a, NULL));
	ok(fdry_ref_each(s, collect_names, &names));
	ck_assert_str_eq((char *)names.data, "a b/1 c ");
	ok(fdry_ref_get(s, "c", &got));
	ck_assert(fdry_oid_eq(&got, &a));
	ok(fdry_ref_set(s, "c", &b, NULL));
	ok(fdry_ref_get(s, "c", &got));
	ck_assert(fdry_oid_eq(&got, &b));
	ok(fdry_store_remove(s, "c"));
	fails(NOENT, "'c'", fdry_ref_get(s, "c", &got));
	fails(NOENT, "'c'", fdry_store_remove(s, "c"));
	fails(NAME, "'a b'", fdry_ref_set(s, "a b", &a, NULL));
	fails(NAME, "'a b'", fdry_ref_get(s, "a b", &got));
	fails(NAME, "'a b'", fdry_store_remove(s, "a b"));

	noise(1, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	fails(INVAL, "not an image", fdry_ref_set(s, "d", &chunk, NULL));
	chunk = oid_of("nobody", 6);
	fails(NOENT, "no object", fdry_ref_set(s, "d", &chunk, NULL));
	fdry_buf_release(&names);
}
END_TEST

static void info_print(void *arg, const struct fdry_ref_info *ref)
{
	struct fdry_oid again;

	ck_assert_uint_eq(ref->sz, sizeof(*ref));
	ok(fdry_store_resolve(s, ref->id, &again)); /* the function may use the store ... */
	fdry_store_close(s); /* ... but does not close it */
	ok(fdry_buf_printf(arg, "%s %.4s %d %d; ", ref->name, ref->id, ref->pinned != 0,
			   ref->used != 0));
}

START_TEST(refs_are_listed_with_their_ids)
{
	struct fdry_buf text = { 0 }, expected = { 0 };
	struct fdry_oid a = seal(s, 1, 2, 100, "x"), b = seal(s, 10, 2, 100, "b/1");
	char hex[2][FDRY_OID_HEX_SIZE];

	ok(fdry_store_refs(s, info_print, &text));
	ok(fdry_store_pin(s, "x"));
	ok(fdry_store_refs(s, info_print, &text));
	fdry_oid_hex(&a, hex[0]);
	fdry_oid_hex(&b, hex[1]);
	ok(fdry_buf_printf(&expected, "b/1 %.4s 0 1; x %.4s 0 1; b/1 %.4s 0 1; x %.4s 1 1; ",
			   hex[1], hex[0], hex[1], hex[0]));
	ck_assert_str_eq((char *)text.data, (char *)expected.data);
	fdry_buf_release(&text);
	fdry_buf_release(&expected);
	fails(INVAL, "given no store", fdry_store_refs(NULL, info_print, &text));
	fails(INVAL, "given no fn", fdry_store_refs(s, NULL, &text));
	fails(INVAL, "given no store", fdry_store_remove(NULL, "x"));
	fails(INVAL, "given no name", fdry_store_remove(s, NULL));
}
END_TEST

/* Half an image cannot be named. */
START_TEST(an_image_that_lacks_something_is_not_named)
{
	struct fdry_oid image = seal(s, 1, 3, 100, NULL), chunk;
	uint8_t data[100];
	struct fdry_txn t;

	noise(2, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_txn_delete(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&chunk)));
	ok(fdry_txn_commit(&t));
	fails(NOENT, "it needs object", fdry_ref_set(s, "d", &image, NULL));
	fails(NOENT, "no ref", fdry_ref_get(s, "d", &image));
}
END_TEST

/* Seal images until the ids of two begin with the same four digits. */
static void seal_twins(struct fdry_oid twins[2])
{
	static uint16_t first[65536]; /* 1 + the number of the image whose id begins with these
					 digits */
	struct fdry_oid oid;
	struct fdry_writer *p;
	char text[32];
	uint16_t head;
	int i, k;

	memset(first, 0, sizeof(first));
	for (i = 0;; i++) {
		snprintf(text, sizeof(text), "twin %d", i);
		oid = oid_of(text, strlen(text));
		head = fdry_get16(oid.b);
		if (first[head])
			break;
		first[head] = (uint16_t)(i + 1);
	}
	for (k = 0; k < 2; k++) {
		snprintf(text, sizeof(text), "twin %d", k ? i : first[head] - 1);
		ok(fdry_writer_begin(s, &p));
		ok(fdry_writer_commit(p, text, strlen(text), NULL, 0, NULL, &twins[k], NULL));
	}
}

START_TEST(images_are_found_by_ref_id_and_prefix)
{
	struct fdry_oid twins[2], got, chunk;
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_writer *p;
	size_t i;

	seal_twins(twins);
	ok(fdry_store_resolve(s, fdry_oid_hex(&twins[0], hex), &got));
	ck_assert(fdry_oid_eq(&got, &twins[0]));
	hex[4] = '\0';
	fails(AMBIGUOUS, hex, fdry_store_resolve(s, hex, &got));
	fdry_oid_hex(&twins[1], hex);
	for (i = 4; i < 64 && twins[0].b[i / 2] >> 4 == twins[1].b[i / 2] >> 4; i++)
		;
	hex[i < 60 ? i + 2 : 63] = '\0';
	ok(fdry_store_resolve(s, hex, &got)); /* an odd number of digits or an even one */
	ck_assert(fdry_oid_eq(&got, &twins[1]));
	fdry_oid_hex(&twins[1], hex)[63] = '\0';
	ok(fdry_store_resolve(s, hex, &got));
	ck_assert(fdry_oid_eq(&got, &twins[1]));

	/* a ref of that name has precedence */
	ok(fdry_ref_set(s, hex, &twins[0], NULL));
	ok(fdry_store_resolve(s, hex, &got));
	ck_assert(fdry_oid_eq(&got, &twins[0]));

	/* only images by prefix, anything by its whole id */
	ok(fdry_writer_begin(s, &p));
	chunk = put(p, FDRY_OBJECT_CHUNK, "chunk", 5);
	ok(fdry_writer_commit(p, "m", 1, &chunk, 1, NULL, &got, NULL));
	ok(fdry_store_resolve(s, fdry_oid_hex(&chunk, hex), &got));
	hex[12] = '\0';
	fails(NOENT, hex, fdry_store_resolve(s, hex, &got));
	hex[3] = '\0';
	fails(NOENT, hex, fdry_store_resolve(s, hex, &got));
	memset(hex, 'f', 64);
	hex[64] = '\0';
	fails(NOENT, hex, fdry_store_resolve(s, hex, &got));
	hex[5] = '\0';
	fails(NOENT, hex, fdry_store_resolve(s, hex, &got));
	fails(NAME, "a b", fdry_store_resolve(s, "a b", &got));
	fails(NOENT, "'xyz'", fdry_store_resolve(s, "xyz", &got));
}
END_TEST

/* A session can read everything that it resolves: its view is that of its first resolution. */
START_TEST(a_session_resolves_in_its_own_view)
{
	struct fdry_oid old = seal(s, 1, 1, 100, "r"), new, got;
	struct fdry_reader *g;

	ok(fdry_reader_begin(s, &g));
	fails(NOENT, "'nothing'", fdry_reader_resolve(g, "nothing", &got));
	ok(fdry_reader_resolve(g, "r", &got));
	ck_assert(fdry_oid_eq(&got, &old));
	new = seal(s, 10, 1, 100, "r");
	seal(s, 20, 1, 100, "later");
	ok(fdry_store_resolve(s, "r", &got));
	ck_assert(fdry_oid_eq(&got, &new));
	ok(fdry_reader_resolve(g, "r", &got));
	ck_assert(fdry_oid_eq(&got, &old));
	check_object(g, &got, "image 1 1 100", 13);
	fails(NOENT, "'later'", fdry_reader_resolve(g, "later", &got));
	fails(NAME, "'a b'", fdry_reader_resolve(g, "a b", &got));
	fdry_reader_end(g);
}
END_TEST

/* A session notes the resolved image before its last look at the ref: if the ref has moved since,
 * it follows the ref. */
START_TEST(a_ref_that_moves_is_followed)
{
	struct fdry_oid new, got;
	struct fdry_reader *g;

	seal(s, 1, 1, 100, "r");
	ok(fdry_reader_begin(s, &g));
	new = seal(s, 10, 1, 100, "r");
	ok(fdry_reader_resolve(g, "r", &got));
	ck_assert(fdry_oid_eq(&got, &new));
	check_object(g, &got, "image 10 1 100", 14);
	fdry_reader_end(g);
}
END_TEST

static int commit(struct fdry_writer *p, const char *text, struct fdry_oid *ret)
{
	return fdry_writer_commit(p, text, strlen(text), NULL, 0, "name", ret, NULL);
}

START_TEST(one_of_two_seals_gets_the_name)
{
	struct fdry_object_info info;
	struct fdry_writer *a, *b, *c;
	struct fdry_oid oid, got;
	int round;

	for (round = 0; round < 2; round++) { /* the ref is new, then is there */
		ok(fdry_writer_begin(s, &a));
		ok(fdry_writer_begin(s, &b));
		ok(fdry_writer_begin(s, &c));
		ok(commit(a, round ? "first again" : "first", &oid));
		fails(RACED, "'name'", commit(b, round ? "second again" : "second", &got));
		ok(fdry_ref_get(s, "name", &got));
		ck_assert(fdry_oid_eq(&got, &oid));
		got = oid_of("second", 6);
		fails(NOENT, "no object", fdry_store_info(s, &got, &info));
		/* the same image is no race */
		ok(commit(c, round ? "first again" : "first", &got));
		ck_assert(fdry_oid_eq(&got, &oid));
	}
	/* a session that begins afterwards replaces it */
	ok(fdry_writer_begin(s, &a));
	ok(commit(a, "third", &got));
	/* and so does a session for another ref than the changed one */
	ok(fdry_writer_begin(s, &a));
	ok(fdry_ref_set(s, "other", &got, NULL));
	ok(commit(a, "fourth", &got));
	/* a change to another image and back counts as a change */
	ok(fdry_writer_begin(s, &a));
	ok(fdry_ref_set(s, "name", &oid, NULL));
	ok(fdry_ref_set(s, "name", &got, NULL));
	fails(RACED, "'name'", commit(a, "fifth", &oid));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_ref");
	TCase *tc = tcase_create("ref");

	tcase_add_checked_fixture(tc, store_setup, store_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, names_are_checked);
	tcase_add_test(tc, sentences_about_bad_names_are_harmless);
	tcase_add_test(tc, names_in_the_store_are_checked);
	tcase_add_test(tc, refs_are_set_listed_and_deleted);
	tcase_add_test(tc, refs_are_listed_with_their_ids);
	tcase_add_test(tc, an_image_that_lacks_something_is_not_named);
	tcase_add_test(tc, images_are_found_by_ref_id_and_prefix);
	tcase_add_test(tc, a_session_resolves_in_its_own_view);
	tcase_add_test(tc, a_ref_that_moves_is_followed);
	tcase_add_test(tc, one_of_two_seals_gets_the_name);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
