// SPDX-License-Identifier: Apache-2.0
/* The rules of memory_rules.h on the machine's own driver, and notes of the cost of memory
 * calls. */
#include "tests/lib/clock.h"
#include "tests/lib/gpu.h"

#include <check.h>

#include "tests/lib/memory_rules.h"
#include "tests/lib/pinned_rules.h"
#include "tests/lib/test.h"

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

	works(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	COST("cuStreamGetId", works(cuStreamGetId, s, &id));
	COST("cuCtxGetDevice", works(cuCtxGetDevice, &dev));
	COST("cuMemAllocAsync and cuMemFreeAsync", works(cuMemAllocAsync, &p, 4096, s);
	     works(cuMemFreeAsync, p, s));
	COST("cuMemAlloc and cuMemFree of 4 KiB", works(cuMemAlloc, &p, 4096); works(cuMemFree, p));
	COST("cuMemAlloc and cuMemFree of 20 MiB", works(cuMemAlloc, &p, 20 * RULES_MIB);
	     works(cuMemFree, p));
	works(cuStreamDestroy, s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("memory_driver");
	TCase *tc = tcase_create("rules");

	drv = gpu_driver();
	rules_ctx = gpu_context(drv);
	memory_rules_add(tc);
	pinned_rules_add(tc);
	tcase_add_test(tc, costs);
	suite_add_tcase(s, tc);
	return test_main_nofork(s);
}
