// SPDX-License-Identifier: Apache-2.0
/* module.c - modules. */
#include "arch/sim/sim.h"

void sim_modules_release(struct sim_ctx *ctx)
{
	(void)ctx;
}
