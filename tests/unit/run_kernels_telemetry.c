// SPDX-License-Identifier: Apache-2.0
/*
 * Seed 003, row by row: kernels without graphs (V2 to V4, V9, V11, V13 to V17 of the table of
 * features). Other features of that seed (devices, pools, telemetry) are tested by run_*.c.
 */
#define SIM_DRIVER /* the text of the mark alone */
#include "arch/sim/kernel.h"
#undef SIM_DRIVER
#include "tests/lib/kernels.h"
#include "tests/lib/test.h"

extern char **environ;

static size_t environment_count(void)
{
	size_t n = 0;

	while (environ[n])
		n++;
	return n;
}

/* V2: the operator's settings of the driver's own cache stay, and no other is set beside them. */
START_TEST(v2_the_drivers_cache_is_the_operators)
{
	struct fdry_kernels_source s = ptx_source();
	struct fdry_kernels *k;
	CUfunction f = NULL;
	size_t before;

	ck_assert(!setenv("CUDA_CACHE_MAXSIZE", "12345", 1));
	ck_assert(!unsetenv("CUDA_CACHE_PATH"));
	before = environment_count();
	k = kernels_open(NULL);
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	ck_assert_str_eq(getenv("CUDA_CACHE_MAXSIZE"), "12345");
	ck_assert_ptr_null(getenv("CUDA_CACHE_PATH"));
	ck_assert_uint_eq(environment_count(), before);
	fdry_kernels_free(k);
}
END_TEST

/* V3: the chosen target loads on the device. One step above it does not, and the driver is not
 * called for it. */
START_TEST(v3_the_target_is_one_that_loads)
{
	struct fdry_kernels_target t = { .sz = sizeof(t) };
	struct fdry_kernels_source s;
	struct fdry_kernels *k;
	CUfunction f = NULL;
	char *text = malloc(ptx_len + 100);
	int above;

	ck_assert(!setenv("FDRY_SIM_CC", "8.6", 1));
	ck_assert(!setenv("FDRY_SIM_DRIVER_VERSION", "12040", 1));
	k = kernels_open(NULL);
	ok(fdry_kernels_target(k, &t));
	ck_assert_str_eq(t.arch, "sm_86");
	ck_assert_str_eq(t.exact, "");
	for (above = 0; above < 3; above++) {
		sprintf(text, ".version %u.%u\n.target sm_%u\n.address_size 64\n%s", t.ptx / 10,
			t.ptx % 10 + (above == 1), t.cc + (above == 2), strstr(ptx, SIM_PTX_MARK));
		s = code_of(text, strlen(text));
		if (!above)
			ok(fdry_kernels_function(k, &s, "vecadd", &f));
		else
			fails(UNABLE, above == 1 ? "8.5" : "sm_87",
			      fdry_kernels_function(k, &s, "vecadd", &f));
	}
	ck_assert_uint_eq(stats_of(k).ptx_compilations, 1);
	fdry_kernels_free(k);
	free(text);
}
END_TEST

static uint64_t compilations; /* that v4_process() must see */

static void v4_process(void)
{
	struct fdry_store *store = store_make();
	struct fdry_kernels *k = kernels_open(store);
	struct fdry_kernels_source s = ptx_source(), raw = code_of(cubin, cubin_len);
	CUfunction f = NULL;

	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	ok(fdry_kernels_function(k, &raw, "vecadd", &f));
	vecadd_check(k, f);
	ck_assert_uint_eq(stats_of(k).ptx_compilations, compilations);
	ck_assert_uint_eq(stats_of(k).hits, 1);
	ck_assert_uint_eq(stats_of(k).misses, 2);
	ck_assert_uint_eq(fdry_kernels_count(k), 2);
	fdry_kernels_free(k);
	fdry_store_close(store);
}

/* V4: by content, target and options, with counters; and PTX is compiled once for all processes. */
START_TEST(v4_compiled_once_on_the_host)
{
	compilations = 1;
	in_child(v4_process);
	compilations = 0;
	in_child(v4_process);
}
END_TEST

static uint64_t counted(const char *line)
{
	char *text = NULL, *at;
	uint64_t n;

	ok(fdry_telemetry_text(NULL, &text));
	at = strstr(text, line);
	ck_assert_msg(at != NULL, "no %s in %s", line, text);
	n = strtoull(at + strlen(line), NULL, 10);
	free(text);
	return n;
}

/* V9: scrapers get the counters of cache hits, compilations and launches. */
START_TEST(v9_caches_are_counted)
{
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o) };
	struct fdry_kernels_source s = ptx_source();
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f = NULL;
	int i;

	fdry_telemetry_reset();
	for (i = 0; i < 5; i++) {
		ok(fdry_kernels_function(k, &s, "nothing", &f));
		o.flags = i < 2 ? FDRY_KERNELS_COOPERATIVE : 0;
		ok(fdry_kernels_launch(k, f, &o, NULL, 0));
	}
	ck_assert_uint_eq(counted("foundry_kernel_asks_total{result=\"hit\"} "), 4);
	ck_assert_uint_eq(counted("foundry_kernel_asks_total{result=\"miss\"} "), 1);
	ck_assert_uint_eq(counted("foundry_compilations_total{by=\"driver\"} "), 1);
	ck_assert_uint_eq(counted("foundry_launches_total{of=\"kernel\"} "), 3);
	ck_assert_uint_eq(counted("foundry_launches_total{of=\"cooperative\"} "), 2);
	ck_assert_uint_eq(counted("\nfoundry_kernel_modules "), 1);
	fdry_telemetry_reset(); /* does not change the cache */
	ck_assert_uint_eq(fdry_kernels_count(k), 1);
	fdry_kernels_free(k);
	ck_assert_uint_eq(counted("\nfoundry_kernel_modules "), 0);
}
END_TEST

