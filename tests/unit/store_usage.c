// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the sizes and counts that a store reports. */
#include "tests/lib/store_fixture.h"

static int collect(void *arg, const struct fdry_object_info *info)
{
	return fdry_buf_put(arg, info, sizeof(*info));
}

static int stop(void *arg, const struct fdry_object_info *info)
{
	(void)info;
	++*(unsigned int *)arg;
	return fdry_fail(FDRY_E_STATE, "enough");
}

/* Check that the store's result for the first @n digits of @hex equals that of a walk over all
 * objects. */
static void check_prefix(const char *hex, size_t n)
{
	struct fdry_buf all = { 0 }, found = { 0 };
	const struct fdry_object_info *o;
	char digits[FDRY_OID_HEX_SIZE], h[FDRY_OID_HEX_SIZE];
	size_t i, k = 0;

	snprintf(digits, sizeof(digits), "%.*s", (int)n, hex);
	ok(fdry_store_each(s, collect, &all));
	ok(fdry_store_prefix(s, digits, collect, &found));
	o = (const void *)all.data;
	for (i = 0; i < all.len / sizeof(*o); i++)
		if (!strncmp(fdry_oid_hex(&o[i].oid, h), digits, n))
			ck_assert(!memcmp(&o[i], found.data + k++ * sizeof(*o), sizeof(*o)));
	ck_assert_uint_eq(k, found.len / sizeof(*o));
	fdry_buf_release(&all);
	fdry_buf_release(&found);
}

START_TEST(ids_that_begin_alike_are_found)
{
	struct fdry_oid id = seal(s, 1, 200, 100, "a");
	char hex[FDRY_OID_HEX_SIZE];
	unsigned int calls = 0;
	size_t n;

	fdry_oid_hex(&id, hex);
	for (n = 1; n <= 64; n++)
		check_prefix(hex, n);
	check_prefix("0000000000000000", 1);
	check_prefix("ffffffffffffffff", 1);
	check_prefix("ffffffffffffffff", 16);
	fails(STATE, "enough", fdry_store_prefix(s, "0", stop, &calls));
	ck_assert_uint_eq(calls, 1);
	fails(INVAL, "0 digits", fdry_store_prefix(s, "", stop, &calls));
	fails(INVAL, "", fdry_store_prefix(s, "xyz", stop, &calls));
}
END_TEST

/* --- usage --- */

static uint64_t size_of_image(uint64_t seed, size_t n, size_t len)
{
	char text[64];

	return (uint64_t)snprintf(text, sizeof(text), "image %llu %zu %zu",
				  (unsigned long long)seed, n, len);
}

static void check_sum(const struct fdry_sum *sum, uint64_t objects, uint64_t bytes)
{
	ck_assert_uint_eq(sum->objects, objects);
	ck_assert_uint_eq(sum->bytes, bytes);
	ck_assert_uint_le(sum->stored, bytes);
	ck_assert_uint_ge(sum->stored, bytes / 2);
}

static void count_step(void *arg, uint64_t done, uint64_t total)
{
	uint64_t *last = arg;

	ck_assert_uint_eq(done, last[0] + 1);
	last[0] = done;
	last[1] = total;
}

