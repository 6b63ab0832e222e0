// SPDX-License-Identifier: Apache-2.0
/* kernel.c - make and free caches of kernels, and read their state. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/opts.h"
#include "run/kernel_cache.h"
#include "image/capture/interposer.h"
#include "lib/config.h"
#include "lib/live.h"
#include "lib/log.h"

int fdry_kernels_check(const struct fdry_kernels *k)
{
	int err = fdry_need(k);

	if (err)
		return err;
	err = fdry_live_check(k, "the cache of kernels");
	if (err)
		return err;
	if (k->pid != getpid())
		return fdry_fail(FDRY_E_FORKED, "the cache of kernels was made before fork(), and "
						"CUDA does not work in the child; "
						"make one in the process that uses it");
	return 0;
}

void fdry_kernels_trace(const struct fdry_kernels *k, const char *title, const char *stage,
			double ms, uint64_t bytes)
{
	if (k->trace)
		fdry_log_write(FDRY_LOG_INFO, "compile: %s: %s, %.3f ms, %llu bytes", title, stage,
			       ms, (unsigned long long)bytes);
}

/* --- new --- */

static int trace_read(bool *ret)
{
	uint64_t what = UINT64_MAX;
	int err = fdry_config_number(FDRY_CONFIG_TRACE, &what);

	*ret = what == 0;
	return err;
}

/* The release of the driver, "580.159.03", out of its file's name; its CUDA version stays the same
 * over many. */
static const char *driver_release(const struct fdry_driver *drv, char path[PATH_MAX])
{
	struct link_map *map = NULL;
	const char *p;

	if (dlinfo(drv->handle, RTLD_DI_LINKMAP, &map) || !map->l_name ||
	    !realpath(map->l_name, path))
		return "";
	p = strstr(path, "libcuda.so.");
	return p && strchr(p + 11, '.') ? p + 11 : "";
}

static void compiler_make(struct fdry_kernels *k)
{
	char path[PATH_MAX];

	snprintf(k->compiler, sizeof(k->compiler), "driver %d %.64s", k->drv->version,
		 driver_release(k->drv, path));
}

static int device_take(struct fdry_kernels *k, int32_t ordinal)
{
	int count, major, minor;
	int err = fdry_call(k->drv, cuDeviceGetCount, &count);

	if (err)
		return err;
	if (ordinal < 0 || ordinal >= count)
		return fdry_fail(FDRY_E_NOGPU, "there is no device %d; this process sees %d",
				 ordinal, count);
	err = fdry_call(k->drv, cuDeviceGet, &k->dev, ordinal);
	if (err)
		return err;
	err = fdry_call(k->drv, cuDeviceGetAttribute, &major,
			CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, k->dev);
	if (err)
		return err;
	err = fdry_call(k->drv, cuDeviceGetAttribute, &minor,
			CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, k->dev);
	if (err)
		return err;
	k->cc = (uint32_t)(10 * major + minor);
	snprintf(k->arch, sizeof(k->arch), "sm_%u", k->cc);
	return 0;
}

static int start(struct fdry_kernels *k, const struct fdry_kernels_opts *o)
{
	const struct fdry_hook *hook = fdry_interposer_peek();
	const char *path = o->driver;
	int err;

	if (!path && hook)
		path = hook->real_path(); /* what we load ourselves is nothing that a seal needs to
					     know */
	err = trace_read(&k->trace);
	if (err)
		return err;
	err = fdry_driver_open(path, &k->drv);
	if (err)
		return err;
	err = device_take(k, o->device);
	if (err)
		return err;
	compiler_make(k);
	if (o->nvrtc) {
		k->nvrtc_path = strdup(o->nvrtc);
		if (!k->nvrtc_path)
			return fdry_nomem();
	}
	err = fdry_call(k->drv, cuDevicePrimaryCtxRetain, &k->ctx, k->dev);
	if (err)
		free(k->nvrtc_path);
	return err;
}

