// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the notes of verified objects: their objects, and the events that invalidate them.
 */
#include <fcntl.h>

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

static void verify_chunk(bool always, bool good)
{
	struct fdry_span span, other;
	struct fdry_oid chunk;
	struct fdry_reader *g;
	uint8_t data[5000];

	noise(1, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_map(g, &chunk, &span));
	/* Pass other bytes: only a check by hash detects them. */
	data[17] ^= 1;
	other = (struct fdry_span){ data, span.len };
	ok(fdry_reader_verify(g, &chunk, span, always, NULL));
	fdry_reader_end(g);
	ok(fdry_reader_begin(s, &g));
	if (good)
		ok(fdry_reader_verify(g, &chunk, other, always, NULL));
	else
		fails(CORRUPT, "do not match", fdry_reader_verify(g, &chunk, other, always, NULL));
	fdry_reader_end(g);
}

static void note_path(char *file, size_t len)
{
	snprintf(file, len, "%s/verified", path);
}

static long file_size(const char *file)
{
	struct stat st;

	return stat(file, &st) ? -1 : (long)st.st_size;
}

START_TEST(verified_objects_are_remembered)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	char file[400];

	note_path(file, sizeof(file));
	seal(s, 1, 1, 5000, "r");
	verify_chunk(true, false);
	ck_assert(!access(file, F_OK));
	verify_chunk(false, true);
	/* for this file alone: not for a copy, and not after the note is removed */
	ck_assert(!unlink(file));
	{
		struct fdry_span bytes = { (const uint8_t *)"x", 1 };
		struct fdry_oid chunk;
		struct fdry_reader *g;
		uint8_t data[5000];

		noise(1, data, sizeof(data));
		chunk = oid_of(data, sizeof(data));
		ok(fdry_reader_begin(s, &g));
		fails(CORRUPT, "do not match", fdry_reader_verify(g, &chunk, bytes, false, NULL));
		fdry_reader_end(g);
	}
	verify_chunk(false, true);
	seal(s, 50, 1, 5000, NULL);
	ok(fdry_store_gc(s, NULL, &r));
	ck_assert_msg(file_size(file) == FDRY_VERIFIED_AT_IDS, "a collection keeps the notes");
}
END_TEST

/* Another file has the same bytes and ids, but no process has hashed it. */
START_TEST(notes_of_a_copy_do_not_count)
{
	char command[1000], copy[300];
	struct fdry_verified seen = { 0 };
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
	ck_assert(!fdry_verified_has(&seen, other->env, &chunk));
	fdry_verified_release(&seen);
	fdry_store_close(other);
}
END_TEST

