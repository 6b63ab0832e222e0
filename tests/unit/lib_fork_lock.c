// SPDX-License-Identifier: Apache-2.0
/* Unit tests of locks that a child of fork() finds free. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fork_lock.h"
#include "tests/lib/test.h"

#define THREADS 4
#define FORKS 100

static atomic_bool ended;
static unsigned long held[FDRY_LOCK_COUNT]; /* by the locks */

/* Holds one lock after another, for long enough that a fork meets it. */
static void *holder(void *arg)
{
	unsigned int i = (unsigned int)(uintptr_t)arg;

	for (; !atomic_load(&ended); i = (i + 1) % FDRY_LOCK_COUNT) {
		fdry_fork_lock(i);
		held[i]++;
		usleep(20);
		held[i]++;
		fdry_fork_unlock(i);
	}
	return NULL;
}

/* Check forks for each test. */
static unsigned int count_now(void)
{
	unsigned int count;

	fdry_fork_lock(FDRY_LOCK_PINNED);
	count = fdry_fork_count();
	fdry_fork_unlock(FDRY_LOCK_PINNED);
	return count;
}

/* In a child: every lock is free, and no thread of the parent is in the middle of its work. */
static void child_check(unsigned int forks)
{
	unsigned int i;

	alarm(20);
	for (i = 0; i < FDRY_LOCK_COUNT; i++) {
		fdry_fork_lock(i);
		if (held[i] % 2 || fdry_fork_count() != forks)
			_exit(1);
		fdry_fork_unlock(i);
	}
}

START_TEST(a_child_finds_them_free)
{
	pthread_t thread[THREADS];
	unsigned int i, count = count_now();
	int status;
	pid_t pid;

	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, holder, (void *)(uintptr_t)i), 0);
	for (i = 0; i < FORKS; i++) {
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (!pid) {
			child_check(count + 1);
			_exit(0);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
	atomic_store(&ended, true);
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (i = 0; i < FDRY_LOCK_COUNT; i++)
		ck_assert_uint_gt(held[i], 0);
	ck_assert_uint_eq(count_now(), count);
}
END_TEST

/* A child of a child is another process than both. */
START_TEST(each_generation_has_its_number)
{
	unsigned int count = count_now();
	int status;
	pid_t pid = fork();

	if (!pid) {
		child_check(count + 1);
		pid = fork();
		if (!pid) {
			child_check(count + 2);
			_exit(0);
		}
		_exit(waitpid(pid, &status, 0) != pid || status);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lib_fork_lock");
	TCase *tc = tcase_create("locks");

	tcase_add_test(tc, a_child_finds_them_free);
	tcase_add_test(tc, each_generation_has_its_number);
	suite_add_tcase(s, tc);
	return test_main(s);
}
