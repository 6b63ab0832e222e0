/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook.h - the table through which the library calls the interposer.
 *
 * The interposer (hook/) is a shared object with the SONAME libcuda.so.1, which takes the place of
 * the driver in a capturing process. It exports every symbol of the driver, and fdry_hook_table(),
 * by which the library recognises it. The library and the interposer share nothing else: each has a
 * copy of arch and mm. So last_error() returns the messages of the interposer's failures.
 *
 * Functions that return int return 0 or -FDRY_E_...; a call that fails changes nothing.
 *
 * Locking: any thread may call every function.
 */
#ifndef FDRY_HOOK_HOOK_H
#define FDRY_HOOK_HOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/unreported.h"
#include "mm/region.h"

#define FDRY_HOOK_VERSION 12
#define FDRY_HOOK_SYMBOL "fdry_hook_table"

/* The form in which device code was loaded. */
enum fdry_code_kind {
	FDRY_CODE_UNKNOWN, /* another form, or the bytes could not be kept; no data */
	FDRY_CODE_WRAPPER, /* fatbin wrapper (magic 0x466243b1), version 1 or 2, whose data is the
			      fatbin */
	FDRY_CODE_FATBIN, /* fatbin (magic 0xBA55ED50) */
	FDRY_CODE_ELF,    /* cubin, or an object of the software driver */
	FDRY_CODE_PTX,    /* text */
};

/* A load of device code that the interposer saw. The bytes stay until the process ends. */
struct fdry_code {
	CUlibrary library; /* the handle: one of the two is set */
	CUmodule module;
	enum fdry_code_kind kind;
	const void *data;
	size_t len; /* bytes at data, for PTX with its NUL; 0 for a wrapper, as the header of its
		       fatbin has the length */
	uint32_t njit;       /* number of JIT options, which are copied except outputs (logs,
				times) */
	const CUjit_option *jit;
	void *const *jit_values;
	bool jit_symbols; /* the options named symbols of the caller; these cannot be restored and
			     are left out */
};

/* Live objects that arguments do not reveal, or that cannot be restored. */
struct fdry_hook_live {
	uint64_t textures;       /* texture objects */
	uint64_t surfaces;       /* surface objects */
	uint64_t graph_launches; /* graph launches so far, replays included */
	uint64_t captures;       /* streams capturing now */
	uint64_t unwrapped;    /* look-ups of a hooked name that returned a version unknown to the
				  interposer */
};

/* A CUDA array. If it is a level of a mipmapped array, the descriptor and the context are those of
 * the mipmapped array. */
struct fdry_hook_array {
	CUDA_ARRAY3D_DESCRIPTOR desc; /* as the program passed it; without a depth and flags if it
					 passed none */
	CUcontext ctx;                /* in which it was made */
	uint64_t serial;              /* no other array of the process has it */
	uint64_t mipmap;              /* equal in all levels of the mipmapped array; 0: no level */
	unsigned int level;
	unsigned int levels;          /* as requested, at least 1: the driver makes at most as many
					 as there can be */
};

struct fdry_hook {
	uint32_t version; /* FDRY_HOOK_VERSION */
	uint32_t size;    /* sizeof(struct fdry_hook) */

	/* The message of this thread's last failure in the interposer, also in a CUDA call. Never
	 * NULL. */
	const char *(*last_error)(void);

	/* Full path of the real driver, which this opens if needed. NULL: see last_error(). */
	const char *(*real_path)(void);

	/* FDRY_E_LATE if a libcuda was loaded before the interposer, since its users bypass the
	 * interposer. The message names it. */
	int (*late)(void);

	/* FDRY_E_FORKED in a child that was forked after CUDA was started: it cannot begin a
	 * capture. */
	int (*forked)(void);

	/* FDRY_E_HIDDEN if a library passes the program's calls to the driver without the
	 * interposer. The message names that library. The check calls CUDA, so CUDA must be
	 * started. */
	int (*reached)(void);

