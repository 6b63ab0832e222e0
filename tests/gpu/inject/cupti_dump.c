// SPDX-License-Identifier: Apache-2.0
/*
 * cupti_dump.c - the driver loads this into a process (CUDA_INJECTION64_PATH); it writes the
 * cubin of every module that is loaded there to the folder CUPTI_DUMP, as N.cubin.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "tests/lib/cupti.h"

int InitializeInjection(void);

static void loaded(void *arg, int domain, uint32_t id, const void *data)
{
	static atomic_uint count;
	const struct cupti_module *m = cupti_module_of(domain, id, data);
	const char *folder = getenv("CUPTI_DUMP");
	char path[4096];
	FILE *f;

	(void)arg;
	if (!m || !folder)
		return;
	snprintf(path, sizeof(path), "%s/%u.cubin", folder, atomic_fetch_add(&count, 1));
	f = fopen(path, "wb");
	if (!f || fwrite(m->cubin, 1, m->size, f) != m->size)
		perror(path);
	if (f)
		fclose(f);
}

int InitializeInjection(void)
{
	return cupti_subscribe(loaded);
}
