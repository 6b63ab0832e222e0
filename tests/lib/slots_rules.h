/* SPDX-License-Identifier: Apache-2.0 */
/* slots_rules.h - tests of slot tables that must hold on every driver. They need the fixture of
 * slots_fixture.h. */
#ifndef FDRY_TESTS_LIB_SLOTS_RULES_H
#define FDRY_TESTS_LIB_SLOTS_RULES_H

#include <check.h>

void slots_rules_add(TCase *tc);

/* Run only the test with many threads on one table. */
void slots_storm_add(TCase *tc);

#endif
