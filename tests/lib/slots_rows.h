/* SPDX-License-Identifier: Apache-2.0 */
/* slots_rows.h - the requirements R1 to R8 of slots (Documentation/process/features.rst), in their
 * order, as tests that run on every driver. They need the fixture of slots_fixture.h. */
#ifndef FDRY_TESTS_LIB_SLOTS_ROWS_H
#define FDRY_TESTS_LIB_SLOTS_ROWS_H

#include <check.h>

void slots_rows_add(TCase *tc);

#endif
