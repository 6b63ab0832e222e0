// SPDX-License-Identifier: Apache-2.0
/* Unit tests of collecting and of the notes of what was verified. */
#include <fcntl.h>

#include "tests/unit/store_test.h"

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

static int count_object(void *arg, const struct fdry_object_info *info)
{
	(void)info;
	++*(unsigned int *)arg;
	return 0;
}

static unsigned int objects(void)
{
	unsigned int n = 0;

	ok(fdry_store_each(s, count_object, &n));
	return n;
}

static void gc(bool dry_run, uint64_t live, uint64_t dead)
{
	struct fdry_gc_report r;

	ok(fdry_store_gc(s, dry_run, &r));
	ck_assert_uint_eq(r.live, live);
	ck_assert_uint_eq(r.dead, dead);
	ck_assert(!dead == !r.dead_bytes && !dead == !r.dead_stored);
}

START_TEST(what_no_ref_reaches_goes)
{
	struct fdry_oid a;

	gc(false, 0, 0);
	a = seal(s, 1, 10, 5000, "a");
	seal(s, 6, 10, 5000, "b"); /* five chunks are a's too */
	seal(s, 100, 10, 5000, NULL);
	ck_assert_uint_eq(objects(), 10 + 1 + 5 + 1 + 11);
	gc(true, 17, 11);
	ck_assert_uint_eq(objects(), 28);
	gc(false, 17, 11);
	ck_assert_uint_eq(objects(), 17);
	gc(false, 17, 0);
	check_sound(s);
	ok(fdry_ref_set(s, "c", &a));
	ok(fdry_ref_delete(s, "a"));
	gc(false, 17, 0);
	ok(fdry_ref_delete(s, "c"));
	gc(false, 11, 6);
	ok(fdry_ref_delete(s, "b"));
	gc(false, 0, 11);
	ck_assert_uint_eq(objects(), 0);
	check_sound(s);
}
END_TEST

/* More dead than one transaction takes, by number and by bytes; the space is used again. */
START_TEST(many_go_in_turns)
{
	struct stat before, after;
	char file[400];

	seal(s, 1, 3000, 40, NULL);
	seal(s, 10000, 80, 1 << 20, NULL);
	seal(s, 20000, 3, 40, "keep");
	gc(false, 4, 3082);
	check_sound(s);
	snprintf(file, sizeof(file), "%s/data.mdb", path);
	ck_assert(!stat(file, &before));
	seal(s, 30000, 60, 1 << 20, NULL);
	ck_assert(!stat(file, &after));
	ck_assert_int_le(after.st_size, before.st_size + (16 << 20));
}
END_TEST

START_TEST(links_are_followed_through_every_kind)
{
	struct fdry_oid oid, image;
	struct fdry_put *p;
	char text[32];
	int i;

	ok(fdry_put_begin(s, &p));
	oid = put(p, FDRY_OBJECT_CHUNK, "deep", 4);
	for (i = 0; i < 500; i++) {
		snprintf(text, sizeof(text), "level %d", i);
		ok(fdry_put_object(p, 1 + i % 4, text, strlen(text), &oid, 1, &oid));
	}
	ok(fdry_put_commit(p, "m", 1, &oid, 1, "r", &image, NULL));
	gc(false, 502, 0);
	ok(fdry_ref_delete(s, "r"));
	gc(false, 0, 502);
}
END_TEST

START_TEST(sessions_keep_a_collection_out)
{
	struct fdry_gc_report r;
	struct fdry_put *p;
	struct fdry_get *g, *h;
	char pid[32];

	seal(s, 1, 2, 100, NULL);
	ok(fdry_put_begin(s, &p));
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	fails(LOCKED, pid, fdry_store_gc(s, false, &r));
	fails(LOCKED, "seal, a load", fdry_store_gc(s, true, &r));
	ok(fdry_get_begin(s, &g));
	ok(fdry_get_begin(s, &h));
	fdry_put_abort(p);
	fails(LOCKED, "held by", fdry_store_gc(s, false, &r));
	fdry_get_end(g);
	fails(LOCKED, "held by", fdry_store_gc(s, false, &r));
	fdry_get_end(h);
	gc(false, 0, 3);
}
END_TEST

