// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the work queue: order, waiting, failures, threads that start and end. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/workqueue.h"
#include "tests/lib/test.h"

#define ITEMS 200

struct item {
	struct fdry_work work;
	struct fdry_saved_err saved_err;
	_Atomic uint32_t done;
};

/* One test's work. */
static struct {
	struct fdry_workqueue q;
	struct item *items;
	size_t fails_at;
	_Atomic useconds_t slow;
	pthread_t test;
	_Atomic size_t began, others, released;
	_Atomic uint32_t workers; /* a bit for each that worked */
	unsigned int refuses;     /* the worker that may not begin */
	size_t last;              /* number of the item that began last */
	bool disorder;
} t;

static void setup(void)
{
	memset(&t, 0, sizeof(t));
	t.items = calloc(ITEMS, sizeof(*t.items));
	ck_assert_ptr_nonnull(t.items);
	t.fails_at = ITEMS;
	t.test = pthread_self();
}

static void teardown(void)
{
	free(t.items);
}

static int item_fn(struct fdry_work *work, unsigned int worker)
{
	struct item *it = (struct item *)work;
	size_t i = (size_t)(it - t.items);

	atomic_fetch_add(&t.began, 1);
	atomic_fetch_or(&t.workers, 1u << worker);
	ck_assert(!worker == !!pthread_equal(pthread_self(), t.test));
	if (t.slow)
		usleep(t.slow);
	if (worker)
		atomic_fetch_add(&t.others, 1);
	if (i >= t.fails_at)
		return fdry_fail(FDRY_E_CORRUPT, "item %zu is damaged", i);
	atomic_fetch_add(&it->done, 1);
	return 0;
}

static void add(size_t first, size_t end)
{
	for (; first < end; first++) {
		if (!t.items[first].work.fn)
			t.items[first].work.fn = item_fn;
		fdry_workqueue_add(&t.q, &t.items[first].work);
	}
}

static void begin(struct fdry_workqueue_opts opts, unsigned int threads, size_t count)
{
	opts.name = "fdry-test";
	fdry_workqueue_init(&t.q, &opts);
	add(0, count);
	ck_assert_uint_eq(fdry_workqueue_start(&t.q, threads), threads);
}

static void all_done_once(void)
{
	size_t i;

	for (i = 0; i < ITEMS; i++)
		ck_assert_uint_eq(t.items[i].done, 1);
}

static const struct fdry_workqueue_opts kinds[] = { { .stop_at_error = true, .end_idle = true },
						    { .help_all = true },
						    { .end_idle = true, .help_all = true } };

START_TEST(every_item_once)
{
	begin(kinds[_i % 3], (unsigned int)_i / 3, ITEMS);
	ok(fdry_workqueue_drain(&t.q));
	all_done_once();
	fdry_workqueue_release(&t.q);
}
END_TEST

START_TEST(waited_for_one_by_one)
{
	size_t i;

	begin(kinds[_i % 3], (unsigned int)_i / 3, 0);
	for (i = 0; i < ITEMS; i++) {
		add(i, i + 1);
		if (i >= 8)
			ok(fdry_workqueue_wait(&t.q, &t.items[i - 8].work));
	}
	for (i = ITEMS - 8; i < ITEMS; i++)
		ok(fdry_workqueue_wait(&t.q, &t.items[i].work));
	all_done_once();
	fdry_workqueue_release(&t.q);
}
END_TEST

START_TEST(threads_share_the_work)
{
	t.slow = 200;
	begin(kinds[_i], 3, ITEMS);
	ok(fdry_workqueue_wait(&t.q, &t.items[ITEMS - 1].work));
	ck_assert_uint_gt(t.others, 0);
	ck_assert_uint_le(t.workers, 0xf);
	fdry_workqueue_release(&t.q);
}
END_TEST

static int in_order(struct fdry_work *work, unsigned int worker)
{
	size_t i = (size_t)((struct item *)work - t.items);

	(void)worker;
	t.disorder |= i != t.last;
	t.last = i + 1;
	return 0;
}

/* One worker at a time shows the order. */
START_TEST(work_begins_in_order)
{
	size_t i;

	fdry_workqueue_init(&t.q, &kinds[1]);
	for (i = 0; i < ITEMS; i++) {
		t.items[i].work.fn = in_order;
		fdry_workqueue_add(&t.q, &t.items[i].work);
	}
	ok(fdry_workqueue_drain(&t.q));
	ck_assert(!t.disorder);
	ck_assert_uint_eq(t.last, ITEMS);
	fdry_workqueue_release(&t.q);
}
END_TEST

START_TEST(a_waiter_works_up_to_its_item)
{
	begin(kinds[0], 0, ITEMS);
	ok(fdry_workqueue_wait(&t.q, &t.items[9].work));
	ck_assert_uint_eq(t.began, 10);
	ok(fdry_workqueue_wait(&t.q, &t.items[3].work));
	ck_assert_uint_eq(t.began, 10);
	fdry_workqueue_release(&t.q);
	ck_assert_uint_eq(t.began, 10);
	ck_assert_uint_eq(t.others, 0);
}
END_TEST

