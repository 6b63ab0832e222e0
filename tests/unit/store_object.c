// SPDX-License-Identifier: Apache-2.0
/* Unit tests of writing and reading objects: equal bytes, kinds, links, packing, limits. */
#include <endian.h>

#include "tests/lib/data_file.h"
#include "tests/lib/store.h"

static struct fdry_store *s;

static void setup(void)
{
	dir_setup();
	s = store_make();
}

static void teardown(void)
{
	fdry_store_close(s);
	dir_teardown();
}

START_TEST(objects_come_back)
{
	static const size_t sizes[] = { 0, 1, 2, 31, 2000, 4096, 20000, 1 << 20, (2 << 20) + 3 };
	enum { N = sizeof(sizes) / sizeof(sizes[0]) };
	uint8_t *data = malloc(4 << 20);
	struct fdry_oid oid[N][2], image;
	struct fdry_writer_stats st;
	struct fdry_writer *p;
	struct fdry_reader *g;
	size_t i;

	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < N; i++) {
		noise(i, data, sizes[i]);
		oid[i][0] = put(p, FDRY_OBJECT_CHUNK, data, sizes[i]);
		memset(data, 'a' + (int)i, sizes[i] + i + 1);
		oid[i][1] = put(p, FDRY_OBJECT_KERNEL, data, sizes[i] + i + 1);
	}
	ok(fdry_writer_commit(p, "m", 1, oid[0], 2 * N, NULL, &image, &st));
	ck_assert_uint_eq(st.objects_new, 2 * N + 1);
	ck_assert_uint_eq(st.objects_known, 0);

	ok(fdry_reader_begin(s, &g));
	for (i = 0; i < N; i++) {
		noise(i, data, sizes[i]);
		check_object(g, &oid[i][0], data, sizes[i]);
		memset(data, 'a' + (int)i, sizes[i] + i + 1);
		check_object(g, &oid[i][1], data, sizes[i] + i + 1);
	}
	check_object(g, &image, "m", 1);
	fdry_reader_end(g);
	free(data);
	check_sound(s);
}
END_TEST

START_TEST(equal_bytes_are_stored_once)
{
	struct fdry_writer_stats st;
	struct fdry_object_info info;
	struct fdry_oid a, b, image;
	struct fdry_writer *p;
	uint8_t data[5000];
	int round;

	noise(7, data, sizeof(data));
	for (round = 0; round < 2; round++) {
		ok(fdry_writer_begin(s, &p));
		a = put(p, FDRY_OBJECT_CHUNK, data, sizeof(data));
		b = put(p, FDRY_OBJECT_CHUNK, data, sizeof(data));
		ck_assert(fdry_oid_eq(&a, &b));
		ok(fdry_writer_commit(p, "m", 1, &a, 1, "r", &image, &st));
		ck_assert_uint_eq(st.objects_new, round ? 0 : 2);
		ck_assert_uint_eq(st.objects_known, round ? 3 : 1);
		ck_assert_uint_eq(st.bytes_new, round ? 0 : 5001);
	}
	ok(fdry_store_info(s, &a, &info));
	ck_assert_int_eq(info.kind, FDRY_OBJECT_CHUNK);
	ck_assert_uint_eq(info.size, 5000);
	ck_assert_uint_eq(info.stored, 5000);
}
END_TEST

START_TEST(code_is_packed_chunks_are_not)
{
	char *data = calloc(1, 100000);
	struct fdry_object_info info;
	struct fdry_oid chunk, kernel, image;
	struct fdry_span span;
	struct fdry_writer *p;
	struct fdry_reader *g;

	ok(fdry_writer_begin(s, &p));
	chunk = put(p, FDRY_OBJECT_CHUNK, data, 100000);
	data[0] = 1;
	kernel = put(p, FDRY_OBJECT_KERNEL, data, 100000);
	ok(fdry_writer_commit(p, "m", 1, NULL, 0, NULL, &image, NULL));
	ok(fdry_store_info(s, &chunk, &info));
	ck_assert_uint_eq(info.stored, 100000);
	ok(fdry_store_info(s, &kernel, &info));
	ck_assert_uint_lt(info.stored, 1000);

	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_map(g, &chunk, &span));
	ck_assert_uint_eq(span.len, 100000);
	data[0] = 0;
	ck_assert(!memcmp(span.data, data, 100000));
	ok(fdry_reader_verify(g, &chunk, span, true, NULL));
	fails(STATE, "compressed", fdry_reader_map(g, &kernel, &span));
	fdry_reader_end(g);
	free(data);
}
END_TEST

