// SPDX-License-Identifier: Apache-2.0
/* kernel.c - makes, empties and frees caches of kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/opts.h"
#include "image/compiled.h"
#include "run/kernel_cache.h"
#include "image/capture/interposer.h"
#include "lib/config.h"
#include "lib/live.h"
#include "lib/log.h"

/* --- new --- */

static int trace_read(bool *ret)
{
	uint64_t what = UINT64_MAX;
	int err = fdry_config_number(FDRY_CONFIG_TRACE, &what);

	*ret = what == 0;
	return err;
}

static int device_take(struct fdry_kernels *k, int32_t ordinal)
{
	int major, minor;
	int err = fdry_driver_device(k->drv, ordinal, &k->dev);

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
	const struct fdry_hook *hook = fdry_interposer_loaded();
	const char *path = o->driver;
	int err;

	/* The interposer need not see this library's own loads, since a seal does not record
	 * them. */
	if (!path && hook)
		path = hook->real_path();
	err = trace_read(&k->trace);
	if (err)
		return err;
	err = fdry_driver_open(path, &k->drv);
	if (err)
		return err;
	err = device_take(k, o->device);
	if (err)
		return err;
	fdry_compiled_compiler(k->drv, k->compiler);
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
	int err = fdry_opts_take(opts, &o, sizeof(o)) ?: fdry_need(ret);

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
	if (err)
		goto out_free;
	pthread_mutex_init(&k->setup_lock, NULL);
	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->changed, NULL);
	fdry_live_add(k);
	*ret = k;
	return 0;
out_free:
	free(k);
	return err;
}

void fdry_kernels_free(struct fdry_kernels *k)
{
	if (!k || fdry_live_check(k, "the cache of kernels") || k->pid != getpid() ||
	    fdry_live_end(k, "the cache of kernels"))
		return; /* in a forked child only the memory is left, which is not freed */
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

int fdry_kernels_clear(struct fdry_kernels *k)
{
	int err = fdry_kernels_check(k);

	return err ? err : fdry_kernels_unload(k);
}