/* Every byte of the header, and every length: a wrong note never counts, and never fails. */
START_TEST(a_damaged_note_costs_a_check)
{
	uint8_t bytes[FDRY_VERIFIED_AT_IDS + FDRY_OID_SIZE];
	char file[400];
	int fd, at;

	note_path(file, sizeof(file));
	seal(s, 1, 1, 5000, "r");
	verify_chunk(false, true);
	ck_assert_int_eq(file_size(file), sizeof(bytes));
	fd = open(file, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	for (at = 0; at < (int)sizeof(bytes); at += at < FDRY_VERIFIED_AT_IDS ? 1 : 7) {
		struct fdry_verified seen = { 0 };
		struct fdry_oid chunk;
		uint8_t data[5000];

		noise(1, data, sizeof(data));
		chunk = oid_of(data, sizeof(data));
		bytes[at] ^= 0x40;
		ck_assert_int_eq(pwrite(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
		ck_assert_msg(!fdry_verified_has(&seen, s->env, &chunk),
			      "byte %d was not looked at", at);
		fdry_verified_release(&seen);
		bytes[at] ^= 0x40;
		ck_assert(!ftruncate(fd, at));
		seen = (struct fdry_verified){ 0 };
		ck_assert_msg(!fdry_verified_has(&seen, s->env, &chunk), "%d bytes were enough",
			      at);
		fdry_verified_release(&seen);
	}
	close(fd);
	verify_chunk(false, true);
}
END_TEST

static void check_remembered(uint64_t seed, bool want)
{
	struct fdry_verified seen = { 0 };
	struct fdry_oid chunk;
	uint8_t data[5000];

	noise(seed, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	ck_assert_int_eq(fdry_verified_has(&seen, s->env, &chunk), want);
	fdry_verified_release(&seen);
}

/* The note survives each end of a transaction: commits, an abort, a collection of nothing. */
START_TEST(a_commit_of_ours_keeps_the_notes)
{
	struct fdry_oid oid = seal(s, 1, 1, 5000, "r");
	struct fdry_txn t;

	verify_chunk(false, true);
	check_remembered(1, true);
	ok(fdry_ref_set(s, "q", &oid, NULL));
	check_remembered(1, true);
	seal(s, 50, 3, 100000, "other");
	check_remembered(1, true);
	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_ref_store(&t, "x", &oid, NULL));
	fdry_txn_abort(&t);
	check_remembered(1, true);
	fdry_store_close(s);
	ok(fdry_store_open(path, 0, &s));
	check_remembered(1, true);
}
END_TEST

/* The same inode, and even the same transaction. */
START_TEST(a_copy_written_over_data_mdb_ends_the_notes)
{
	char command[1000];

	seal(s, 1, 1, 5000, "r");
	verify_chunk(false, true);
	check_remembered(1, true);
	fdry_store_close(s);
	snprintf(command, sizeof(command),
		 "cp -p '%s/data.mdb' '%s/b' && sleep 0.02 && cp -p '%s/b' '%s/data.mdb'", path,
		 dir, dir, path);
	ck_assert_int_eq(system(command), 0);
	ok(fdry_store_open(path, 0, &s));
	check_remembered(1, false);
	verify_chunk(false, true);
	check_remembered(1, true);
}
END_TEST

/* A session that hashed an object before its damage must not note it as verified after another
 * process found the damage. */
START_TEST(damage_cancels_what_others_are_about_to_note)
{
	struct fdry_verified before = { 0 };
	struct fdry_oid chunk;
	uint8_t data[5000];
	int i;

	seal(s, 1, 2, 5000, "r");
	noise(1, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	for (i = 0; i < 2; i++) { /* without a note, and with one */
		before = (struct fdry_verified){ 0 };
		ck_assert(!fdry_verified_has(&before, s->env, &chunk));
		fdry_verified_add(&before, &chunk);
		fdry_verified_forget(&s->env->dir);
		fdry_verified_end(&before, s->env);
		fdry_verified_release(&before);
		check_remembered(1, false);
	}
	verify_chunk(false, true);
	check_remembered(1, true);
}
END_TEST

/* Flip a bit of the chunk's bytes in data.mdb; true if they are there. */
static bool chunk_flip(uint64_t seed)
{
	uint8_t data[5000], *all;
	char file[400];
	struct stat st;
	ssize_t i;
	int fd;
	bool found = false;

	noise(seed, data, sizeof(data));
	snprintf(file, sizeof(file), "%s/data.mdb", path);
	fd = open(file, O_RDWR);
	ck_assert(fd >= 0 && !fstat(fd, &st));
	all = malloc((size_t)st.st_size);
	ck_assert_int_eq(pread(fd, all, (size_t)st.st_size, 0), st.st_size);
	for (i = 0; i + (ssize_t)sizeof(data) <= st.st_size; i++) {
		if (memcmp(all + i, data, sizeof(data)))
			continue;
		all[i + 99] ^= 4;
		ck_assert_int_eq(pwrite(fd, all + i + 99, 1, i + 99), 1);
		found = true;
	}
	free(all);
	close(fd);
	return found;
}

/* Damage that leaves no trace but itself: the note is made to fit the file again. */
static void note_renew(void)
{
	struct fdry_db_state state;
	uint8_t bytes[16];
	char file[400];
	int fd;

	ck_assert(fdry_db_state(s->env->db, &state));
	fdry_set64(bytes, state.changed);
	fdry_set64(bytes + 8, state.txn);
	note_path(file, sizeof(file));
	fd = open(file, O_WRONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, bytes, 16, FDRY_VERIFIED_AT_CHANGED), 16);
	close(fd);
}

START_TEST(damage_cancels_the_notes)
{
	struct fdry_verify_report r = { .faults = 0 };
	struct fdry_buf b = { 0 };
	struct fdry_span span;
	struct fdry_oid chunk;
	uint8_t data[5000];
	struct fdry_reader *g;

	seal(s, 1, 2, 5000, "r");
	noise(1, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	verify_chunk(false, true);
	ck_assert(chunk_flip(1));
	note_renew();
	check_remembered(1, true); /* no process can know it yet */
	if (_i == 0)
		ok(store_verify(s, &r));
	ck_assert_uint_eq(r.faults, _i ? 0 : 2);
	ok(fdry_reader_begin(s, &g));
	if (_i == 1)
		fails(CORRUPT, "do not match", fdry_reader_copy(g, &chunk, &b));
	if (_i == 2) {
		ok(fdry_reader_map(g, &chunk, &span));
		fails(CORRUPT, "do not match", fdry_reader_verify(g, &chunk, span, true, NULL));
	}
	fdry_reader_end(g);
	check_remembered(1, false);
	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_map(g, &chunk, &span));
	fails(CORRUPT, "do not match", fdry_reader_verify(g, &chunk, span, false, NULL));
	fdry_reader_end(g);
	fdry_buf_release(&b);
}
END_TEST

START_TEST(notes_of_several_sessions_add_up)
{
	struct fdry_reader *g[2];
	struct fdry_span span;
	struct fdry_oid chunk;
	uint8_t data[5000];
	char file[400];
	int i;

	note_path(file, sizeof(file));
	seal(s, 1, 2, 5000, "r");
	for (i = 0; i < 2; i++) {
		ok(fdry_reader_begin(s, &g[i]));
		noise(1 + i, data, sizeof(data));
		chunk = oid_of(data, sizeof(data));
		ok(fdry_reader_map(g[i], &chunk, &span));
		ok(fdry_reader_verify(g[i], &chunk, span, false, NULL));
		ok(fdry_reader_verify(g[i], &chunk, span, false, NULL));
	}
	fdry_reader_end(g[0]);
	fdry_reader_end(g[1]);
	ck_assert_int_eq(file_size(file), FDRY_VERIFIED_AT_IDS + 2 * FDRY_OID_SIZE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_verified");
	TCase *tc = tcase_create("verified");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, verified_objects_are_remembered);
	tcase_add_test(tc, a_commit_of_ours_keeps_the_notes);
	tcase_add_test(tc, a_copy_written_over_data_mdb_ends_the_notes);
	tcase_add_test(tc, damage_cancels_what_others_are_about_to_note);
	tcase_add_loop_test(tc, damage_cancels_the_notes, 0, 3);
	tcase_add_test(tc, notes_of_a_copy_do_not_count);
	tcase_add_test(tc, a_damaged_note_costs_a_check);
	tcase_add_test(tc, notes_of_several_sessions_add_up);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
