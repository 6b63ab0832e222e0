/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_kernels.h - a kernel table for tests of graph objects that need no device code.
 *
 * It replaces graph/kernel_set.c and graph/kernel_bank.c at link time. Handles are indices into the
 * table, plus 1.
 */
#ifndef FDRY_TESTS_REPLACE_GRAPH_KERNELS_H
#define FDRY_TESTS_REPLACE_GRAPH_KERNELS_H

#include "graph/kernel.h"

#define TEST_KERNELS 3

extern const struct fdry_kernel test_kernels[TEST_KERNELS];

/* The table, test_kernels unless a program sets another one, and its length. */
extern const struct fdry_kernel *test_kernel_table;
extern uint32_t test_kernel_count;

#endif
