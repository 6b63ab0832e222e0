// SPDX-License-Identifier: Apache-2.0
/*
 * devcall.c - functions that kernels call besides their own code; see devcall.h.
 *
 * A function that launches has state that an image does not hold. Kernels with assertions can be
 * restored: the call has no effect in a correct program, and a failed assertion ends the context.
 * So can kernels that print, set conditions or allocate. Their code is kept whole, because the
 * driver prepares it when it loads it. The heap of a load is empty, so a seal refuses pointers into
 * the heap (image/seal/heap.c).
 */
#include "graph/devcall.h"

#include <string.h>

struct devcall {
	const char *name;
	bool prefix;     /* @name is the beginning of the name */
	const char *why; /* NULL: harmless */
	bool whole;      /* @why is the reason to keep the code whole; otherwise it is refused */
	enum fdry_devcall_memory memory;
};

static const struct devcall devcalls[] = {
	{ "__assertfail", false, NULL, false, FDRY_DEVCALL_NONE },
	{ "vprintf", false, "device printf", true, FDRY_DEVCALL_PRINTF },
	{ "cudaGraphSetConditional", false, "conditions of graphs", true, FDRY_DEVCALL_NONE },
	{ "malloc", false, "device malloc", true, FDRY_DEVCALL_HEAP },
	{ "free", false, "device malloc", true, FDRY_DEVCALL_HEAP },
	{ "__nv_aligned_device_malloc", false, "device malloc", true, FDRY_DEVCALL_HEAP },
	{ "__cudaCDP2", true, "dynamic parallelism", false, FDRY_DEVCALL_NONE },
	{ "__cudaCnp", true, "dynamic parallelism", false, FDRY_DEVCALL_NONE },
	{ "cudaLaunchDevice", true, "dynamic parallelism", false, FDRY_DEVCALL_NONE },
	{ "cudaGetParameterBuffer", true, "dynamic parallelism", false, FDRY_DEVCALL_NONE },
	{ "cnprt", true, "dynamic parallelism", false, FDRY_DEVCALL_NONE },
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

enum fdry_devcall_memory fdry_devcall_memory(const char *name)
{
	const struct devcall *d = devcall_find(name);

	return d ? d->memory : FDRY_DEVCALL_NONE;
}