int fdry_kernels_new(const struct fdry_kernels_opts *opts, struct fdry_kernels **ret)
{
	struct fdry_kernels_opts o;
	struct fdry_kernels *k;
	int err = fdry_opts_take(opts, &o, sizeof(o));

	if (err)
		return err;
	err = fdry_need(ret);
	if (err)
		return err;
	if (o.reserved)
		return fdry_fail(FDRY_E_OPTS, "a reserved field is %u; set it to zero", o.reserved);
	k = calloc(1, sizeof(*k));
	if (!k)
		return fdry_nomem();
	k->pid = getpid();
	k->store = o.store;
	err = start(k, &o);
	if (err) {
		free(k);
		return err;
	}
	pthread_mutex_init(&k->setup_lock, NULL);
	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->changed, NULL);
	fdry_live_add(k);
	*ret = k;
	return 0;
}

void fdry_kernels_free(struct fdry_kernels *k)
{
	if (!k || fdry_live_check(k, "the cache of kernels") || k->pid != getpid() ||
	    fdry_live_end(k, "the cache of kernels"))
		return; /* in a forked child only memory is left of it */
	fdry_kernels_ahead_free(k);
	if (fdry_kernels_unload(k))
		fdry_warn("modules of kernels could not be unloaded: %s", fdry_last_error());
	(void)fdry_call_raw(k->drv, cuDevicePrimaryCtxRelease_v2, k->dev);
	fdry_nvrtc_free(k->nvrtc);
	pthread_cond_destroy(&k->changed);
	pthread_mutex_destroy(&k->lock);
	pthread_mutex_destroy(&k->setup_lock);
	free(k->nvrtc_path);
	free(k->log);
	free(k);
}

/* --- asked --- */

size_t fdry_kernels_count(struct fdry_kernels *k)
{
	size_t n;

	if (fdry_kernels_check(k))
		return 0;
	pthread_mutex_lock(&k->lock);
	n = k->count;
	pthread_mutex_unlock(&k->lock);
	return n;
}

int fdry_kernels_clear(struct fdry_kernels *k)
{
	int err = fdry_kernels_check(k);

	return err ? err : fdry_kernels_unload(k);
}

int fdry_kernels_stats(struct fdry_kernels *k, struct fdry_kernels_stats *ret)
{
	struct fdry_kernels_stats stats;
	int err = fdry_kernels_check(k);

	if (err)
		return err;
	err = fdry_need(ret);
	if (err)
		return err;
	pthread_mutex_lock(&k->lock);
	stats = k->stats;
	stats.modules = k->count;
	stats.bytes = k->bytes;
	pthread_mutex_unlock(&k->lock);
	return fdry_report_give(&stats, sizeof(stats), ret);
}

int fdry_kernels_stats_reset(struct fdry_kernels *k)
{
	int err = fdry_kernels_check(k);

	if (err)
		return err;
	pthread_mutex_lock(&k->lock);
	memset(&k->stats, 0, sizeof(k->stats));
	pthread_mutex_unlock(&k->lock);
	return 0;
}

int fdry_kernels_log(struct fdry_kernels *k, char *text, size_t len, size_t *need)
{
	const char *log;
	int err = fdry_kernels_check(k);

	if (err)
		return err;
	if (len)
		err = fdry_need(text);
	if (err)
		return err;
	pthread_mutex_lock(&k->lock);
	log = k->log ? k->log : "";
	if (len)
		snprintf(text, len, "%s", log);
	if (need)
		*need = strlen(log) + 1;
	pthread_mutex_unlock(&k->lock);
	return 0;
}

int fdry_kernels_target(struct fdry_kernels *k, struct fdry_kernels_target *ret)
{
	struct fdry_kernels_target t = { 0 };
	int err = fdry_kernels_check(k);

	if (err)
		return err;
	err = fdry_need(ret);
	if (err)
		return err;
	snprintf(t.arch, sizeof(t.arch), "%s", k->arch);
	if (fdry_target_has_exact(k->cc))
		snprintf(t.exact, sizeof(t.exact), "sm_%ua", k->cc);
	t.cc = k->cc;
	t.driver = k->drv->version;
	t.ptx = fdry_ptx_of_driver(k->drv->version);
	return fdry_report_give(&t, sizeof(t), ret);
}