	/* Begin a region: allocations on the current context's device get its addresses. There is
	 * one region at a time. Resume after pause continues at the same cursor; repeating either
	 * has no effect. FDRY_E_STATE if there is a region already, no context, or no region to act
	 * on. */
	int (*region_begin)(CUdeviceptr base, uint64_t size);
	/* Begin a region like region_begin(). An older region ends when the new one has begun, and
	 * stays as it is after a failure. */
	int (*region_move)(CUdeviceptr base, uint64_t size);
	int (*region_pause)(void);
	int (*region_resume)(void);
	/* End the region: new allocations are native again; live ones stay valid until freed. */
	int (*region_end)(void);
	int (*region_preallocate)(uint64_t size);
	int (*region_free_preallocated)(void);
	int (*region_offset)(uint64_t *ret);
	int (*region_set_offset)(uint64_t offset);
	/* Allocate @size bytes at @addr of the region, with padding up to @end
	 * (fdry_region_claim()); free an allocation. */
	int (*region_claim)(CUdeviceptr addr, uint64_t size, CUdeviceptr end);
	int (*region_free)(CUdeviceptr addr);
	/* Copy of the ledger (malloc'ed), with the region's bounds. FDRY_E_STATE if there is no
	 * region. */
	int (*region_ledger)(CUdeviceptr *base, uint64_t *size, struct fdry_alloc **ret,
			     size_t *count);

	/* The code behind a library or module handle (either may be NULL); FDRY_E_NOENT if it was
	 * never seen. */
	int (*code_find)(CUlibrary library, CUmodule module, struct fdry_code *ret);

	void (*live)(struct fdry_hook_live *ret);

	/* While @on, graph launches of this thread succeed without effect. This shows a framework's
	 * calls around a replay. */
	void (*launches_hold)(int on);

	/* A description of this handle's memory for a message: imported, mapped twice, ... Never
	 * NULL. */
	const char *(*origin)(CUmemGenericAllocationHandle handle);

	/* A description of memory at @addr that came from another process or API without such a
	 * handle; NULL for other memory. */
	const char *(*origin_at)(CUdeviceptr addr);

	/* Reserve an aside area of @size bytes right behind the region, and switch new allocations
	 * to it or back. Its allocations do not move the region's cursor and use none of its free
	 * ranges. The ledger lists them behind the region's, with higher serial numbers; offset,
	 * set_offset and preallocate concern the region alone. FDRY_E_STATE if the region already
	 * has an area, or has none to switch to. */
	int (*region_aside_begin)(uint64_t size);
	int (*region_aside)(bool on);
	/* The first address of the aside area, and the one behind its last allocation so far; the
	 * same address twice if the region has no area. */
	int (*region_aside_used)(uint64_t *base, uint64_t *end);

	/* Whether pinned host memory comes from the region's host areas, and memory that the
	 * program registers is noted. A region begins without. */
	void (*region_pinned)(bool on);
	/* Copy of the pinned host memory that is alive (malloc'ed), by address: allocations of the
	 * regions' host areas (FDRY_KIND_PINNED), and memory that the program registered while a
	 * region had begun (FDRY_KIND_REGISTERED). */
	int (*pinned_ledger)(struct fdry_alloc **ret, size_t *count);
	/* Whether a host area has ever allocated @addr. */
	bool (*pinned_used)(CUdeviceptr addr);
	/* Allocate @size bytes at @addr of the region's host areas (fdry_host_area_claim()); free
	 * an allocation. */
	int (*pinned_claim)(CUdeviceptr addr, uint64_t size);
	int (*pinned_free)(CUdeviceptr addr);

	/* What the driver does not report of a conditional node. FDRY_E_REFUSED if it was not seen
	 * when it was added. */
	int (*conditional)(CUgraphNode node, struct fdry_conditional *ret);
	/* The attributes of a kernel node that the driver does not report. */
	void (*attributes)(CUgraphNode node, struct fdry_unreported_attrs *ret);

	/* An array that the program made during the capture, and that exists. @graph: a node of it
	 * has the handle, and must mean this array, not an earlier one with the handle; NULL: no
	 * graph is concerned. FDRY_E_REFUSED says why @array is none. */
	int (*array)(CUgraph graph, CUarray array, struct fdry_hook_array *ret);

	/* The paths of the files from which the program has loaded code, without links, in order,
	 * each with a NUL behind it (malloc'ed); NULL if there are none. */
	int (*code_files)(char **ret, size_t *len);
};

typedef const struct fdry_hook *(*fdry_hook_table_fn)(void);

#endif
