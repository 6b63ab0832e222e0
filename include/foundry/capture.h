/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h - capture graphs and seal them, with all that they need, into an image. Part of
 * foundry.h, whose rules for errors, threads, handles and units apply.
 */
#ifndef FOUNDRY_CAPTURE_H
#define FOUNDRY_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/store.h"
#include "foundry/tensor.h"
#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * fdry_hook_install() - Put the interposer, a library loaded as libcuda.so.1, in place.
 * @path: the interposer; NULL: FOUNDRY_HOOK, else foundry/hook/libcuda.so.1 beside this library
 *
 * Call it before anything loads libcuda.so.1 in this process. The interposer then has that name,
 * passes every call to the real driver and records what a seal needs. Another call, or a call under
 * LD_PRELOAD of the same object, changes nothing.
 * Errors: FDRY_E_LATE (a libcuda is loaded already; the message names it), FDRY_E_NOHOOK (the
 * interposer is not found).
 */
int fdry_hook_install(const char *path);

/**
 * fdry_hook_path() - The path of the interposer, for LD_PRELOAD of a program that captures from its
 * start. The same directory has a copy named libcuda.so.
 * @path: gets the absolute path, with links followed
 * @len: bytes at @path; PATH_MAX is always enough
 *
 * FOUNDRY_HOOK, else foundry/hook/libcuda.so.1 beside this library. The call loads nothing.
 * Errors: FDRY_E_NOHOOK (no such file), FDRY_E_RANGE (the path does not fit).
 */
int fdry_hook_path(char *path, size_t len);

struct fdry_capture;

enum fdry_capture_flags {
	/* Pinned host memory of the capture gets fixed addresses, so that graphs whose kernels use
	 * it can be sealed. Without this, they are refused. */
	FDRY_CAPTURE_PINNED = 1 << 0,
};

/**
 * struct fdry_capture_opts - How a capture places memory.
 * @sz: sizeof(struct fdry_capture_opts)
 * @device: ordinal of the device whose allocations get addresses in the region
 * @flags: of enum fdry_capture_flags
 * @base: first device address, a multiple of 2 MiB; 0: fdry_base_for_name() of @name
 * @size: bytes of addresses to reserve; 0: as much as is free there, 64 GiB to 1 TiB. Addresses
 *         cost nothing. The addresses of allocations do not depend on the size
 * @preallocate: bytes of memory to map ahead; 0: none
 * @name: of the workload, such as its ref; NULL: the default base
 * @after: NULL, or the present capture of the process, whose region ends when the new one begins.
 *         Its live memory stays valid and is freed as before. The only call that it accepts
 *         afterwards is fdry_capture_end(); others fail with FDRY_E_STATE. If the new capture
 *         cannot begin, the present one continues
 * @aside: bytes of addresses for an aside area right behind the region, a multiple of 2 MiB; 0:
 *         none. See fdry_capture_aside(). It needs @size, and @after must be NULL
 */
struct fdry_capture_opts {
	size_t sz;
	int32_t device;
	uint32_t flags;
	fdry_devptr base;
	uint64_t size;
	uint64_t preallocate;
	const char *name;
	struct fdry_capture *after;
	uint64_t aside;
};

/**
 * fdry_base_for_name() - The default base of regions with a name.
 * @name: any text, such as a ref; NULL or "": the default base
 *
 * The result is the same in every process, on every machine and in every release. An image loads at
 * the addresses of its capture, so images for one process must be captured under different names.
 * The places of two names overlap in one case of 180, those of two images of up to 256 MiB in one
 * of 46,000. FDRY_E_TAKEN then says which image is there; one of the two needs another name, or a
 * base of its own.
 */
fdry_devptr fdry_base_for_name(const char *name);

/**
 * fdry_capture_begin() - Begin to allocate device memory at fixed addresses.
 * @opts: NULL for the defaults
 * @ret: the capture; end it with fdry_capture_end()
 *
 * From here on the device's memory comes from one region. The same calls get the same addresses in
 * every process. This covers cuMemAlloc and cuMemAllocPitch (and so cudaMalloc), stream-ordered
 * memory of the device's default pool and of pools for this process alone, and address ranges that
 * are reserved without a hint, whose memory the caller maps. Managed, pinned and imported memory
 * and memory of other devices comes from the driver; a seal refuses graphs that use it. A process
 * has one capture at a time. The capture retains the device's primary context.
 *
 * Errors: FDRY_E_NOHOOK; FDRY_E_LATE and FDRY_E_HIDDEN (another library keeps calls from the
 * interposer; both name it); FDRY_E_FORKED (the process forked after CUDA started); FDRY_E_STATE;
 * FDRY_E_NOFUNC (a driver older than CUDA 12.5); FDRY_E_TAKEN (names what lies at the base).
 */
