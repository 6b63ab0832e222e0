// SPDX-License-Identifier: Apache-2.0
/* Kernels for the software driver that use variables of their module. */
#include "arch/sim/kernel.h"

SIM_VARIABLE uint64_t counter = 7;
SIM_VARIABLE uint64_t twiddles[300000]; /* more than 2 MiB */
SIM_VARIABLE const uint64_t *pointer;
SIM_VARIABLE uint64_t pair[2] = { 100, 200 };

SIM_KERNEL(bump, (uint64_t *, out))
{
	if (SIM_X == 0)
		*out = ++counter;
}

SIM_KERNEL(bump_by, (uint64_t *, out), (uint64_t, by))
{
	if (SIM_X == 0)
		*out = counter += by;
}

SIM_KERNEL(pick, (uint64_t *, out), (uint64_t, i))
{
	if (SIM_X == 0)
		*out = twiddles[i];
}

SIM_KERNEL(follow, (uint64_t *, out))
{
	if (SIM_X == 0)
		*out = pointer ? *pointer : 0;
}

/* Reads by a pointer in memory. */
SIM_KERNEL(deref, (uint64_t *, out), (const uint64_t *const *, cell))
{
	if (SIM_X == 0)
		*out = **cell;
}

/* Read and write memory that is a variable for another kernel. */
SIM_KERNEL(swap, (uint64_t *, out), (uint64_t *, with), (uint64_t, value))
{
	if (SIM_X)
		return;
	*out = *with;
	*with = value;
}
