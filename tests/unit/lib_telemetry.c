// SPDX-License-Identifier: Apache-2.0
/* Unit tests of counters: exact under threads that start and end, resets, the printed text, and the
 * cost. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "foundry.h"
#include "lib/err.h"
#include "lib/telemetry.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"

static uint64_t value(enum fdry_metric_id id)
{
	uint64_t values[FDRY_METRICS];

	fdry_telemetry_read(values);
	return values[id];
}

START_TEST(counts_and_resets)
{
	fdry_telemetry_zero();
	fdry_count(FDRY_METRIC_LOADS, 3);
	fdry_count(FDRY_METRIC_LOADS, 4);
	fdry_count_copy(FROM, 100);
	ck_assert_uint_eq(value(FDRY_METRIC_LOADS), 7);
	ck_assert_uint_eq(value(FDRY_METRIC_COPIES_FROM), 1);
	ck_assert_uint_eq(value(FDRY_METRIC_COPIED_FROM), 100);
	ck_assert_uint_eq(value(FDRY_METRIC_BUILDS), 0);
	fdry_telemetry_reset();
	ck_assert_uint_eq(value(FDRY_METRIC_LOADS), 0);
	fdry_count(FDRY_METRIC_LOADS, 1);
	ck_assert_uint_eq(value(FDRY_METRIC_LOADS), 1);
}
END_TEST

START_TEST(errors_are_counted_by_blame)
{
	fdry_telemetry_zero();
	fdry_fail(FDRY_E_INVAL, "x");
	fdry_fail(FDRY_E_STATE, "x");
	fdry_fail(FDRY_E_NODEVMEM, "x");
	fdry_fail(FDRY_E_NOMEM, "x");
	fdry_fail_at(-FDRY_E_NOMEM, "the same one, with its place");
	fdry_count_error(0);
	fdry_count_error(FDRY_E_BUG);
	ck_assert_uint_eq(value(FDRY_METRIC_ERRORS_CALLER), 2);
	ck_assert_uint_eq(value(FDRY_METRIC_ERRORS_IMAGE), 0);
	ck_assert_uint_eq(value(FDRY_METRIC_ERRORS_STORE), 0);
	ck_assert_uint_eq(value(FDRY_METRIC_ERRORS_DRIVER), 1);
	ck_assert_uint_eq(value(FDRY_METRIC_ERRORS_ENVIRONMENT), 1);
	ck_assert_uint_eq(value(FDRY_METRIC_ERRORS_BUG), 1);
	ck_assert_uint_eq(value(FDRY_METRIC_ERRORS_OTHER), 1);
}
END_TEST

/* --- threads --- */

#define THREADS 8
#define ROUNDS 20
#define COUNTS 10000

static pthread_key_t late_key;

/* This runs while the thread ends, before or after its block is freed; it still counts. */
static void late(void *arg)
{
	(void)arg;
	fdry_count(FDRY_METRIC_SEALS, 1);
}

static void *count_much(void *arg)
{
	int i;

	if (arg)
		pthread_setspecific(late_key, arg);
	for (i = 0; i < COUNTS; i++)
		fdry_count(FDRY_METRIC_LAUNCHES_IMAGE, 2);
	return NULL;
}

static void threads_run(void *(*fn)(void *), void *arg)
{
	pthread_t threads[THREADS];
	int i;

	for (i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&threads[i], NULL, fn, arg));
	for (i = 0; i < THREADS; i++)
		ck_assert(!pthread_join(threads[i], NULL));
}

START_TEST(threads_that_come_and_go)
{
	int i;

	fdry_count(FDRY_METRIC_LAUNCHES_IMAGE, 1);
	fdry_telemetry_zero();
	ck_assert(!pthread_key_create(&late_key, late));
	for (i = 0; i < ROUNDS; i++)
		threads_run(count_much, &late_key);
	ck_assert_uint_eq(value(FDRY_METRIC_LAUNCHES_IMAGE), 2ull * THREADS * ROUNDS * COUNTS);
	ck_assert_uint_eq(value(FDRY_METRIC_SEALS), THREADS * ROUNDS);
	pthread_key_delete(late_key);
}
END_TEST

static void *look(void *arg)
{
	uint64_t before = 0, now;

	while (!atomic_load((atomic_bool *)arg)) {
		now = value(FDRY_METRIC_LAUNCHES_IMAGE);
		ck_assert_msg(now >= before, "a counter decreased from %llu to %llu",
			      (unsigned long long)before, (unsigned long long)now);
		before = now;
	}
	return NULL;
}

START_TEST(a_snapshot_never_goes_back)
{
	atomic_bool done = false;
	pthread_t looker;
	int i;

	fdry_telemetry_zero();
	ck_assert(!pthread_create(&looker, NULL, look, &done));
	for (i = 0; i < 4; i++)
		threads_run(count_much, NULL);
	atomic_store(&done, true);
	ck_assert(!pthread_join(looker, NULL));
}
END_TEST

/* A snapshot during resets shows the counts since one of the resets, never a count from before
 * it. */
static void *reset_much(void *arg)
{
	while (!atomic_load((atomic_bool *)arg))
		fdry_telemetry_zero();
	return NULL;
}

START_TEST(resets_beside_counting)
{
	atomic_bool done = false;
	pthread_t resetter, counter;
	int i;

	ck_assert(!pthread_create(&resetter, NULL, reset_much, &done));
	ck_assert(!pthread_create(&counter, NULL, count_much, NULL));
	for (i = 0; i < 20000; i++)
		ck_assert_uint_le(value(FDRY_METRIC_LAUNCHES_IMAGE), 2ull * COUNTS);
	ck_assert(!pthread_join(counter, NULL));
	atomic_store(&done, true);
	ck_assert(!pthread_join(resetter, NULL));
}
END_TEST

