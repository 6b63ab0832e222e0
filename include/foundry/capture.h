/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h - capture graphs and seal them, with all that they need, into an image. Part of foundry.h, whose rules for errors,
 * threads, handles and units apply.
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
 * fdry_hook_install() - Put the stand-in for libcuda.so.1 in place.
 * @path: the stand-in; NULL: FOUNDRY_HOOK, else foundry/hook/libcuda.so.1 beside this
 *        library
 *
 * Must come before anything loads libcuda.so.1 in this process: it then answers to that
 * name, passes every call on to the real driver and notes what a seal needs. Calling it
 * again, or under LD_PRELOAD of the same object, changes nothing.
 * Errors: FDRY_E_LATE where libcuda is loaded already (the text names it), FDRY_E_NOHOOK where the stand-in is
 * not found.
 */
int fdry_hook_install(const char *path);

/**
 * fdry_hook_path() - Where the stand-in lies: what to name in LD_PRELOAD for a program that
 * is to be covered from its start, with its twin libcuda.so in the same directory.
 * @path: gets the absolute path, with links followed
 * @len: bytes at @path; PATH_MAX is always enough
 *
 * FOUNDRY_HOOK, else foundry/hook/libcuda.so.1 beside this library. Nothing is loaded.
 * Errors: FDRY_E_NOHOOK where there is no such file, FDRY_E_RANGE where it does not fit.
 */
int fdry_hook_path(char *path, size_t len);

struct fdry_capture;

/**
 * struct fdry_capture_opts - How a capture places memory.
 * @sz: sizeof(struct fdry_capture_opts)
 * @device: ordinal whose allocations are given the region's addresses
 * @reserved: zero
 * @base: first device address, a multiple of 2 MiB; 0: fdry_base_for_name() of @name
 * @size: bytes of addresses to reserve; 0: as much as is free there, 64 GiB to 1 TiB.
 *        Addresses cost nothing, and do not depend on the size.
 * @preallocate: bytes of memory to map ahead; 0: none
 * @name: of the workload, such as its ref; NULL: the default base
 * @after: NULL, or the capture that there is, whose region ends when this one's has begun: memory that lives there stays
 *        valid, and is freed as before. That capture can only be ended then (else FDRY_E_STATE). If this one cannot
 *        begin it goes on.
 */
struct fdry_capture_opts {
	size_t sz;
	int32_t device;
	uint32_t reserved;
	fdry_devptr base;
	uint64_t size;
	uint64_t preallocate;
	const char *name;
	struct fdry_capture *after;
};

/**
 * fdry_base_for_name() - The base that regions of a name have where none is asked for.
 * @name: any text, such as a ref; NULL or "": the default base
 *
 * The same in every process, on every machine and in every release. An image loads at the
 * addresses that it was captured at: images that are to be loaded into one process are
 * captured under different names. Two names have places that overlap in one case of 180,
 * two images of up to 256 MiB in one of 46,000: FDRY_E_TAKEN then says which image is
 * there, and one of the two needs another name or a base of its own.
 */
fdry_devptr fdry_base_for_name(const char *name);

/**
 * fdry_capture_begin() - Start giving fixed addresses to device memory.
 * @opts: NULL for the defaults
 * @ret: the capture, yours until fdry_capture_end()
 *
 * From here on the device's memory comes from one region, at addresses that the same calls get in every process:
 * cuMemAlloc and cuMemAllocPitch (and so cudaMalloc), stream-ordered memory of its default pool and of pools for this process
 * alone, and addresses that are reserved without a hint, whose memory stays the caller's. Managed, pinned, imported and
 * other devices' memory is the driver's; a seal refuses graphs that use it. One capture at a time in a process. The device's
 * primary context is retained.
 *
 * Errors: FDRY_E_NOHOOK, FDRY_E_LATE and FDRY_E_HIDDEN (another library keeps calls from the
 * stand-in; both name it), FDRY_E_FORKED (forked after CUDA started), FDRY_E_STATE, FDRY_E_NOFUNC (a driver
 * older than CUDA 12.5), FDRY_E_TAKEN (names what lies at the base).
 */
