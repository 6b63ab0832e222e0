// SPDX-License-Identifier: Apache-2.0
/* The rules of memory_rules.h on the software driver. */
#include "tests/lib/sim.h"

#include "tests/lib/test.h"
#include "tests/lib/memory_rules.h"
#include "tests/lib/pinned_rules.h"

static void up(void)
{
	drv = test_sim();
	works(cuCtxGetCurrent, &rules_ctx);
}

int main(void)
{
	Suite *s = suite_create("sim_memory_rules");
	TCase *tc = tcase_create("rules");

	tcase_add_checked_fixture(tc, up, NULL);
	memory_rules_add(tc);
	pinned_rules_add(tc);
	suite_add_tcase(s, tc);
	return test_main(s);
}