/* --- the list and the text --- */

START_TEST(the_list_says_what_it_counts)
{
	const struct fdry_metric_info *m = &fdry_metric_infos[_i];
	size_t len = strlen(m->name);
	int i;

	ck_assert(!strncmp(m->name, "foundry_", 8) && *m->help &&
		  m->help[strlen(m->help) - 1] == '.');
	ck_assert_int_eq(m->kind == FDRY_METRIC_COUNTER,
			 len > 6 && !strcmp(m->name + len - 6, "_total"));
	ck_assert_msg(m->unit != FDRY_METRIC_BYTES || strstr(m->name, "_bytes"), "%s", m->name);
	ck_assert_int_eq(m->unit == FDRY_METRIC_NS, strstr(m->name, "_seconds") != NULL);
	for (i = 0; i < FDRY_METRICS; i++) {
		if (i == _i || strcmp(m->name, fdry_metric_infos[i].name))
			continue;
		ck_assert_msg(strcmp(m->labels, fdry_metric_infos[i].labels), "%s stands twice",
			      m->name);
		ck_assert_msg(!strcmp(m->help, fdry_metric_infos[i].help), "%s has two helps",
			      m->name);
		ck_assert_msg(!strcmp(m->name, fdry_metric_infos[i < _i ? i + 1 : i - 1].name),
			      "parts of %s are from different moments", m->name);
	}
}
END_TEST

START_TEST(printed_metrics)
{
	static const struct fdry_metric_info g = { FDRY_METRIC_GAUGE, FDRY_METRIC_ONE, "a", "",
						   "Help." };
	static const struct fdry_metric_info s = { FDRY_METRIC_COUNTER, FDRY_METRIC_NS,
						   "a_seconds_total", "k=\"v\"", "More." };
	struct fdry_buf b = { 0 };

	ck_assert_int_eq(fdry_metric_print(&b, &g, NULL, 7), 0);
	ck_assert_int_eq(fdry_metric_print(&b, &s, &g, 1500000007), 0);
	ck_assert_int_eq(fdry_metric_print(&b, &s, &s, UINT64_MAX), 0);
	ck_assert_str_eq((char *)b.data,
			 "# HELP a Help.\n# TYPE a gauge\na 7\n# HELP a_seconds_total More.\n"
			 "# TYPE a_seconds_total counter\na_seconds_total{k=\"v\"} 1.500000007\n"
			 "a_seconds_total{k=\"v\"} 18446744073.709551615\n");
	b.len = 0;
	ck_assert_int_eq(fdry_label_print(&b, "a\"b\\c\nd"), 0);
	ck_assert_uint_eq(b.len, 10);
	ck_assert_mem_eq(b.data, "a\\\"b\\\\c\\nd", 10);
	fdry_buf_release(&b);
}
END_TEST

START_TEST(the_public_snapshot)
{
	struct fdry_telemetry t[FDRY_METRICS + 1] = { { .name = "untouched" } };
	size_t n = 77;

	ck_assert_int_eq(fdry_telemetry_at(NULL, 0, NULL), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_telemetry_at(NULL, 1, &n), -FDRY_E_INVAL);
	ck_assert_uint_eq(n, 77);
	ck_assert_int_eq(fdry_telemetry_text(NULL, NULL), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_telemetry_at(t, 0, &n), 0);
	ck_assert_uint_eq(n, FDRY_METRICS);
	ck_assert_str_eq(t[0].name, "untouched");
	fdry_telemetry_zero();
	fdry_count(FDRY_METRIC_BUILDS, 5);
	ck_assert_int_eq(fdry_telemetry_at(t, FDRY_METRICS + 1, &n), 0);
	ck_assert_uint_eq(t[FDRY_METRIC_BUILDS].value, 5);
	ck_assert_uint_eq(t[FDRY_METRIC_COPIED_TO].unit, FDRY_UNIT_BYTES);
	ck_assert_uint_eq(t[FDRY_METRIC_LOAD_NS].unit, FDRY_UNIT_NS);
	ck_assert_ptr_null(t[FDRY_METRICS].name);
}
END_TEST

/* The limit is far above the cost of a count, and far below that of a contended lock: a launch is
 * 5,000 ns. */
START_TEST(cost_of_a_count)
{
	struct timespec a, b;
	double ns;
	int i, n = 1000000;

	fdry_count(FDRY_METRIC_BUILDS, 1);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
	for (i = 0; i < n; i++) {
		fdry_count(FDRY_METRIC_BUILDS, 1);
		__asm__ volatile("" ::: "memory");
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
	ns = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / n;
	printf("a count takes %.2f ns\n", ns);
	ck_assert_msg(ns < (TEST_SANITIZED ? 1000 : 50), "a count takes %.1f ns", ns);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lib_telemetry");
	TCase *tc = tcase_create("telemetry");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, counts_and_resets);
	tcase_add_test(tc, errors_are_counted_by_blame);
	tcase_add_test(tc, threads_that_come_and_go);
	tcase_add_test(tc, a_snapshot_never_goes_back);
	tcase_add_test(tc, resets_beside_counting);
	tcase_add_loop_test(tc, the_list_says_what_it_counts, 0, FDRY_METRICS);
	tcase_add_test(tc, printed_metrics);
	tcase_add_test(tc, the_public_snapshot);
	tcase_add_test(tc, cost_of_a_count);
	suite_add_tcase(s, tc);
	return test_main(s);
}