START_TEST(one_object_of_several_kinds)
{
	static const char bytes[3000] = "same bytes";
	struct fdry_object_info info;
	struct fdry_oid a, child[2], image, *links;
	struct fdry_span span;
	struct fdry_writer *p;
	struct fdry_reader *g;
	size_t n;
	int i;

	for (i = 0; i < 2; i++) {
		ok(fdry_writer_begin(s, &p));
		child[i] = put(p, FDRY_OBJECT_CHUNK, &i, sizeof(i));
		/* first packed, as a kernel, then plain, as a chunk; each time with another link */
		ok(fdry_writer_add_object(p, i ? FDRY_OBJECT_CHUNK : FDRY_OBJECT_KERNEL, bytes,
					  sizeof(bytes), &child[i], 1, &a));
		ok(fdry_writer_commit(p, "m", 1, &a, 1, NULL, &image, NULL));
	}
	ok(fdry_store_info(s, &a, &info));
	ck_assert_uint_eq(info.kinds, 1u << FDRY_OBJECT_CHUNK | 1u << FDRY_OBJECT_KERNEL);
	ck_assert_int_eq(info.kind, FDRY_OBJECT_KERNEL);
	ok(fdry_store_links(s, &a, &links, &n));
	ck_assert_uint_eq(n, 2);
	ck_assert_int_lt(memcmp(&links[0], &links[1], sizeof(links[0])), 0);
	ck_assert(fdry_oid_eq(&links[0], &child[0]) || fdry_oid_eq(&links[0], &child[1]));
	free(links);
	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_map(g, &a, &span));
	ck_assert(!memcmp(span.data, bytes, sizeof(bytes)));
	check_object(g, &a, bytes, sizeof(bytes));
	fdry_reader_end(g);

	/* and in the reverse order, uncompressed objects stay uncompressed */
	ok(fdry_writer_begin(s, &p));
	put(p, FDRY_OBJECT_GRAPH, bytes, sizeof(bytes));
	ok(fdry_writer_commit(p, "m", 1, &a, 1, NULL, &image, NULL));
	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_map(g, &a, &span));
	fdry_reader_end(g);
	check_sound(s);
}
END_TEST

START_TEST(links_are_a_set_and_must_lead_somewhere)
{
	struct fdry_oid a, b, nowhere, image, twice[3], *links;
	struct fdry_object_info info;
	struct fdry_writer *p;
	size_t n;

	nowhere = oid_of("nowhere", 7);
	ok(fdry_writer_begin(s, &p));
	a = put(p, FDRY_OBJECT_CHUNK, "a", 1);
	b = put(p, FDRY_OBJECT_CHUNK, "b", 1);
	twice[0] = a, twice[1] = b, twice[2] = a;
	ok(fdry_writer_add_object(p, FDRY_OBJECT_GRAPH, "g", 1, twice, 3, &image));
	fails(NOENT, "a link",
	      fdry_writer_add_object(p, FDRY_OBJECT_GRAPH, "h", 1, &nowhere, 1, &image));
	ok(fdry_writer_commit(p, "m", 1, &image, 1, NULL, &image, NULL));
	a = oid_of("g", 1);
	ok(fdry_store_links(s, &a, &links, &n));
	ck_assert_uint_eq(n, 2);
	free(links);

	ok(fdry_writer_begin(s, &p));
	fails(NOENT, "a link", fdry_writer_commit(p, "n", 1, &nowhere, 1, "ref", &image, NULL));
	a = oid_of("n", 1);
	fails(NOENT, "no object", fdry_store_info(s, &a, &info));
	fails(NOENT, "no ref", fdry_ref_get(s, "ref", &image));
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	struct fdry_oid oid, untouched;
	struct fdry_buf b = { 0 };
	struct fdry_writer *p;
	struct fdry_reader *g;

	memset(&oid, 0x5A, sizeof(oid));
	untouched = oid;
	ok(fdry_writer_begin(s, &p));
	fails(INVAL, "kind", fdry_writer_add_object(p, 0, "x", 1, NULL, 0, &oid));
	fails(INVAL, "kind", fdry_writer_add_object(p, 5, "x", 1, NULL, 0, &oid));
	fails(LIMIT, "links",
	      fdry_writer_add_object(p, 1, "x", 1, &oid, FDRY_OBJECT_LINKS_MAX + 1ul, &oid));
	fails(NAME, "name", fdry_writer_commit(p, "m", 1, NULL, 0, "a//b", &oid, NULL));
	ck_assert(fdry_oid_eq(&oid, &untouched));
	ok(fdry_reader_begin(s, &g));
	ok(fdry_buf_put(&b, "before", 6));
	fails(NOENT, "no object", fdry_reader_copy(g, &oid, &b));
	ck_assert_uint_eq(b.len, 6);
	fdry_reader_end(g);
	fdry_reader_end(NULL);
	fdry_writer_abort(NULL);
	fdry_buf_release(&b);
	ck_assert_str_eq(fdry_object_kind_name(FDRY_OBJECT_MANIFEST), "manifest");
	ck_assert_str_eq(fdry_object_kind_name(17), "?");
}
END_TEST

