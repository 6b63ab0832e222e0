// SPDX-License-Identifier: Apache-2.0
/* test.c - see test.h. */
#include "tests/lib/test.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void test_child(void (*fn)(void *arg), void *arg)
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		fn(arg);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "the child ended with %#x",
		      status);
}

static void call(void *fn)
{
	(*(void (**)(void))fn)();
}

void in_child(void (*fn)(void))
{
	test_child(call, &fn);
}

bool test_is_mapped(const void *at)
{
	unsigned char in_core;

	return !mincore((void *)((uintptr_t)at & ~(uintptr_t)4095), 1, &in_core);
}

long test_status(const char *name)
{
	char line[128];
	long value = -1;
	FILE *f = fopen("/proc/self/status", "r");

	ck_assert_ptr_nonnull(f);
	while (value < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			value = strtol(line + strlen(name) + 1, NULL, 10);
	fclose(f);
	return value;
}

int test_third_nap(void *naps)
{
	return ++*(int *)naps == 3;
}

static int run(Suite *s, enum fork_status fork_status, enum print_output output)
{
	SRunner *sr = srunner_create(s);
	int failed;

	srunner_set_fork_status(sr, fork_status);
	srunner_run_all(sr, output);
	failed = srunner_ntests_failed(sr);
	if (failed && output == CK_SILENT)
		srunner_print(sr, CK_NORMAL);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int test_main(Suite *s)
{
	return run(s, CK_FORK_GETENV, CK_ENV);
}

int test_main_nofork(Suite *s)
{
	return run(s, CK_NOFORK, CK_NORMAL);
}

int test_list(const char *name, const TTest *const *tests, size_t count)
{
	Suite *s = suite_create(name);
	TCase *tc = tcase_create(name);
	size_t i;

	for (i = 0; i < count; i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	return test_main(s);
}

static void (*body)(void *arg);
static void *body_arg;

START_TEST(run_body)
{
	body(body_arg);
}
END_TEST

bool test_checks_hold(void (*fn)(void *arg), void *arg)
{
	Suite *s = suite_create("checks");
	TCase *tc = tcase_create("checks");

	body = fn;
	body_arg = arg;
	tcase_add_test(tc, run_body);
	suite_add_tcase(s, tc);
	return run(s, CK_NOFORK, CK_SILENT) == EXIT_SUCCESS;
}
