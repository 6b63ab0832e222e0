/* SPDX-License-Identifier: Apache-2.0 */
/* test.h - helpers of every test program: calls that must succeed or fail, child processes,
 * main(). */
#ifndef FDRY_TESTS_LIB_TEST_H
#define FDRY_TESTS_LIB_TEST_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "lib/err.h"
#include "tests/lib/sanitizers.h"

/* Check that a call of the library or the driver succeeds; on failure, the test ends with the
 * error's message.
 */
#define ok(call) do { \
	int ret_ = (int)(call); \
	ck_assert_msg(!ret_, "%s returned %d: %s: %s", #call, ret_, fdry_error_name(ret_), \
		      fdry_last_error()); \
} while (0)

/* Check that the call of the driver returns this error. */
#define is(error, call) do { \
	int ret_ = (int)(call); \
	ck_assert_msg(ret_ == (int)(error), "%s returned %d, not " #error, #call, ret_); \
} while (0)

/* Check that the call fails with this code and a message that contains @text. */
#define fails(code, text, call) do { \
	int ret_ = (call); \
	ck_assert_msg(ret_ == -FDRY_E_##code, "%s returned %s: %s", #call, fdry_error_name(ret_), \
		      fdry_last_error()); \
	ck_assert_msg(strstr(fdry_last_error(), text) != NULL, "%s says: %s", #call, \
		      fdry_last_error()); \
} while (0)

/* Run @fn in a child process. A check that fails in the child fails the test. */
void test_child(void (*fn)(void *arg), void *arg);
void in_child(void (*fn)(void));

/* Does this process have memory at @at? */
bool test_is_mapped(const void *at);

/* A number of /proc/self/status: "Threads", or "VmRSS" in kB. A joined thread may be counted for a
 * moment. */
long test_status(const char *name);

/* Ends a wait at the third call. @naps: int, the number of calls. */
int test_third_nap(void *naps);

/* Run all tests of @s, which is freed; the result is main()'s. Check's environment variables apply.
 */
int test_main(Suite *s);

/* The same in this process: a forked child cannot use the driver that its parent started. */
int test_main_nofork(Suite *s);

/* Run @fn(@arg) in this process. Returns whether it ends without a failed check; prints the
 * failure. */
bool test_checks_hold(void (*fn)(void *arg), void *arg);

/* The same for @count tests in one test case, which has the suite's name. */
int test_list(const char *name, const TTest *const *tests, size_t count);

#endif
