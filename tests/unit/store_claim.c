// SPDX-License-Identifier: Apache-2.0
/* Unit tests of claims: only one process or thread has one at a time, even if holders die. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "tests/lib/store.h"

static const struct fdry_wait LONG = { .ms = 20000 }, SHORT = { .ms = 50 };

/* Memory through which processes of a test communicate. */
struct shared {
	int inside, most, claims;
	int ready;
};

static struct shared *shared_new(void)
{
	struct shared *sh =
		mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(sh, MAP_FAILED);
	return sh;
}

static void nap(int ms)
{
	usleep((useconds_t)ms * 1000);
}

static void claim_use(struct fdry_store *s, struct shared *sh, const char *key)
{
	struct fdry_claim *t;
	bool waited;
	int now;

	ok(fdry_claim_begin(s, key, strlen(key), &LONG, &waited, &t));
	now = __atomic_add_fetch(&sh->inside, 1, __ATOMIC_SEQ_CST);
	if (now > __atomic_load_n(&sh->most, __ATOMIC_SEQ_CST))
		__atomic_store_n(&sh->most, now, __ATOMIC_SEQ_CST);
	nap(10);
	__atomic_sub_fetch(&sh->inside, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&sh->claims, 1, __ATOMIC_SEQ_CST);
	fdry_claim_end(t);
}

/* Files of claims in the store's directory. */
static int claim_files(void)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int n = 0;

	while ((e = readdir(d)))
		n += !strncmp(e->d_name, ".claim-", 7);
	closedir(d);
	return n;
}

START_TEST(one_process_at_a_time)
{
	struct shared *sh = shared_new();
	int i, k, status;

	fdry_store_close(store_make());
	for (i = 0; i < 6; i++)
		if (!fork()) {
			struct fdry_store *s = store_make();

			for (k = 0; k < 4; k++)
				claim_use(s, sh, "key");
			fdry_store_close(s);
			_exit(0);
		}
	while (wait(&status) > 0)
		ck_assert_int_eq(status, 0);
	ck_assert_int_eq(sh->claims, 24);
	ck_assert_int_eq(sh->most, 1);
	ck_assert_int_eq(claim_files(), 0);
}
END_TEST

struct user {
	struct fdry_store *s;
	struct shared *sh;
};

static void *thread_use(void *arg)
{
	struct user *u = arg;

	claim_use(u->s, u->sh, "key");
	return NULL;
}

START_TEST(one_thread_at_a_time)
{
	struct user u = { store_make(), shared_new() };
	pthread_t threads[4];
	int i;

	for (i = 0; i < 4; i++)
		ck_assert(!pthread_create(&threads[i], NULL, thread_use, &u));
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(u.sh->claims, 4);
	ck_assert_int_eq(u.sh->most, 1);
	fdry_store_close(u.s);
}
END_TEST

START_TEST(keys_do_not_meet)
{
	struct fdry_claim *one, *two, *none;
	struct fdry_store *s = store_make();
	bool waited = true;

	ok(fdry_claim_begin(s, "one", 3, NULL, &waited, &one));
	ck_assert(!waited);
	ok(fdry_claim_begin(s, "two", 3, NULL, &waited, &two));
	fails(LOCKED, "within 0 ms", fdry_claim_begin(s, "one", 3, NULL, &waited, &none));
	fails(LOCKED, "within 50 ms", fdry_claim_begin(s, "two", 3, &SHORT, &waited, &none));
	ck_assert_int_eq(claim_files(), 2);
	fdry_claim_end(one);
	ok(fdry_claim_begin(s, "one", 3, NULL, &waited, &one));
	fdry_claim_end(one);
	fdry_claim_end(two);
	fdry_claim_end(NULL);
	fdry_store_close(s);
}
END_TEST

START_TEST(a_wait_that_the_program_ends)
{
	int naps = 0;
	const struct fdry_wait wait = { .ms = LONG.ms, .stop = test_third_nap, .arg = &naps };
	struct fdry_claim *one, *none = NULL;
	struct fdry_store *s = store_make();
	bool waited;

	ok(fdry_claim_begin(s, "key", 3, &wait, &waited, &one));
	ck_assert_int_eq(naps, 0);
	fails(CALLBACK, "has ended the wait", fdry_claim_begin(s, "key", 3, &wait, &waited, &none));
	ck_assert_int_eq(naps, 3);
	ck_assert_ptr_null(none);
	fdry_claim_end(one);
	ok(fdry_claim_begin(s, "key", 3, &wait, &waited, &one));
	ck_assert(!waited);
	fdry_claim_end(one);
	fdry_store_close(s);
}
END_TEST

START_TEST(the_dead_hold_nothing)
{
	struct shared *sh = shared_new();
	struct fdry_store *s;
	struct fdry_claim *t;
	bool waited;
	pid_t pid;

	fdry_store_close(store_make());
	pid = fork();
	if (!pid) {
		ok(fdry_claim_begin(store_make(), "key", 3, NULL, &waited, &t));
		__atomic_store_n(&sh->ready, 1, __ATOMIC_SEQ_CST);
		pause();
	}
	while (!__atomic_load_n(&sh->ready, __ATOMIC_SEQ_CST))
		nap(1);
	s = store_make();
	fails(LOCKED, "", fdry_claim_begin(s, "key", 3, NULL, &waited, &t));
	ck_assert(!kill(pid, SIGKILL));
	ok(fdry_claim_begin(s, "key", 3, &LONG, &waited, &t));
	fdry_claim_end(t);
	waitpid(pid, NULL, 0);
	ck_assert_int_eq(claim_files(), 0);
	fdry_store_close(s);
}
END_TEST