int fdry_capture_begin(const struct fdry_capture_opts *opts, struct fdry_capture **ret);
/* Let the driver allocate until fdry_capture_resume(). A seal refuses graphs that use it. */
int fdry_capture_pause(struct fdry_capture *cap);
int fdry_capture_resume(struct fdry_capture *cap);
/**
 * fdry_capture_aside() - Allocate new memory from the aside area, or from the region again.
 * @on: 1: the aside area; 0: the region
 *
 * The aside area is a second region behind the first one, with a cursor of its own. A capturing
 * process may profile and warm up there, and a loading process may omit that work: the allocations
 * that both make in the region get the same addresses. Graphs may use memory of the area, and the
 * seal writes it to the image. A free returns memory to the area or region from which it came.
 * FDRY_E_STATE if the capture has no aside area.
 */
int fdry_capture_aside(struct fdry_capture *cap, int on);
/* The cursor: bytes of the region that are allocated so far. */
int fdry_capture_offset(struct fdry_capture *cap, uint64_t *ret);
/* Move the cursor, as the process did that made an image. */
int fdry_capture_set_offset(struct fdry_capture *cap, uint64_t offset);
/* Map the next @size bytes at the cursor ahead, so that allocations there do not call the driver.
 * FDRY_E_RANGE, FDRY_E_NODEVMEM. */
int fdry_capture_preallocate(struct fdry_capture *cap, uint64_t size);
/* Unmap the part of it that no allocation uses. FDRY_E_STATE if nothing was mapped ahead. */
int fdry_capture_free_preallocated(struct fdry_capture *cap);

/* Name a tensor. It must lie inside live memory of the region, or with FDRY_TENSOR_HOST inside one
 * pinned allocation or readable pageable memory. Its dimensions may have any order, and its
 * elements may have gaps between them; an external tensor has no gaps (FDRY_E_INVAL). FDRY_E_EXISTS
 * if the name is in use, FDRY_E_NAME, FDRY_E_RANGE. */
int fdry_capture_tensor(struct fdry_capture *cap, const struct fdry_tensor *tensor);
/**
 * fdry_capture_capacity() - Reserve addresses behind an external tensor, so that loads can size it.
 * @name: an external tensor in device memory, named before. Its first dimension is the outermost
 *         one in memory. It has an allocation of its own, a multiple of 2 MiB, that was the last
 *         one made
 * @max_bytes: the most bytes that a load may give it; rounded up to 2 MiB
 *
 * A KV cache is captured small, and loaded as large as the device's memory allows:
 * fdry_load_opts.externals. Its first dimension grows with it. The call uses addresses, not memory.
 * Errors: FDRY_E_NOKEY; FDRY_E_STATE (not external, or memory behind it is allocated);
 * FDRY_E_RANGE (not an allocation of its own; @max_bytes is not larger; the region is full);
 * FDRY_E_EXISTS.
 *
 * Graphs run with any size. Sizes in their arguments are those of the capture, so inputs (block
 * tables, lengths) must say how much of the tensor graphs may use. A load with less memory than the
 * capture had is refused if a node sets or copies memory that is missing, or gets a pointer into
 * it. The library cannot check kernels that compute such an address from the tensor's beginning:
 * the access ends the context, as any invalid access does.
 */
int fdry_capture_capacity(struct fdry_capture *cap, const char *name, uint64_t max_bytes);
/* State a fact that loads can compare: model revision, engine version, rank, ... The call copies
 * both strings. Keys follow the rules of tensor names and do not begin with "fdry."; a value is any
 * text. The Python package uses keys that begin with "py." for the code that captures. */
int fdry_capture_fact(struct fdry_capture *cap, const char *key, const char *value);
/**
 * fdry_capture_host_function() - Name a function of the program that graphs call.
 * @function: the function and the argument of cuLaunchHostFunc() or of a host node, and a name by
 *         the rules of tensor names. The call copies the name
 *
 * Addresses of functions and data differ in every process, so an image holds names. A load binds
 * each name to a function and an argument of the loading process: fdry_load_opts.functions. A seal
 * refuses graphs that call functions without a name. The same function with two arguments has two
 * names. Nothing that the argument points to is kept.
 * Errors: FDRY_E_NAME; FDRY_E_INVAL (no function); FDRY_E_EXISTS (the name is in use, or function
 * and argument have a name).
 */
int fdry_capture_host_function(struct fdry_capture *cap,
			       const struct fdry_host_function *function);
