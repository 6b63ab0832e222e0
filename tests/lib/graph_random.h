/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_random.h - random graphs with nodes of all kinds, for any driver. They need the fixture of
 * graph_fixture.h.
 */
#ifndef FDRY_TESTS_LIB_GRAPH_RANDOM_H
#define FDRY_TESTS_LIB_GRAPH_RANDOM_H

#include <stdint.h>

/*
 * Make a graph from the numbers of @below(n), each below n. Read it, build it again, compare what
 * the driver reports of both, run both, and compare the memory, the host memory and the calls of
 * host functions. Asserts that they are equal. Returns the number of nodes.
 */
/* Graphs so far that the driver reads and does not instantiate; they were not run. */
extern uint32_t graph_random_unrun;
uint32_t graph_random_check(uint64_t (*below)(uint64_t n));

#endif
