// SPDX-License-Identifier: Apache-2.0
/* test.c - see test.h. */
#include "tests/lib/test.h"

#include <stdlib.h>
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

int test_main(Suite *s)
{
	SRunner *sr = srunner_create(s);
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
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
