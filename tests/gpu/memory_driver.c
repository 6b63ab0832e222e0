// SPDX-License-Identifier: Apache-2.0
/* The rules of memory_both.h on the machine's own driver; what memory costs there, as notes. */
#include "tests/lib/gpu.h"

#include <check.h>
#include <dlfcn.h>
#include <time.h>

static const struct fdry_driver *drv;

static void *rules_symbol(const char *name)
{
	void *p = dlsym(drv->handle, name);

	ck_assert_msg(p != NULL, "no %s", name);
	return p;
}

#include "tests/unit/memory_both.h"

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

#define TIMES 1000
#define COST(what, ...)                                                          \
	do {                                                                     \
		double start_ = now_us();                                        \
		int i_;                                                          \
		for (i_ = 0; i_ < TIMES; i_++) {                                 \
			__VA_ARGS__;                                             \
		}                                                                \
		printf("note: %s takes %.3f us\n", what, (now_us() - start_) / TIMES); \
	} while (0)

START_TEST(costs)
{
	unsigned long long id;
	CUdeviceptr p;
	CUdevice dev;
	CUstream s;

	ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	COST("cuStreamGetId", ok(cuStreamGetId, s, &id));
	COST("cuCtxGetDevice", ok(cuCtxGetDevice, &dev));
	COST("cuMemAllocAsync and cuMemFreeAsync", ok(cuMemAllocAsync, &p, 4096, s);
	     ok(cuMemFreeAsync, p, s));
	COST("cuMemAlloc and cuMemFree of 4 KiB", ok(cuMemAlloc, &p, 4096); ok(cuMemFree, p));
	COST("cuMemAlloc and cuMemFree of 20 MiB", ok(cuMemAlloc, &p, 20 * RULES_MIB);
	     ok(cuMemFree, p));
	ok(cuStreamDestroy, s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("memory_driver");
	TCase *tc = tcase_create("rules");
	SRunner *sr = srunner_create(s);
	int failed;

	drv = gpu_driver();
	if (drv->cuInit(0) || drv->cuDevicePrimaryCtxRetain(&rules_ctx, 0) ||
	    drv->cuCtxSetCurrent(rules_ctx))
		return EXIT_FAILURE;
	rules_add(tc);
	tcase_add_test(tc, costs);
	suite_add_tcase(s, tc);
	/* A forked child cannot use the driver that its parent started. */
	srunner_set_fork_status(sr, CK_NOFORK);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
