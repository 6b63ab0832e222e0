// SPDX-License-Identifier: Apache-2.0
/*
 * jit.c - turns on the driver's own cache of compiled code, with a path and a size that the library
 * chooses.
 *
 * The driver reads CUDA_CACHE_* once, when it starts. Values that the environment already has stay:
 * if the cache is off or its path is set, nothing changes. The library changes the environment only
 * here, because the driver has no other setting.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "run/device.h"
#include "lib/config.h"
#include "lib/log.h"

/* The highest limit that drivers accept; the default of some is a quarter of a gigabyte. */
#define MAXSIZE "4294967296"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool done;

/* Make the directory and those above it. If that fails, the driver works without a cache. */
static void folder_make(char *path)
{
	char *slash = path;

	while (slash) {
		slash = strchr(slash + 1, '/');
		if (slash)
			*slash = '\0';
		if (mkdir(path, 0700) && errno != EEXIST)
			fdry_warn("the cache of compiled code cannot be made: %s: %m; set "
				  "FOUNDRY_JIT_CACHE to a directory",
				  path);
		if (slash)
			*slash = '/';
	}
}

/* Set a variable that is unset or empty; the driver treats both alike. */
static int set_unless(enum fdry_config id, const char *value)
{
	const char *there = NULL;
	int err = fdry_config_path(id, &there);

	if (err)
		return err;
	if (!there && setenv(fdry_config_vars[id].name, value, 1))
		return fdry_nomem();
	return 0;
}

static int set_up(void)
{
	const char *off = NULL, *path = NULL;
	struct fdry_buf folder = { 0 };
	int err = fdry_config_path(FDRY_CONFIG_CUDA_CACHE_DISABLE, &off);

	if (err)
		return err;
	err = fdry_config_path(FDRY_CONFIG_CUDA_CACHE_PATH, &path);
	if (err || (off && strcmp(off, "0")) || path)
		return err;
	err = fdry_config_cache(FDRY_CONFIG_JIT_CACHE, "jit", &folder);
	if (err)
		goto out_release;
	folder_make((char *)folder.data);
	err = set_unless(FDRY_CONFIG_CUDA_CACHE_MAXSIZE, MAXSIZE);
	if (err)
		goto out_release;
	err = set_unless(FDRY_CONFIG_CUDA_CACHE_PATH, (const char *)folder.data);
out_release:
	fdry_buf_release(&folder);
	return err;
}

int fdry_jit_cache_set_up(void)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (!done)
		err = set_up();
	done = !err;
	pthread_mutex_unlock(&lock);
	return err;
}
