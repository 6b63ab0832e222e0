// SPDX-License-Identifier: Apache-2.0
/* Unit tests of kernels that many threads request, and that are prepared in the background. */
#include <sched.h>
#include <stdatomic.h>

#include "run/kernel_cache.h"
#include "tests/lib/kernels.h"
#include "tests/lib/test.h"

/* --- threads --- */

#define THREADS 8

static struct fdry_kernels *shared;
static pthread_barrier_t barrier;

static void *ask(void *arg)
{
	static const char *const entries[] = { "vecadd", "scale", "nothing", "count" };
	struct fdry_kernels_source p = ptx_source(), s = cuda_source();
	CUfunction *f = arg;
	int i;

	pthread_barrier_wait(&barrier);
	ok(fdry_kernels_function(shared, &p, "vecadd", f));
	for (i = 0; i < 40; i++)
		ok(fdry_kernels_function(shared, i % 2 ? &p : &s, entries[i % 4], &f[1]));
	return NULL;
}

START_TEST(threads_at_once_compile_once)
{
	struct fdry_store *store = store_make();
	CUfunction f[THREADS][2];
	pthread_t t[THREADS];
	int i;

	shared = kernels_open(store);
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&t[i], NULL, ask, f[i]));
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (i = 1; i < THREADS; i++)
		ck_assert_ptr_eq(f[i][0], f[0][0]);
	ck_assert_uint_eq(stats_of(shared).ptx_compilations, 1);
	ck_assert_uint_eq(stats_of(shared).source_compilations, 1);
	ck_assert_uint_eq(stats_of(shared).misses, 2);
	ck_assert_uint_eq(stats_of(shared).hits, THREADS * 41 - 2);
	vecadd_check(shared, f[0][0]);
	fdry_kernels_free(shared);
	fdry_store_close(store);
}
END_TEST

static void *ask_bad(void *arg)
{
	static const char bad[] = ".version 8.0\n.target sm_90\nnonsense\n";
	struct fdry_kernels_source s = code_of(bad, sizeof(bad));
	CUfunction f;
	int i;

	(void)arg;
	pthread_barrier_wait(&barrier);
	for (i = 0; i < 20; i++)
		fails(COMPILE, "refuses", fdry_kernels_function(shared, &s, "x", &f));
	return NULL;
}

static void *clear_often(void *arg)
{
	int i;

	(void)arg;
	pthread_barrier_wait(&barrier);
	for (i = 0; i < 20; i++) {
		ok(fdry_kernels_clear(shared));
		(void)stats_of(shared);
	}
	return NULL;
}

START_TEST(failures_and_clearing_beside_asks)
{
	CUfunction f[3][2];
	pthread_t t[6];
	int i;

	shared = kernels_open(NULL);
	pthread_barrier_init(&barrier, NULL, 6);
	for (i = 0; i < 6; i++)
		ck_assert(!pthread_create(&t[i], NULL,
					  i == 0  ? clear_often
					  : i < 3 ? ask_bad
						  : ask,
					  i < 3 ? NULL : f[i - 3]));
	for (i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(stats_of(shared).failures, 40);
	ok(fdry_kernels_clear(shared));
	ck_assert_int_eq(test_sim_live("module"), 0);
	fdry_kernels_free(shared);
	ck_assert_int_eq(test_sim_live(NULL), 0);
}
END_TEST

/* --- unloading waits --- */

static atomic_bool cleared;

static bool clearing(struct fdry_kernels *k)
{
	bool is;

	pthread_mutex_lock(&k->lock);
	is = k->clearing;
	pthread_mutex_unlock(&k->lock);
	return is;
}

/* Hold the load in its middle until another thread waits for it, or has returned without a wait. */
static void hear_loaded(void *arg, int level, const char *text)
{
	(void)arg;
	(void)level;
	if (!strstr(text, ": loaded, "))
		return;
	pthread_barrier_wait(&barrier);
	while (!clearing(shared) && !atomic_load(&cleared))
		sched_yield();
	ck_assert_msg(!atomic_load(&cleared), "modules were unloaded while a call was loading one");
}

static void *clear_beside(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&barrier);
	ok(fdry_kernels_clear(shared));
	atomic_store(&cleared, true);
	return NULL;
}

