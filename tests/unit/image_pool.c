// SPDX-License-Identifier: Apache-2.0
/* Unit tests of threads of our own, and of many items read by several of them. */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "image/pool.h"
#include "lib/threads.h"
#include "tests/lib/sim.h"
#include "tests/lib/store.h"

#define ITEMS 200

/* --- tasks --- */

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

/* No thread is to be had where no more memory is for its stack. */
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

/* --- pools --- */

struct items {
	struct fdry_store *store;
	struct fdry_reader *reader;
	_Atomic uint32_t done[ITEMS];
	_Atomic uint32_t others; /* done by other threads than the test's */
	_Atomic size_t began;
	pthread_t test;
	size_t fails_at;
	useconds_t slow;
};

static int item(void *arg, struct fdry_reader *reader, size_t i)
{
	struct items *it = arg;

	ck_assert_ptr_nonnull(reader);
	atomic_fetch_add(&it->began, 1);
	if (it->slow)
		usleep(it->slow);
	if (i == it->fails_at)
		return fdry_fail(FDRY_E_CORRUPT, "item %zu is damaged", i);
	if (!pthread_equal(pthread_self(), it->test))
		atomic_fetch_add(&it->others, 1);
	atomic_fetch_add(&it->done[i], 1);
	return 0;
}

static struct fdry_pool *pool(struct items *it, size_t count, unsigned int threads)
{
	struct fdry_pool_opts opts = { .fn = item, .arg = it, .count = count, .threads = threads, .name = "fdry-test" };
	struct fdry_pool *p;

	it->test = pthread_self();
	ok(fdry_store_open(path, FDRY_STORE_CREATE, &it->store));
	ok(fdry_reader_begin(it->store, &it->reader));
	opts.store = it->store;
	opts.reader = it->reader;
	ok(fdry_pool_start(&opts, &p));
	return p;
}

static void items_end(struct items *it, struct fdry_pool *p)
{
	fdry_pool_free(p);
	fdry_reader_end(it->reader);
	fdry_store_close(it->store);
}

START_TEST(every_item_once)
{
	struct items it = { .fails_at = ITEMS };
	struct fdry_pool *p = pool(&it, ITEMS, (unsigned int)_i);
	struct fdry_pool_stats stats;
	int i;

	ok(fdry_pool_wait_all(p));
	for (i = 0; i < ITEMS; i++)
		ck_assert_uint_eq(it.done[i], 1);
	fdry_pool_stats(p, &stats);
	ck_assert_uint_eq(stats.threads, (unsigned int)_i < FDRY_POOL_THREADS_MAX ? (unsigned int)_i : FDRY_POOL_THREADS_MAX);
	ck_assert(stats.done_ms > 0);
	items_end(&it, p);
}
END_TEST

START_TEST(threads_share_the_work)
{
	struct items it = { .fails_at = ITEMS, .slow = 200 };
	struct fdry_pool *p = pool(&it, ITEMS, 3);

	ok(fdry_pool_wait_all(p));
	ck_assert_uint_gt(it.others, 0);
	items_end(&it, p);
}
END_TEST

/* Who waits works, up to what it waits for and no further. */
START_TEST(no_further_than_waited_for)
{
	struct items it = { .fails_at = ITEMS };
	struct fdry_pool *p = pool(&it, ITEMS, 0);

	ok(fdry_pool_wait(p, 9));
	ck_assert_uint_eq(it.began, 10);
	ok(fdry_pool_wait(p, 3));
	ck_assert_uint_eq(it.began, 10);
	items_end(&it, p);
	ck_assert_uint_eq(it.began, 10);
	ck_assert_uint_eq(it.others, 0);
}
END_TEST

START_TEST(a_failure_ends_it)
{
	struct items it = { .fails_at = 20, .slow = 100 };
	struct fdry_pool *p = pool(&it, ITEMS, (unsigned int)_i);

	fails(CORRUPT, "item 20 is damaged", fdry_pool_wait_all(p));
	fails(CORRUPT, "item 20 is damaged", fdry_pool_wait(p, ITEMS - 1));
	ok(fdry_pool_wait(p, 2));
	items_end(&it, p);
	ck_assert_uint_lt(it.began, ITEMS);
}
END_TEST

START_TEST(freed_before_it_is_done)
{
	struct items it = { .fails_at = ITEMS, .slow = 1000 };
	struct fdry_pool *p = pool(&it, ITEMS, 2);

	items_end(&it, p);
	ck_assert_uint_lt(it.began, ITEMS);
}
END_TEST

START_TEST(nothing_to_do)
{
	struct items it = { .fails_at = ITEMS };
	struct fdry_pool *p = pool(&it, 0, 4);
	struct fdry_pool_stats stats;

	ok(fdry_pool_wait_all(p));
	fdry_pool_stats(p, &stats);
	ck_assert_uint_eq(stats.threads, 0);
	items_end(&it, p);
	fdry_pool_free(NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_pool");
	TCase *tc = tcase_create("pool");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_task_has_a_thread);
	tcase_add_test(tc, a_failure_keeps_its_sentence);
	if (!TEST_SANITIZED)
		tcase_add_test(tc, without_threads_the_caller_works);
	tcase_add_test(tc, signals_are_for_the_program);
	tcase_add_test(tc, cores_as_the_process_may_use_them);
	tcase_add_loop_test(tc, every_item_once, 0, FDRY_POOL_THREADS_MAX + 2);
	tcase_add_test(tc, threads_share_the_work);
	tcase_add_test(tc, no_further_than_waited_for);
	tcase_add_loop_test(tc, a_failure_ends_it, 0, 4);
	tcase_add_test(tc, freed_before_it_is_done);
	tcase_add_test(tc, nothing_to_do);
	suite_add_tcase(s, tc);
	return test_main(s);
}
