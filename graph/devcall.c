// SPDX-License-Identifier: Apache-2.0
/*
 * devcall.c - functions that kernels call besides their own code; see devcall.h.
 *
 * A function that prints, allocates or launches has effects or state that an image does not hold. A
 * kernel with assertions can be restored: the call has no effect in a correct program, and a failed
 * assertion ends the context.
 */
#include "graph/devcall.h"

#include <string.h>

struct devcall {
	const char *name;
	bool prefix;     /* @name is the beginning of the name */
	const char *why; /* NULL: harmless */
};

static const struct devcall devcalls[] = {
	{ "__assertfail", false, NULL },
	{ "vprintf", false, "device printf" },
	{ "malloc", false, "device malloc" },
	{ "free", false, "device malloc" },
	{ "__nv_aligned_device_malloc", false, "device malloc" },
	{ "__cudaCDP2", true, "dynamic parallelism" },
	{ "__cudaCnp", true, "dynamic parallelism" },
	{ "cudaLaunchDevice", true, "dynamic parallelism" },
	{ "cudaGetParameterBuffer", true, "dynamic parallelism" },
	{ "cnprt", true, "dynamic parallelism" },
};

static const struct devcall *devcall_find(const char *name)
{
	const struct devcall *d;

	for (d = devcalls; d < devcalls + sizeof(devcalls) / sizeof(devcalls[0]); d++)
		if (d->prefix ? !strncmp(name, d->name, strlen(d->name)) : !strcmp(name, d->name))
			return d;
	return NULL;
}

bool fdry_devcall_known(const char *name)
{
	return devcall_find(name) != NULL;
}

const char *fdry_devcall_refused(const char *name)
{
	const struct devcall *d = devcall_find(name);

	return d ? d->why : "an unknown function of the driver";
}
