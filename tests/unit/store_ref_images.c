// SPDX-License-Identifier: Apache-2.0
/* Unit tests of names that hold several images, by identity; of pins; and of damaged refs. */
#include "tests/lib/store_fixture.h"

/* The identity number @n. */
static struct fdry_oid identity(unsigned int n)
{
	return oid_of(&n, sizeof(n));
}

/* An image of no other objects, for identity @n, sealed under "name". */
static struct fdry_oid seal_for(unsigned int n, const char *text)
{
	struct fdry_oid oid, id = identity(n);
	struct fdry_writer *p;

	ok(fdry_writer_begin(s, &p));
	fdry_writer_set_identity(p, &id);
	ok(fdry_writer_commit(p, text, strlen(text), NULL, 0, "name", &oid, NULL));
	return oid;
}

/* "name" holds these images, in this order. */
static void check_images(const struct fdry_oid *const *want, size_t n)
{
	struct fdry_ref *refs;
	size_t i, count;

	ok(fdry_ref_list(s, "name", &refs, &count));
	ck_assert_uint_eq(count, n);
	for (i = 0; i < n; i++) {
		ck_assert(fdry_oid_eq(&refs[i].oid, want[i]));
		ck_assert_str_eq(refs[i].name, "name");
	}
	free(refs);
}

START_TEST(an_image_replaces_only_that_of_its_identity)
{
	struct fdry_oid a = seal_for(1, "a"), b = seal_for(2, "b"), a2, got;
	const struct fdry_oid *both[] = { &b, &a }, *after[] = { &a2, &b };

	check_images(both, 2);
	a2 = seal_for(1, "a, newer");
	check_images(after, 2);
	ok(fdry_ref_get(s, "name", &got)); /* the newest */
	ck_assert(fdry_oid_eq(&got, &a2));
	ok(fdry_store_resolve(s, "name", &got));
	ck_assert(fdry_oid_eq(&got, &a2));
	b = seal_for(2, "b"); /* the same again: no change */
	ok(fdry_ref_get(s, "name", &got));
	ck_assert(fdry_oid_eq(&got, &a2));
}
END_TEST