/* More than one transaction's worth, so that some is committed before the end. */
START_TEST(long_sessions_write_in_turns)
{
	enum { N = 40, LEN = 1 << 20 };
	struct fdry_object_info info;
	struct fdry_oid oid[N];
	uint8_t *data = malloc(LEN);
	struct fdry_writer *p;
	struct fdry_reader *g;
	int i;

	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < N; i++) {
		noise(i, data, LEN);
		oid[i] = put(p, FDRY_OBJECT_CHUNK, data, LEN);
	}
	ok(fdry_store_info(s, &oid[0], &info)); /* already written */
	fails(NOENT, "no object", fdry_store_info(s, &oid[N - 1], &info));
	fdry_writer_abort(p);
	fails(NOENT, "no object", fdry_store_info(s, &oid[N - 1], &info));
	ok(fdry_reader_begin(s, &g));
	noise(3, data, LEN);
	check_object(g, &oid[3], data, LEN);
	fdry_reader_end(g);
	free(data);
}
END_TEST

/* Look-ups end also when there are exactly as many ids as slots were. */
START_TEST(sets_of_ids)
{
	struct fdry_idset set = { 0 };
	struct fdry_oid oid;
	bool is_new;
	int i, k;

	oid = oid_of("absent", 6);
	ck_assert(!fdry_idset_has(&set, &oid));
	for (i = 0; i < 5000; i++) {
		for (k = 0; k < 2; k++) {
			struct fdry_oid member = oid_of(&i, sizeof(i));

			ok(fdry_idset_add(&set, &member, &is_new));
			ck_assert(is_new == !k);
			ck_assert(!fdry_idset_has(&set, &oid));
		}
	}
	ck_assert_uint_eq(set.count, 5000);
	for (i = 0; i < 5000; i++) {
		oid = oid_of(&i, sizeof(i));
		ck_assert(fdry_idset_has(&set, &oid));
	}
	fdry_idset_release(&set);
}
END_TEST

static int count_object(void *arg, const struct fdry_object_info *info)
{
	struct fdry_object_info again = { 0 };

	ok(fdry_store_info(s, &info->oid, &again)); /* a walk may use the store */
	ck_assert(!memcmp(info, &again, sizeof(again)));
	++*(int *)arg;
	return 0;
}

static int stop_at_once(void *arg, const struct fdry_object_info *info)
{
	(void)arg, (void)info;
	return -FDRY_E_STATE;
}

START_TEST(a_walk_sees_every_object)
{
	int n = 0;

	ok(fdry_store_each(s, count_object, &n));
	ck_assert_int_eq(n, 0);
	seal(s, 1, 100, 10, "a");
	ok(fdry_store_each(s, count_object, &n));
	ck_assert_int_eq(n, 101);
	ck_assert_int_eq(fdry_store_each(s, stop_at_once, NULL), -FDRY_E_STATE);
}
END_TEST

