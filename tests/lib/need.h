/* SPDX-License-Identifier: Apache-2.0 */
/* need.h - checks for programs without Check: calls that must succeed; otherwise the program
 * exits. */
#ifndef FDRY_TESTS_LIB_NEED_H
#define FDRY_TESTS_LIB_NEED_H

/* Unless @result is 0, print @what and the reason, and exit: with 77 if there is no driver or no
 * GPU, else with 1. @result is a result of the library or of LMDB. It may also be a condition,
 * which errno explains. */
void need(int result, const char *what);

/* The same with the program's name. */
void must(int result);

#endif
