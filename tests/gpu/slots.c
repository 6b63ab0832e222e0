// SPDX-License-Identifier: Apache-2.0
/*
 * Slot tables on the machine's own driver: the requirements of slots_rows.h with a replay loop, and
 * the tests of slots_rules.h, the one with many threads last. Lines that begin with "note" only
 * report figures.
 */
#include "tests/lib/gpu.h"
#include "tests/lib/slots_fixture.h"
#include "tests/lib/slots_rows.h"
#include "tests/lib/slots_rules.h"

int main(void)
{
	Suite *s = suite_create("slots");
	TCase *seed = tcase_create("run_slots_rows"), *both = tcase_create("slots");

	sf.backend = &backend_gpu;
	sf.drv = gpu_driver();
	gpu_context(sf.drv); /* it is made once, not for each test */
	tcase_add_checked_fixture(seed, slots_fixture_open, slots_fixture_close);
	slots_rows_add(seed);
	suite_add_tcase(s, seed);
	tcase_add_checked_fixture(both, slots_fixture_open, slots_fixture_close);
	slots_rules_add(both);
	suite_add_tcase(s, both);
	return test_main_nofork(s);
}
