// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of more readers than LMDB's table holds: all of them can read, some more slowly.
 * store_readers [PROCESSES]: 256 without an argument.
 */
#include <lmdb.h>
#include <signal.h>

#include "tests/lib/store.h"

enum { CHUNKS = 4, LEN = 20000 };

static void setup(void)
{
	struct fdry_store *s;

	dir_setup_in("/dev/shm");
	s = store_make();
	seal(s, 1, CHUNKS, LEN, "img");
	fdry_store_close(s);
}

static void teardown(void)
{
	dir_teardown();
}

/* Start a process that uses a lock.mdb of @places places, as another program would make it, with
 * @taken of them in use. */
static pid_t few_places(unsigned int places, unsigned int taken)
{
	MDB_env *env;
	MDB_txn *txn;
	char file[400], c = 0;
	int ready[2];
	pid_t pid;

	snprintf(file, sizeof(file), "%s/lock.mdb", path);
	ck_assert(!unlink(file) && !pipe(ready));
	pid = fork();
	if (!pid) {
		if (mdb_env_create(&env) || mdb_env_set_maxreaders(env, places) ||
		    mdb_env_open(env, path, MDB_NOTLS, 0600))
			_exit(1);
		while (taken--)
			if (mdb_txn_begin(env, NULL, MDB_RDONLY, &txn))
				_exit(2);
		if (write(ready[1], "r", 1) != 1)
			_exit(3);
		pause();
	}
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* Read every chunk in two sessions at once, as a loader's threads do. Returns 0, or the number of a
 * failed step. */
static int load(unsigned int flags)
{
	struct fdry_reader *g[2] = { NULL };
	struct fdry_oid image, *links = NULL;
	struct fdry_store *s;
	struct fdry_span span;
	size_t n = 0, i;

	if (fdry_store_open(path, flags, &s))
		return 1;
	if (fdry_reader_begin(s, &g[0]) || fdry_reader_resolve(g[0], "img", &image) ||
	    fdry_reader_begin(s, &g[1]))
		return 2;
	if (fdry_store_links(s, &image, &links, &n) || n != CHUNKS)
		return 3;
	for (i = 0; i < n; i++)
		if (fdry_reader_map(g[i % 2], &links[i], &span) || span.len != LEN ||
		    fdry_reader_verify(g[i % 2], &links[i], span, true, NULL))
			return 4;
	free(links);
	fdry_reader_end(g[1]);
	fdry_reader_end(g[0]);
	fdry_store_close(s);
	return 0;
}

/* All begin at the same moment; returns how many failed. */
static unsigned int load_at_once(unsigned int count)
{
	unsigned int i, failed = 0;
	int go[2], status;
	char c;

	ck_assert(!pipe(go));
	for (i = 0; i < count; i++) {
		pid_t pid = fork();

		ck_assert_int_ge(pid, 0);
		if (pid)
			continue;
		close(go[1]);
		if (read(go[0], &c, 1))
			_exit(9);
		status = load(0);
		if (status)
			fprintf(stderr, "%d: %s\n", status, fdry_last_error());
		_exit(status);
	}
	close(go[0]);
	close(go[1]);
	for (i = 0; i < count; i++) {
		ck_assert_int_gt(wait(&status), 0);
		failed += !WIFEXITED(status) || WEXITSTATUS(status);
	}
	return failed;
}

static unsigned int many = 256;

START_TEST(all_of_many_processes_load)
{
	ck_assert_uint_eq(load_at_once(many), 0);
}
END_TEST

/* The other places are never freed. */
START_TEST(few_places_serve_many_processes)
{
	pid_t pid = few_places(16, 13);
	unsigned int i, failed = 0;
	int status;

	for (i = 0; i < 8; i++)
		if (!fork())
			_exit(load_at_once(8) > 0);
	for (i = 0; i < 9; i++) {
		if (i == 8) {
			end(pid);
			break;
		}
		ck_assert_int_gt(wait(&status), 0);
		failed += !WIFEXITED(status) || WEXITSTATUS(status);
	}
	ck_assert_uint_eq(failed, 0);
}
END_TEST

/* Not even one. */
START_TEST(no_place_at_all)
{
	pid_t pid = few_places(2, 2);
	struct fdry_store_stat st = { 0 };
	struct fdry_verify_report r;
	struct fdry_gc_report gr = { .sz = sizeof(gr) };
	struct fdry_store *s;

	ck_assert_uint_eq(load_at_once(4), 0);
	ok(fdry_store_open(path, 0, &s));
	seal(s, 50, 2, LEN, "more");
	ok(store_verify(s, &r));
	ck_assert_uint_eq(r.faults, 0);
	ok(fdry_store_stat(s, NULL, NULL, &st));
	ck_assert_uint_eq(st.file.readers_max, 2);
	ok(fdry_store_gc(s, NULL, &gr));
	ck_assert_uint_eq(gr.dead, 0);
	fdry_store_close(s);
	end(pid);
}
END_TEST

/* One process begins more sessions than our lock.mdb has places: others still find some. */
START_TEST(one_process_uses_few_places)
{
	enum { N = FDRY_DB_READERS_MAX / 8 + 50 };
	static struct fdry_reader *g[N];
	struct fdry_buf b = { 0 };
	struct fdry_oid image;
	struct fdry_store *s;
	int i;

	ok(fdry_store_open(path, 0, &s));
	for (i = 0; i < N; i++)
		ok(fdry_reader_begin(s, &g[i]));
	ck_assert_uint_le(fdry_db_readers(s->env->db), FDRY_DB_READERS_MAX / 8);
	ok(fdry_reader_resolve(g[N - 1], "img", &image));
	ok(fdry_reader_copy(g[N - 1], &image, &b));
	ok(fdry_reader_copy(g[0], &image, &b));
	ck_assert_uint_eq(load_at_once(2), 0);
	for (i = 0; i < N; i++)
		fdry_reader_end(g[i]);
	ck_assert_uint_eq(fdry_db_readers(s->env->db), 0);
	fdry_buf_release(&b);
	fdry_store_close(s);
}
END_TEST

START_TEST(places_of_dead_readers_are_cleared)
{
	struct fdry_store *s;
	struct fdry_reader *g;
	pid_t pid = few_places(8, 0), dying;
	int i, ready[2];
	char c;

	ck_assert(!pipe(ready));
	dying = fork();
	if (!dying) {
		MDB_env *env;
		MDB_txn *txn;

		if (mdb_env_create(&env) || mdb_env_open(env, path, MDB_NOTLS, 0600))
			_exit(1);
		for (i = 0; i < 8; i++)
			if (mdb_txn_begin(env, NULL, MDB_RDONLY, &txn))
				_exit(2);
		if (write(ready[1], "r", 1) != 1)
			_exit(3);
		pause();
	}
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	ok(fdry_store_open(path, 0, &s));
	end(dying);
	ok(fdry_reader_begin(s, &g));
	ck_assert_uint_eq(fdry_db_readers(s->env->db), 1);
	fdry_reader_end(g);
	fdry_store_close(s);
	end(pid);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("store_readers");
	TCase *tc = tcase_create("readers");

	if (argc > 1)
		many = (unsigned int)atoi(argv[1]);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, all_of_many_processes_load);
	tcase_add_test(tc, few_places_serve_many_processes);
	tcase_add_test(tc, no_place_at_all);
	tcase_add_test(tc, one_process_uses_few_places);
	tcase_add_test(tc, places_of_dead_readers_are_cleared);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
