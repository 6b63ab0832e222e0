/* SPDX-License-Identifier: Apache-2.0 */
/* graph_code.h - for graph_fixture.h: the software driver, and tests/sim/kernels.c. */
#ifndef FDRY_TESTS_GRAPH_CODE_H
#define FDRY_TESTS_GRAPH_CODE_H

#include "tests/lib/sim.h"

/* A function of the driver that is not in driver.def. */
#define SIM(fn) ((__typeof__(&fn))test_sim_symbol(#fn))

static inline const struct fdry_driver *code_driver(void)
{
	return test_sim_open();
}

/* free() them. */
static inline void *code_bytes(void)
{
	size_t len;

	return test_sim_cubin("kernels", &len);
}

/* How many objects of a kind are alive in the driver. */
static inline long code_live(const char *what)
{
	return test_sim_live(what);
}

#endif
