/* SPDX-License-Identifier: Apache-2.0 */
/* sanitizers.h - is this program built with a sanitizer? */
#ifndef FDRY_TESTS_LIB_SANITIZERS_H
#define FDRY_TESTS_LIB_SANITIZERS_H

#ifndef __has_feature /* gcc's before 14 */
#define __has_feature(name) 0
#endif

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED_THREAD 1
#else
#define TEST_SANITIZED_THREAD 0
#endif

/* Under a sanitizer a crash ends in its report, not in the signal. */
#if TEST_SANITIZED_THREAD || defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define TEST_SANITIZED 1
#else
#define TEST_SANITIZED 0
#endif

/* Of @n rounds or cases in which the same threads meet: fewer under the thread sanitizer, where
 * each takes ten times as long. */
#define TEST_ROUNDS(n) (TEST_SANITIZED_THREAD ? ((n) + 3) / 4 : (n))

/* A step through cases that other builds all run: the thread sanitizer's build runs each @n-th. */
#define TEST_EACH(n) (TEST_SANITIZED_THREAD ? (n) : 1)

#endif
