// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the library's threads. */
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include "lib/threads.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"

static int task_fine(void *arg)
{
	*(pthread_t *)arg = pthread_self();
	return 0;
}

static int task_fails(void *arg)
{
	return fdry_fail(FDRY_E_LIMIT, "the %s is too long", (const char *)arg);
}

START_TEST(a_task_has_a_thread)
{
	struct fdry_task t;
	pthread_t by;

	fdry_task_start(&t, "fdry-test", task_fine, &by);
	ok(fdry_task_finish(&t));
	ck_assert(!pthread_equal(by, pthread_self()));
}
END_TEST

START_TEST(a_failure_keeps_its_sentence)
{
	struct fdry_task t;

	fdry_task_start(&t, "fdry-test", task_fails, "string");
	(void)fdry_fail(FDRY_E_BUG, "something else meanwhile");
	fails(LIMIT, "the string is too long", fdry_task_finish(&t));
}
END_TEST

/* Make starting threads fail: no memory is left for a stack. */
static void no_threads(void)
{
	struct rlimit none = { 0, RLIM_INFINITY };

	ok(getrlimit(RLIMIT_AS, &none));
	none.rlim_cur = 1;
	ok(setrlimit(RLIMIT_AS, &none));
}

static void threads_again(void)
{
	struct rlimit all;

	ok(getrlimit(RLIMIT_AS, &all));
	all.rlim_cur = all.rlim_max;
	ok(setrlimit(RLIMIT_AS, &all));
}

START_TEST(without_threads_the_caller_works)
{
	struct fdry_task t;
	pthread_t by = 0;

	no_threads();
	fdry_task_start(&t, "fdry-test", task_fine, &by);
	threads_again();
	ck_assert(!t.started);
	ok(fdry_task_finish(&t));
	ck_assert(pthread_equal(by, pthread_self()));
}
END_TEST

static int mask_look(void *arg)
{
	(void)pthread_sigmask(SIG_SETMASK, NULL, arg);
	return 0;
}

START_TEST(signals_are_for_the_program)
{
	struct fdry_task t;
	sigset_t mask, own;

	sigemptyset(&mask);
	fdry_task_start(&t, "fdry-test", mask_look, &mask);
	ok(fdry_task_finish(&t));
	ck_assert(sigismember(&mask, SIGTERM));
	ck_assert(sigismember(&mask, SIGUSR1));
	ok(pthread_sigmask(SIG_SETMASK, NULL, &own));
	ck_assert(!sigismember(&own, SIGTERM));
}
END_TEST

START_TEST(cores_as_the_process_may_use_them)
{
	cpu_set_t set, one;
	int i;

	ok(sched_getaffinity(0, sizeof(set), &set));
	ck_assert_uint_eq(fdry_cores(), (unsigned int)CPU_COUNT(&set));
	for (i = 0; !CPU_ISSET(i, &set); i++)
		;
	CPU_ZERO(&one);
	CPU_SET(i, &one);
	ok(sched_setaffinity(0, sizeof(one), &one));
	ck_assert_uint_eq(fdry_cores(), 1);
	ok(sched_setaffinity(0, sizeof(set), &set));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lib_threads");
	TCase *tc = tcase_create("threads");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_task_has_a_thread);
	tcase_add_test(tc, a_failure_keeps_its_sentence);
	if (!TEST_SANITIZED)
		tcase_add_test(tc, without_threads_the_caller_works);
	tcase_add_test(tc, signals_are_for_the_program);
	tcase_add_test(tc, cores_as_the_process_may_use_them);
	suite_add_tcase(s, tc);
	return test_main(s);
}
