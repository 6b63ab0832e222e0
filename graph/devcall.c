// SPDX-License-Identifier: Apache-2.0
/*
 * devcall.c - functions that kernels call besides their own code; see devcall.h.
 *
 * A function that allocates or launches has state that an image does not hold, and a seal cannot
 * find all pointers into the device's heap. Kernels with assertions can be restored:
 * the call has no effect in a correct program, and a failed assertion ends the context. So can
 * kernels that print or set conditions. Their code is kept whole, because the driver prepares it
 * when it loads it.
 */
#include "graph/devcall.h"

#include <string.h>

struct devcall {
	const char *name;
	bool prefix;     /* @name is the beginning of the name */
	const char *why; /* NULL: harmless */
	bool whole;      /* @why is the reason to keep the code whole; otherwise it is refused */
};

static const struct devcall devcalls[] = {
	{ "__assertfail", false, NULL, false },
	{ "vprintf", false, "device printf", true },
	{ "cudaGraphSetConditional", false, "conditions of graphs", true },
	{ "malloc", false, "device malloc", false },
	{ "free", false, "device malloc", false },
	{ "__nv_aligned_device_malloc", false, "device malloc", false },
	{ "__cudaCDP2", true, "dynamic parallelism", false },
	{ "__cudaCnp", true, "dynamic parallelism", false },
	{ "cudaLaunchDevice", true, "dynamic parallelism", false },
	{ "cudaGetParameterBuffer", true, "dynamic parallelism", false },
	{ "cnprt", true, "dynamic parallelism", false },
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

	if (!d)
		return "an unknown function of the driver";
	return d->whole ? NULL : d->why;
}

const char *fdry_devcall_whole(const char *name)
{
	const struct devcall *d = devcall_find(name);

	return d && d->whole ? d->why : NULL;
}