/* V11: both facts. */
START_TEST(v11_cooperative_launches_are_gated)
{
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o), .block = { 32 },
					      .flags = FDRY_KERNELS_COOPERATIVE };
	struct fdry_kernels_source s = code_of(cubin, cubin_len);
	struct fdry_kernels *k;
	CUfunction f = NULL;

	ck_assert(!setenv("FDRY_SIM_CC", "5.0", 1));
	k = kernels_open(NULL);
	ok(fdry_kernels_function(k, &s, "nothing", &f));
	fails(UNABLE, "compute capability 5.0, cooperative launch 0",
	      fdry_kernels_launch(k, f, &o, NULL, 0));
	o.flags = 0;
	ok(fdry_kernels_launch(k, f, &o, NULL, 0));
	fdry_kernels_free(k);
}
END_TEST

/* V13: the remedy follows the last semicolon of a message. */
START_TEST(v13_errors_say_what_to_do)
{
	static const char newer[] = ".version 99.0\n.target sm_90\n",
			  other[] = ".version 8.0\n.target sm_100\n";
	struct fdry_kernels_source s[] = { code_of(newer, sizeof(newer)),
					   code_of(other, sizeof(other)), cuda_source() };
	static const char *const remedy[] = { "install a newer driver",
					      "compile it for sm_90 or below",
					      "set FOUNDRY_NVRTC" };
	struct fdry_kernels *k;
	CUfunction f = NULL;
	int i;

	ck_assert(!setenv("FOUNDRY_NVRTC", "/nowhere/libnvrtc.so", 1));
	k = kernels_open(NULL);
	for (i = 0; i < 3; i++) {
		ck_assert_int_lt(fdry_kernels_function(k, &s[i], "x", &f), 0);
		ck_assert_msg(strstr(fdry_last_error(), remedy[i]), "it says: %s",
			      fdry_last_error());
	}
	fdry_kernels_free(k);
}
END_TEST

/* V14: nothing is compiled at the first dispatch. */
START_TEST(v14_compiled_before_the_first_dispatch)
{
	struct fdry_kernels_source s = ptx_source();
	struct fdry_kernels_request a = { &s, "vecadd" };
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f = NULL;

	ok(fdry_kernels_prepare(k, &a, 1, 1));
	ok(fdry_kernels_wait(k));
	test_sim_fail("cuLinkCreate_v2:1+");
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	test_sim_fail(NULL);
	vecadd_check(k, f);
	fdry_kernels_free(k);
}
END_TEST

/* V15: the same source for the same target is compiled once, for another one again. */
START_TEST(v15_source_is_compiled_once)
{
	struct fdry_kernels_source s = cuda_source();
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f = NULL;
	int i;

	for (i = 0; i < 6; i++) {
		s.target = i % 2 ? "sm_90" : "sm_90a";
		ok(fdry_kernels_function(k, &s, "vecadd", &f));
	}
	ck_assert_uint_eq(stats_of(k).source_compilations, 2);
	ck_assert_uint_eq(stats_of(k).source_misses, 2);
	ck_assert_uint_eq(stats_of(k).source_hits, 4);
	fdry_kernels_free(k);
}
END_TEST

/* V16: both numbers. */
START_TEST(v16_a_wrong_number_of_buffers)
{
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o) };
	struct fdry_kernels_source s = ptx_source();
	struct fdry_kernels *k = kernels_open(NULL);
	CUdeviceptr p = 0;
	struct fdry_kernels_arg args[] = { ARG(p), ARG(p), ARG(p) };
	CUfunction f = NULL;

	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	fails(INVAL, "takes 4 arguments and 3 were given", fdry_kernels_launch(k, f, &o, args, 3));
	fdry_kernels_free(k);
}
END_TEST

static int lines;

static void line_count(void *arg, int level, const char *text)
{
	(void)arg, (void)level;
	lines += strstr(text, " ms, ") != NULL;
}

/* V17: by a variable, with times. */
START_TEST(v17_stages_are_traced)
{
	struct fdry_kernels_source s = cuda_source();
	struct fdry_kernels *k;
	CUfunction f = NULL;
	int traced;

	fdry_log_set(line_count, NULL, FDRY_LOG_ERROR);
	for (traced = 0; traced < 2; traced++) {
		ck_assert(!setenv("FOUNDRY_TRACE", traced ? "compile" : "", 1));
		k = kernels_open(NULL);
		ok(fdry_kernels_function(k, &s, "vecadd", &f));
		fdry_kernels_free(k);
		ck_assert_int_eq(lines, traced ? 3 : 0); /* NVRTC opened, source to cubin, loaded */
	}
	fdry_log_set(NULL, NULL, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run_kernels_telemetry");
	TCase *tc = tcase_create("rows");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, kernels_setup, kernels_teardown);
	tcase_add_test(tc, v2_the_drivers_cache_is_the_operators);
	tcase_add_test(tc, v3_the_target_is_one_that_loads);
	tcase_add_test(tc, v4_compiled_once_on_the_host);
	tcase_add_test(tc, v9_caches_are_counted);
	tcase_add_test(tc, v11_cooperative_launches_are_gated);
	tcase_add_test(tc, v13_errors_say_what_to_do);
	tcase_add_test(tc, v14_compiled_before_the_first_dispatch);
	tcase_add_test(tc, v15_source_is_compiled_once);
	tcase_add_test(tc, v16_a_wrong_number_of_buffers);
	tcase_add_test(tc, v17_stages_are_traced);
	suite_add_tcase(s, tc);
	return test_main(s);
}
