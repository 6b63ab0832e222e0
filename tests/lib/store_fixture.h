/* SPDX-License-Identifier: Apache-2.0 */
/* store_fixture.h - an empty store, open, in memory, for each test. */
#ifndef FDRY_TESTS_LIB_STORE_FIXTURE_H
#define FDRY_TESTS_LIB_STORE_FIXTURE_H

#include "tests/lib/store.h"

extern struct fdry_store *s;

void store_setup(void);
void store_teardown(void);

#endif
