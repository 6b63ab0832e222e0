// SPDX-License-Identifier: Apache-2.0
/* The requirements R1 to R8 of slots on the software driver, and a replay loop, compared with the
 * results that the host computes. */
#include "tests/lib/slots_fixture.h"
#include "tests/lib/slots_rows.h"
#include "tests/lib/slots_rules.h"

int main(void)
{
	Suite *s = suite_create("run_slots_rows");
	TCase *tc = tcase_create("rows"), *more = tcase_create("more");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, slots_fixture_open, slots_fixture_close);
	slots_rows_add(tc);
	suite_add_tcase(s, tc);
	tcase_set_timeout(more, 60);
	tcase_add_checked_fixture(more, slots_fixture_open, slots_fixture_close);
	slots_storm_add(more); /* R7 again: many threads on one table */
	suite_add_tcase(s, more);
	return test_main(s);
}