/* Chunks 1 to 5, 4 to 9 and 20: two are shared by two images. A second name shares nothing. */
START_TEST(unique_and_shared_bytes)
{
	struct fdry_oid a = seal(s, 1, 5, 1000, "a"), b = seal(s, 4, 6, 1000, "b"),
			c = seal(s, 20, 1, 1000, "c");
	uint64_t ma = size_of_image(1, 5, 1000), mb = size_of_image(4, 6, 1000),
		 mc = size_of_image(20, 1, 1000), last[2] = { 0 };
	struct fdry_oid loose = seal(s, 30, 3, 1000, NULL);
	struct fdry_usage u;

	ok(fdry_ref_set(s, "a2", &a, NULL));
	ok(fdry_store_usage(s, count_step, last, &u));
	ck_assert_uint_eq(u.count, 3);
	ck_assert_uint_eq(last[0], 3);
	ck_assert_uint_eq(last[1], 3);
	check_sum(&fdry_usage_of(&u, &a)->all, 6, 5000 + ma);
	check_sum(&fdry_usage_of(&u, &a)->unique, 4, 3000 + ma);
	check_sum(&fdry_usage_of(&u, &b)->all, 7, 6000 + mb);
	check_sum(&fdry_usage_of(&u, &b)->unique, 5, 4000 + mb);
	check_sum(&fdry_usage_of(&u, &c)->all, 2, 1000 + mc);
	check_sum(&fdry_usage_of(&u, &c)->unique, 2, 1000 + mc);
	check_sum(&u.reached, 13, 10000 + ma + mb + mc);
	ck_assert_ptr_null(fdry_usage_of(&u, &loose));
	ck_assert(!fdry_usage_of(&u, &a)->broken);
	fdry_usage_release(&u);
}
END_TEST

/* If three images have the same chunk, none has it alone, also if one of them is listed twice. */
START_TEST(shared_by_many)
{
	struct fdry_usage u;
	uint64_t i;
	char name[8];

	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "r%llu", (unsigned long long)i);
		seal(s, 1, 1 + i, 100, name);
	}
	ok(fdry_store_usage(s, NULL, NULL, &u));
	ck_assert_uint_eq(u.count, 40);
	ck_assert_uint_eq(u.reached.objects, 80);
	for (i = 0; i < 40; i++) /* its own manifest; the longest also has its last chunk */
		ck_assert_uint_eq(u.images[i].unique.objects,
				  u.images[i].all.objects == 41 ? 2 : 1);
	fdry_usage_release(&u);
}
END_TEST

START_TEST(missing_objects_are_reported)
{
	struct fdry_oid a = seal(s, 1, 3, 1000, "a"), b = seal(s, 3, 2, 1000, "b"), chunk;
	struct fdry_usage u;
	struct fdry_txn t;
	uint8_t data[1000];

	noise(1, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_txn_delete(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&chunk)));
	ok(fdry_txn_commit(&t));
	ok(fdry_store_usage(s, NULL, NULL, &u));
	ck_assert(fdry_usage_of(&u, &a)->broken);
	ck_assert_uint_eq(fdry_usage_of(&u, &a)->all.objects, 3);
	ck_assert(!fdry_usage_of(&u, &b)->broken);
	fdry_usage_release(&u);
}
END_TEST

START_TEST(an_empty_store_takes_nothing)
{
	struct fdry_store_stat st;
	struct fdry_usage u;

	ok(fdry_store_usage(s, NULL, NULL, &u));
	ck_assert_uint_eq(u.count + u.reached.objects, 0);
	ck_assert_ptr_null(fdry_usage_of(&u, &(struct fdry_oid){ { 0 } }));
	fdry_usage_release(&u);
	ok(fdry_store_stat(s, NULL, NULL, &st));
	ck_assert_uint_eq(st.kinds[0].objects + st.refs, 0);
	ck_assert_uint_gt(st.file.pages, 0);
	ck_assert_uint_eq(st.file.readers, 0);
}
END_TEST

/* --- stat --- */

static void put_many(size_t n)
{
	struct fdry_writer *p;
	struct fdry_oid id;
	uint8_t data[32];
	size_t i;

	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < n; i++) {
		noise(i, data, sizeof(data));
		put(p, FDRY_OBJECT_CHUNK, data, sizeof(data));
	}
	ok(fdry_writer_commit(p, "m", 1, NULL, 0, "many", &id, NULL));
}