/* While a thread does the first item, only a queue with help_all lets the waiter begin later
 * ones. */
START_TEST(a_waiter_helps_with_later_items)
{
	bool help_all = _i;

	t.slow = 100000;
	begin(kinds[help_all], 0, 1);
	ck_assert_uint_eq(fdry_workqueue_start(&t.q, 1), 1);
	while (!atomic_load(&t.began))
		usleep(10);
	usleep(1000); /* the item has read its pause */
	t.slow = 0;
	add(1, ITEMS);
	ok(fdry_workqueue_wait(&t.q, &t.items[0].work));
	ck_assert_uint_eq(t.workers & 1, help_all);
	fdry_workqueue_release(&t.q);
}
END_TEST

START_TEST(a_failure_stops_the_queue)
{
	t.fails_at = 20;
	t.slow = 100;
	begin(kinds[0], (unsigned int)_i, ITEMS);
	fails(CORRUPT, "is damaged", fdry_workqueue_wait(&t.q, &t.items[ITEMS - 1].work));
	fails(CORRUPT, "is damaged", fdry_workqueue_drain(&t.q));
	fails(CORRUPT, "is damaged", fdry_workqueue_wait(&t.q, &t.items[20].work));
	ok(fdry_workqueue_wait(&t.q, &t.items[2].work));
	fdry_workqueue_release(&t.q);
	ck_assert_uint_lt(t.began, ITEMS);
}
END_TEST

START_TEST(each_keeps_its_own_failure)
{
	char text[40];
	size_t i;

	t.fails_at = ITEMS / 2;
	for (i = 0; i < ITEMS; i++)
		t.items[i].work.saved_err = &t.items[i].saved_err;
	begin(kinds[1], (unsigned int)_i, ITEMS);
	for (i = 0; i < ITEMS / 2; i++)
		ok(fdry_workqueue_wait(&t.q, &t.items[i].work));
	for (; i < ITEMS; i++) {
		snprintf(text, sizeof(text), "item %zu is damaged", i);
		fails(CORRUPT, text, fdry_workqueue_wait(&t.q, &t.items[i].work));
	}
	fdry_workqueue_release(&t.q);
}
END_TEST

START_TEST(a_drained_queue_begins_anew)
{
	int round;

	begin(kinds[2], 0, 0);
	t.fails_at = 20;
	for (round = 0; round < 20; round++) {
		add(0, 20 + (size_t)(round & 1));
		ck_assert_uint_ge(fdry_workqueue_start(&t.q, 4), 4);
		if (round & 1)
			fails(CORRUPT, "item 20 is damaged", fdry_workqueue_drain(&t.q));
		else
			ok(fdry_workqueue_drain(&t.q));
	}
	ok(fdry_workqueue_drain(&t.q));
	fdry_workqueue_release(&t.q);
}
END_TEST

static int begin_fn(void *arg, unsigned int worker)
{
	ck_assert_ptr_eq(arg, &t);
	return worker == t.refuses ? fdry_fail(FDRY_E_IO, "worker %u has no session", worker) : 0;
}

START_TEST(a_worker_that_cannot_begin_does_nothing)
{
	struct fdry_workqueue_opts opts = { .begin = begin_fn, .arg = &t, .end_idle = true };

	t.refuses = 2;
	t.slow = 200;
	begin(opts, 3, ITEMS);
	ok(fdry_workqueue_drain(&t.q));
	all_done_once();
	ck_assert(!(t.workers & 1u << 2));
	fdry_workqueue_release(&t.q);
}
END_TEST

static void release_fn(struct fdry_work *work)
{
	(void)work;
	atomic_fetch_add(&t.released, 1);
}

START_TEST(dropped_work_is_released_once)
{
	struct fdry_workqueue_opts opts = { .release = release_fn, .end_idle = true };

	t.slow = 1000;
	begin(opts, (unsigned int)_i, ITEMS);
	fdry_workqueue_release(&t.q);
	ck_assert_uint_lt(t.began, ITEMS);
	ck_assert_uint_eq(t.released, ITEMS);
}
END_TEST

/* Threads that would end without work wait for it if more is to come, do all of it, then end. */
START_TEST(threads_wait_for_expected_work)
{
	struct fdry_workqueue_opts opts = { .name = "fdry-test", .end_idle = true };
	size_t i;

	for (i = 0; i < ITEMS; i++)
		t.items[i].work.fn = item_fn;
	fdry_workqueue_init(&t.q, &opts);
	fdry_workqueue_expect(&t.q, true);
	ck_assert_uint_eq(fdry_workqueue_start(&t.q, 3), 3);
	usleep(20000);
	t.slow = 200;
	fdry_workqueue_add_array(&t.q, t.items, ITEMS, sizeof(t.items[0]));
	for (i = 0; i < 10000 && t.others < ITEMS; i++)
		usleep(1000);
	ck_assert_uint_eq(t.others, ITEMS); /* nobody else worked */
	ck_assert_uint_eq(t.workers, 0xe);  /* none of them had ended */
	fdry_workqueue_expect(&t.q, false);
	ok(fdry_workqueue_drain(&t.q));
	all_done_once();
	fdry_workqueue_release(&t.q);
}
END_TEST

