// SPDX-License-Identifier: Apache-2.0
/*
 * bypass.c - checks that the calls of a program reach the interposer.
 *
 * Other libraries wrap CUDA, too. A wrapper that passes calls on is fine. A wrapper that calls the
 * driver itself would hide all calls from captures. So before a capture begins, this file looks up
 * each function in every way that programs do. If an address is not the interposer's, it calls that
 * address to see whether the call arrives here. These calls do no harm if the driver executes them.
 */
#include "hook/internal.h"

#include <dlfcn.h>

static __thread bool probing, arrived;

bool fdry_bypass_probing(void)
{
	arrived |= probing;
	return probing;
}

static const char no_code[64] = "// asked whether this arrives";

static void call_mem_alloc(void *fn, void *other)
{
	CUdeviceptr p = 0;

	if (!((__typeof__(&cuMemAlloc_v2))fn)(&p, 1) && p && other)
		((__typeof__(&cuMemFree_v2))other)(p);
}

static void call_module_load(void *fn, void *other)
{
	CUmodule m;

	(void)other;
	(void)((__typeof__(&cuModuleLoadData))fn)(&m, no_code);
}

static void call_library_load(void *fn, void *other)
{
	CUlibrary l;

	(void)other;
	(void)((__typeof__(&cuLibraryLoadData))fn)(&l, no_code, NULL, NULL, 0, NULL, NULL, 0);
}

/* The functions whose calls must arrive; @undo reverts one. */
static const struct probe {
	const char *symbol, *name, *undo;
	int since;
	void *ours;
	void (*call)(void *fn, void *undo);
} probes[] = {
	{ "cuMemAlloc_v2", "cuMemAlloc", "cuMemFree_v2", 3020, (void *)cuMemAlloc_v2,
	  call_mem_alloc },
	{ "cuModuleLoadData", "cuModuleLoadData", NULL, 2000, (void *)cuModuleLoadData,
	  call_module_load },
	{ "cuLibraryLoadData", "cuLibraryLoadData", NULL, 12000, (void *)cuLibraryLoadData,
	  call_library_load },
};

/* Look a function up like a program that opens the driver. */
static void *by_dlsym(const struct probe *p, void *driver)
{
	return dlsym(driver, p->symbol);
}

/* Look a function up like the CUDA runtime. */
static void *by_proc(const struct probe *p, void *driver)
{
	CUdriverProcAddressQueryResult status;
	__typeof__(&cuGetProcAddress_v2) get;
	void *fn = NULL;

	*(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
	return get && !get(p->name, &fn, p->since, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status)
		       ? fn
		       : NULL;
}

/* Look a function up like a program that is linked to the driver. RTLD_DEFAULT would search this
 * object first. */
static void *by_link(const struct probe *p, void *driver)
{
	void *program = dlopen(NULL, RTLD_LAZY | RTLD_NOLOAD);
	void *fn = program ? dlsym(program, p->symbol) : NULL;

	(void)driver;
	if (program)
		dlclose(program);
	return fn;
}

static const struct way {
	const char *name;
	void *(*ask)(const struct probe *p, void *driver);
} ways[] = {
	{ "dlsym()", by_dlsym },
	{ "cuGetProcAddress()", by_proc },
	{ "the linker", by_link },
};

static bool reaches(const struct probe *p, void *fn, void *driver)
{
	arrived = false;
	probing = true;
	p->call(fn, p->undo ? dlsym(driver, p->undo) : NULL);
	probing = false;
	return arrived;
}

static int check(const struct probe *p, const struct way *w, void *driver)
{
	void *fn = w->ask(p, driver);
	Dl_info info = { 0 };

	if (!fn || fn == p->ours || reaches(p, fn, driver))
		return 0;
	dladdr(fn, &info);
	return fdry_fail(FDRY_E_HIDDEN,
			 "a program that asks %s for %s gets the function of %s, which does not "
			 "call the interposer: a capture would miss its calls; start the program "
			 "without that library",
			 w->name, p->symbol,
			 info.dli_fname ? info.dli_fname : "an unknown library");
}

int fdry_bypass_check(void)
{
	/* Open it like a program. With RTLD_NOLOAD, some replacements of dlopen() would pass the
	 * call on. */
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	size_t i, k;
	int err = 0;

	if (!driver)
		return fdry_fail(FDRY_E_HIDDEN,
				 "dlopen(\"libcuda.so.1\") does not return the interposer, which "
				 "is loaded: a library that replaces dlopen() prevents that; start "
				 "the program without it");
	for (i = 0; i < sizeof(probes) / sizeof(probes[0]) && !err; i++)
		for (k = 0; k < sizeof(ways) / sizeof(ways[0]) && !err; k++)
			err = check(&probes[i], &ways[k], driver);
	dlclose(driver);
	return err;
}