int fdry_capture_begin(const struct fdry_capture_opts *opts, struct fdry_capture **ret);
/* Let allocations be native for a while; graphs that use such memory are refused at the seal. */
int fdry_capture_pause(struct fdry_capture *cap);
int fdry_capture_resume(struct fdry_capture *cap);
/* Bytes of the region handed out so far: the cursor. */
int fdry_capture_offset(struct fdry_capture *cap, uint64_t *ret);
/* Put the cursor somewhere else, as the process that made an image did. */
int fdry_capture_set_offset(struct fdry_capture *cap, uint64_t offset);
/* Map the next @size bytes at the cursor ahead: allocating there calls no driver. FDRY_E_RANGE, FDRY_E_NODEVMEM. */
int fdry_capture_preallocate(struct fdry_capture *cap, uint64_t size);
/* Give back what of it no allocation uses; FDRY_E_STATE where nothing was mapped ahead. */
int fdry_capture_free_preallocated(struct fdry_capture *cap);

/* Name a tensor; it must lie inside live memory of the region, or with FDRY_TENSOR_HOST inside one
 * pinned allocation or readable pageable memory. Its dimensions may have any order and its elements gaps between them;
 * those of an external tensor have none (FDRY_E_INVAL). FDRY_E_EXISTS where the name is taken,
 * FDRY_E_NAME, FDRY_E_RANGE. */
int fdry_capture_tensor(struct fdry_capture *cap, const struct fdry_tensor *tensor);
/**
 * fdry_capture_capacity() - Leave addresses behind an external tensor, for loaders to size it.
 * @name: an external tensor in device memory, named before; its first dimension is the outermost in memory; in an
 *        allocation of its own, a multiple of 2 MiB, that was the last one made
 * @max_bytes: how many bytes a loader may give it; rounded up to 2 MiB
 *
 * A KV cache is captured small, and loaded as large as the device's memory allows:
 * fdry_load_opts.externals. Its first dimension grows with it. Only addresses are taken.
 * Errors: FDRY_E_NOKEY; FDRY_E_STATE (not external, or memory behind it is handed out);
 * FDRY_E_RANGE (not an allocation of its own; @max_bytes is not larger; the region is full);
 * FDRY_E_EXISTS.
 *
 * Graphs run with whatever size: sizes in their arguments are those of the capture, and how
 * much of the tensor they may use must be told by inputs (block tables, lengths). A load that
 * backs less than was captured is refused where a node sets or copies what is not backed,
 * or is given a pointer into it. Kernels that work their way there from the tensor's
 * beginning are the caller's to prevent: the access ends the context, as any wild one does.
 */
int fdry_capture_capacity(struct fdry_capture *cap, const char *name, uint64_t max_bytes);
/* State a fact that loads can compare: model revision, engine version, rank, ... Both are
 * copied. Keys are like tensor names and do not start with "fdry."; a value is any text. Keys that start
 * with "py." are those of the Python package, which states them of the code that captures. */
int fdry_capture_fact(struct fdry_capture *cap, const char *key, const char *value);
/**
 * fdry_capture_graph() - Add a captured graph.
 * @key: how loads find it, such as a batch size; unique (FDRY_E_EXISTS)
 * @name: for people, may be NULL
 * @graph: as stream capture gave it; must stay alive and unchanged until the seal
 */
int fdry_capture_graph(struct fdry_capture *cap, uint64_t key, const char *name, CUgraph graph);
/* Say that graph @key draws random numbers: the seal is refused, by name, unless fdry_capture_rng_use()
 * (foundry/rng.h) says from where. */
int fdry_capture_rng(struct fdry_capture *cap, uint64_t key);

