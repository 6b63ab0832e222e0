// SPDX-License-Identifier: Apache-2.0
/* store_fixture.c - see store_fixture.h. */
#include "tests/lib/store_fixture.h"

struct fdry_store *s;

void store_setup(void)
{
	dir_setup_in("/dev/shm");
	s = store_make();
}

void store_teardown(void)
{
	fdry_store_close(s);
	dir_teardown();
}