/* A worker that was forked during the claim has the file open too, and must not hold the claim. */
START_TEST(forked_workers_hold_nothing)
{
	struct fdry_store *s = store_make();
	struct fdry_claim *t;
	bool waited;
	pid_t pid;

	ok(fdry_claim_begin(s, "key", 3, NULL, &waited, &t));
	pid = fork();
	if (!pid)
		for (;;)
			pause();
	fdry_claim_end(t);
	ok(fdry_claim_begin(s, "key", 3, NULL, &waited, &t));
	fdry_claim_end(t);
	ck_assert(!kill(pid, SIGKILL));
	waitpid(pid, NULL, 0);
	fdry_store_close(s);
}
END_TEST

/* The same if the claim's holder has exited and the worker has not. */
START_TEST(workers_of_the_dead_hold_nothing)
{
	struct shared *sh = shared_new();
	struct fdry_store *s;
	struct fdry_claim *t;
	int status = -1, err;
	bool waited;
	pid_t pid;

	fdry_store_close(store_make());
	pid = fork();
	if (!pid) {
		ok(fdry_claim_begin(store_make(), "key", 3, NULL, &waited, &t));
		pid = fork();
		if (pid)
			_exit(0);
		__atomic_store_n(&sh->ready, getpid(), __ATOMIC_SEQ_CST);
		for (;;)
			pause();
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	while (!__atomic_load_n(&sh->ready, __ATOMIC_SEQ_CST))
		nap(1);
	s = store_make();
	err = fdry_claim_begin(s, "key", 3, NULL, &waited, &t);
	ck_assert(!kill(sh->ready, SIGKILL));
	ck_assert_msg(!err, "%s", fdry_last_error());
	fdry_claim_end(t);
	fdry_store_close(s);
}
END_TEST

START_TEST(a_worker_drops_nothing)
{
	struct fdry_store *s = store_make();
	struct fdry_claim *t, *none;
	int status = -1;
	bool waited;
	pid_t pid;

	ok(fdry_claim_begin(s, "key", 3, NULL, &waited, &t));
	pid = fork();
	if (!pid) {
		fdry_claim_end(t);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	fails(LOCKED, "", fdry_claim_begin(s, "key", 3, NULL, &waited, &none));
	fdry_claim_end(t);
	ck_assert_int_eq(claim_files(), 0);
	fdry_store_close(s);
}
END_TEST

START_TEST(stores_that_are_only_read)
{
	struct fdry_store *s;
	struct fdry_claim *t;
	bool waited;

	fdry_store_close(store_make());
	ok(fdry_store_open(path, FDRY_STORE_READONLY, &s));
	fails(PERM, "for reading only", fdry_claim_begin(s, "key", 3, NULL, &waited, &t));
	fdry_store_close(s);
}
END_TEST

/* A link under the claim's name is not followed. */
START_TEST(links_are_not_followed)
{
	char name[400], victim[400];
	struct fdry_oid oid = oid_of("key", 3);
	struct fdry_store *s = store_make();
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_claim *t;
	bool waited;

	snprintf(name, sizeof(name), "%s/.claim-%.16s", path, fdry_oid_hex(&oid, hex));
	snprintf(victim, sizeof(victim), "%s/victim", dir);
	ck_assert(!symlink(victim, name));
	fails(IO, "claim something", fdry_claim_begin(s, "key", 3, NULL, &waited, &t));
	ck_assert(access(victim, F_OK));
	fdry_store_close(s);
}
END_TEST

static void leave_file(const char *name)
{
	char file[400];
	FILE *f;

	snprintf(file, sizeof(file), "%s/%s", path, name);
	f = fopen(file, "w");
	ck_assert_ptr_nonnull(f);
	fclose(f);
}

static bool is_left(const char *name)
{
	char file[400];

	snprintf(file, sizeof(file), "%s/%s", path, name);
	return !access(file, F_OK);
}

/* A collection removes files that dead processes left in the directory, and no files of live
 * processes or of other programs. */
START_TEST(leftovers_are_swept)
{
	struct fdry_store *s = store_make();
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_claim *t;
	bool waited;
	char dir_left[400];

	ok(fdry_claim_begin(s, "held", 4, &LONG, &waited, &t));
	leave_file(".claim-0123456789abcdef");
	leave_file("verified.0123");
	leave_file(".others");
	snprintf(dir_left, sizeof(dir_left), "%s/.new-0123", path);
	ck_assert(!mkdir(dir_left, 0700));
	leave_file(".new-0123/data.mdb");
	ok(fdry_store_gc(s, &gc_dry_run, &r));
	ck_assert_int_eq(claim_files(), 2);
	ok(fdry_store_gc(s, NULL, &r));
	ck_assert_int_eq(claim_files(), 1);
	ck_assert(!is_left("verified.0123") && !is_left(".new-0123") && is_left(".others"));
	fdry_claim_end(t);
	ck_assert_int_eq(claim_files(), 0);
	fdry_store_close(s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_claim");
	TCase *tc = tcase_create("claim");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, one_process_at_a_time);
	tcase_add_test(tc, one_thread_at_a_time);
	tcase_add_test(tc, keys_do_not_meet);
	tcase_add_test(tc, a_wait_that_the_program_ends);
	tcase_add_test(tc, the_dead_hold_nothing);
	tcase_add_test(tc, forked_workers_hold_nothing);
	tcase_add_test(tc, workers_of_the_dead_hold_nothing);
	tcase_add_test(tc, a_worker_drops_nothing);
	tcase_add_test(tc, stores_that_are_only_read);
	tcase_add_test(tc, links_are_not_followed);
	tcase_add_test(tc, leftovers_are_swept);
	suite_add_tcase(s, tc);
	return test_main(s);
}
