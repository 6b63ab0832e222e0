// SPDX-License-Identifier: Apache-2.0
/*
 * resolve.c - looks up a driver function at its first call.
 *
 * A slot changes once, from its stub to the driver's function; all threads write the same address.
 * If there is no driver, or it lacks the function, the slot keeps its stub. So every call sets the
 * error message of the calling thread.
 */
#include "hook/internal.h"

#include <errno.h>

#include "lib/log.h"

static const char *const names[] = {
#define JUMP(nr, symbol) [nr] = #symbol,
#define HOOKED JUMP
#include "hook/symbols.inc"
#undef JUMP
#undef HOOKED
};

#define SLOTS (sizeof(names) / sizeof(names[0]))

static bool lacking[SLOTS]; /* missing, and logged */

static CUresult no_device(void)
{
	return CUDA_ERROR_NO_DEVICE;
}

static CUresult no_function(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

/* Write 0, as a version or number of devices: callers may read the value before they check the
 * result. */
static CUresult none_of_it(int *ret)
{
	if (ret)
		*ret = 0;
	return CUDA_ERROR_NO_DEVICE;
}

static CUresult error_text(CUresult err, const char **ret, const char *text)
{
	if (!ret || err != CUDA_ERROR_NO_DEVICE)
		text = NULL;
	if (ret)
		*ret = text;
	return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult error_name(CUresult err, const char **ret)
{
	return error_text(err, ret, "CUDA_ERROR_NO_DEVICE");
}

static CUresult error_string(CUresult err, const char **ret)
{
	return error_text(err, ret, "no CUDA-capable device is detected");
}

/* Functions that write a value when there is no driver; all others are no_device(). */
static void *answer_without_driver(unsigned int nr)
{
	switch (nr) {
	case FDRY_JUMP_cuDriverGetVersion:
	case FDRY_JUMP_cuDeviceGetCount:
		return (void *)none_of_it;
	case FDRY_JUMP_cuGetErrorName:
		return (void *)error_name;
	case FDRY_JUMP_cuGetErrorString:
		return (void *)error_string;
	default:
		return (void *)no_device;
	}
}

void *fdry_jump_lookup(enum fdry_jump nr)
{
	void *driver = fdry_find_driver();

	return driver ? fdry_dynsym(driver, names[nr]) : NULL;
}

void *fdry_jump_resolve(unsigned int nr)
{
	int saved = errno;
	void *fn;

	if (nr >= SLOTS) {
		fn = (void *)no_function;
	} else if (!fdry_find_driver()) {
		fn = answer_without_driver(nr);
	} else {
		fn = fdry_jump_lookup(nr);
		if (fn) {
			__atomic_store_n(&fdry_jumps[nr], fn, __ATOMIC_RELEASE);
		} else {
			fdry_fail(FDRY_E_NOFUNC, "%s lacks %s; install a newer driver",
				  fdry_find_path(), names[nr]);
			if (!__atomic_exchange_n(&lacking[nr], true, __ATOMIC_RELAXED))
				fdry_warn("interposer: %s", fdry_last_error());
			fn = (void *)no_function;
		}
	}
	errno = saved;
	return fn;
}