/* Each list of links is valid, and both together are too long for a record, which could not be
 * read. */
START_TEST(links_that_add_up_have_a_limit)
{
	const size_t n = FDRY_OBJECT_LINKS_MAX / 2 + 1;
	struct fdry_span nothing = { (const uint8_t *)"x", 1 };
	struct fdry_oid *links = calloc(2 * n, sizeof(*links));
	struct fdry_item one, other;
	struct fdry_txn t;
	bool is_new;
	size_t i;

	for (i = 0; i < 2 * n; i++)
		memcpy(links[i].b, (uint32_t[]){ htobe32((uint32_t)i) }, 4);
	ok(fdry_item_init(&one, FDRY_OBJECT_KERNEL, nothing, links, n));
	ok(fdry_item_init(&other, FDRY_OBJECT_KERNEL, nothing, links + n, n));
	one.stored = other.stored = nothing;
	one.rec.stored = other.rec.stored = 1;
	ok(fdry_txn_write(s->env->db, 512u << 20, &t));
	ok(fdry_item_store(&t, &one, &is_new));
	fails(LIMIT, "links", fdry_item_store(&t, &other, &is_new));
	fdry_txn_abort(&t);
	fdry_item_release(&one);
	fdry_item_release(&other);
	free(links);
}
END_TEST

/* Large values are put into reserved memory. A copy from the file equals the map. */
START_TEST(values_are_copied_from_the_file)
{
	static const size_t sizes[] = { 1, 5000, 65535, 65536, 70000, (2 << 20) + 3 };
	enum { N = sizeof(sizes) / sizeof(sizes[0]) };
	uint8_t *data = malloc(3 << 20), *copy = malloc(3 << 20);
	struct fdry_oid key = { { 0 } };
	struct fdry_span value;
	struct fdry_txn t;
	size_t i;
	off_t at;

	ok(fdry_txn_write(s->env->db, 8 << 20, &t));
	for (i = 0; i < N; i++) {
		noise(i, data, sizes[i]);
		key.b[0] = (uint8_t)i;
		ok(fdry_txn_put(&t, FDRY_TABLE_DATA, fdry_oid_span(&key),
				(struct fdry_span){ data, sizes[i] }));
	}
	ok(fdry_txn_commit(&t));
	ok(fdry_txn_read(s->env->db, &t));
	for (i = 0; i < N; i++) {
		noise(i, data, sizes[i]);
		key.b[0] = (uint8_t)i;
		ok(fdry_txn_get(&t, FDRY_TABLE_DATA, fdry_oid_span(&key), &value));
		ck_assert_uint_eq(value.len, sizes[i]);
		ck_assert(!memcmp(value.data, data, value.len));
		memset(copy, 0x5a, 3 << 20);
		ok(fdry_txn_copy(&t, value, copy));
		ck_assert(!memcmp(copy, data, value.len));
		ck_assert_int_eq(copy[value.len], 0x5a);
	}
	at = (off_t)(value.data - t.view.pages.base) + (1 << 20);
	data_file_path((char *)copy, "data.mdb");
	ck_assert_int_eq(truncate((char *)copy, at), 0);
	fails(CORRUPT, "the file ends before it", fdry_txn_copy(&t, value, data));
	fdry_txn_abort(&t);
	free(copy);
	free(data);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_object");
	TCase *tc = tcase_create("object");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, objects_come_back);
	tcase_add_test(tc, equal_bytes_are_stored_once);
	tcase_add_test(tc, code_is_packed_chunks_are_not);
	tcase_add_test(tc, one_object_of_several_kinds);
	tcase_add_test(tc, links_are_a_set_and_must_lead_somewhere);
	tcase_add_test(tc, bad_arguments_are_refused);
	tcase_add_test(tc, long_sessions_write_in_turns);
	tcase_add_test(tc, sets_of_ids);
	tcase_add_test(tc, a_walk_sees_every_object);
	tcase_add_test(tc, values_are_copied_from_the_file);
	if (!TEST_SANITIZED_THREAD) /* one thread, and 256 MiB */
		tcase_add_test(tc, links_that_add_up_have_a_limit);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
