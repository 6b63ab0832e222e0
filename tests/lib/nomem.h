/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nomem.h - lets one allocation of this thread fail, in the program and in the libraries that it
 * loads. For one source file of a program. Sanitizers have their own allocator, so under them none
 * fails.
 */
#ifndef FDRY_TESTS_LIB_NOMEM_H
#define FDRY_TESTS_LIB_NOMEM_H

#include <stdlib.h>

#include "tests/lib/sanitizers.h"

/* In this thread: the number of the allocation that fails (0: none), and of those so far. Volatile,
 * since compilers believe that allocating changes no variable. */
static __thread volatile unsigned long nomem_at, nomem_count;

/* Let the @n-th allocation from now on fail; 0: none. Returns how many there were since the last
 * call. */
static inline unsigned long test_nomem(unsigned long n)
{
	unsigned long made = nomem_count;

	nomem_count = 0;
	nomem_at = n;
	return made;
}

#if !TEST_SANITIZED
/* The C library's own, under the names by which they can be reached from here. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);

__attribute__((visibility("default"))) void *malloc(size_t size)
{
	return ++nomem_count == nomem_at ? NULL : __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	return ++nomem_count == nomem_at ? NULL : __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t size)
{
	return ++nomem_count == nomem_at ? NULL : __libc_realloc(p, size);
}
#endif

#endif