/* Names that begin with each other, and one that looks like a name and a part of an id. */
START_TEST(names_do_not_mix)
{
	struct fdry_oid a = seal_for(1, "a"), id = identity(2), got;
	char sel[FDRY_REF_NAME_MAX + 80], hex[FDRY_OID_HEX_SIZE];
	struct fdry_ref *refs;
	size_t count;

	ok(fdry_ref_set(s, "name@a100", &a, NULL));
	ok(fdry_ref_set(s, "nam", &a, &id));
	ok(fdry_ref_set(s, "name/x", &a, &id));
	ok(fdry_ref_list(s, "name", &refs, &count));
	ck_assert_uint_eq(count, 1);
	free(refs);
	ok(fdry_ref_list(s, "nam", &refs, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert(fdry_oid_eq(&refs[0].identity, &id));
	free(refs);
	ok(fdry_store_remove(s, "name"));
	fails(NOENT, "'name'", fdry_ref_get(s, "name", &got));
	ok(fdry_ref_get(s, "name@a100", &got));
	ok(fdry_ref_get(s, "name/x", &got));
	snprintf(sel, sizeof(sel), "name@a100:%.6s", fdry_oid_hex(&a, hex));
	ok(fdry_store_resolve(s, sel, &got));
	ck_assert(fdry_oid_eq(&got, &a));
}
END_TEST

START_TEST(one_of_several_is_picked_by_its_id)
{
	struct fdry_oid a = seal_for(1, "a"), b = seal_for(2, "b"), got, id = identity(9);
	char sel[80], hex[FDRY_OID_HEX_SIZE];
	const struct fdry_oid *only[] = { &b };
	struct fdry_reader *g;

	snprintf(sel, sizeof(sel), "name:%.8s", fdry_oid_hex(&a, hex));
	ok(fdry_store_resolve(s, sel, &got));
	ck_assert(fdry_oid_eq(&got, &a));
	ok(fdry_ref_get(s, sel, &got));
	ck_assert(fdry_oid_eq(&got, &a));
	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_resolve(g, sel, &got));
	ck_assert(fdry_oid_eq(&got, &a));
	fdry_reader_end(g);
	ok(fdry_ref_set(s, "name", &a, &id)); /* under two identities it is still one image */
	ok(fdry_store_remove(s, sel));
	check_images(only, 1);
	fails(NOENT, "no image of 'name'", fdry_store_remove(s, sel));
	fails(NOENT, "no ref 'nobody'", fdry_store_remove(s, "nobody:0123"));
	fails(NAME, "behind the colon", fdry_store_remove(s, "name:012"));
	fails(NAME, "behind the colon", fdry_store_remove(s, "name:"));
	fails(NAME, "behind the colon", fdry_store_remove(s, "name:xyzw"));
	fails(NAME, "behind the colon", fdry_store_resolve(s, "name:0123:4567", &got));
	fails(NAME, "", fdry_store_resolve(s, ":0123", &got));
	fails(NAME, "", fdry_ref_set(s, sel, &b, NULL));
}
END_TEST

/* Two images whose ids have the same beginning. */
START_TEST(ids_that_begin_alike_need_more_digits)
{
	static struct fdry_oid seen[65536];
	static bool used[65536];
	struct fdry_oid oid, got;
	char text[32], sel[80], hex[FDRY_OID_HEX_SIZE];
	uint16_t head;
	int i;

	for (i = 0;; i++) {
		snprintf(text, sizeof(text), "twin %d", i);
		oid = oid_of(text, strlen(text));
		head = fdry_get16(oid.b);
		if (used[head])
			break;
		used[head] = true;
		snprintf(text, sizeof(text), "%d", i);
		memset(&seen[head], 0, sizeof(seen[head]));
		memcpy(&seen[head], text, strlen(text));
	}
	snprintf(text, sizeof(text), "twin %s", (const char *)&seen[head]);
	seal_for(1, text);
	snprintf(text, sizeof(text), "twin %d", i);
	oid = seal_for(2, text);
	snprintf(sel, sizeof(sel), "name:%.4s", fdry_oid_hex(&oid, hex));
	fails(AMBIGUOUS, "more digits", fdry_store_remove(s, sel));
	fails(AMBIGUOUS, "more digits", fdry_store_resolve(s, sel, &got));
	snprintf(sel, sizeof(sel), "name:%s", hex);
	ok(fdry_ref_get(s, sel, &got));
	ck_assert(fdry_oid_eq(&got, &oid));
}
END_TEST

/* Only seals of images with the same identity race. */
START_TEST(seals_of_two_identities_do_not_race)
{
	struct fdry_oid got, id[2] = { identity(1), identity(2) };
	struct fdry_writer *a, *b, *c;

	ok(fdry_writer_begin(s, &a));
	ok(fdry_writer_begin(s, &b));
	ok(fdry_writer_begin(s, &c));
	fdry_writer_set_identity(a, &id[0]);
	fdry_writer_set_identity(b, &id[1]);
	fdry_writer_set_identity(c, &id[1]);
	ok(fdry_writer_commit(a, "a", 1, NULL, 0, "name", &got, NULL));
	ok(fdry_writer_commit(b, "b", 1, NULL, 0, "name", &got, NULL));
	fails(RACED, "'name'", fdry_writer_commit(c, "c", 1, NULL, 0, "name", &got, NULL));
}
END_TEST

START_TEST(the_oldest_is_replaced_when_a_name_is_full)
{
	struct fdry_oid first = seal_for(0, "0"), second = seal_for(1, "1"), got;
	struct fdry_ref *refs;
	char text[16], sel[80], hex[FDRY_OID_HEX_SIZE];
	unsigned int i;
	size_t count;

	snprintf(sel, sizeof(sel), "name:%s", fdry_oid_hex(&first, hex));
	ok(fdry_store_pin(s, sel));
	for (i = 2; i < FDRY_REF_IMAGES_MAX + 1; i++) {
		snprintf(text, sizeof(text), "%u", i);
		seal_for(i, text);
	}
	ok(fdry_ref_list(s, "name", &refs, &count));
	ck_assert_uint_eq(count, FDRY_REF_IMAGES_MAX);
	free(refs);
	ok(fdry_ref_get(s, sel, &got)); /* the oldest of all is pinned */
	snprintf(sel, sizeof(sel), "name:%s", fdry_oid_hex(&second, hex));
	fails(NOENT, "no image", fdry_ref_get(s, sel, &got));
	seal_for(3, "3, newer"); /* the replaced image needs no further place */
	ok(fdry_ref_list(s, "name", &refs, &count));
	ck_assert_uint_eq(count, FDRY_REF_IMAGES_MAX);
	free(refs);
	ok(fdry_store_pin(s, "name"));
	first = identity(1000);
	fails(LIMIT, "64 images", fdry_ref_set(s, "name", &second, &first));
	ok(fdry_ref_set(s, "another", &second, &first));
}
END_TEST

static bool pinned(const char *name)
{
	struct fdry_ref *refs;
	size_t count;
	bool ret;

	ok(fdry_ref_list(s, name, &refs, &count));
	ret = refs[0].pinned;
	free(refs);
	return ret;
}

START_TEST(pins_are_set_and_stay)
{
	struct fdry_oid a = seal_for(1, "a"), b;
	struct fdry_store *ro;

	ck_assert(!pinned("name"));
	ok(fdry_store_pin(s, "name"));
	ck_assert(pinned("name"));
	b = seal_for(1, "b");
	ck_assert(!fdry_oid_eq(&a, &b));
	ck_assert(pinned("name")); /* the name is pinned, whatever image it has */
	ok(fdry_store_pin(s, "name"));
	ok(fdry_store_unpin(s, "name"));
	ck_assert(!pinned("name"));
	ok(fdry_store_remove(s, "name"));
	fails(NOENT, "'name'", fdry_store_pin(s, "name"));
	fails(NAME, "'a b'", fdry_store_pin(s, "a b"));
	seal_for(1, "a");
	ck_assert(!pinned("name"));
	ok(fdry_store_open(path, FDRY_STORE_READONLY, &ro));
	fails(PERM, "reading only", fdry_store_pin(ro, "name"));
	fdry_store_close(ro);
	check_sound(s);
}
END_TEST

/* Holders end their own pins alone, and never one that was made for good. */
START_TEST(pins_have_holders)
{
	seal_for(1, "a");
	ok(fdry_ref_hold(s, "name", 7));
	ok(fdry_ref_hold(s, "name", 7));
	ok(fdry_ref_hold(s, "name", 8));
	ok(fdry_ref_unhold(s, "name", 7));
	ck_assert(pinned("name"));
	ok(fdry_ref_unhold(s, "name", 7));
	ck_assert(pinned("name"));
	ok(fdry_ref_unhold(s, "name", 8));
	ck_assert(!pinned("name"));
	ok(fdry_store_pin(s, "name"));
	ok(fdry_ref_hold(s, "name", 7));
	ok(fdry_ref_hold(s, "name", 8));
	ok(fdry_ref_unhold(s, "name", 8));
	ok(fdry_ref_unhold(s, "name", 7));
	ck_assert(pinned("name")); /* it was before */
	ok(fdry_ref_hold(s, "name", 9));
	ok(fdry_store_unpin(s, "name"));
	ck_assert(!pinned("name"));
	ok(fdry_ref_hold(s, "name", 8));
	ok(fdry_ref_unhold(s, "name", 9)); /* its pin has ended already */
	ck_assert(pinned("name"));
	ok(fdry_store_remove(s, "name"));
	seal_for(1, "a");
	ck_assert(!pinned("name"));
	ok(fdry_ref_hold(s, "name", 9));
	ok(fdry_ref_unhold(s, "name", 9));
	ck_assert(!pinned("name")); /* the note of 8 was removed with the ref */
	fails(NOENT, "'none'", fdry_ref_hold(s, "none", 1));
	check_sound(s);
}
END_TEST

static int note_count(void *arg, struct fdry_span key, struct fdry_span value)
{
	(void)value;
	if (key.len < sizeof(FDRY_META_PIN) ||
	    memcmp(key.data, FDRY_META_PIN, sizeof(FDRY_META_PIN)))
		return FDRY_EACH_STOP;
	++*(size_t *)arg;
	return 0;
}

/* The records of holders in the store. */
static size_t notes(void)
{
	static const uint8_t prefix[] = FDRY_META_PIN;
	struct fdry_txn t;
	size_t n = 0;

	ok(fdry_txn_read(s->env->db, &t));
	ok(fdry_txn_each(&t, FDRY_TABLE_META, (struct fdry_span){ prefix, sizeof(prefix) },
			 note_count, &n));
	fdry_txn_abort(&t);
	return n;
}

/* An image that takes the place of a pinned one is pinned until the holder ends its pin. */
START_TEST(holders_outlast_images)
{
	struct fdry_oid first, second;

	first = seal_for(1, "a");
	ok(fdry_ref_hold(s, "name", 7));
	second = seal_for(1, "b");
	ck_assert(!fdry_oid_eq(&first, &second));
	ck_assert(pinned("name"));
	ok(fdry_ref_unhold(s, "name", 7));
	ck_assert(!pinned("name"));
	ck_assert_uint_eq(notes(), 0);
}
END_TEST

/* A pin for good needs no record of a holder, and a removed ref leaves none, even if the holder has
 * died. */
START_TEST(holders_leave_no_records)
{
	seal_for(1, "a");
	seal_for(2, "b");
	ok(fdry_store_pin(s, "name"));
	ok(fdry_ref_hold(s, "name", 7));
	ck_assert_uint_eq(notes(), 0);
	ok(fdry_ref_unhold(s, "name", 7));
	ck_assert(pinned("name"));
	ok(fdry_store_unpin(s, "name"));
	ok(fdry_ref_hold(s, "name", 7));
	ok(fdry_ref_hold(s, "name", 8));
	ck_assert_uint_eq(notes(), 4);
	ok(fdry_ref_unhold(s, "name", 7));
	ck_assert_uint_eq(notes(), 2);
	ok(fdry_store_remove(s, "name"));
	ck_assert_uint_eq(notes(), 0);
	check_sound(s);
}
END_TEST

/* Put a record of @len bytes with byte @at set to @value under a key of @key_len bytes. */
static void put_raw(const void *key, size_t key_len, const uint8_t *rec, size_t len)
{
	struct fdry_txn t;

	ok(fdry_txn_write(s->env->db, 1024, &t));
	ok(fdry_txn_put(&t, FDRY_TABLE_REFS, (struct fdry_span){ key, key_len },
			(struct fdry_span){ rec, len }));
	ok(fdry_txn_commit(&t));
}

START_TEST(damaged_refs_are_refused_and_can_be_removed)
{
	struct fdry_oid a = seal_for(1, "a"), got;
	uint8_t key[FDRY_REF_KEY_MAX] = "bad", rec[FDRY_REF_SIZE + 1] = { 0 };
	static const struct {
		size_t at, len;
		uint8_t value;
	} cases[] = {
		{ FDRY_REF_AT_FLAGS, FDRY_REF_SIZE, 2 },
		{ FDRY_REF_AT_FLAGS + 3, FDRY_REF_SIZE, 1 },
		{ FDRY_REF_AT_ZERO, FDRY_REF_SIZE, 1 },
		{ FDRY_REF_SIZE - 1, FDRY_REF_SIZE, 1 },
		{ 0, FDRY_REF_SIZE + 1, 0 },
		{ 0, FDRY_REF_SIZE - 1, 0 },
		{ 0, 0, 0 },
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(rec, 0, sizeof(rec));
		memcpy(rec, a.b, sizeof(a.b));
		rec[cases[i].at] |= cases[i].value;
		put_raw(key, 4 + FDRY_OID_SIZE, rec, cases[i].len);
		fails(CORRUPT, "'bad'", fdry_ref_get(s, "bad", &got));
		fails(CORRUPT, "'bad'", fdry_store_pin(s, "bad"));
		ok(fdry_ref_get(s, "name", &got)); /* others are not touched */
		ok(fdry_store_remove(s, "bad"));
		fails(NOENT, "'bad'", fdry_ref_get(s, "bad", &got));
	}
	memset(rec, 0, sizeof(rec));
	memcpy(rec, a.b, sizeof(a.b));
	put_raw(key, 4 + FDRY_OID_SIZE, rec, FDRY_REF_SIZE);
	ok(fdry_ref_get(s, "bad", &got)); /* the same without damage */
}
END_TEST

static int ignore(void *arg, const struct fdry_ref *ref)
{
	(void)arg, (void)ref;
	return 0;
}

START_TEST(damaged_keys_are_findings)
{
	struct fdry_oid a = seal_for(1, "a");
	uint8_t key[FDRY_REF_KEY_MAX], rec[FDRY_REF_SIZE] = { 0 };
	static const struct { size_t zero, len; } cases[] = {
		{ 0, 40 }, { 3, 40 }, { 8, 40 }, { 6, 40 }, { 2, 20 }, { 0, 33 },
	};
	size_t i;

	memcpy(rec, a.b, sizeof(a.b));
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fdry_txn t;

		memset(key, 'k', sizeof(key));
		key[cases[i].zero] = 0;
		put_raw(key, cases[i].len, rec, sizeof(rec));
		fails(CORRUPT, "damaged name", fdry_ref_each(s, ignore, NULL));
		ok(fdry_txn_write(s->env->db, 0, &t));
		ok(fdry_txn_delete(&t, FDRY_TABLE_REFS, (struct fdry_span){ key, cases[i].len }));
		ok(fdry_txn_commit(&t));
	}
	memset(key, 'k', sizeof(key));
	key[7] = 0;
	put_raw(key, 40, rec, sizeof(rec));
	ok(fdry_ref_each(s, ignore, NULL));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_ref_images");
	TCase *tc = tcase_create("images");

	tcase_add_checked_fixture(tc, store_setup, store_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, an_image_replaces_only_that_of_its_identity);
	tcase_add_test(tc, names_do_not_mix);
	tcase_add_test(tc, one_of_several_is_picked_by_its_id);
	tcase_add_test(tc, ids_that_begin_alike_need_more_digits);
	tcase_add_test(tc, seals_of_two_identities_do_not_race);
	tcase_add_test(tc, the_oldest_is_replaced_when_a_name_is_full);
	tcase_add_test(tc, pins_are_set_and_stay);
	tcase_add_test(tc, pins_have_holders);
	tcase_add_test(tc, holders_leave_no_records);
	tcase_add_test(tc, holders_outlast_images);
	tcase_add_test(tc, damaged_refs_are_refused_and_can_be_removed);
	tcase_add_test(tc, damaged_keys_are_findings);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
