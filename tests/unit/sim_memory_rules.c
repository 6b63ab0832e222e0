// SPDX-License-Identifier: Apache-2.0
/* The rules of memory_both.h on the software driver. */
#include "tests/lib/sim.h"

static const struct fdry_driver *drv;

static void *rules_symbol(const char *name)
{
	void *p = dlsym(drv->handle, name);

	ck_assert_msg(p != NULL, "no %s", name);
	return p;
}

#include "tests/unit/memory_both.h"

static void up(void)
{
	drv = test_sim();
	ok(cuCtxGetCurrent, &rules_ctx);
}

int main(void)
{
	Suite *s = suite_create("sim_memory_rules");
	TCase *tc = tcase_create("rules");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, up, NULL);
	rules_add(tc);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
