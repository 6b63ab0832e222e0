// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of a store that is removed, replaced or written over while processes have it open.
 * Nothing is deleted, no call reports success for data that is lost, and later calls use the store
 * that is there now.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>

#include "tests/lib/store.h"

static void setup(void)
{
	dir_setup_in("/dev/shm");
}

static void teardown(void)
{
	dir_teardown();
}

static const char *in_store(const char *name)
{
	static char file[2][400];
	static int i;

	i = !i;
	snprintf(file[i], sizeof(file[i]), "%s/%s", path, name);
	return file[i];
}

static void run_shell(const char *format, ...)
{
	char command[2000];
	va_list ap;

	va_start(ap, format);
	vsnprintf(command, sizeof(command), format, ap);
	va_end(ap);
	ck_assert_msg(!system(command), "%s", command);
}

/* In a process of its own, which has nothing open: is the ref there, and the store sound? Then seal
 * an image as @add. */
static int elsewhere(const char *there, const char *absent, const char *add)
{
	struct fdry_verify_report r;
	struct fdry_store *s;
	struct fdry_oid oid;
	struct fdry_writer *p;
	int err = fdry_store_open(path, 0, &s);

	if (err)
		return err == -FDRY_E_LOCKED ? 10 : err == -FDRY_E_STALE ? 11 : 12;
	if (there && fdry_ref_get(s, there, &oid))
		return 1;
	if (absent && fdry_ref_get(s, absent, &oid) != -FDRY_E_NOENT)
		return 2;
	if (add && (fdry_writer_begin(s, &p) ||
		    fdry_writer_commit(p, add, strlen(add), NULL, 0, add, &oid, NULL)))
		return 3;
	if (store_verify(s, &r) || r.faults)
		return 4;
	fdry_store_close(s);
	return 0;
}

static void check_elsewhere(int want, const char *there, const char *absent, const char *add)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid)
		_exit(elsewhere(there, absent, add));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "signal %d", WTERMSIG(status));
	ck_assert_int_eq(WEXITSTATUS(status), want);
}

/* Check that each call that begins work on the handle returns the same error. */
static void check_stale(struct fdry_store *s, const char *text)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_oid oid = oid_of("x", 1);
	struct fdry_writer *p;
	struct fdry_reader *g;

	fails(STALE, text, fdry_reader_begin(s, &g));
	fails(STALE, text, fdry_writer_begin(s, &p));
	fails(STALE, text, fdry_ref_get(s, "old", &oid));
	fails(STALE, text, fdry_ref_set(s, "lost", &oid, NULL));
	fails(STALE, text, fdry_store_remove(s, "old"));
	fails(STALE, text, fdry_store_gc(s, NULL, &r));
}

/* A store with "old", a copy of it beside the store, and then @more images in the store: which of
 * LMDB's two meta pages is the newer one depends on their number. */
static struct fdry_store *store_and_backup(unsigned int more)
{
	struct fdry_store *s = store_make();
	char name[16];
	unsigned int i;

	seal(s, 1, 3, 5000, "old");
	fdry_store_close(s);
	run_shell("cp %s/data.mdb %s/backup", path, dir);
	ok(fdry_store_open(path, 0, &s));
	for (i = 0; i < more; i++) {
		snprintf(name, sizeof(name), "new%u", i);
		seal(s, 10 + i, 1, 5000, name);
	}
	return s;
}

START_TEST(a_backup_put_in_place_is_not_wiped)
{
	struct fdry_store *s = store_and_backup(1 + (unsigned int)_i), *again;
	struct fdry_oid oid;

	run_shell("mv %s/backup %s/data.mdb", dir, path);
	check_elsewhere(0, "old", "new0", "third");
	check_stale(s, "replaced");
	/* This process need not close all handles: a new handle opens the current file. */
	ok(fdry_store_open(path, 0, &again));
	ok(fdry_ref_get(again, "old", &oid));
	ok(fdry_ref_get(again, "third", &oid));
	fails(NOENT, "new0", fdry_ref_get(again, "new0", &oid));
	seal(again, 50, 2, 5000, "fourth");
	check_stale(s, "replaced");
	fdry_store_close(s);
	check_elsewhere(0, "fourth", "new0", "fifth");
	ok(fdry_ref_get(again, "fifth", &oid));
	check_sound(again);
	fdry_store_close(again);
	check_elsewhere(0, "fifth", "new0", NULL);
}
END_TEST

START_TEST(a_lock_file_without_users_serves_any_data)
{
	fdry_store_close(store_and_backup(1 + (unsigned int)_i));
	run_shell("mv %s/backup %s/data.mdb", dir, path);
	check_elsewhere(0, "old", "new0", "third");
	check_elsewhere(0, "third", "new0", NULL);
}
END_TEST

START_TEST(earlier_transactions_are_not_lost_in_silence)
{
	struct fdry_store *s = store_and_backup(1);
	struct fdry_oid oid;
	struct fdry_writer *p;

	ok(fdry_writer_begin(s, &p));
	put(p, FDRY_OBJECT_CHUNK, "some bytes", 10);
	run_shell("mv %s/backup %s/data.mdb", dir, path);
	fails(STALE, "replaced", fdry_writer_commit(p, "m", 1, NULL, 0, "lost", &oid, NULL));
	fdry_store_close(s);
	check_elsewhere(0, "old", "lost", "third");
}
END_TEST

/* The files change between the beginning of a transaction and its commit. */
START_TEST(a_commit_looks_once_more)
{
	struct fdry_store *s = store_and_backup(1);
	struct fdry_oid oid = oid_of("x", 1);
	struct fdry_txn t;

	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_ref_store(&t, "lost", &oid, NULL));
	run_shell("mv %s/backup %s/data.mdb", dir, path);
	fails(STALE, "replaced", fdry_txn_commit(&t));
	fdry_store_close(s);
	check_elsewhere(0, "old", "lost", NULL);
}
END_TEST

