/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what the files of the stand-in share. Include it first: it says how
 * cuda.h is read here.
 *
 * The driver is called through slots only (fdry_real()), never by name: the names are
 * our own exports. Files of this folder answer CUresult, as a driver must.
 */
#ifndef FDRY_HOOK_INTERNAL_H
#define FDRY_HOOK_INTERNAL_H

/* What cuda.h declares is exported where it is defined here. */
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <pthread.h>

#include "hook/hook.h"

/* cuda.h gives the newest version the plain name; here every name means the symbol of that name. */
#undef cuGetProcAddress
#undef cuIpcOpenMemHandle
#undef cuMemAlloc
#undef cuMemAllocPitch
#undef cuMemFree
#undef cuMemGetAddressRange
#undef cuStreamBeginCapture
#undef cuStreamDestroy
#undef cuStreamUpdateCaptureDependencies

/* The prototypes of everything hooked; where cuda.h has one too the compiler compares them. */
#define HOOK(symbol, name, since, stream, params) \
	__attribute__((visibility("default"))) CUresult symbol params;
#include "hook/hooks.def"
#undef HOOK
__attribute__((visibility("default"))) const struct fdry_hook *fdry_hook_table(void);

/* resolve.c, jump.S */

enum fdry_jump {
#define JUMP(nr, symbol) FDRY_JUMP_##symbol = nr,
#define HOOKED JUMP
#include "hook/symbols.inc"
#undef JUMP
#undef HOOKED
};

/* Where each symbol's calls go; see jump.S. Read and written atomically. */
extern void *fdry_jumps[];