/* What does not add up stops a collection before it removes anything. */
START_TEST(damage_stops_a_collection)
{
	static const uint8_t record[FDRY_RECORD_AT_LINKS + 1] = { 2 };
	struct fdry_span bad = { record, sizeof(record) };
	struct fdry_gc_report r;
	struct fdry_oid chunk;
	uint8_t data[100];
	struct fdry_txn t;

	seal(s, 1, 3, 100, "broken");
	seal(s, 10, 3, 100, NULL);
	noise(2, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_txn_delete(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&chunk)));
	ok(fdry_txn_commit(&t));
	fails(CORRUPT, "ref 'broken' needs object", fdry_store_gc(s, false, &r));
	ck_assert_uint_eq(objects(), 7);

	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_txn_put(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&chunk), bad));
	ok(fdry_txn_commit(&t));
	fails(CORRUPT, "record is damaged", fdry_store_gc(s, false, &r));

	/* without the ref, and with the bytes that lost their record, all goes */
	ok(fdry_ref_delete(s, "broken"));
	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_txn_delete(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&chunk)));
	ok(fdry_txn_commit(&t));
	gc(false, 0, 8);
	check_sound(s);
}
END_TEST

/* Sealing again brings back what lost its record or its bytes. */
START_TEST(sealing_again_heals)
{
	struct fdry_oid chunk[2];
	uint8_t data[100];
	struct fdry_txn t;
	int i;

	seal(s, 1, 3, 100, "r");
	ok(fdry_txn_write(s->env->db, 0, &t));
	for (i = 0; i < 2; i++) {
		noise(1 + i, data, sizeof(data));
		chunk[i] = oid_of(data, sizeof(data));
		ok(fdry_txn_delete(&t, i ? FDRY_TABLE_OBJECTS : FDRY_TABLE_DATA, fdry_oid_span(&chunk[i])));
	}
	ok(fdry_txn_commit(&t));
	seal(s, 1, 3, 100, "r");
	check_sound(s);
	gc(false, 4, 0);
}
END_TEST

/* --- notes of what was verified --- */

