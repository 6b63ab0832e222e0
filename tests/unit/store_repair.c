// SPDX-License-Identifier: Apache-2.0
/* Unit tests of repairing: damaged or missing objects are restored from stores and packs, or are
 * never loaded. */
#include <fcntl.h>

#include "store/repair.h"
#include "tests/lib/pack.h"

#define CHUNK 5000

static struct fdry_store *s, *good;
static struct fdry_oid image, chunk, kernel, graph;
static char place[400], good_place[400], pack_place[400];

static void setup(void)
{
	char text[4000];
	size_t len;

	dir_setup_in("/dev/shm");
	s = store_at("s");
	good = store_at("good");
	snprintf(place, sizeof(place), "%s/s", dir);
	snprintf(good_place, sizeof(good_place), "%s/good", dir);
	snprintf(pack_place, sizeof(pack_place), "%s/pack", dir);
	image = seal_mixed(s, 1, CHUNK, "one");
	seal_mixed(s, 2, CHUNK, "two");
	seal_mixed(good, 1, CHUNK, NULL);
	memset(text, 1, sizeof(text));
	noise(10, text, sizeof(text));
	len = prose(2, text, sizeof(text));
	kernel = oid_of(text, len);
	graph = oid_of("a graph of image 1", 18);
}

static void teardown(void)
{
	fdry_store_close(s);
	fdry_store_close(good);
	dir_teardown();
}

