// SPDX-License-Identifier: Apache-2.0
/* The rows of seed 004 on the software driver, and its replay loop compared with what the host
 * computes. */
#include "tests/unit/run_slots_rows.h"

int main(void)
{
	Suite *s = suite_create("run_slots_rows");
	TCase *tc = tcase_create("rows"), *more = tcase_create("more");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, fixture_open, fixture_close);
	rows_add(tc);
	suite_add_tcase(s, tc);
	tcase_set_timeout(more, 60);
	tcase_add_checked_fixture(more, fixture_open, fixture_close);
	tcase_add_test(more, storm); /* R7 again: many threads on one table */
	suite_add_tcase(s, more);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
