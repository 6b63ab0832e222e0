// SPDX-License-Identifier: Apache-2.0
/* vecadd.c - see vecadd.h. */
#include "tests/lib/vecadd.h"

char vecadd_dir[64] = "foundry-vecadd-XXXXXX";

bool vecadd_make(void)
{
	const char *build = getenv("BUILD");
	char cmd[4096];
	CUcontext ctx;

	drv = gpu_driver();
	snprintf(cmd, sizeof(cmd), "'%s/examples/vecadd' -s '%s' capture >/dev/null",
		 build && *build ? build : "build", mkdtemp(vecadd_dir) ? vecadd_dir : "");
	if (system(cmd)) {
		fprintf(stderr, "vecadd captures nothing\n");
		return false;
	}
	if (fdry_call(drv, cuDevicePrimaryCtxRetain, &ctx, 0) ||
	    fdry_call(drv, cuCtxSetCurrent, ctx)) {
		fprintf(stderr, "%s\n", fdry_last_error());
		return false;
	}
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