static int adds_another(struct fdry_work *work, unsigned int worker)
{
	struct item *next = (struct item *)work + 1;

	(void)worker;
	atomic_fetch_add(&t.began, 1);
	if (next < t.items + ITEMS) {
		next->work.fn = adds_another;
		fdry_workqueue_add(&t.q, &next->work);
	}
	return 0;
}

START_TEST(work_may_add_work)
{
	begin(kinds[1], (unsigned int)_i, 0);
	t.items[0].work.fn = adds_another;
	fdry_workqueue_add(&t.q, &t.items[0].work);
	ok(fdry_workqueue_drain(&t.q));
	ck_assert_uint_eq(t.began, ITEMS);
	fdry_workqueue_release(&t.q);
}
END_TEST

static void *adder(void *arg)
{
	size_t first = (size_t)(uintptr_t)arg;

	add(first, first + ITEMS / 4);
	fdry_workqueue_start(&t.q, 2);
	ok(fdry_workqueue_drain(&t.q));
	return NULL;
}

static int counted(struct fdry_work *work, unsigned int worker)
{
	(void)worker;
	atomic_fetch_add(&((struct item *)work)->done, 1);
	return 0;
}

START_TEST(many_threads_add_start_and_drain)
{
	pthread_t threads[3];
	size_t i;

	begin(kinds[2], 0, 0);
	for (i = 0; i < ITEMS; i++)
		t.items[i].work.fn = counted;
	for (i = 0; i < 3; i++)
		ck_assert(!pthread_create(&threads[i], NULL, adder,
					  (void *)(uintptr_t)(i * ITEMS / 4)));
	adder((void *)(uintptr_t)(3 * ITEMS / 4));
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	all_done_once();
	fdry_workqueue_release(&t.q);
}
END_TEST

static int begin_counted(void *arg, unsigned int worker)
{
	(void)arg, (void)worker;
	atomic_fetch_add(&t.others, 1);
	return 0;
}

static int starts_others(struct fdry_work *work, unsigned int worker)
{
	(void)work, (void)worker;
	atomic_fetch_add(&t.began, 1);
	usleep(20000);
	fdry_workqueue_start(&t.q, 8);
	return 0;
}

/* The queue is released meanwhile: nothing would join the threads. */
START_TEST(a_released_queue_starts_no_threads)
{
	struct fdry_workqueue_opts opts = { .begin = begin_counted };

	begin(opts, 1, 0);
	t.items[0].work.fn = starts_others;
	fdry_workqueue_add(&t.q, &t.items[0].work);
	while (!t.began)
		usleep(100);
	fdry_workqueue_release(&t.q);
	usleep(20000);
	ck_assert_uint_eq(t.others, 1);
}
END_TEST

START_TEST(workers_are_counted_with_their_owner)
{
	unsigned int cores = fdry_cores();

	ck_assert_uint_eq(fdry_worker_threads(1), 0);
	ck_assert_uint_eq(fdry_worker_threads(5), 4);
	ck_assert_uint_eq(fdry_worker_threads(1000), FDRY_WORKERS_MAX - 1);
	ck_assert_uint_eq(fdry_worker_threads(0),
			  (cores < FDRY_WORKERS_MAX ? cores : FDRY_WORKERS_MAX) - 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lib_workqueue");
	TCase *tc = tcase_create("workqueue");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, every_item_once, 0, 3 * 6);
	tcase_add_loop_test(tc, waited_for_one_by_one, 0, 3 * 4);
	tcase_add_loop_test(tc, threads_share_the_work, 0, 3);
	tcase_add_test(tc, work_begins_in_order);
	tcase_add_test(tc, a_waiter_works_up_to_its_item);
	tcase_add_loop_test(tc, a_waiter_helps_with_later_items, 0, 2);
	tcase_add_loop_test(tc, a_failure_stops_the_queue, 0, 4);
	tcase_add_loop_test(tc, each_keeps_its_own_failure, 0, 4);
	tcase_add_test(tc, a_drained_queue_begins_anew);
	tcase_add_test(tc, a_worker_that_cannot_begin_does_nothing);
	tcase_add_loop_test(tc, dropped_work_is_released_once, 0, 3);
	tcase_add_test(tc, threads_wait_for_expected_work);
	tcase_add_loop_test(tc, work_may_add_work, 0, 3);
	tcase_add_test(tc, many_threads_add_start_and_drain);
	tcase_add_test(tc, a_released_queue_starts_no_threads);
	tcase_add_test(tc, workers_are_counted_with_their_owner);
	suite_add_tcase(s, tc);
	return test_main(s);
}