START_TEST(clearing_waits_for_what_is_being_loaded)
{
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o) };
	struct fdry_kernels_source s = ptx_source();
	CUfunction f = NULL;
	pthread_t t;

	ck_assert(!setenv("FOUNDRY_TRACE", "compile", 1));
	shared = kernels_open(NULL);
	pthread_barrier_init(&barrier, NULL, 2);
	fdry_log_set(hear_loaded, NULL, FDRY_LOG_ERROR);
	ck_assert(!pthread_create(&t, NULL, clear_beside, NULL));
	ok(fdry_kernels_function(shared, &s, "nothing", &f));
	pthread_join(t, NULL);
	fdry_log_set(NULL, NULL, 0);
	ck_assert(atomic_load(&cleared));
	ck_assert_uint_eq(fdry_kernels_count(shared), 0);
	ck_assert_int_eq(test_sim_live("module"), 0);
	fails(NOKEY, "cleared since", fdry_kernels_launch(shared, f, &o, NULL, 0));
	fdry_kernels_free(shared);
}
END_TEST

/* --- ahead --- */

START_TEST(prepared_ahead_is_there)
{
	static const char bad[] = ".version 8.0\n.target sm_90\nnonsense\n";
	static const char *const options[] = { "-DX=1", "--use_fast_math" };
	char *text = strdup(cuda_text);
	struct fdry_kernels_source s[4] = { ptx_source(), cuda_source(),
					    code_of(text, strlen(text)),
					    code_of(bad, sizeof(bad)) };
	struct fdry_kernels_request asks[] = { { &s[0], "vecadd" },
					       { &s[1], NULL },
					       { &s[2], "scale" },
					       { &s[3], NULL },
					       { &s[0], "scale" } };
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f = NULL;

	s[2].form = FDRY_KERNELS_SOURCE;
	s[2].options = options;
	s[2].noptions = 2;
	s[3].name = "bad.ptx";
	ok(fdry_kernels_wait(k)); /* for nothing */
	ok(fdry_kernels_prepare(k, asks, 5, 0));
	memset(text, 0, strlen(cuda_text)); /* it was copied */
	fails(COMPILE, "'bad.ptx'", fdry_kernels_wait(k));
	ok(fdry_kernels_wait(k)); /* reported once */
	ck_assert_uint_eq(fdry_kernels_count(k), 3);
	ck_assert_uint_eq(stats_of(k).misses, 4);
	ok(fdry_kernels_stats_reset(k));
	ok(fdry_kernels_function(k, &s[0], "vecadd", &f));
	vecadd_check(k, f);
	ck_assert_uint_eq(stats_of(k).misses, 0);
	memcpy(text, cuda_text, strlen(cuda_text));
	ok(fdry_kernels_prepare(k, asks, 3, 2));
	ok(fdry_kernels_prepare(k, asks, 2, 200));
	fails(INVAL, "no asks", fdry_kernels_prepare(k, NULL, 2, 0));
	asks[1].source = NULL;
	fails(INVAL, "source", fdry_kernels_prepare(k, asks, 2, 0));
	fdry_kernels_free(k); /* while work is running */
	free(text);
	ck_assert_int_eq(test_sim_live(NULL), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run_kernel_threads");
	TCase *tc = tcase_create("kernels");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, kernels_setup, kernels_teardown);
	tcase_add_test(tc, threads_at_once_compile_once);
	tcase_add_test(tc, failures_and_clearing_beside_asks);
	tcase_add_test(tc, clearing_waits_for_what_is_being_loaded);
	tcase_add_test(tc, prepared_ahead_is_there);
	suite_add_tcase(s, tc);
	return test_main(s);
}
