// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of locks of open files, which children inherit. They end with the process that
 * acquired them, even if a child of fork() lives longer, or a child that was made without fork()
 * and will execute another program.
 */
#include <signal.h>

#include "store/wlock.h"
#include "store/step.h"
#include "tests/lib/store.h"

static void setup(void)
{
	dir_setup_in("/dev/shm");
}

static void teardown(void)
{
	dir_teardown();
}

/* A child closes its own copy: another copy of the library sees that the parent still has the store
 * open. */
START_TEST(a_child_unlocks_nothing)
{
	struct fdry_store *s = store_make();
	struct fdry_wlock gate;
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(fdry_wlock_open(&gate, path, false), FDRY_WLOCK_SAME_PROCESS);
	fdry_store_close(s);
	ck_assert_int_eq(fdry_wlock_open(&gate, path, false), FDRY_WLOCK_OPEN);
	fdry_wlock_close(&gate);
}
END_TEST

/* A process before exec() has all files of its parent open, and need not be made by fork(). */
START_TEST(a_store_is_opened_again_beside_a_child)
{
	struct fdry_store *s = store_make();
	pid_t pid = _Fork();
	int err;

	while (!pid)
		pause();
	fdry_store_close(s);
	err = fdry_store_open(path, 0, &s);
	kill(pid, SIGKILL);
	ck_assert_msg(!err, "%s", fdry_last_error());
	waitpid(pid, NULL, 0);
	fdry_store_close(s);
}
END_TEST

static pid_t beside;

static void fork_beside(enum fdry_step step)
{
	(void)step;
	fdry_step_hook = NULL;
	beside = _Fork();
	while (!beside)
		pause();
}

static void open_and_exit(void)
{
	struct fdry_store *s;

	_exit(fdry_store_open(path, 0, &s) != 0);
}

START_TEST(opening_ends_beside_a_child)
{
	struct fdry_store *s;
	int status = -1;
	pid_t pid;

	fdry_store_close(store_make());
	fdry_step_hook = fork_beside;
	ok(fdry_store_open(path, 0, &s));
	ck_assert_int_gt(beside, 0);
	pid = fork();
	if (!pid)
		open_and_exit();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	kill(beside, SIGKILL);
	ck_assert_int_eq(status, 0);
	waitpid(beside, NULL, 0);
	fdry_store_close(s);
}
END_TEST

static int pid_pipe[2];
static enum {
	GOES_ON,
	DIES,
	STARTS /* the child, without fork() */,
	WAYS
} way; /* the collecting process' fate */

/* In the middle of a collection, fork a child that lives on; the collecting process continues or
 * dies. */
static int fork_and_go_on(void *arg, int phase, uint64_t done, uint64_t total)
{
	bool *forked = arg;
	pid_t pid;

	(void)phase, (void)done, (void)total;
	if (*forked)
		return 0;
	*forked = true;
	pid = way == STARTS ? _Fork() : fork();
	if (!pid)
		pid = getpid();
	else if (way == DIES)
		_exit(0);
	else
		return 0;
	if (write(pid_pipe[1], &pid, sizeof(pid)) == sizeof(pid))
		pause();
	_exit(0);
}

static int collect_and_fork(void)
{
	bool forked = false;
	struct fdry_gc_opts opts = { .sz = sizeof(opts), .progress = fork_and_go_on,
				     .progress_arg = &forked };
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s;

	if (fdry_store_open(path, 0, &s) || fdry_store_gc(s, &opts, &r))
		return 1;
	if (fdry_store_gc(s, NULL, &r))
		return 2;
	fdry_store_close(s);
	return 0;
}

START_TEST(a_collection_ends_with_the_process_that_ran_it)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s;
	pid_t pid, child;
	int status, err;

	s = store_make();
	seal(s, 1, 1, 100, NULL);
	fdry_store_close(s);
	way = _i;
	ck_assert(!pipe(pid_pipe));
	pid = fork();
	if (!pid)
		_exit(collect_and_fork());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(read(pid_pipe[0], &child, sizeof(child)), sizeof(child));
	ok(fdry_store_open(path, 0, &s));
	err = fdry_store_gc(s, NULL, &r);
	kill(child, SIGKILL);
	ck_assert_msg(!err, "%s", fdry_last_error());
	ck_assert_int_eq(status, 0);
	fdry_store_close(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_lockfd");
	TCase *tc = tcase_create("held");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_child_unlocks_nothing);
	tcase_add_test(tc, a_store_is_opened_again_beside_a_child);
	tcase_add_test(tc, opening_ends_beside_a_child);
	tcase_add_loop_test(tc, a_collection_ends_with_the_process_that_ran_it, 0, WAYS);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