/**
 * fdry_capture_semaphore() - Name a semaphore of another API that graphs signal or wait for.
 * @name: by the rules of tensor names. The call copies it
 * @semaphore: what cuImportExternalSemaphore() returned. It lives until the last seal
 *
 * An image holds the name, and the values, keys and times with which its graphs use the semaphore.
 * A load binds each name to a semaphore of the loading process: fdry_load_opts.semaphores. It must
 * be of the same kind (binary, timeline, mutex with keys). A seal refuses graphs that use a
 * semaphore without a name, or a fence of NvSciSync, which has no meaning in another process.
 * Errors: FDRY_E_NAME; FDRY_E_INVAL (no semaphore); FDRY_E_EXISTS (the name is in use, or the
 * semaphore has a name).
 */
int fdry_capture_semaphore(struct fdry_capture *cap, const char *name,
			   CUexternalSemaphore semaphore);
/**
 * fdry_capture_graph() - Add a captured graph.
 * @key: by which loads find it, such as a batch size; unique (FDRY_E_EXISTS)
 * @name: for people, may be NULL
 * @graph: from stream capture; must stay alive and unchanged until the seal
 */
int fdry_capture_graph(struct fdry_capture *cap, uint64_t key, const char *name, CUgraph graph);
/* Mark graph @key as one that draws random numbers. The seal refuses it, by name, unless
 * fdry_capture_rng_use() (foundry/rng.h) declares its generators. */
int fdry_capture_rng(struct fdry_capture *cap, uint64_t key);

/**
 * fdry_capture_hold() - Make graph launches of this thread do nothing.
 * @on: 1 to begin, 0 to end
 *
 * Launches then succeed and leave memory as it is. So a program can see what a framework does
 * around a replay, without the replay: if a random generator advances, the graph draws from it.
 */
int fdry_capture_hold(struct fdry_capture *cap, int on);

/**
 * struct fdry_seal_report - What a seal made.
 * @sz: set by the caller: sizeof(struct fdry_seal_report)
 * @kernels_whole: kernels whose object is a whole cubin; fdry_image_describe() has the reasons
 * @whole_bytes: of the cubins from which kernel objects were sliced
 * @content_bytes: device memory that the image keeps. Zeros (@zero_bytes), proven scratch and
 *         external tensors are not in it
 * @stored_new: bytes of the new objects in the store; other sizes are uncompressed
 * @pointer_words: words of content that look like pointers outside of the region but are taken for
 *         numbers. A seal refuses words that can hardly be numbers
 * @unchanged_bytes: the part of @content_bytes that equals content which this capture sealed before
 *         and the store still has. It was neither hashed nor stored again
 */
struct fdry_seal_report {
	size_t sz;
	uint64_t graphs, nodes;
	uint64_t kernels, kernels_whole;
	uint64_t graph_bytes, kernel_bytes, whole_bytes, manifest_bytes;
	uint64_t content_bytes, zero_bytes, scratch_bytes, external_bytes;
	uint64_t objects_new, objects_known, stored_new;
	double graphs_ms, kernels_ms, content_ms, commit_ms, total_ms;
	uint64_t pointer_words;
	uint64_t unchanged_bytes;
};

/**
 * fdry_capture_seal() - Make an image of the graphs and everything that they need.
 * @store: open and writable
 * @ref: a name for the image, or NULL
 * @id: FDRY_ID_SIZE bytes for the image's id, or NULL
 * @report: NULL, or what was made
 *
 * The call waits for the device's primary context and for the current one. Content is the memory of
 * the region as it is now, so reset state before. Memory that was first allocated while a stream
 * captured, and not touched since, counts as scratch and is not kept. The seal refuses
 * (FDRY_E_REFUSED) everything that cannot be restored exactly, and names graph, node, kernel and
 * reason; the store then has at most new unreferenced objects. The call may be repeated, with more
 * graphs or after more work. If another process sets @ref to another image at the same time, that
 * image stays and this seal fails (FDRY_E_RACED).
 *
 * Nothing may use the region's memory during the seal. The library notices allocations and graph
 * launches by other threads (FDRY_E_STATE), but not their kernels and copies.
 */
int fdry_capture_seal(struct fdry_capture *cap, struct fdry_store *store, const char *ref,
		      char *id, struct fdry_seal_report *report);

/* The phases of a seal, in their order, as its progress function gets them. */
enum fdry_seal_phase {
	FDRY_SEAL_GRAPHS = 0,  /* read: graphs */
	FDRY_SEAL_SLICES = 1,  /* sliced out of their modules: kernels */
	FDRY_SEAL_CONTENT = 2, /* stored, or known to be stored: bytes of device memory */
	FDRY_SEAL_KERNELS = 3, /* stored: kernels */
	FDRY_SEAL_COMMIT = 4,  /* the image is in the store: 1 of 1 */
};

/* A function that gets a seal's progress. @phase: of enum fdry_seal_phase. @done, @total: in the
 * unit of the phase. @ms: since the call of fdry_capture_seal(). */
