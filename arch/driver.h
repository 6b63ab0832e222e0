/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.h - the CUDA driver as one typed table, opened at run time.
 *
 * The real driver and the software driver (arch/sim) fill the same table by the same dlopen(). A
 * function that the driver lacks stays NULL; calling it fails with an error that names the function
 * and the CUDA version that introduced it. Only fdry_call() turns a CUresult into an error of this
 * library.
 */
#ifndef FDRY_ARCH_DRIVER_H
#define FDRY_ARCH_DRIVER_H

#include <cuda.h>
#include <stdbool.h>

#include "lib/err.h"

enum fdry_driver_fn {
#define FDRY_DRIVER_FN(symbol, name, since) FDRY_DRV_##symbol,
#include "arch/driver.def"
#undef FDRY_DRIVER_FN
	FDRY_DRIVER_FNS
};

/*
 * The oldest driver that captures and loads support: the CUDA version, and the first release with
 * it. It is the oldest driver with all functions of driver.def; tests/static/driver.sh checks that.
 */
#define FDRY_DRIVER_LEAST 12050
#define FDRY_DRIVER_LEAST_RELEASE "555"

struct fdry_driver {
	void *handle;
	int version;   /* of cuDriverGetVersion: 13000 is CUDA 13.0 */
	int pid;       /* the process that started it; it does not work in a forked child */
	bool software; /* the software driver of arch/sim */
	char path[512];
#define FDRY_DRIVER_FN(symbol, name, since) __typeof__(&symbol) symbol;
#include "arch/driver.def"
#undef FDRY_DRIVER_FN
};

/* Finds a driver's symbols. It is dlsym(), unless the interposer replaces it before a driver is
 * opened, since dlsym() may return the interposer's own functions. */
extern void *(*fdry_driver_lookup)(void *handle, const char *symbol);

/**
 * fdry_driver_open() - Open a driver and initialise it.
 * @path: full path of a libcuda; NULL: FOUNDRY_DRIVER if it is set, else libcuda.so.1
 *
 * A process initialises each driver once; each open needs a close.
 * Errors: FDRY_E_NODRIVER, FDRY_E_NOGPU (cuInit found none), FDRY_E_FORKED, FDRY_E_DRIVER,
 * FDRY_E_ENV (FOUNDRY_LOG has an unknown value).
 * Context: any thread.
 */
int fdry_driver_open(const char *path, const struct fdry_driver **ret) __must_check;
void fdry_driver_close(const struct fdry_driver *drv);

/**
 * fdry_driver_result() - Turn a CUresult into an error of this library.
 * @fn: the function that returned @res, or is missing
 *
 * CUDA_ERROR_OUT_OF_MEMORY becomes FDRY_E_NODEVMEM, a missing function FDRY_E_NOFUNC,
 * anything else FDRY_E_DRIVER; the message names function, error and remedy.
 */
int fdry_driver_result(const struct fdry_driver *drv, enum fdry_driver_fn fn, CUresult res);

/* FDRY_E_NOFUNC if the driver is older than FDRY_DRIVER_LEAST. Callers check this before work that
 * an older driver could not complete. */
int fdry_driver_check(const struct fdry_driver *drv) __must_check;

/* The device with the number @ordinal. FDRY_E_NOGPU if this process sees none. */
int fdry_driver_device(const struct fdry_driver *drv, int ordinal, CUdevice *ret) __must_check;

/* The result of a missing function; no driver uses this number. */
#define FDRY_CUDA_MISSING ((CUresult)-1)

/* The CUresult of a call, for the few callers that must distinguish results. */
#define fdry_call_raw(drv, symbol, ...) \
	((drv)->symbol ? (drv)->symbol(__VA_ARGS__) : FDRY_CUDA_MISSING)
/* 0 or -FDRY_E_...: int ret = fdry_call(drv, cuMemMap, ptr, size, 0, handle, 0); */
#define fdry_call(drv, symbol, ...) \
	fdry_driver_result(drv, FDRY_DRV_##symbol, fdry_call_raw(drv, symbol, __VA_ARGS__))

/**
 * fdry_driver_enter() - Make @ctx current to this thread, and its capture mode relaxed.
 * @mode: to be passed to fdry_driver_leave()
 *
 * Calls before fdry_driver_leave() break no capture elsewhere in the process.
 */
int fdry_driver_enter(const struct fdry_driver *drv, CUcontext ctx,
		      CUstreamCaptureMode *mode) __must_check;
/* Restore context and capture mode. The message of the last failure stays. */
void fdry_driver_leave(const struct fdry_driver *drv, CUstreamCaptureMode *mode);

#endif
