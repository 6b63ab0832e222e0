// SPDX-License-Identifier: Apache-2.0
/*
 * find.c - finds and opens the real driver, once, at the first call that needs it.
 *
 * The driver is opened by its full path, since the loader would return the interposer for
 * "libcuda.so.1". If FOUNDRY_DRIVER is set, it alone decides. Else a libcuda that the process has
 * already loaded is used, so that there are never two. Else the search follows the loader's order:
 * its search path, the folders of ld.so.conf, its defaults. Last come the usual folders of drivers
 * that the loader does not search.
 *
 * Locking: none, on purpose. dlopen() takes the loader's lock, and a thread that holds that lock
 * already (it runs a constructor) may make its first CUDA call at the same time. So threads search
 * concurrently, and the first to finish publishes its result.
 */
#include "hook/internal.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/config.h"
#include "arch/driver.h"
#include "lib/log.h"

#define DRIVER_NAME "libcuda.so.1"

static const char *const usual_places[] = {
#ifdef __x86_64__
	"/usr/lib/x86_64-linux-gnu",
#else
	"/usr/lib/aarch64-linux-gnu",
#endif
	"/usr/lib64",
	"/usr/lib",
	"/usr/local/nvidia/lib64",
	"/usr/local/nvidia/lib",
	"/usr/lib/wsl/lib",
	"/usr/lib64-nvidia",
	"/run/opengl-driver/lib",
	"/usr/local/cuda/compat",
};

/* The result of a search; constant once published, and never freed. */
struct finding {
	bool named; /* by FOUNDRY_DRIVER */
	void *handle; /* NULL: no driver was found */
	char why[512]; /* the reason, if none was found */
	char path[PATH_MAX];
};

static const char itself[] = "it is the interposer itself";
static struct finding *published;
static __thread bool searching;

/* Whether @handle is the object of @file. A library may replace dlopen() and return a wrapper,
 * which would call the interposer again. */
static bool is_of_file(void *handle, const char *file)
{
	struct stat asked, got;
	struct link_map *map;

	return stat(file, &asked) || dlinfo(handle, RTLD_DI_LINKMAP, &map) ||
	       stat(map->l_name, &got) ||
	       (asked.st_dev == got.st_dev && asked.st_ino == got.st_ino);
}

/* Open @file if it is a driver and not the interposer; else keep the first reason. */
static bool try_file(struct finding *f, const char *file)
{
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	const char *fault = NULL;

	if (!handle)
		fault = dlerror();
	else if (fdry_dynsym(handle, FDRY_HOOK_SYMBOL))
		fault = itself;
	else if (!fdry_dynsym(handle, "cuInit"))
		fault = "it is not a CUDA driver";
	else if (!is_of_file(handle, file))
		fault = "a library that replaces dlopen() returns another one; start "
			"the program without it";
	if (!fault) {
		f->handle = handle;
		snprintf(f->path, sizeof(f->path), "%s", file);
		return true;
	}
	if (!*f->why && (f->named || fault != itself))
		snprintf(f->why, sizeof(f->why), "%s cannot be used: %s", file, fault);
	if (handle)
		dlclose(handle);
	return false;
}

/* The toolkit's stub library has the driver's name and answers every call with an error. */
static bool is_stub_dir(const char *dir)
{
	const char *p = strstr(dir, "/stubs");

	return p && (!p[6] || p[6] == '/');
}

static bool try_dir(void *f, const char *dir)
{
	char file[PATH_MAX];

	if (*dir != '/' || is_stub_dir(dir) ||
	    snprintf(file, sizeof(file), "%s/" DRIVER_NAME, dir) >= (int)sizeof(file) ||
	    access(file, F_OK))
		return false;
	return try_file(f, file);
}

/* Try the loader's search path for the program: its default folders, or the folders before them. */
static bool try_loader(struct finding *f, bool defaults)
{
	void *self = dlopen(NULL, RTLD_LAZY | RTLD_NOLOAD);
	Dl_serinfo head, *list = NULL;
	bool found = false;
	unsigned int i;

	if (self && !dlinfo(self, RTLD_DI_SERINFOSIZE, &head))
		list = malloc(head.dls_size);
	if (!list)
		return false;
	if (!dlinfo(self, RTLD_DI_SERINFOSIZE, list) && !dlinfo(self, RTLD_DI_SERINFO, list))
		for (i = 0; i < list->dls_cnt && !found; i++)
			if (!!(list->dls_serpath[i].dls_flags & LA_SER_DEFAULT) == defaults)
				found = try_dir(f, list->dls_serpath[i].dls_name);
	free(list);
	return found;
}

static bool search(struct finding *f)
{
	const char *named = NULL;
	char file[PATH_MAX];
	size_t i;

	__atomic_store_n(&fdry_driver_lookup, fdry_dynsym, __ATOMIC_RELAXED);
	f->named = !fdry_config_path(FDRY_CONFIG_DRIVER, &named) && named;
	if (f->named)
		return try_file(f, named);
	if (fdry_loaded_driver(false, file, sizeof(file)) && try_file(f, file))
		return true;
	if (try_loader(f, false) || fdry_ldconf_each("/etc/ld.so.conf", try_dir, f) ||
	    try_loader(f, true))
		return true;
	for (i = 0; i < sizeof(usual_places) / sizeof(usual_places[0]); i++)
		if (try_dir(f, usual_places[i]))
			return true;
	if (!*f->why)
		snprintf(f->why, sizeof(f->why),
			 "there is no " DRIVER_NAME
			 " where the loader looks or drivers usually are");
	return false;
}

/* Publish @mine, unless another thread was first. Returns the published result. */
static const struct finding *publish(struct finding *mine)
{
	struct finding *first = NULL;

	if (__atomic_compare_exchange_n(&published, &first, mine, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE)) {
		if (mine->handle)
			fdry_info("interposer: the driver is %s", mine->path);
		else
			fdry_warn("interposer: no CUDA driver: %s", mine->why);
		return mine;
	}
	if (mine->handle)
		dlclose(mine->handle);
	free(mine);
	return first;
}

/* The driver's start-up runs inside this call and may call the interposer, which then finds no
 * driver yet. */
static const struct finding *find(void)
{
	const struct finding *ret = __atomic_load_n(&published, __ATOMIC_ACQUIRE);
	struct finding *mine;

	if (ret || searching)
		return ret;
	mine = calloc(1, sizeof(*mine));
	if (!mine)
		return NULL;
	searching = true;
	search(mine);
	searching = false;
	return publish(mine);
}

void *fdry_find_driver(void)
{
	const struct finding *f = find();

	if (f && f->handle)
		return f->handle;
	fdry_fail(
		FDRY_E_NODRIVER,
		"no CUDA driver: %s; install the NVIDIA driver, or set FOUNDRY_DRIVER to the full "
		"path of a " DRIVER_NAME,
		f ? f->why : "it is not open yet");
	return NULL;
}

const char *fdry_hook_reason(void)
{
	const struct finding *f = find();

	return f && !f->handle ? f->why : NULL;
}

const char *fdry_find_path(void)
{
	return fdry_find_driver() ? find()->path : NULL;
}
