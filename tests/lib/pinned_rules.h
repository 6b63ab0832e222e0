/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pinned_rules.h - tests of the rules of pinned and registered host memory that the interposer and
 * loads rely on. They run on the software driver (sim_memory_rules.c) and on a GPU
 * (tests/gpu/memory_driver.c). memory_rules.h describes their fixture.
 */
#ifndef FDRY_TESTS_LIB_PINNED_RULES_H
#define FDRY_TESTS_LIB_PINNED_RULES_H

#include <check.h>

void pinned_rules_add(TCase *tc);

#endif
