/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vecadd.h - the image that the example vecadd seals, for tests that load: out = a + b, as graph 1.
 */
#ifndef FDRY_TESTS_GPU_VECADD_H
#define FDRY_TESTS_GPU_VECADD_H

#include <check.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "foundry.h"
#include "tests/gpu/gpu.h"

#define N 100003
#define BYTES (N * sizeof(float))
#define KEY 1

#define ok(call) do { \
	int ret_ = (call); \
	ck_assert_msg(!ret_, "%s: %s: %s", #call, fdry_error_name(ret_), fdry_last_error()); \
} while (0)

#define fails(code, text, call) do { \
	int ret_ = (call); \
	ck_assert_msg(ret_ == -FDRY_E_##code, "%s gave %s: %s", #call, fdry_error_name(ret_), fdry_last_error()); \
	ck_assert_msg(strstr(fdry_last_error(), text) != NULL, "%s says: %s", #call, fdry_last_error()); \
} while (0)

static const struct fdry_driver *drv;
static char vecadd_dir[64] = "foundry-vecadd-XXXXXX"; /* the store */

/* Capturing takes a process of its own. The driver is open and device 0's context current afterwards, as in a program
 * that uses CUDA itself. */
static inline bool vecadd_make(void)
{
	const char *build = getenv("BUILD");
	char cmd[4096];
	CUcontext ctx;

	drv = gpu_driver();
	snprintf(cmd, sizeof(cmd), "'%s/examples/vecadd' -s '%s' capture >/dev/null", build && *build ? build : "build",
		 mkdtemp(vecadd_dir) ? vecadd_dir : "");
	if (system(cmd)) {
		fprintf(stderr, "vecadd captures nothing\n");
		return false;
	}
	if (fdry_call(drv, cuDevicePrimaryCtxRetain, &ctx, 0) || fdry_call(drv, cuCtxSetCurrent, ctx)) {
		fprintf(stderr, "%s\n", fdry_last_error());
		return false;
	}
	return true;
}

/* Run @s in this process, which alone may use the driver; main()'s result. */
static inline int vecadd_run(Suite *s)
{
	SRunner *sr = srunner_create(s);
	char cmd[128];
	int failed;

	srunner_set_fork_status(sr, CK_NOFORK);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", vecadd_dir);
	return system(cmd) || failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
