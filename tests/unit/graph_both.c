// SPDX-License-Identifier: Apache-2.0
/* Unit tests of reading and building graphs: those that hold on every driver, on the software
 * driver. */
#include "tests/unit/graph_both.h"

int main(void)
{
	Suite *s = suite_create("graph_both");
	TCase *tc = tcase_create("both");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(tc, fixture_open, fixture_close);
	both_add(tc);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
