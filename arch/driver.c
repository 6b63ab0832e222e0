// SPDX-License-Identifier: Apache-2.0
/*
 * driver.c - opens libcuda and fills the table.
 *
 * An opened driver stays mapped: libcuda has threads and thread-local storage that do not survive
 * dlclose(), so closing does nothing. The table of a driver is filled once, under the lock, and is
 * constant afterwards.
 */
#include "arch/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/config.h"
#include "lib/log.h"

/* A symbol that only the software driver exports. */
#define SOFTWARE_MARK "fdry_sim_version"
/* A symbol that only the interposer exports: a function that returns why it finds no driver. */
#define REASON_MARK "fdry_hook_reason"

#define DRIVERS_MAX 8

struct driver_fn {
	const char *symbol;
	const char *name;
	int since;
	size_t offset;
};

static const struct driver_fn driver_fns[FDRY_DRIVER_FNS] = {
#define FDRY_DRIVER_FN(symbol, name, since) \
	[FDRY_DRV_##symbol] = { #symbol, #name, since, offsetof(struct fdry_driver, symbol) },
#include "arch/driver.def"
#undef FDRY_DRIVER_FN
};

void *(*fdry_driver_lookup)(void *handle, const char *symbol) = dlsym;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_driver *drivers[DRIVERS_MAX];

typedef CUresult (*get_proc_fn)(const char *, void **, int, cuuint64_t,
				CUdriverProcAddressQueryResult *);

static void *fn_resolve(void *handle, get_proc_fn get_proc, const struct driver_fn *fn)
{
	CUdriverProcAddressQueryResult status;
	void *p = NULL;

	if (!get_proc)
		return fdry_driver_lookup(handle, fn->symbol);
	/* A function that cuGetProcAddress does not know is missing, even if the library exports
	 * its name. */
	return get_proc(fn->name, &p, fn->since, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status) ? NULL
											     : p;
}

static void table_fill(struct fdry_driver *drv)
{
	get_proc_fn get_proc;
	size_t i;

	*(void **)&get_proc = fdry_driver_lookup(drv->handle, "cuGetProcAddress_v2");
	for (i = 0; i < FDRY_DRIVER_FNS; i++)
		*(void **)((char *)drv + driver_fns[i].offset) =
			fn_resolve(drv->handle, get_proc, &driver_fns[i]);
	drv->software = fdry_driver_lookup(drv->handle, SOFTWARE_MARK) != NULL;
}

/* @path: "", or the file that @fault is about. The interposer's message is the same. */
static int no_driver(const char *path, const char *fault)
{
	return fdry_fail(FDRY_E_NODRIVER,
			 "no CUDA driver: %s%s%s; install the NVIDIA driver, or set FOUNDRY_DRIVER "
			 "to the full path of a libcuda.so.1",
			 path, *path ? " cannot be used: " : "", fault);
}

/* The driver has no cuInit(). If it is the interposer, that has found no driver. */
static int no_start(const struct fdry_driver *drv)
{
	const char *(*reason)(void);
	const char *why = NULL;

	*(void **)&reason = fdry_driver_lookup(drv->handle, REASON_MARK);
	if (reason)
		why = reason();
	return why ? no_driver("", why) : no_driver(drv->path, "it is not a CUDA driver");
}

static int driver_start(struct fdry_driver *drv)
{
	CUresult res = fdry_call_raw(drv, cuInit, 0);
	int ret;

	if (res == CUDA_ERROR_NO_DEVICE)
		return fdry_fail(
			FDRY_E_NOGPU,
			"%s finds no CUDA device; check nvidia-smi and CUDA_VISIBLE_DEVICES, "
			"or set FOUNDRY_DRIVER to the software driver",
			drv->path);
	if (res == FDRY_CUDA_MISSING)
		return no_start(drv);
	ret = fdry_driver_result(drv, FDRY_DRV_cuInit, res);
	return ret ? ret : fdry_call(drv, cuDriverGetVersion, &drv->version);
}

static int driver_new(void *handle, const char *path, struct fdry_driver **ret)
{
	struct fdry_driver *drv = calloc(1, sizeof(*drv));
	int err;

	if (!drv)
		return fdry_nomem();
	drv->handle = handle;
	drv->pid = getpid();
	snprintf(drv->path, sizeof(drv->path), "%s", path);
	table_fill(drv);
	err = driver_start(drv);
	if (err) {
		free(drv);
		return err;
	}
	fdry_info("driver %s, version %d%s", path, drv->version,
		  drv->software ? ", in software" : "");
	*ret = drv;
	return 0;
}

static int driver_find(void *handle, const char *path, struct fdry_driver **ret)
{
	int i, err;

	for (i = 0; i < DRIVERS_MAX && drivers[i]; i++)
		if (drivers[i]->handle == handle) {
			if (drivers[i]->pid != getpid())
				return fdry_fail(
					FDRY_E_FORKED,
					"%s was started before fork() and does not work in the "
					"child; "
					"fork before anything uses CUDA, or start a new program",
					drivers[i]->path);
			*ret = drivers[i];
			return 0;
		}
	if (i == DRIVERS_MAX)
		return fdry_fail(FDRY_E_STATE, "%d different drivers are open already; close some",
				 i);
	err = driver_new(handle, path, &drivers[i]);
	if (err)
		return err;
	*ret = drivers[i];
	return 0;
}

int fdry_driver_open(const char *path, const struct fdry_driver **ret)
{
	struct fdry_driver *drv = NULL;
	void *handle;
	int err = fdry_config_check(FDRY_CONFIG_LOG);

	if (err)
		return err;
	if (!path)
		err = fdry_config_path(FDRY_CONFIG_DRIVER, &path);
	if (err)
		return err;
	if (!path || !*path)
		path = "libcuda.so.1";
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return no_driver(path, dlerror());
	pthread_mutex_lock(&lock);
	err = driver_find(handle, path, &drv);
	pthread_mutex_unlock(&lock);
	if (err)
		return err;
	*ret = drv;
	return 0;
}

void fdry_driver_close(const struct fdry_driver *drv)
{
	(void)drv; /* stays mapped; see the head of this file */
}

int fdry_driver_check(const struct fdry_driver *drv)
{
	if (drv->version >= FDRY_DRIVER_LEAST)
		return 0;
	return fdry_fail(FDRY_E_NOFUNC,
			 "the driver %s has CUDA %d.%d, and Foundry captures with %d.%d and "
			 "newer; install release " FDRY_DRIVER_LEAST_RELEASE
			 " of the NVIDIA driver, or a newer one",
			 drv->path, drv->version / 1000, drv->version % 1000 / 10,
			 FDRY_DRIVER_LEAST / 1000, FDRY_DRIVER_LEAST % 1000 / 10);
}

static const char *remedy(CUresult res)
{
	switch (res) {
	case CUDA_ERROR_OUT_OF_MEMORY:
		return "free device memory or use a larger GPU";
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_FAILED:
		return "the context is lost; restart the process";
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
		return "use an image made for this GPU's architecture";
	default:
		return "see FOUNDRY_LOG=debug";
	}
}

int fdry_driver_result(const struct fdry_driver *drv, enum fdry_driver_fn fn, CUresult res)
{
	const struct driver_fn *f = &driver_fns[fn];
	const char *name = NULL;
	enum fdry_errcode code = res == CUDA_ERROR_OUT_OF_MEMORY ? FDRY_E_NODEVMEM : FDRY_E_DRIVER;

	if (res == CUDA_SUCCESS)
		return 0;
	if (res == FDRY_CUDA_MISSING)
		return fdry_fail(FDRY_E_NOFUNC,
				 "the driver (CUDA %d.%d) lacks %s, which CUDA %d.%d introduced; "
				 "install a newer driver",
				 drv->version / 1000, drv->version % 1000 / 10, f->name,
				 f->since / 1000, f->since % 1000 / 10);
	if (drv->cuGetErrorName)
		drv->cuGetErrorName(res, &name);
	return fdry_fail(code, "%s failed with %s (%d); %s", f->symbol,
			 name ? name : "an unknown error", (int)res, remedy(res));
}

int fdry_driver_device(const struct fdry_driver *drv, int ordinal, CUdevice *ret)
{
	int count, err = fdry_call(drv, cuDeviceGetCount, &count);

	if (err)
		return err;
	if (ordinal < 0 || ordinal >= count)
		return fdry_fail(FDRY_E_NOGPU, "there is no device %d; this process sees %d",
				 ordinal, count);
	return fdry_call(drv, cuDeviceGet, ret, ordinal);
}

int fdry_driver_enter(const struct fdry_driver *drv, CUcontext ctx, CUstreamCaptureMode *mode)
{
	int err;

	*mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	err = fdry_call(drv, cuThreadExchangeStreamCaptureMode, mode);
	if (err)
		return err;
	err = fdry_call(drv, cuCtxPushCurrent_v2, ctx);
	if (err)
		fdry_call_raw(drv, cuThreadExchangeStreamCaptureMode, mode);
	return err;
}

/* The work between enter and leave was done, so a failure here only causes a warning. */
void fdry_driver_leave(const struct fdry_driver *drv, CUstreamCaptureMode *mode)
{
	CUcontext ctx;
	CUresult pop = fdry_call_raw(drv, cuCtxPopCurrent_v2, &ctx);
	CUresult back = fdry_call_raw(drv, cuThreadExchangeStreamCaptureMode, mode);

	if (pop || back)
		fdry_warn("the thread's context or capture mode could not be restored (%d, %d)",
			  (int)pop, (int)back);
}
