/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook.h - the one table through which the library talks to the stand-in.
 *
 * The stand-in (hook/) is an object of its own with the SONAME libcuda.so.1. It exports
 * every symbol of the driver, and fdry_hook_table(), which is how the library recognises
 * it. Nothing else is shared: each object has its own copy of arch and mm, so a failure
 * leaves its sentence in last_error().
 *
 * Functions that return int give 0 or -FDRY_E_...; a call that fails changes nothing.
 *
 * Locking: every function may be called from any thread.
 */
#ifndef FDRY_HOOK_HOOK_H
#define FDRY_HOOK_HOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/region.h"

#define FDRY_HOOK_VERSION 3
#define FDRY_HOOK_SYMBOL "fdry_hook_table"

/* What device code was loaded from. */
enum fdry_code_kind {
	FDRY_CODE_UNKNOWN, /* none of the below, or it could not be kept: no data */
	FDRY_CODE_WRAPPER, /* fatbin wrapper (magic 0x466243b1), version 1 or 2, whose data is the fatbin */
	FDRY_CODE_FATBIN,  /* fatbin (magic 0xBA55ED50) */
	FDRY_CODE_ELF,     /* cubin, or an object of the software driver */
	FDRY_CODE_PTX,     /* text */
};

/* One load of device code that the stand-in saw. The bytes live as long as the process. */
struct fdry_code {
	CUlibrary library; /* how it was loaded: one of the two is set */
	CUmodule module;
	enum fdry_code_kind kind;
	const void *data;
	size_t len;          /* bytes at data, PTX with its NUL; 0 for a wrapper, whose fatbin has a header of its own */
	uint32_t njit;       /* JIT options that came along, copied; outputs (logs, times) are left out */
	const CUjit_option *jit;
	void *const *jit_values;
	bool jit_symbols;    /* options named the caller's own symbols: left out, and nothing can bring them back */
};

/* What is alive and cannot be recognised in arguments or restored. */
struct fdry_hook_live {
	uint64_t textures;     /* texture objects */
	uint64_t surfaces;     /* surface objects */
	uint64_t graph_launches; /* graph launches so far, replays included */
	uint64_t captures;     /* streams capturing now */
	uint64_t unwrapped;    /* hooked names that the driver answered with a version the stand-in does not know */
};

struct fdry_hook {
	uint32_t version; /* FDRY_HOOK_VERSION */
	uint32_t size;    /* sizeof(struct fdry_hook) */

	/* The sentence of this thread's last failure in the stand-in, a CUDA call's too. Never NULL. */
	const char *(*last_error)(void);

	/* Full path of the real driver behind the stand-in; opens it if need be. NULL: see last_error(). */
	const char *(*real_path)(void);

	/* FDRY_E_LATE, naming it, where a libcuda was loaded before the stand-in: what holds it passes us by. */
	int (*late)(void);

	/* FDRY_E_FORKED in a child that was forked after CUDA was started: no capture can begin there. */
	int (*forked)(void);

	/* FDRY_E_HIDDEN, naming it, where a library takes a program's calls to the driver past the
	 * stand-in. It calls CUDA to find out, so CUDA has to be started. */
	int (*reached)(void);

	/* Start giving the region's addresses to device allocations of the current context's device.
	 * One region at a time; resume after pause continues at the same cursor. Both may be said
	 * twice. FDRY_E_STATE where there is a region already, no context, or no region to act on. */
	int (*region_begin)(CUdeviceptr base, uint64_t size);
	/* The same if there may be a region already: that one ends when the new one has begun, and stays as it is if it cannot. */
	int (*region_move)(CUdeviceptr base, uint64_t size);
	int (*region_pause)(void);
	int (*region_resume)(void);
	/* Forget the region: new allocations are native again; live ones stay valid until freed. */
	int (*region_end)(void);
	int (*region_preallocate)(uint64_t size);
	int (*region_free_preallocated)(void);
	int (*region_offset)(uint64_t *ret);
	int (*region_set_offset)(uint64_t offset);
	/* Allocate @size bytes at @addr of the region and nowhere else (fdry_region_claim()); and free one. */
	int (*region_claim)(CUdeviceptr addr, uint64_t size);
	int (*region_free)(CUdeviceptr addr);
	/* Copy of the ledger (malloc'ed), with the region's bounds. FDRY_E_STATE where there is no region. */
	int (*region_ledger)(CUdeviceptr *base, uint64_t *size, struct fdry_alloc **ret, size_t *count);

	/* The code behind a library or module handle (either may be NULL); FDRY_E_NOENT if it was never seen. */
	int (*code_find)(CUlibrary library, CUmodule module, struct fdry_code *ret);

	void (*live)(struct fdry_hook_live *ret);

	/* While @on, graph launches of this thread succeed and do nothing: shows what a framework does around a replay. */
	void (*launches_hold)(int on);

	/* What memory of this handle is, for a message: imported, mapped at two places, ... Never NULL. */
	const char *(*origin)(CUmemGenericAllocationHandle handle);

	/* The same of memory at @addr that came from another process or API without a handle of that kind; NULL: it is none. */
	const char *(*origin_at)(CUdeviceptr addr);
};

typedef const struct fdry_hook *(*fdry_hook_table_fn)(void);

#endif
