/* SPDX-License-Identifier: Apache-2.0 */
/* need.h - checks for programs without Check: calls that must succeed; otherwise the program
 * exits. */
#ifndef FDRY_TESTS_LIB_NEED_H
#define FDRY_TESTS_LIB_NEED_H

/* Unless @result is 0, print @what and the reason, and exit. It is a result of the library, of LMDB
 * or a condition. */
void need(int result, const char *what);

#endif
