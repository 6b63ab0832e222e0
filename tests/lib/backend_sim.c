// SPDX-License-Identifier: Apache-2.0
/* backend_sim.c - the software driver; see backend.h. */
#include "tests/lib/backend.h"

#include "tests/lib/sim.h"

static void *code(void)
{
	size_t len;

	return test_sim_cubin("kernels", &len);
}

const struct test_backend backend_sim = {
	.driver = test_sim_open,
	.code = code,
	.live = test_sim_live,
	.base = TEST_BASE,
	.spins = 3000000,
};