static void first_chunk(void)
{
	uint8_t data[CHUNK];

	noise(10, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
}

static void lose(const struct fdry_oid *oid)
{
	struct fdry_txn t;

	ok(fdry_txn_write(s->env->db, 1 << 20, &t));
	ok(fdry_txn_delete(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(oid)));
	ok(fdry_txn_delete(&t, FDRY_TABLE_DATA, fdry_oid_span(oid)));
	ok(fdry_txn_commit(&t));
}

static unsigned int events[4];
static char ref_reported[256];

static void repaired(void *arg, int what, const char *id, const char *ref, const char *text)
{
	(void)arg;
	ck_assert_uint_eq(strlen(id), 64);
	ck_assert_ptr_nonnull(text);
	ck_assert(!ref == (what != FDRY_REPAIRED_IMAGE));
	events[what]++;
	if (ref)
		snprintf(ref_reported, sizeof(ref_reported), "%s", ref);
}

static struct fdry_repair_report repair_from(const char *source, bool dry_run)
{
	struct fdry_repair_opts o = { .sz = sizeof(o),
				      .flags = dry_run ? FDRY_REPAIR_DRY_RUN : 0,
				      .repaired = repaired };
	struct fdry_repair_report r = { .sz = sizeof(r) };

	memset(events, 0, sizeof(events));
	ok(fdry_store_repair(place, &source, source ? 1 : 0, &o, &r));
	ck_assert_uint_eq(events[FDRY_REPAIRED_BACK], r.back);
	ck_assert_uint_eq(events[FDRY_REPAIRED_QUARANTINED], r.quarantined);
	ck_assert_uint_eq(events[FDRY_REPAIRED_LOST], r.lost);
	ck_assert_uint_eq(events[FDRY_REPAIRED_IMAGE], r.broken);
	return r;
}

static struct mem image_pack(void)
{
	char hex[FDRY_OID_HEX_SIZE];

	return export_to_mem(good, (const char *[]){ fdry_oid_hex(&image, hex) }, 1, NULL, NULL);
}

static void pack_write(void)
{
	struct mem m = image_pack();
	int fd = open(pack_place, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_eq(write(fd, m.b.data, m.b.len), (ssize_t)m.b.len);
	close(fd);
	fdry_buf_release(&m.b);
}

START_TEST(a_sound_store_stays_as_it_is)
{
	struct fdry_oid before = see_all(s), is;
	struct fdry_repair_report r = repair_from(NULL, false);

	ck_assert_uint_eq(r.damaged + r.missing, 0);
	ck_assert_uint_eq(r.back + r.quarantined + r.lost + r.broken, 0);
	is = see_all(s);
	ck_assert(fdry_oid_eq(&before, &is));
}
END_TEST

/* Make every kind of damage at once: bytes, compressed bytes, a record, and an object lost with the
 * objects that it links to. */
static void spoil_all(void)
{
	first_chunk();
	spoil_data(s, &chunk);
	spoil_data(s, &kernel);
	spoil_record(s, &graph);
	lose(&image);
}

static void comes_back(const char *source)
{
	struct fdry_oid before = see_all(s), is;
	struct fdry_repair_report r;

	spoil_all();
	r = repair_from(source, true);
	ck_assert_uint_eq(r.back, 4);
	r = repair_from(source, false);
	ck_assert_uint_eq(r.back, 4);
	ck_assert_uint_eq(r.quarantined + r.lost + r.broken, 0);
	check_sound(s);
	is = see_all(s);
	ck_assert(fdry_oid_eq(&before, &is));
}

START_TEST(all_comes_back_from_a_store)
{
	comes_back(good_place);
}
END_TEST

START_TEST(all_comes_back_from_a_pack)
{
	pack_write();
	comes_back(pack_place);
}
END_TEST

/* An image is lost with all its objects: only its manifest names the other missing ones. */
START_TEST(a_missing_manifest_brings_its_objects)
{
	struct fdry_repair_report r;

	first_chunk();
	lose(&image);
	lose(&graph);
	lose(&kernel);
	lose(&chunk);
	r = repair_from(NULL, false);
	ck_assert_uint_eq(r.lost, 1); /* no object names the others */
	ck_assert_uint_eq(r.broken, 1);
	ck_assert_str_eq(ref_reported, "one");
	r = repair_from(good_place, false);
	ck_assert_uint_eq(r.back, 4);
	check_sound(s);
}
END_TEST

START_TEST(an_object_without_a_source_is_never_returned)
{
	struct fdry_repair_report r;
	struct fdry_buf b = { 0 };
	struct fdry_object_info info;
	struct fdry_gc_report gc = { .sz = sizeof(gc) };
	struct fdry_span span;
	struct fdry_reader *g;

	first_chunk();
	spoil_data(s, &chunk);
	spoil_data(s, &kernel);
	r = repair_from(NULL, true);
	ck_assert_uint_eq(r.quarantined, 2);
	ok(fdry_store_info(s, &chunk, &info));
	ck_assert_uint_eq(info.stored, CHUNK); /* a dry run */
	r = repair_from(NULL, false);
	ck_assert_uint_eq(r.quarantined, 2);
	ck_assert_uint_eq(r.broken, 1);
	ck_assert_str_eq(ref_reported, "one");
	ok(fdry_reader_begin(s, &g));
	fails(CORRUPT, "quarantine", fdry_reader_copy(g, &kernel, &b));
	fails(CORRUPT, "quarantine", fdry_reader_map(g, &chunk, &span));
	fdry_reader_end(g);
	ok(fdry_store_info(s, &chunk, &info));
	ck_assert_uint_eq(info.stored, 0);
	ok(fdry_store_gc(s, NULL, &gc)); /* and images that need it are kept */
	ck_assert_uint_eq(gc.dead, 0);
	/* It is known from now on, and heals by being put. */
	r = repair_from(NULL, false);
	ck_assert_uint_eq(r.quarantined, 2);
	seal_mixed(s, 1, CHUNK, "one");
	check_sound(s);
}
END_TEST

START_TEST(a_record_that_is_lost_leaves_no_bytes)
{
	struct fdry_object_info info;
	struct fdry_repair_report r;

	spoil_record(s, &graph);
	r = repair_from(NULL, false);
	ck_assert_uint_eq(r.lost, 1);
	ck_assert_uint_eq(r.broken, 1);
	fails(NOENT, "no object", fdry_store_info(s, &graph, &info));
	r = repair_from(good_place, false);
	ck_assert_uint_eq(r.back, 1);
	check_sound(s);
}
END_TEST

START_TEST(an_import_heals_what_is_in_quarantine)
{
	struct mem m = image_pack();
	struct fdry_pack_report in;

	spoil_data(s, &kernel);
	repair_from(NULL, false);
	ok(import_mem(s, &m, NULL, &in));
	check_sound(s);
	fdry_buf_release(&m.b);
}
END_TEST

/* A source with the same damage, one with wrong bytes, and incomplete packs. */
START_TEST(sources_are_not_believed)
{
	struct fdry_repair_report r;
	const char *source = pack_place;

	spoil_data(s, &kernel);
	r = repair_from(place, false); /* itself */
	ck_assert_uint_eq(r.back, 0);
	ck_assert_uint_eq(r.quarantined, 1);
	pack_write();
	ck_assert(!truncate(pack_place, 9000));
	fails(BADIMAGE, "ends early", fdry_store_repair(place, &source, 1, NULL, NULL));
	source = "/dev/null";
	fails(INVAL, "neither a store nor a file",
	      fdry_store_repair(place, &source, 1, NULL, NULL));
	source = "/nowhere";
	fails(NOENT, "/nowhere", fdry_store_repair(place, &source, 1, NULL, NULL));
}
END_TEST

/*
 * Another store has the same bytes as an object of another kind, with other storage and links. The
 * repaired object keeps its own kind, and a chunk can be mapped again.
 */
START_TEST(a_repaired_object_keeps_its_kind)
{
	struct fdry_oid oid, link, other;
	struct fdry_object_info info;
	struct fdry_repair_report r;
	struct fdry_span span;
	struct fdry_writer *p;
	struct fdry_reader *g;
	char text[4000];

	memset(text, 'a', sizeof(text));
	ok(fdry_writer_begin(s, &p));
	oid = put(p, FDRY_OBJECT_CHUNK, text, sizeof(text));
	ok(fdry_writer_commit(p, "three", 5, &oid, 1, "three", &other, NULL));
	ok(fdry_writer_begin(good, &p));
	link = put(p, FDRY_OBJECT_CHUNK, "nowhere else", 12);
	ok(fdry_writer_add_object(p, FDRY_OBJECT_KERNEL, text, sizeof(text), &link, 1, &oid));
	ok(fdry_writer_commit(p, "three", 5, &oid, 1, "three", &other, NULL));
	spoil_data(s, &oid);
	r = repair_from(good_place, false);
	ck_assert_uint_eq(r.back, 1);
	ok(fdry_store_info(s, &oid, &info));
	ck_assert_uint_eq(info.kinds, 1u << FDRY_OBJECT_CHUNK);
	ck_assert_uint_eq(info.nlinks, 0);
	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_map(g, &oid, &span));
	ck_assert(span.len == sizeof(text) && !memcmp(span.data, text, sizeof(text)));
	fdry_reader_end(g);
	check_sound(s);
}
END_TEST

/* Nothing has no bytes either in quarantine or out of it. */
START_TEST(an_empty_object_is_reported)
{
	struct fdry_repair_report r;
	struct fdry_oid oid, other;
	struct fdry_writer *p;
	struct fdry_txn t;
	int i;

	ok(fdry_writer_begin(s, &p));
	oid = put(p, FDRY_OBJECT_CHUNK, "", 0);
	ok(fdry_writer_commit(p, "three", 5, &oid, 1, "three", &other, NULL));
	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_txn_delete(&t, FDRY_TABLE_DATA, fdry_oid_span(&oid)));
	ok(fdry_txn_commit(&t));
	for (i = 0; i < 2; i++) {
		r = repair_from(NULL, false);
		ck_assert_uint_eq(r.quarantined, 1);
		ck_assert_uint_eq(r.broken, 1);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_repair");
	TCase *tc = tcase_create("repair");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_sound_store_stays_as_it_is);
	tcase_add_test(tc, all_comes_back_from_a_store);
	tcase_add_test(tc, all_comes_back_from_a_pack);
	tcase_add_test(tc, a_missing_manifest_brings_its_objects);
	tcase_add_test(tc, an_object_without_a_source_is_never_returned);
	tcase_add_test(tc, a_record_that_is_lost_leaves_no_bytes);
	tcase_add_test(tc, an_import_heals_what_is_in_quarantine);
	tcase_add_test(tc, sources_are_not_believed);
	tcase_add_test(tc, a_repaired_object_keeps_its_kind);
	tcase_add_test(tc, an_empty_object_is_reported);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
