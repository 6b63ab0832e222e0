/* SPDX-License-Identifier: Apache-2.0 */
/* va_cached.h - the cache of reservations, with a way to count them. */
#ifndef TESTS_LIB_VA_CACHED_H
#define TESTS_LIB_VA_CACHED_H

/* The number of reservations that mm/va_cache.c keeps in this program. */
long test_va_cached(void);

#endif
