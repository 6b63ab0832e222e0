// SPDX-License-Identifier: Apache-2.0
/*
 * Slot tables on the machine's own driver: the rows of seed 004 with its replay loop, and the tests
 * of slots_both.h, the one with many threads last. Lines that begin with "note" are for people.
 */
#define SLOTS_ON_GPU
#include "tests/unit/run_slots_rows.h"

int main(void)
{
	Suite *s = suite_create("slots");
	TCase *seed = tcase_create("run_slots_rows"), *both = tcase_create("slots");
	CUcontext kept;
	SRunner *sr;
	int failed;

	fx.drv = gpu_driver();
	/* A context is made once, not for each test. */
	if (fdry_call(fx.drv, cuDevicePrimaryCtxRetain, &kept, 0)) {
		fprintf(stderr, "%s\n", fdry_last_error());
		return EXIT_FAILURE;
	}
	tcase_add_checked_fixture(seed, fixture_open, fixture_close);
	rows_add(seed);
	suite_add_tcase(s, seed);
	tcase_add_checked_fixture(both, fixture_open, fixture_close);
	both_add(both);
	suite_add_tcase(s, both);
	sr = srunner_create(s);
	/* A forked child cannot use the driver that its parent started. */
	srunner_set_fork_status(sr, CK_NOFORK);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
