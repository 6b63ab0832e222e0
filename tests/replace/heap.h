/* SPDX-License-Identifier: Apache-2.0 */
/* heap.h - a library in which all kernels of the software driver allocate from a heap of a test. */
#ifndef FDRY_TESTS_REPLACE_HEAP_H
#define FDRY_TESTS_REPLACE_HEAP_H

#include "graph/heap.h"

extern bool test_heap_used;        /* a kernel of the capture allocates */
extern bool test_heap_exists;      /* some kernel has allocated */
extern struct fdry_heap test_heap; /* what a seal finds; empty: it fails */
extern unsigned int test_heap_found; /* how often it was found */

#endif
