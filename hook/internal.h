/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - declarations that the files of the interposer share. Include it first: it defines
 * how cuda.h is read here.
 *
 * The interposer is the libcuda.so.1 that a program calls in place of the driver.
 * It calls the driver through slots only (fdry_real()), never by name: those names are its own
 * exports. Exported functions return CUresult, like a driver.
 */
#ifndef FDRY_HOOK_INTERNAL_H
#define FDRY_HOOK_INTERNAL_H

/* Functions that cuda.h declares are exported if this folder defines them. */
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <pthread.h>

#include "hook/hook.h"

/* In cuda.h the plain name is the newest version; here every name is the symbol of that name. */
#undef cuArray3DCreate
#undef cuArrayCreate
#undef cuGetProcAddress
#undef cuGraphAddNode
#undef cuIpcOpenMemHandle
#undef cuMemAlloc
#undef cuMemAllocHost
#undef cuMemAllocPitch
#undef cuMemFree
#undef cuMemGetAddressRange
#undef cuMemHostRegister
#undef cuStreamBeginCapture
#undef cuStreamDestroy
#undef cuStreamUpdateCaptureDependencies

/* Descriptors of arrays in the first version of CUDA, which cuda.h hides. */
struct CUDA_ARRAY_DESCRIPTOR_v1_st {
	unsigned int Width, Height;
	CUarray_format Format;
	unsigned int NumChannels;
};

struct CUDA_ARRAY3D_DESCRIPTOR_v1_st {
	unsigned int Width, Height, Depth;
	CUarray_format Format;
	unsigned int NumChannels, Flags;
};

/* The prototypes of all hooks; the compiler compares them with those of cuda.h. */
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

/* The target of each symbol's calls; see jump.S. Read and written atomically. */
extern void *fdry_jumps[];

/* The driver's own function: res = fdry_real(cuMemFree_v2)(addr). It returns an error if there is
 * none. */
