/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_rules.h - tests of reading and building graphs that must hold on every driver, with the
 * same bytes. They need the fixture of graph_fixture.h.
 */
#ifndef FDRY_TESTS_LIB_GRAPH_RULES_H
#define FDRY_TESTS_LIB_GRAPH_RULES_H

#include <check.h>

void graph_rules_add(TCase *tc);
void graph_rules_nodes_add(TCase *tc);
void graph_rules_arrays_add(TCase *tc);

#endif
