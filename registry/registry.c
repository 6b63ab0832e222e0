// SPDX-License-Identifier: Apache-2.0
/* registry.c - opens libfoundry-registry.so.0.2; see registry.h. */
#include "registry/registry.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "lib/config.h"
#include "lib/opts.h"

#define LIBRARY "libfoundry-registry.so.0.2"
#define REQUESTS 16
#define REQUESTS_MAX 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct fdry_registry_client *found; /* under the lock; never closed */

/* The folder of the object that holds this code: libfoundry.so, or a program. */
static void own_folder(char *folder, size_t len)
{
	char path[PATH_MAX] = "";
	Dl_info info = { 0 };
	const char *slash;
	ssize_t n;

	if (dladdr((void *)&fdry_registry_open, &info) && info.dli_fname)
		snprintf(path, sizeof(path), "%s", info.dli_fname);
	if (!strchr(path, '/')) { /* a program that was found in PATH */
		n = readlink("/proc/self/exe", path, sizeof(path) - 1);
		path[n > 0 ? n : 0] = '\0';
	}
	slash = strrchr(path, '/');
	snprintf(folder, len, "%.*s", slash ? (int)(slash - path) : 0, path);
}

/* Open the first file that the pattern names. @there: whether it names one. */
static void *pattern_open(const char *folder, const char *pattern, bool *there)
{
	char path[PATH_MAX + 64];
	void *handle = NULL;
	glob_t g = { 0 };

	snprintf(path, sizeof(path), "%s%s" LIBRARY, folder, pattern);
	*there = !glob(path, 0, NULL, &g);
	if (*there)
		handle = dlopen(g.gl_pathv[0], RTLD_NOW | RTLD_LOCAL);
	globfree(&g);
	return handle;
}

/* Look beside this library; for a program also in the folder lib beside bin, and in Python's
 * package there. The first file found counts: if it cannot be opened, dlerror() says which library
 * it lacks. */
static void *library_open(const char *named)
{
	static const char *const patterns[] = {
		"/", "/../lib/", "/../lib/python3*/site-packages/foundry/lib/"
	};
	char folder[PATH_MAX];
	void *handle = NULL;
	bool there = false;
	size_t i;

	if (named)
		return dlopen(named, RTLD_NOW | RTLD_LOCAL);
	own_folder(folder, sizeof(folder));
	for (i = 0; i < sizeof(patterns) / sizeof(patterns[0]) && !there && *folder; i++)
		handle = pattern_open(folder, patterns[i], &there);
	return there ? handle : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

static int client_open(const struct fdry_registry_client **ret)
{
	const struct fdry_registry_client *client;
	const char *named = NULL;
	void *handle;
	int err = fdry_config_path(FDRY_CONFIG_REGISTRY_LIBRARY, &named);

	if (err)
		return err;
	handle = library_open(named);
	if (!handle)
		return fdry_fail(
			FDRY_E_NOCLIENT,
			"registries need " LIBRARY ": %s; install it with "
			"libcurl and libjansson, or set FOUNDRY_REGISTRY_LIBRARY to its path",
			dlerror());
	client = dlsym(handle, FDRY_REGISTRY_CLIENT_SYMBOL);
	if (client && !strcmp(client->version, FDRY_VERSION)) {
		*ret = client;
		return 0;
	}
	err = fdry_fail(FDRY_E_NOCLIENT,
			LIBRARY " is of version %.20s, this library of " FDRY_VERSION
				"; install both from one release",
			client ? client->version : "?");
	dlclose(handle);
	return err;
}

int fdry_registry_open(const struct fdry_registry_client **ret)
{
	int err;

	pthread_mutex_lock(&lock);
	err = found ? 0 : client_open(&found);
	*ret = found;
	pthread_mutex_unlock(&lock);
	return err;
}

int fdry_registry_result(const struct fdry_registry_client *client, int ret, int own)
{
	if (!ret || own)
		return ret;
	return fdry_fail((enum fdry_errcode)-ret, "%s", client->last_error());
}

int fdry_registry_opts_take(const struct fdry_registry_opts *opts, struct fdry_registry_opts *ret)
{
	const uint32_t known = FDRY_REGISTRY_NO_REFS | FDRY_REGISTRY_PRIVATE |
			       FDRY_REGISTRY_PLAIN_HTTP;
	int err = fdry_opts_take(opts, ret, sizeof(*ret));

	if (err)
		return err;
	if (ret->flags & ~known)
		return fdry_fail(FDRY_E_OPTS,
				 "the options have flags %#x, which this library does not "
				 "know",
				 ret->flags & ~known);
	if (ret->requests > REQUESTS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "%u requests at a time are too many; %u is the most",
				 ret->requests, REQUESTS_MAX);
	if (!ret->requests)
		ret->requests = REQUESTS;
	if (ret->count_mounts && !ret->mounts)
		return fdry_fail(FDRY_E_INVAL, "the list of repositories to mount from is missing");
	if (!ret->policy)
		err = fdry_config_path(FDRY_CONFIG_POLICY, &ret->policy);
	if (!err && !ret->sign_key)
		err = fdry_config_path(FDRY_CONFIG_SIGN_KEY, &ret->sign_key);
	return err ?: ret->ref ? fdry_ref_check(ret->ref) : 0;
}