static void verify_chunk(bool always, bool good)
{
	struct fdry_span span, other;
	struct fdry_oid chunk;
	struct fdry_get *g;
	uint8_t data[5000];

	noise(1, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	ok(fdry_get_begin(s, &g));
	ok(fdry_get_map(g, &chunk, &span));
	/* Hand in other bytes: only who hashes them notices. */
	data[17] ^= 1;
	other = (struct fdry_span){ data, span.len };
	ok(fdry_get_verify(g, &chunk, span, always, NULL));
	fdry_get_end(g);
	ok(fdry_get_begin(s, &g));
	if (good)
		ok(fdry_get_verify(g, &chunk, other, always, NULL));
	else
		fails(CORRUPT, "do not match", fdry_get_verify(g, &chunk, other, always, NULL));
	fdry_get_end(g);
}

static void note_path(char *file, size_t len)
{
	snprintf(file, len, "%s/verified", path);
}

START_TEST(what_was_verified_is_remembered)
{
	char file[400];

	note_path(file, sizeof(file));
	seal(s, 1, 1, 5000, "r");
	verify_chunk(true, false);
	ck_assert(!access(file, F_OK));
	verify_chunk(false, true);
	/* for this file alone: not for a copy, nor after the note is gone */
	ck_assert(!unlink(file));
	{
		struct fdry_span bytes = { (const uint8_t *)"x", 1 };
		struct fdry_oid chunk;
		struct fdry_get *g;
		uint8_t data[5000];

		noise(1, data, sizeof(data));
		chunk = oid_of(data, sizeof(data));
		ok(fdry_get_begin(s, &g));
		fails(CORRUPT, "do not match", fdry_get_verify(g, &chunk, bytes, false, NULL));
		fdry_get_end(g);
	}
	verify_chunk(false, true);
	seal(s, 50, 1, 5000, NULL);
	gc(false, 2, 2);
	ck_assert_msg(access(file, F_OK) && errno == ENOENT, "a collection keeps the notes");
}
END_TEST

/* Another file, though its bytes and its id are the same: nobody has hashed it. */
START_TEST(notes_of_a_copy_do_not_count)
{
	char command[1000], copy[300];
	struct fdry_seen seen = { 0 };
	struct fdry_store *other;
	struct fdry_oid chunk;
	uint8_t data[5000];

	seal(s, 1, 1, 5000, "r");
	verify_chunk(false, true);
	snprintf(copy, sizeof(copy), "%s/copy", dir);
	snprintf(command, sizeof(command), "cp -r '%s' '%s'", path, copy);
	ck_assert_int_eq(system(command), 0);
	noise(1, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	ok(fdry_store_open(copy, 0, &other));
	ck_assert(!fdry_seen_has(&seen, other->env, &chunk));
	fdry_seen_release(&seen);
	fdry_store_close(other);
}
END_TEST

static long file_size(const char *file)
{
	struct stat st;

	return stat(file, &st) ? -1 : (long)st.st_size;
}

/* Every byte of the header, and every length: a wrong note never counts, and never fails. */
START_TEST(a_damaged_note_costs_a_check)
{
	uint8_t bytes[FDRY_SEEN_AT_IDS + FDRY_OID_SIZE];
	char file[400];
	int fd, at;

	note_path(file, sizeof(file));
	seal(s, 1, 1, 5000, "r");
	verify_chunk(false, true);
	ck_assert_int_eq(file_size(file), sizeof(bytes));
	fd = open(file, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	for (at = 0; at < (int)sizeof(bytes); at += at < FDRY_SEEN_AT_IDS ? 1 : 7) {
		struct fdry_seen seen = { 0 };
		struct fdry_oid chunk;
		uint8_t data[5000];

		noise(1, data, sizeof(data));
		chunk = oid_of(data, sizeof(data));
		bytes[at] ^= 0x40;
		ck_assert_int_eq(pwrite(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
		ck_assert_msg(!fdry_seen_has(&seen, s->env, &chunk), "byte %d was not looked at", at);
		fdry_seen_release(&seen);
		bytes[at] ^= 0x40;
		ck_assert(!ftruncate(fd, at));
		seen = (struct fdry_seen){ 0 };
		ck_assert_msg(!fdry_seen_has(&seen, s->env, &chunk), "%d bytes were enough", at);
		fdry_seen_release(&seen);
	}
	close(fd);
	verify_chunk(false, true);
}
END_TEST

START_TEST(notes_of_several_sessions_add_up)
{
	struct fdry_get *g[2];
	struct fdry_span span;
	struct fdry_oid chunk;
	uint8_t data[5000];
	char file[400];
	int i;

	note_path(file, sizeof(file));
	seal(s, 1, 2, 5000, "r");
	for (i = 0; i < 2; i++) {
		ok(fdry_get_begin(s, &g[i]));
		noise(1 + i, data, sizeof(data));
		chunk = oid_of(data, sizeof(data));
		ok(fdry_get_map(g[i], &chunk, &span));
		ok(fdry_get_verify(g[i], &chunk, span, false, NULL));
		ok(fdry_get_verify(g[i], &chunk, span, false, NULL));
	}
	fdry_get_end(g[0]);
	fdry_get_end(g[1]);
	ck_assert_int_eq(file_size(file), FDRY_SEEN_AT_IDS + 2 * FDRY_OID_SIZE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_gc");
	TCase *tc = tcase_create("gc");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, what_no_ref_reaches_goes);
	tcase_add_test(tc, many_go_in_turns);
	tcase_add_test(tc, links_are_followed_through_every_kind);
	tcase_add_test(tc, sessions_keep_a_collection_out);
	tcase_add_test(tc, damage_stops_a_collection);
	tcase_add_test(tc, sealing_again_heals);
	tcase_add_test(tc, what_was_verified_is_remembered);
	tcase_add_test(tc, notes_of_a_copy_do_not_count);
	tcase_add_test(tc, a_damaged_note_costs_a_check);
	tcase_add_test(tc, notes_of_several_sessions_add_up);
	suite_add_tcase(suite, tc);
	return run(suite);
}