/* The driver's own function: res = fdry_real(cuMemFree_v2)(addr). It answers even where there is none. */
#define fdry_real(symbol) \
	((__typeof__(&symbol))__atomic_load_n(&fdry_jumps[FDRY_JUMP_##symbol], __ATOMIC_ACQUIRE))

/* Where a call through slot @nr shall go: the driver's function, which the slot then holds, or an
 * answer of ours. Called by the stubs. errno is preserved. */
void *fdry_jump_resolve(unsigned int nr);
/* The driver's function for @nr as dlsym() gives it, or NULL; the slot is left alone. */
void *fdry_jump_lookup(enum fdry_jump nr);

/* find.c */

/* The handle of the real driver, opened at the first call; NULL: see fdry_last_error(). */
void *fdry_find_driver(void);
/* Its full path, or NULL likewise. */
const char *fdry_find_path(void);

/* start.c */

/* True in a child that was forked after CUDA was started: it has no CUDA, only our locks. */
bool fdry_find_forked(void);
/* FDRY_E_FORKED in such a child. */
int fdry_start_forked(void);

/* loaded.c */

/* A libcuda in this process that is not the stand-in: its path into @path. @before: only one
 * that was loaded before the stand-in. */
bool fdry_loaded_driver(bool before, char *path, size_t size);
/* True if [@data, @data + @len) lies in a read-only part of the program or of a shared object,
 * which is then pinned: the bytes stay for as long as the process lives. */
bool fdry_loaded_pin(const void *data, size_t len);
/* True if @data lies in the program or a shared object. */
bool fdry_loaded_holds(const void *data);

/* dynsym.c */

/* What the object behind @handle itself exports as @name, or NULL. */
void *fdry_dynsym(void *handle, const char *name);
/* The SONAME of the object with that base and dynamic section; "" where it has none. */
const char *fdry_dynsym_soname(uintptr_t base, const void *dynamic);

/* bypass.c */

/* FDRY_E_HIDDEN, naming the library, where calls that a program makes do not come to the stand-in. */
int fdry_bypass_check(void);
/* For the functions that are tried: true where this call is such a try, which goes no further. */
bool fdry_bypass_probing(void);

/* ldconf.c */

/* Call @fn for each folder that @file (such as /etc/ld.so.conf) and what it includes name,
 * until it gives true; true if it did. */
bool fdry_ldconf_each(const char *file, bool (*fn)(void *arg, const char *dir), void *arg);

/* region.c: device addresses from the region. A result of FDRY_FOREIGN means: not ours, ask the driver. */

#define FDRY_FOREIGN 1

/* @limit: the largest address that the caller can hold. */
int fdry_dispatch_alloc(uint64_t size, CUdeviceptr limit, CUdeviceptr *ret);
int fdry_dispatch_free(CUdeviceptr addr);
/* The allocation that holds @addr; FDRY_E_NOKEY where @addr is ours but in none. */
int fdry_dispatch_find(CUdeviceptr addr, struct fdry_alloc *ret);

/* Take hold of the region that new memory for the current context comes from, or of the one that @addr lies in:
 * 0, FDRY_FOREIGN or an error. Held until fdry_dispatch_put(), by which nothing of the region's may be freed. */
int fdry_dispatch_current(struct fdry_region **ret);
int fdry_dispatch_holder(CUdeviceptr addr, struct fdry_region **ret);
/* @freed: something was, and the region may have ended with it. */
void fdry_dispatch_put(bool freed);
/* FDRY_ALLOC_CAPTURING while a stream captures, else 0. */
unsigned int fdry_dispatch_flags(void);
/* What the driver would answer: @err is that of an allocation, or of a free. */
CUresult fdry_dispatch_alloc_result(int err);
CUresult fdry_dispatch_free_result(int err);

/* What captures have freed so far is not handed out again. */
void fdry_dispatch_forget(void);

/* The last capture in progress has ended: what was freed meanwhile can go. */
void fdry_dispatch_captured(void);

/* Let @dev use the memory of every region of @owner's, or no longer; 0 or an error, which leaves all as it was. */
int fdry_dispatch_open(CUdevice owner, CUdevice dev, bool open);

int fdry_hook_region_begin(CUdeviceptr base, uint64_t size);
int fdry_hook_region_move(CUdeviceptr base, uint64_t size);
int fdry_hook_region_pause(void);
int fdry_hook_region_resume(void);
int fdry_hook_region_end(void);
int fdry_hook_region_preallocate(uint64_t size);
int fdry_hook_region_free_preallocated(void);
int fdry_hook_region_offset(uint64_t *ret);
int fdry_hook_region_set_offset(uint64_t offset);
int fdry_hook_region_claim(CUdeviceptr addr, uint64_t size);
int fdry_hook_region_free(CUdeviceptr addr);
int fdry_hook_region_ledger(CUdeviceptr *base, uint64_t *size, struct fdry_alloc **ret, size_t *count);

/* pool.c: which pools the region stands in for, and what they hold */

/* Does memory from @pool (NULL: the current one, which it then gets) on @dev come from the region? */
bool fdry_mempool_in_region(CUdevice dev, CUmemoryPool *pool);
/* An allocation of @size bytes from @pool was made, or freed where it is negative. */
void fdry_mempool_count(CUmemoryPool pool, int64_t size);

/* The device of a pool that a region may stand in for; CUDA_ERROR_NOT_FOUND where it is none, or the driver's error. */
CUresult fdry_mempool_device(CUmemoryPool pool, CUdevice *ret);

/* peer.c: which devices may use another's memory */

/* Those that may use memory of @owner's, a bit for each ordinal. */
uint64_t fdry_peers(CUdevice owner);
/* @pool is no more. */
void fdry_peer_pool_gone(CUmemoryPool pool);

/* code.c: device code as bytes */

/* Code that outlives the call that loaded it. */
struct fdry_kept {
	enum fdry_code_kind kind;
	const void *data;
	size_t len;
	void *own;     /* what is to be given back, if anything: by free(), */
	size_t mapped; /* or, where this is not 0, by munmap() */
};

/* Keep the code at @image, whose length it tells itself: in place where that is safe, else copied. */
int fdry_code_keep(const void *image, struct fdry_kept *ret) __must_check;
void fdry_code_drop(void *own, size_t mapped);
/* Where an ELF file ends that has these headers and tables; 0: it makes no sense. */
size_t fdry_code_elf_len(const void *header, const void *sections, const void *segments);
/* Keep the @len bytes at @own, which were allocated and now belong to @ret. A NUL follows them. */
void fdry_code_adopt(void *own, size_t len, struct fdry_kept *ret);

/* copy.c: a copy that is made while the driver loads the code */

struct fdry_copy {
	const void *image;
	pthread_t thread;
	bool running;
	void *data; /* the copy, once there is one */
	size_t len;
};

/* Begin to copy the code at @image, if that is worth while. What is there stays until fdry_copy_end(). */
void fdry_copy_begin(const void *image, struct fdry_copy *c);
/* The copy, which is the caller's then; false where there is none. */
bool fdry_copy_take(struct fdry_copy *c, struct fdry_kept *ret);
void fdry_copy_end(struct fdry_copy *c);

/* note.c: what every handle was loaded from */

/* A load that the driver has done. */
struct fdry_load {
	CUlibrary library; /* one of the two */
	CUmodule module;
	const void *image; /* NULL where it could not be had */
	struct fdry_copy *copy; /* of it, if one was begun */
	unsigned int n;    /* JIT options */
	const CUjit_option *options;
	void *const *values;
};

/* Note a load; where that fails the handle is noted as unknown. */
void fdry_note(const struct fdry_load *load);
/* The same for code of @len bytes at @own, which was allocated, has a NUL behind it and is taken over. */
void fdry_note_own(const struct fdry_load *load, void *own, size_t len);
/* @module is what the driver made of @library. */
void fdry_note_alias(CUlibrary library, CUmodule module);
int fdry_note_find(CUlibrary library, CUmodule module, struct fdry_code *ret);

/* capture.c, live.c, proc.c */

uint64_t fdry_capture_count(void);
void fdry_hook_live(struct fdry_hook_live *ret);
void fdry_hook_launches_hold(int on);
/* map.c */
const char *fdry_hook_origin(CUmemGenericAllocationHandle handle);
/* import.c */
const char *fdry_hook_origin_at(CUdeviceptr addr);
/* The memory at @addr is about to be freed. */
void fdry_import_gone(CUdeviceptr addr);
uint64_t fdry_proc_unwrapped(void);

#endif
