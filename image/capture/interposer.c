// SPDX-License-Identifier: Apache-2.0
/*
 * interposer.c - loads the interposer and finds it again.
 *
 * glibc answers dlopen("libcuda.so.1") with the first loaded object that has this SONAME, so the
 * interposer only needs to be loaded first. RTLD_NOLOAD finds that object without loading anything.
 */
#include "image/capture/interposer.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "foundry.h"
#include "lib/opts.h"
#include "lib/config.h"
#include "lib/log.h"

#define DRIVER_SONAME "libcuda.so.1"
/* The interposer's path, relative to the folder of libfoundry.so. A twin of it answers
 * dlopen("libcuda.so").
 */
#define INTERPOSER_BESIDE "foundry/hook/libcuda.so.1"
#define TWIN "libcuda.so"

const struct fdry_hook *fdry_interposer_loaded(void)
{
	void *handle = dlopen(DRIVER_SONAME, RTLD_LAZY | RTLD_NOLOAD);
	fdry_hook_table_fn table = NULL;

	if (!handle)
		return NULL;
	*(void **)&table = dlsym(handle, FDRY_HOOK_SYMBOL);
	dlclose(handle); /* undoes the dlopen() above; the object stays loaded */
	return table ? table() : NULL;
}

/* There is no interposer: name the library that was loaded in its place. */
static int missing(void)
{
	void *handle = dlopen(DRIVER_SONAME, RTLD_LAZY | RTLD_NOLOAD);
	struct link_map *map;
	int err;

	if (!handle)
		return fdry_fail(
			FDRY_E_NOHOOK,
			"the interposer for " DRIVER_SONAME
			" is not in place; call fdry_hook_install() "
			"before anything uses CUDA, or start the program under LD_PRELOAD of it");
	if (dlinfo(handle, RTLD_DI_LINKMAP, &map))
		map = NULL;
	err = fdry_fail(
		FDRY_E_LATE,
		"%s was loaded before the interposer and answers to " DRIVER_SONAME
		"; start the program with \"python -m foundry run\" or LD_PRELOAD, or call "
		"fdry_hook_install() (in Python: import foundry) before anything loads CUDA",

		map ? map->l_name : "a library");
	dlclose(handle);
	return err;
}

int fdry_interposer_find(const struct fdry_hook **ret)
{
	const struct fdry_hook *hook = fdry_interposer_loaded();

	if (!hook)
		return missing();
	if (hook->version != FDRY_HOOK_VERSION || hook->size < sizeof(*hook))
		return fdry_fail(FDRY_E_NOHOOK,
				 "the interposer in place has version %u, this library needs %u; "
				 "install both from one release",
				 hook->version, FDRY_HOOK_VERSION);
	*ret = hook;
	return fdry_interposer_result(hook, hook->late());
}

int fdry_interposer_result(const struct fdry_hook *hook, int ret)
{
	return ret ? fdry_fail((enum fdry_errcode)-ret, "%s", hook->last_error()) : 0;
}

/* The folder of this library, with a slash at the end; "" if it is not known. */
static void own_folder(char *path, size_t len)
{
	Dl_info info;
	const char *slash;

	*path = '\0';
	if (!dladdr((void *)&fdry_hook_install, &info) || !info.dli_fname)
		return;
	slash = strrchr(info.dli_fname, '/');
	snprintf(path, len, "%.*s", slash ? (int)(slash - info.dli_fname + 1) : 0, info.dli_fname);
}

int fdry_hook_path(char *path, size_t len)
{
	const char *named = NULL;
	char beside[PATH_MAX], file[PATH_MAX + sizeof(INTERPOSER_BESIDE)];
	int err = fdry_need(path);

	if (err)
		return err;
	err = fdry_config_path(FDRY_CONFIG_HOOK, &named);
	if (err)
		return err;
	if (!named) {
		own_folder(beside, sizeof(beside));
		snprintf(file, sizeof(file), "%s" INTERPOSER_BESIDE, beside);
		named = file;
	}
	if (!realpath(named, beside))
		return fdry_fail(
			FDRY_E_NOHOOK,
			"the interposer is not there: %s: %m; set FOUNDRY_HOOK to its path", named);
	if (strlen(beside) >= len)
		return fdry_fail(FDRY_E_RANGE,
				 "the interposer's path has %zu bytes, which do not fit %zu",
				 strlen(beside) + 1, len);
	memcpy(path, beside, strlen(beside) + 1);
	return 0;
}

static bool driver_is_loaded(void)
{
	void *handle = dlopen(DRIVER_SONAME, RTLD_LAZY | RTLD_NOLOAD);

	if (handle)
		dlclose(handle); /* undoes the dlopen() above; the object stays loaded */
	return handle;
}

static void twin_load(const char *path)
{
	char twin[PATH_MAX];
	const char *slash = strrchr(path, '/');

	snprintf(twin, sizeof(twin), "%.*s" TWIN, slash ? (int)(slash - path + 1) : 0, path);
	if (!dlopen(twin, RTLD_NOW | RTLD_GLOBAL))
		fdry_warn("dlopen(\"" TWIN "\") will reach the real driver: %s", dlerror());
}

int fdry_hook_install(const char *path)
{
	const struct fdry_hook *hook;
	char found[PATH_MAX];
	int err;

	if (driver_is_loaded())
		return fdry_interposer_find(&hook);
	if (!path) {
		err = fdry_hook_path(found, sizeof(found));
		if (err)
			return err;
		path = found;
	}
	if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL))
		return fdry_fail(
			FDRY_E_NOHOOK,
			"the interposer cannot be loaded: %s; set FOUNDRY_HOOK to its path",
			dlerror());
	twin_load(path);
	return fdry_interposer_find(&hook);
}