START_TEST(a_view_that_is_open_stays_whole)
{
	struct fdry_store *s = store_and_backup(1);
	struct fdry_oid chunk;
	uint8_t data[5000];
	struct fdry_reader *g;

	noise(10, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	ok(fdry_reader_begin(s, &g));
	run_shell("mv %s/backup %s/data.mdb", dir, path);
	check_elsewhere(0, "old", "new0", "third");
	check_object(g, &chunk, data, sizeof(data));
	fdry_reader_end(g);
	check_stale(s, "replaced");
	fdry_store_close(s);
}
END_TEST

START_TEST(removed_files_are_not_written)
{
	static const char *const how[] = {
		"rm %s/data.mdb",
		"rm -r %s",
		"mv %s %s/moved",
		"mv %s %s/moved; mkdir -m 700 %s; cp %s/backup %s/data.mdb",
	};
	struct fdry_store *s = store_and_backup(2);
	char command[1000];

	if (_i < 3)
		snprintf(command, sizeof(command), how[_i], path, dir);
	else
		snprintf(command, sizeof(command), how[_i], path, dir, path, dir, path);
	run_shell("%s", command);
	check_stale(s, _i < 3 ? "removed" : "replaced");
	fdry_store_close(s);
	if (_i == 3)
		check_elsewhere(0, "old", "new0", "third");
}
END_TEST

/* Two lists of readers for one data.mdb: a writer of one would use pages again that readers of the
 * other look at. */
START_TEST(a_lock_file_is_not_replaced_under_its_users)
{
	struct fdry_store *s = store_and_backup(1);

	ck_assert(!unlink(in_store("lock.mdb")));
	check_elsewhere(10, NULL, NULL, NULL);
	check_stale(s, "lock.mdb");
	check_elsewhere(10, NULL, NULL, NULL);
	fdry_store_close(s);
	check_elsewhere(0, "new0", NULL, "third");
}
END_TEST

/* The inode is the same: only the number of the latest transaction shows the change. */
START_TEST(an_older_copy_written_over_it_is_noticed)
{
	struct fdry_store *s = store_and_backup(2 + (unsigned int)_i);

	run_shell("cp %s/data.mdb %s/newer", path, dir);
	run_shell("dd if=%s/backup of=%s/data.mdb conv=notrunc status=none", dir, path);
	check_stale(s, "another program");
	check_elsewhere(11, NULL, NULL, NULL);
	fdry_store_close(s);
	check_elsewhere(0, "old", "new0", NULL);
	ok(fdry_store_open(path, 0, &s)); /* and a newer one */
	run_shell("dd if=%s/newer of=%s/data.mdb conv=notrunc status=none", dir, path);
	check_stale(s, "another program");
	fdry_store_close(s);
	check_elsewhere(0, "new0", NULL, NULL);
}
END_TEST

START_TEST(a_relative_path_is_that_of_the_opening)
{
	struct fdry_store *s = store_make();
	struct fdry_oid oid;

	seal(s, 1, 1, 100, "old");
	fdry_store_close(s);
	ck_assert(!chdir(dir));
	ok(fdry_store_open("store", 0, &s));
	ck_assert(!chdir("/"));
	ok(fdry_ref_get(s, "old", &oid));
	ok(fdry_ref_set(s, "new", &oid, NULL));
	fdry_store_close(s);
}
END_TEST

/* The lock under which processes open the store, on the file that has the name now. */
static int opening_lock(void)
{
	int fd = open(in_store("data.mdb"), O_RDWR | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	return fd;
}

/* A process waits for the lock while another one replaces the file, as a compaction does. Then it
 * waits for the lock of the new file. */
START_TEST(the_lock_of_a_replaced_file_is_not_enough)
{
	struct pollfd opened = { .events = POLLIN };
	struct fdry_store *s;
	int old, new, pipes[2], status;
	pid_t pid;

	fdry_store_close(store_and_backup(1));
	ck_assert_int_eq(pipe(pipes), 0);
	opened.fd = pipes[0];
	old = opening_lock();
	pid = fork();
	if (!pid) {
		close(old);
		close(pipes[0]);
		status = fdry_store_open(path, 0, &s);
		_exit(write(pipes[1], "o", 1) != 1 || status);
	}
	ck_assert_int_eq(poll(&opened, 1, 200), 0);
	run_shell("mv %s/backup %s/data.mdb", dir, path);
	new = opening_lock();
	close(old);
	ck_assert_int_eq(poll(&opened, 1, 300), 0);
	close(new);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && !WEXITSTATUS(status));
	close(pipes[0]);
	close(pipes[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_replaced");
	TCase *tc = tcase_create("replaced");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, a_backup_put_in_place_is_not_wiped, 0, 3);
	tcase_add_loop_test(tc, a_lock_file_without_users_serves_any_data, 0, 2);
	tcase_add_test(tc, earlier_transactions_are_not_lost_in_silence);
	tcase_add_test(tc, a_commit_looks_once_more);
	tcase_add_test(tc, a_view_that_is_open_stays_whole);
	tcase_add_loop_test(tc, removed_files_are_not_written, 0, 4);
	tcase_add_test(tc, a_lock_file_is_not_replaced_under_its_users);
	tcase_add_loop_test(tc, an_older_copy_written_over_it_is_noticed, 0, 2);
	tcase_add_test(tc, the_lock_of_a_replaced_file_is_not_enough);
	tcase_add_test(tc, a_relative_path_is_that_of_the_opening);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
