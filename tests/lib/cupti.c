// SPDX-License-Identifier: Apache-2.0
/* cupti.c - see cupti.h. */
#include "tests/lib/cupti.h"

struct cupti_resource {
	void *context;
	void *stream;
	const void *descriptor; /* of a module: struct cupti_module */
};

bool cupti_subscribe(cupti_fn fn)
{
	static const char *const names[] = { "libcupti.so.13", "libcupti.so.12", "libcupti.so",
					     "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
					     "/usr/local/cuda/lib64/libcupti.so" };
	int (*subscribe)(void **handle, cupti_fn fn, void *arg);
	int (*enable)(uint32_t on, void *handle, int domain, uint32_t id);
	const char *given = getenv("CUPTI");
	void *lib = given ? dlopen(given, RTLD_NOW) : NULL, *handle;
	size_t i;

	for (i = 0; !lib && i < sizeof(names) / sizeof(names[0]); i++)
		lib = dlopen(names[i], RTLD_NOW);
	if (!lib)
		return false;
	subscribe = (int (*)(void **, cupti_fn, void *))dlsym(lib, "cuptiSubscribe");
	enable = (int (*)(uint32_t, void *, int, uint32_t))dlsym(lib, "cuptiEnableCallback");
	return subscribe && enable && !subscribe(&handle, fn, NULL) &&
	       !enable(1, handle, CUPTI_DOMAIN_RESOURCE, CUPTI_MODULE_LOADED);
}

const struct cupti_module *cupti_module_of(int domain, uint32_t id, const void *data)
{
	const struct cupti_resource *r = data;

	return domain == CUPTI_DOMAIN_RESOURCE && id == CUPTI_MODULE_LOADED ? r->descriptor : NULL;
}