/* More objects than one step looks at, each counted once. */
START_TEST(objects_are_counted_by_kind)
{
	static const size_t counts[] = { 1, 4094, 4095, 4096, 8191 }; /* and one manifest */
	struct fdry_store_stat st;
	size_t i;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		put_many(counts[i]);
		ok(fdry_store_stat(s, NULL, NULL, &st));
		ck_assert_uint_eq(st.kinds[FDRY_OBJECT_CHUNK].objects, counts[i]);
		ck_assert_uint_eq(st.kinds[FDRY_OBJECT_CHUNK].bytes, counts[i] * 32);
		ck_assert_uint_eq(st.kinds[FDRY_OBJECT_MANIFEST].objects, 1);
		ck_assert_uint_eq(st.kinds[0].objects, counts[i] + 1);
		ck_assert_uint_eq(st.refs, 1);
	}
}
END_TEST

START_TEST(the_file_is_counted)
{
	struct fdry_store_stat before, after;
	struct fdry_gc_report report = { .sz = sizeof(report) };
	struct stat file;
	struct fdry_reader *g;
	char name[320];

	seal(s, 1, 20, 100000, "a");
	ok(fdry_store_stat(s, NULL, NULL, &before));
	snprintf(name, sizeof(name), "%s/data.mdb", path);
	ck_assert(!stat(name, &file));
	ck_assert_uint_eq(before.file.file_bytes, (uint64_t)file.st_size);
	ck_assert_uint_eq(before.file.disk_bytes, (uint64_t)file.st_blocks * 512);
	ck_assert_uint_ge(before.file.pages * before.file.page_size, 20 * 100000);
	ck_assert_uint_ge(before.file.map_bytes, before.file.file_bytes);
	ok(fdry_store_remove(s, "a"));
	ok(fdry_store_gc(s, NULL, &report));
	ok(fdry_store_stat(s, NULL, NULL, &after));
	ck_assert_uint_ge(after.file.free_pages,
			  before.file.free_pages + 20 * 100000 / before.file.page_size);
	ck_assert_uint_ge(after.file.free_runs, 1);
	ck_assert_uint_le(after.file.longest_run, after.file.free_pages);
	ck_assert_uint_ge(after.file.longest_run, 100000 / after.file.page_size);
	ck_assert_uint_lt(after.file.free_pages, after.file.pages);
	seal(s, 1, 1, 100, "b");
	ok(fdry_reader_begin(s, &g));
	ok(fdry_store_stat(s, NULL, NULL, &after));
	ck_assert_uint_eq(after.file.readers, 1);
	fdry_reader_end(g);
}
END_TEST

/* --- putting without a manifest --- */

START_TEST(flushed_objects_stay)
{
	struct fdry_object_info info;
	struct fdry_oid first, second;
	struct fdry_writer *p;

	ok(fdry_writer_begin(s, &p));
	ok(fdry_writer_flush(p)); /* of nothing */
	first = put(p, FDRY_OBJECT_CHUNK, "first", 5);
	fails(NOENT, "no object", fdry_store_info(s, &first, &info));
	ok(fdry_writer_flush(p));
	ok(fdry_store_info(s, &first, &info));
	second = put(p, FDRY_OBJECT_CHUNK, "second", 6);
	ok(fdry_writer_flush(p));
	ok(fdry_writer_flush(p));
	put(p, FDRY_OBJECT_CHUNK, "third", 5);
	fdry_writer_abort(p);
	ok(fdry_store_info(s, &second, &info));
	second = oid_of("third", 5);
	fails(NOENT, "no object", fdry_store_info(s, &second, &info));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_usage");
	TCase *tc = tcase_create("usage");

	tcase_add_checked_fixture(tc, store_setup, store_teardown);
	tcase_add_test(tc, ids_that_begin_alike_are_found);
	tcase_add_test(tc, unique_and_shared_bytes);
	tcase_add_test(tc, shared_by_many);
	tcase_add_test(tc, missing_objects_are_reported);
	tcase_add_test(tc, an_empty_store_takes_nothing);
	tcase_add_test(tc, objects_are_counted_by_kind);
	tcase_add_test(tc, the_file_is_counted);
	tcase_add_test(tc, flushed_objects_stay);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