#define fdry_real(symbol) \
	((__typeof__(&symbol))__atomic_load_n(&fdry_jumps[FDRY_JUMP_##symbol], __ATOMIC_ACQUIRE))

/* The target of a call through slot @nr: the driver's function, which the slot then holds, or a
 * function of ours that returns an error. The stubs call this. errno is preserved. */
void *fdry_jump_resolve(unsigned int nr);
/* The driver's function for @nr as dlsym() gives it, or NULL; the slot does not change. */
void *fdry_jump_lookup(enum fdry_jump nr);

/* find.c */

/* The handle of the real driver, opened at the first call; NULL: see fdry_last_error(). */
void *fdry_find_driver(void);
/* Why there is none, or NULL. arch/driver.c looks for this symbol. */
__attribute__((visibility("default"))) const char *fdry_hook_reason(void);
/* Its full path, or NULL as above. */
const char *fdry_find_path(void);

/* start.c */

/* True in a child that was forked after CUDA was started: it cannot use CUDA. */
bool fdry_start_is_forked(void);
/* FDRY_E_FORKED in such a child. */
int fdry_start_forked(void);

/* loaded.c */

/* A libcuda in this process that is not the interposer: its path into @path. @before: only one
 * that was loaded before the interposer. */
bool fdry_loaded_driver(bool before, char *path, size_t size);
/* FDRY_E_LATE if a libcuda was loaded before the interposer. The message names it. */
int fdry_loaded_late(void);
/* Pin the program or shared object that has [@data, @data + @len) in a read-only part: the bytes
 * then stay until the process ends. False if there is none. */
bool fdry_loaded_pin(const void *data, size_t len);
/* True if @data lies in the program or a shared object. */
bool fdry_loaded_holds(const void *data);

/* dynsym.c */

/* The symbol @name that the object of @handle exports itself, or NULL. */
void *fdry_dynsym(void *handle, const char *name);
/* The SONAME of the object with that base and dynamic section; "" if it has none. */
const char *fdry_dynsym_soname(uintptr_t base, const void *dynamic);

/* bypass.c */

/* FDRY_E_HIDDEN if calls of the program do not reach the interposer. The message names the library
 * that diverts them. */
int fdry_bypass_check(void);
/* True if the check made this call. The hooked function must then return at once.
 */
bool fdry_bypass_probing(void);

/* ldconf.c */

/* Call @fn for each folder that is named in @file (such as /etc/ld.so.conf) or in files that it
 * includes, until @fn returns true. Returns whether it did. */
bool fdry_ldconf_each(const char *file, bool (*fn)(void *arg, const char *dir), void *arg);

/* dispatch.c: device addresses from the region. FDRY_FOREIGN: no region is concerned, so call the
 * driver. */

#define FDRY_FOREIGN 1

/* @limit: the largest address that the caller can store. */
int fdry_dispatch_alloc(uint64_t size, CUdeviceptr limit, CUdeviceptr *ret);
/* The allocation that holds @addr; FDRY_E_NOKEY if @addr lies in a region but in no allocation. */
int fdry_dispatch_find(CUdeviceptr addr, struct fdry_alloc *ret);

/* Get the region for new memory of the current context, or the region of @addr: 0, FDRY_FOREIGN or
 * an error. It stays until fdry_dispatch_put(). */
int fdry_dispatch_current(struct fdry_region **ret);
int fdry_dispatch_holder(CUdeviceptr addr, struct fdry_region **ret);
/* @freed: an allocation was freed, so an ended region may be unused now. */
void fdry_dispatch_put(bool freed);
/* The result that the driver would return for the error of an allocation, or of a free. */
CUresult fdry_dispatch_alloc_result(int err);
CUresult fdry_dispatch_free_result(int err);

/* Never allocate again memory that captures have freed so far. */
void fdry_dispatch_forget(void);

/* Unmap memory that was freed during captures. Call this when the last capture in progress ends. */
void fdry_dispatch_captured(void);

/* Bytes that the region and its aside area hold for pools; their slabs count for every pool. */
uint64_t fdry_dispatch_slab_bytes(void);

/* The region that allocates for the current context. */
struct fdry_dispatch_at {
	uint64_t number; /* of the region: no other region of the process has it */
	CUdeviceptr base;
	CUdevice dev;
	bool aside;      /* new allocations come from the aside area */
};

/* 0, FDRY_FOREIGN or an error. @pinned: FDRY_FOREIGN, without a call of the driver, unless pinned
 * memory comes from host areas. */
int fdry_dispatch_at(bool pinned, struct fdry_dispatch_at *ret);
/* The number of the region that has begun; 0 if there is none. */
uint64_t fdry_dispatch_number(void);

/* --- region.c --- */

/* Permit @dev to use the memory of all regions of device @owner, or end that. An error changes
 * nothing. */
int fdry_regions_open(CUdevice owner, CUdevice dev, bool open);

int fdry_hook_region_begin(CUdeviceptr base, uint64_t size);
int fdry_hook_region_move(CUdeviceptr base, uint64_t size);
int fdry_hook_region_pause(void);
int fdry_hook_region_resume(void);
int fdry_hook_region_end(void);
int fdry_hook_region_preallocate(uint64_t size);
int fdry_hook_region_free_preallocated(void);
int fdry_hook_region_offset(uint64_t *ret);
int fdry_hook_region_set_offset(uint64_t offset);
int fdry_hook_region_claim(CUdeviceptr addr, uint64_t size, CUdeviceptr end);
int fdry_hook_region_aside_begin(uint64_t size);
int fdry_hook_region_aside(bool on);
int fdry_hook_region_aside_used(uint64_t *base, uint64_t *end);
void fdry_hook_region_pinned(bool on);
int fdry_hook_region_ledger(CUdeviceptr *base, uint64_t *size, struct fdry_alloc **ret,
			    size_t *count);

/* mem.c */

int fdry_hook_region_free(CUdeviceptr addr);

/* --- pinned.c --- */

int fdry_hook_pinned_ledger(struct fdry_alloc **ret, size_t *count);
bool fdry_hook_pinned_used(CUdeviceptr addr);
int fdry_hook_pinned_claim(CUdeviceptr addr, uint64_t size);
int fdry_hook_pinned_free(CUdeviceptr addr);

/* --- array.c --- */

int fdry_hook_array(CUgraph graph, CUarray array, struct fdry_hook_array *ret);
/* The serial of the last array so far whose handle was used before; 0: there is none. A graph that
 * begins now has this age. */
uint64_t fdry_array_age(void);

/* --- graph_age.c --- */

/* Whether there are notes. */
bool fdry_graph_age_any(void);
/* @graph has begun. @age: fdry_array_age() before the call that made it; 0: not known. */
void fdry_graph_age_begin(CUgraph graph, uint64_t age);
/* @to is a clone of @from. */
void fdry_graph_age_copy(CUgraph to, CUgraph from);
/* Graphs may have been cloned that are not known: no age is known any more. */
void fdry_graph_age_forget(void);
/* The age of @graph; 0: not known. */
uint64_t fdry_graph_age(CUgraph graph);

/* --- attributes.c --- */

void fdry_hook_attributes(CUgraphNode node, struct fdry_unreported_attrs *ret);
/* Whether there are notes. */
bool fdry_attributes_any(void);
/* @to has the attributes of @from from now on. False: out of memory, and @to may lack them. */
bool fdry_attributes_copy(CUgraphNode to, CUgraphNode from);
/* @call, a number, is about to destroy @node; it has returned. */
void fdry_attributes_ending(CUgraphNode node, uint64_t call);
void fdry_attributes_end(uint64_t call, bool refused);
/* Capture @id failed, and the driver has destroyed its graph. 0: none. */
void fdry_attributes_lost(cuuint64_t id);

/* --- conditional.c --- */

int fdry_hook_conditional(CUgraphNode node, struct fdry_conditional *ret);
/* The driver has added @node to @graph. */
void fdry_conditional_added(CUgraphNode node, CUgraph graph, const CUDA_CONDITIONAL_NODE_PARAMS *p);

/* --- graph_memory.c --- */

struct fdry_node_place {
	CUgraph graph;
	const CUgraphNode *deps;
	const CUgraphEdgeData *data; /* may be NULL */
	size_t n;
};

/* Add an allocation or free node with memory of a region. False: the driver must add the node. */
bool fdry_graph_memory_add(const struct fdry_node_place *at, CUgraphNodeParams *p,
			   CUgraphNode *ret, CUresult *res);
/* Whether there are such nodes; whether @graph has one; whether @node is one. */
bool fdry_graph_memory_any(void);
bool fdry_graph_memory_in(CUgraph graph);
bool fdry_graph_memory_is(CUgraphNode node);
/* @call, a number, is about to destroy @node; it has returned. */
void fdry_graph_memory_ending(CUgraphNode node, uint64_t call);
void fdry_graph_memory_end(uint64_t call, bool refused);

/* pool.c: the pools that the region replaces, and their bytes */

/* True if memory from @pool (NULL: the current pool, which is returned in it) on @dev comes from
 * the region. */
bool fdry_mempool_in_region(CUdevice dev, CUmemoryPool *pool);
/* Count an allocation of @size bytes from @pool; negative: a free. */
void fdry_mempool_count(CUmemoryPool pool, int64_t size);

/* Remove a pool that was destroyed from the list. */
void fdry_mempool_forget(CUmemoryPool pool);
/* The device of a pool that a region may replace; CUDA_ERROR_NOT_FOUND for other pools, or the
 * driver's error. */
CUresult fdry_mempool_device(CUmemoryPool pool, CUdevice *ret);

/* code.c: device code as bytes */

/* Code that stays after the call that loaded it. */
struct fdry_kept {
	enum fdry_code_kind kind;
	const void *data;
	size_t len;
	void *alloc;   /* NULL, or memory to free: by free(), */
	size_t mapped; /* or by munmap() if this is not 0 */
};

/* Keep the code at @image, which contains its length: in place if that is safe, else as a copy. */
int fdry_code_keep(const void *image, struct fdry_kept *ret) __must_check;
void fdry_code_drop(void *alloc, size_t mapped);
/* The end of an ELF file with these headers and tables; 0 if they are wrong. */
size_t fdry_code_elf_len(const void *header, const void *sections, const void *segments);
/* Keep the @len bytes at @alloc, which were allocated and belong to @ret from now on. A NUL follows
 * them. */
void fdry_code_adopt(void *alloc, size_t len, struct fdry_kept *ret);

/* copy.c: a copy that is made while the driver loads the code */

struct fdry_copy {
	const void *image;
	pthread_t thread;
	bool running;
	void *data; /* the copy, once there is one */
	size_t len;
};

/* Begin to copy the code at @image, if it is large. The code must stay until fdry_copy_end(). */
void fdry_copy_begin(const void *image, struct fdry_copy *c);
/* The copy, which the caller then owns; false if there is none. */
bool fdry_copy_take(struct fdry_copy *c, struct fdry_kept *ret);
void fdry_copy_end(struct fdry_copy *c);

/* note.c: the source of every handle */

/* A load by the driver. */
struct fdry_load {
	CUlibrary library; /* one of the two */
	CUmodule module;
	const void *image; /* NULL if it is unknown */
	struct fdry_copy *copy; /* of the image, if one was begun */
	unsigned int n;    /* JIT options */
	const CUjit_option *options;
	void *const *values;
};

/* Note a load; if that fails, the handle is noted as unknown. */
void fdry_note(const struct fdry_load *load);
/* Note a load whose code is the @len bytes at @alloc, with a NUL after them. They were allocated,
 * and the note owns them from now on. */
void fdry_note_adopt(const struct fdry_load *load, void *alloc, size_t len);
/* @module is the module that the driver made of @library. */
void fdry_note_alias(CUlibrary library, CUmodule module);
int fdry_note_find(CUlibrary library, CUmodule module, struct fdry_code *ret);

/* code_files.c */

/* Note the file at @path, from which code was loaded. Without memory it is not noted. */
void fdry_code_file_add(const char *path);
/* The paths that were noted, without links, in order, each with a NUL behind it (malloc'ed); NULL
 * if there are none. */
int fdry_hook_code_files(char **ret, size_t *len);

/* capture_list.c */

/* What is noted of a capture. */
struct fdry_capture_note {
	cuuint64_t id; /* the driver's number of the capture; 0: not known */
	uint64_t age;  /* of its graph (graph_age.c); 0: not known, or a graph of the program */
};

/* Note that a capture began on @stream. False: out of memory. */
bool fdry_capture_add(CUstream stream, const struct fdry_capture_note *note);
/* Note that it ended. Returns true if no other capture is in progress. */
bool fdry_capture_remove(CUstream stream, struct fdry_capture_note *ret);
/* The number of captures in progress. */
uint64_t fdry_capture_count(void);
/* FDRY_ALLOC_CAPTURING while a stream captures, else 0. */
unsigned int fdry_capture_alloc_flags(void);

/* live.c, proc.c */

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