/**
 * fdry_capture_hold() - Make graph launches of this thread do nothing for a while.
 * @on: 1 to begin, 0 to end
 *
 * They succeed and leave memory as it is. What a framework does around a replay can then be
 * seen without one: a random generator that moves on belongs to a graph that draws.
 */
int fdry_capture_hold(struct fdry_capture *cap, int on);

/**
 * struct fdry_seal_report - What a seal made.
 * @sz: set by the caller: sizeof(struct fdry_seal_report)
 * @kernels_whole: kernels whose object is a whole cubin; fdry_image_describe() gives reasons
 * @whole_bytes: of the cubins that kernel objects were sliced from
 * @content_bytes: device memory kept; zeros (@zero_bytes), proven scratch and external
 *        tensors are not
 * @stored_new: what the new objects take at rest; other sizes are uncompressed
 * @pointer_words: words of content that would point to memory outside of the region if they
 *        were no numbers; those that can hardly be numbers are refused
 * @unchanged_bytes: of @content_bytes, what was equal byte for byte to content that this capture sealed before and the
 *        store still has, so that it was neither hashed nor stored again
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
 * fdry_capture_seal() - Make an image of the graphs and what they need.
 * @store: open and writable
 * @ref: a name for the image, or NULL
 * @id: FDRY_ID_SIZE bytes for the image's id, or NULL
 * @report: NULL, or what was made
 *
 * Waits for the device's primary context and for the current one. Content is the memory of the region
 * as it is now: reset state before. Memory first allocated during a capture and not touched since counts as scratch
 * and is not kept. Whatever cannot be restored exactly is refused (FDRY_E_REFUSED) naming
 * graph, node, kernel and reason; nothing is left in the store but unreferenced objects.
 * May be called again, with more graphs or after more work. Where another process has set
 * @ref to another image meanwhile, that one stays and this seal fails (FDRY_E_RACED).
 *
 * Nothing may work on the region's memory meanwhile. Allocations and launches of graphs by
 * other threads are noticed (FDRY_E_STATE); kernels and copies of theirs cannot be.
 */
int fdry_capture_seal(struct fdry_capture *cap, struct fdry_store *store, const char *ref,
		      char *id, struct fdry_seal_report *report);
/* End the capture: new allocations are native again, memory that lives stays valid. NULL is
 * fine. */
void fdry_capture_end(struct fdry_capture *cap);

/**
 * fdry_capture_allocs() - The live allocations of a capture's region.
 * @ret: an array of struct fdry_memory in the order in which they were made, yours to free(); NULL where
 *       there are none
 * @count: how many
 *
 * Sizes are as asked for. What images that were loaded into the region have claimed is among
 * them, as is memory that the program mapped there itself.
 */
int fdry_capture_allocs(struct fdry_capture *cap, struct fdry_memory **ret, size_t *count);

/**
 * fdry_capture_graph_remove() - Take a graph out of a capture again.
 * @key: as it was added with fdry_capture_graph(); FDRY_E_NOKEY
 *
 * To be called before the CUgraph is destroyed, where the capture is to be sealed afterwards.
 * Images that were sealed with it keep it. Its key is free for another graph.
 */
int fdry_capture_graph_remove(struct fdry_capture *cap, uint64_t key);

/**
 * fdry_capture_graph_fixed() - Promise that a graph of a capture does not change.
 * @key: as it was added with fdry_capture_graph(); FDRY_E_NOKEY
 * @on: 1 to promise, 0 to end the promise
 *
 * The promise makes repeated seals of one capture faster: the first seal reads the nodes of the
 * graph, and later seals use what it read. While the promise holds, nothing may change the CUgraph or
 * its nodes, and fdry_capture_graph_remove() must come before the CUgraph is destroyed. Promise this
 * only if no other code has the CUgraph. Memory and the attributes of kernels may change: each
 * seal checks those that the graph needs. Call this function with 0 before you change the graph.
 */
int fdry_capture_graph_fixed(struct fdry_capture *cap, uint64_t key, int on);

#ifdef __cplusplus
}
#endif

#endif