typedef void (*fdry_seal_fn)(void *arg, int phase, uint64_t done, uint64_t total, double ms);

/**
 * fdry_capture_progress() - Let the next seals report their progress.
 * @fn: called by the thread that seals, with @arg; NULL: none
 *
 * In the function, calls with this capture fail with FDRY_E_STATE, and fdry_capture_end() does
 * nothing: fdry_last_error() says so. An allocation or a graph launch in it fails the seal.
 */
int fdry_capture_progress(struct fdry_capture *cap, fdry_seal_fn fn, void *arg);
/* End the capture: the driver makes new allocations again, live memory stays valid. NULL is
 * allowed. */
void fdry_capture_end(struct fdry_capture *cap);

/**
 * fdry_capture_allocs() - The live allocations of a capture's region.
 * @ret: an array in the order in which they were made; the caller frees it with free(). NULL if
 *         there are none
 * @count: the number of allocations
 *
 * Allocations in the aside area follow the others. Sizes are those that the program requested. The
 * array also has the ranges of images that were loaded into the region, and memory that the program
 * mapped there itself.
 */
int fdry_capture_allocs(struct fdry_capture *cap, struct fdry_memory **ret, size_t *count);

/* The maker of an allocation's memory in a region. */
enum fdry_memory_origin {
	FDRY_MEMORY_REGION = 0, /* the region: cuMemAlloc(), cuMemAllocAsync() and their like */
	FDRY_MEMORY_MAPPED = 1, /* the program: cuMemCreate() and cuMemMap() */
	FDRY_MEMORY_SHARED = 2, /* the same, but mapped twice, exported to another process, imported
				   from one, or created before the capture began: no image can
				   hold it */
};

/**
 * fdry_capture_origin() - Who made the memory at an address of a capture's region.
 * @addr: any byte of a live allocation; FDRY_E_RANGE for other addresses
 * @ret: an enum fdry_memory_origin
 *
 * Libraries such as NCCL map the memory that they allocate, and share some of it with other
 * processes.
 */
int fdry_capture_origin(struct fdry_capture *cap, uint64_t addr, uint32_t *ret);

/**
 * fdry_capture_code_files() - The files from which this process has loaded code by their paths.
 * @ret: absolute paths without links, in the order of strcmp(), with a NUL behind each; the caller
 *       frees them with free(). NULL if there are none
 * @len: the bytes at @ret
 *
 * Some libraries compile kernels, keep them in files, and let the driver load these:
 * cuModuleLoad() and cuLibraryLoadFromFile(). An image that carries such files
 * (fdry_image_attach()) spares another host the compilation. The list also has files that were
 * loaded before the capture began, and that may have been removed or replaced since. It lacks those
 * that changed while they were loaded.
 */
int fdry_capture_code_files(struct fdry_capture *cap, char **ret, size_t *len);

/**
 * fdry_capture_graph_remove() - Remove a graph from a capture.
 * @key: from fdry_capture_graph(); FDRY_E_NOKEY
 *
 * Call it before the CUgraph is destroyed, if the capture will be sealed afterwards. Images that
 * were sealed with the graph keep it. Another graph may use the key.
 */
int fdry_capture_graph_remove(struct fdry_capture *cap, uint64_t key);

/**
 * fdry_capture_graph_fixed() - Promise that a graph of a capture does not change.
 * @key: from fdry_capture_graph(); FDRY_E_NOKEY
 * @on: 1 to promise, 0 to end the promise
 *
 * The promise makes repeated seals of one capture faster: the first seal reads the nodes of the
 * graph, and later seals use what it read. While the promise holds, nothing may change the CUgraph
 * or its nodes, and fdry_capture_graph_remove() must come before the CUgraph is destroyed. Promise
 * this only if no other code has the CUgraph. Memory and the attributes of kernels may change: each
 * seal checks those that the graph needs. Call this function with 0 before you change the graph.
 */
int fdry_capture_graph_fixed(struct fdry_capture *cap, uint64_t key, int on);

/**
 * fdry_capture_graph_skip() - Leave a graph out of the next seals, or seal it again.
 * @key: from fdry_capture_graph(); FDRY_E_NOKEY
 * @on: 1 to leave it out, 0 to seal it again
 *
 * Such a seal is as if the graph had never been added: the image lacks the graph, and its kernels
 * and generators unless other graphs use them. The image still has all memory of the region. A
 * program that seals each graph when it was captured leaves out the graphs of earlier seals: then a
 * seal does not take longer with each graph.
 */
int fdry_capture_graph_skip(struct fdry_capture *cap, uint64_t key, int on);

#ifdef __cplusplus
}
#endif

#endif
