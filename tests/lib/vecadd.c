// SPDX-License-Identifier: Apache-2.0
/* vecadd.c - see vecadd.h. */
#include "tests/lib/vecadd.h"

char vecadd_dir[64] = "foundry-vecadd-XXXXXX";

bool vecadd_make(void)
{
	const char *build = getenv("BUILD");
	char cmd[4096];

	drv = gpu_driver();
	snprintf(cmd, sizeof(cmd), "'%s/examples/vecadd' -s '%s' capture >/dev/null",
		 build && *build ? build : "build", mkdtemp(vecadd_dir) ? vecadd_dir : "");
	if (system(cmd)) {
		fprintf(stderr, "vecadd captures nothing\n");
		return false;
	}
	gpu_context(drv);
	return true;
}

int vecadd_run(Suite *s)
{
	char cmd[128];
	int failed;

	failed = test_main_nofork(s);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", vecadd_dir);
	return system(cmd) ? EXIT_FAILURE : failed;
}
