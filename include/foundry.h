/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foundry.h - bring captured GPU work back to life.
 *
 * One process captures CUDA graphs and seals them, with the kernels they call and the
 * memory they read, into an image in a store. Any later process loads the image by its
 * name or hash and launches the graphs: no warm-up, no capture, no framework.
 *
 *   Capturing                                Loading
 *   fdry_hook_install()                      fdry_store_open()
 *   fdry_capture_begin()                     fdry_image_load()
 *   ... allocate, warm up, capture ...       fdry_image_write()   inputs
 *   fdry_capture_tensor(), _graph()          fdry_image_launch()  graphs by key
 *   fdry_capture_seal()                      fdry_image_read()    outputs
 *
 * Errors: every function that can fail returns 0 or a negative -FDRY_E_... code (see
 * errcode.def); fdry_last_error() has one sentence that says what was wrong and what to
 * do. A call that fails leaves nothing half done. Out parameters are written on success
 * only. The library never prints, exits or aborts.
 *
 * Threads: any function may be called from any thread. Calls on one object are serialised
 * by the object, except where a function says otherwise. fdry_last_error() is per thread.
 * Nothing survives fork(): in the child, captures and images answer FDRY_E_FORKED.
 *
 * Handles: the caller closes each object once, by the function that its header names. Every function then
 * answers FDRY_E_STALE for it; a second close does nothing. A close within a function of the caller's that the
 * object itself is calling (progress, profiling, a capture that was lent) does nothing, either: FDRY_E_STATE. Close
 * functions return nothing, so fdry_last_error() has the sentence. Objects are told apart by address: a new object may
 * have the address of one that was closed. The caller must not close an object while another thread is in a call with
 * it. Only one case of that is noticed: a store that exports, imports, evicts or collects stays open.
 *
 * Units: sizes and offsets are bytes, times are milliseconds.
 */
#ifndef FOUNDRY_H
#define FOUNDRY_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/config.h"
#include "foundry/device.h"
#include "foundry/graph.h"
#include "foundry/kernel.h"
#include "foundry/pool.h"
#include "foundry/random.h"
#include "foundry/scalar.h"
#include "foundry/slots.h"
#include "foundry/store.h"
#include "foundry/telemetry.h"
#include "foundry/types.h"
#include "foundry/region.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FDRY_VERSION_MAJOR 0
#define FDRY_VERSION_MINOR 2
#define FDRY_VERSION_PATCH 0

/* ------------------------------------------------------------ errors, version --- */

/* The last failure of this thread in one sentence; "" where there was none. Never NULL;
 * valid until the thread's next failure. */
const char *fdry_last_error(void);
/* "FDRY_E_NOENT" for a code of either sign; a static string. */
const char *fdry_error_name(int code);
/* What the code means in general; a static string. */
const char *fdry_error_meaning(int code);
/* The errno value of the code's class. */
int fdry_error_errno(int code);
/* "0.2.0"; a static string. */
const char *fdry_version(void);
/* Send debug messages of @level and below to @fn instead of where FOUNDRY_LOG says; NULL
 * undoes it. Call it before other threads use the library. */
void fdry_log_set(fdry_log_fn fn, void *arg, int level);

/* ------------------------------------------------------------ tensors --- */

#define FDRY_RANK_MAX 8
#define FDRY_NAME_MAX 255 /* bytes of a name, without the terminator */
#define FDRY_FACT_MAX 4095 /* bytes of a fact's value, without the terminator */

/* Element types, FDRY_DTYPE(number, NAME, bytes); the numbers are frozen. FDRY_BYTES is
 * for memory of no particular type. */
#define FDRY_DTYPES(X) \
	X(0, BYTES, 1) X(1, BOOL, 1) X(2, U8, 1) X(3, I8, 1) X(4, I16, 2) X(5, I32, 4) \
	X(6, I64, 8) X(7, F16, 2) X(8, BF16, 2) X(9, F32, 4) X(10, F64, 8) \
	X(11, F8_E4M3, 1) X(12, F8_E5M2, 1) X(13, U16, 2) X(14, U32, 4) X(15, U64, 8) \
	X(16, C64, 8) X(17, C128, 16)
enum fdry_dtype {
#define X(nr, name, size) FDRY_##name = nr,
	FDRY_DTYPES(X)
#undef X
};

/* What a tensor is for. */
enum fdry_use {
	FDRY_USE_INPUT = 0,  /* written before a launch */
	FDRY_USE_OUTPUT = 1, /* read after a launch */
	FDRY_USE_STATE = 2,  /* both, from launch to launch: a KV cache, a position */
	FDRY_USE_CONST = 3,  /* read by the graphs alone: a weight */
};

enum fdry_tensor_flags {
	/* The image keeps no bytes of it: whoever loads fills it before the first launch. */
	FDRY_TENSOR_EXTERNAL = 1 << 0,
	/* Host memory, pinned or not, which copies in the graphs read or write: see below. */
	FDRY_TENSOR_HOST = 1 << 1,
};

/**
 * struct fdry_tensor - A named piece of device memory, or of host memory that graphs copy from or to.
 * @name: unique in its image; letters, digits and - _ . @ + / = : , at most FDRY_NAME_MAX
 *        bytes
 * @addr: address of element 0: a device address, or with FDRY_TENSOR_HOST a host pointer
 * @dtype: of enum fdry_dtype
 * @use: of enum fdry_use
 * @flags: of enum fdry_tensor_flags
 * @rank: dimensions in use, 0 to FDRY_RANK_MAX
 * @shape: elements in each dimension
 * @stride: distance of neighbours in each dimension, in elements; never negative
 *
 * In what the library returns, @name belongs to the image and lives as long.
 *
 * Host tensors: a copy that was captured reads and writes host memory when the graph is launched, so
 * every range of it must lie in one tensor with FDRY_TENSOR_HOST, which stays allocated until the
 * seal. A loader has such tensors in pinned memory of its own. What they begin with depends
 * on their use: inputs count as external (the program rewrites them before every launch, so
 * their bytes at the seal mean nothing), outputs are zero, constants and state have the bytes
 * they had at the seal. Kernels that read host memory themselves are refused.
 */
struct fdry_tensor {
	const char *name;
	fdry_devptr addr;
	uint32_t dtype;
	uint32_t use;
	uint32_t flags;
	uint32_t rank;
	int64_t shape[FDRY_RANK_MAX];
	int64_t stride[FDRY_RANK_MAX];
};

/* Bytes of one element of @dtype; 0 for an unknown type. */
size_t fdry_dtype_size(uint32_t dtype);

/* ------------------------------------------------------------ capturing --- */

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
 * (foundry/random.h) says from where. */
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

/* ------------------------------------------------------------ loading --- */

struct fdry_image;

/* A fact to compare. */
struct fdry_fact {
	const char *key;
	const char *value;
};

enum fdry_load_flags {
	FDRY_LOAD_VERIFY = 1 << 0, /* hash content, here and when it is restored, even where this
				    * boot has already done so */
	FDRY_LOAD_POISON = 1 << 1, /* fill scratch and external memory with 0xA5: shows reads of
				    * what nobody wrote */
	FDRY_LOAD_BUILD = 1 << 2,  /* build every graph before returning: takes all the device memory
				    * that they need */
	FDRY_LOAD_BACKGROUND = 1 << 3, /* build graphs in the background after returning */
	FDRY_LOAD_OWN_CONTEXT = 1 << 4, /* kernels and graphs in a context of the image's own: replays are
				    * faster in a process that has used many streams */
	FDRY_LOAD_CHECK_OVERLAP = 1 << 5, /* find launches that may overlap; slow, for debugging */
	FDRY_LOAD_ORDERED = 1 << 6, /* with FDRY_LOAD_BACKGROUND: build there only the graphs that fdry_load_opts.order names */
};

/* The phases of a load, as told a caller who asked for progress. */
enum fdry_phase {
	FDRY_PHASE_MANIFEST = 0, /* found and verified: 1 of 1 */
	FDRY_PHASE_DRIVER = 1,   /* started, the context there: 1 of 1 */
	FDRY_PHASE_MEMORY = 2,   /* mapped: bytes */
	FDRY_PHASE_CONTENT = 3,  /* on its way, at the end there: bytes; again when it is restored */
	FDRY_PHASE_KERNELS = 4,  /* loaded: kernels */
	FDRY_PHASE_OBJECTS = 5,  /* verified: bytes */
	FDRY_PHASE_GRAPHS = 6,   /* built: graphs */
};

/**
 * fdry_progress_fn - Hear of a load's progress.
 * @phase: of enum fdry_phase
 * @done, @total: of what the phase counts
 * @ms: since the call of fdry_image_load()
 *
 * Called from the thread that loads, from threads of the library that end with the load,
 * and for graphs from whichever thread built one: the one in the background, or one that
 * launches. Never twice at the same time. It should return soon. Within it, calls that wait for work on
 * the same image fail with FDRY_E_STATE: fdry_image_wait(), _build_stop(), _restore(), and whatever would build
 * one of its graphs. fdry_image_unload() does nothing there: fdry_last_error() says so, and the image stays loaded. A
 * function that another thread makes such a call for must not wait for that thread.
 */
typedef void (*fdry_progress_fn)(void *arg, int phase, uint64_t done, uint64_t total, double ms);

/* How much of an external tensor to back, where room was left for it. */
struct fdry_external {
	const char *name;
	uint64_t bytes; /* a multiple of its rows' size */
};

/* A range of device memory. */
struct fdry_memory {
	fdry_devptr addr;
	uint64_t bytes;
};

/**
 * struct fdry_load_opts - How to load.
 * @sz: sizeof(struct fdry_load_opts)
 * @device: ordinal to load on
 * @flags: of enum fdry_load_flags
 * @facts: @nfacts facts that the image must have, with equal values
 * @driver: path of the driver; NULL: FOUNDRY_DRIVER, else libcuda.so.1
 * @order: @norder keys of graphs, the one that will be launched first at the front: they are
 *        read and built in this order. Graphs that it does not name follow as they were sealed
 * @threads: how many may work on the load, the calling one among them; 0: as many as pay
 *        and as the process may use at the same time. One more starts the memory on its way
 * @reserved: zero
 * @progress: NULL, or what is told of the load's progress, with @progress_arg
 * @externals: sizes of @nexternals external tensors that have room (fdry_capture_capacity());
 *        others have the size that they were captured with
 * @into: NULL, or a capture of this process, in whose region the image is to lie: see below
 * @keep: with @into, @nkeep ranges of device memory that keep the bytes they have; NULL:
 *        every allocation that the process has made in the region
 *
 * With @into, the image is placed among the allocations that the process has made in a region of the same
 * base. Each of them either is an allocation of the image, at the same address and of the same size, or
 * touches no memory of the image. The allocations of the image that the process lacks are made for it, at
 * the same addresses, and freed with it. Content is written wherever the process does not keep its
 * own. FDRY_E_LAYOUT names the first allocation that is in the way, or one of a pool (cuMemAllocAsync) that is
 * missing and cannot be made by itself: the process must make stream-ordered memory as the capturing one did.
 * FDRY_E_TAKEN: the process used addresses of the image for something that was freed, but cannot be handed out again.
 */
struct fdry_load_opts {
	size_t sz;
	int32_t device;
	uint32_t flags;
	const struct fdry_fact *facts;
	size_t nfacts;
	const char *driver;
	const uint64_t *order;
	size_t norder;
	uint32_t threads;
	uint32_t reserved;
	fdry_progress_fn progress;
	void *progress_arg;
	const struct fdry_external *externals;
	size_t nexternals;
	struct fdry_capture *into;
	const struct fdry_memory *keep;
	size_t nkeep;
};

/**
 * fdry_image_load() - Bring an image back to life.
 * @store: where it is
 * @name: a ref (of several images the one that is for this GPU and has @opts' facts), NAME:DIGITS, an
 *        id, or an unambiguous prefix of an id
 * @opts: NULL for the defaults
 * @ret: the image, yours until fdry_image_unload()
 *
 * Compares identity first; then maps the image's memory at its own addresses on the
 * device, whose primary context it retains, restores content, and loads kernels.
 * Graphs are built at their first launch, by fdry_image_build(), or in the background
 * (FDRY_LOAD_BACKGROUND). A capture that goes on
 * in the process is not disturbed. The device's stack limit is raised where kernels need it.
 * Errors: FDRY_E_NOENT, FDRY_E_IDENTITY (names the field), FDRY_E_TAKEN, FDRY_E_NODEVMEM,
 * FDRY_E_CORRUPT, FDRY_E_BADIMAGE, FDRY_E_NODRIVER, FDRY_E_NOGPU.
 */
int fdry_image_load(struct fdry_store *store, const char *name, const struct fdry_load_opts *opts,
		    struct fdry_image **ret);
/* Wait for the device and for a graph that is being built, destroy graphs, unload kernels, unmap and
 * release everything. NULL is fine. Not while another thread uses the image, nor while a stream of the device captures:
 * waiting breaks captures. Its addresses stay reserved, without memory, so that it can be loaded again; of the last 64 images. */
void fdry_image_unload(struct fdry_image *img);

/* The id as text: FDRY_ID_SIZE bytes into @id. */
void fdry_image_id(const struct fdry_image *img, char *id);

/* What an image holds, by position; FDRY_E_NOKEY past the end. @name is "" where none was
 * given; every out parameter but the last may be NULL. */
size_t fdry_image_graph_count(const struct fdry_image *img);
int fdry_image_graph(const struct fdry_image *img, size_t i, uint64_t *key, const char **name,
		     uint32_t *nodes);
size_t fdry_image_tensor_count(const struct fdry_image *img);
int fdry_image_tensor(const struct fdry_image *img, size_t i, struct fdry_tensor *ret);
/* By name; FDRY_E_NOKEY. */
int fdry_image_tensor_find(const struct fdry_image *img, const char *name, struct fdry_tensor *ret);
/* The value of a fact, FDRY_E_NOKEY where there is none; belongs to the image. */
int fdry_image_fact(const struct fdry_image *img, const char *key, const char **value);

/**
 * fdry_image_write() - Copy host memory into a tensor.
 * @name: the tensor
 * @data: @len bytes: the elements row by row (the last index counts fastest), without gaps, however the tensor's own
 *        strides place them. @len is exactly the tensor's size (FDRY_E_RANGE names both numbers)
 * @stream: NULL is the legacy default stream; FDRY_E_STATE if it captures
 *
 * Ordered after everything launched on @stream and complete on return. An external tensor
 * counts as filled afterwards. Bytes between the elements of a tensor with gaps are not touched. A tensor whose
 * elements share memory (a stride of 0) is refused with FDRY_E_INVAL; it can be read.
 */
int fdry_image_write(struct fdry_image *img, const char *name, const void *data, size_t len,
		     CUstream stream);
/**
 * fdry_image_write_async() - Refresh a tensor for the launches that follow.
 *
 * As fdry_image_write(), but returns when the bytes are kept: @data may be used again, launches
 * that @stream was given before see the tensor's old bytes and later ones the new ones. Keeps up
 * to 4 MiB or 64 writes in pinned memory, and waits for the stream where there are more.
 */
int fdry_image_write_async(struct fdry_image *img, const char *name, const void *data, size_t len,
			   CUstream stream);
/* The same from device memory @src, asynchronous on @stream, which does not capture: @src is read when the stream gets there.
 * FDRY_E_LIMIT if the tensor's strides would take the driver more than 65536 copies. */
int fdry_image_copy(struct fdry_image *img, const char *name, fdry_devptr src, size_t len,
		    CUstream stream);
/* Copy a tensor into host memory, row by row without gaps as fdry_image_write() takes it; ordered and complete as that. */
int fdry_image_read(struct fdry_image *img, const char *name, void *data, size_t len,
		    CUstream stream);

enum fdry_array_flags {
	/* Return when the copy is in the stream's order. Host memory may be used again then; device memory is read when the
	 * stream gets there. */
	FDRY_ARRAY_ASYNC = 1 << 0,
};

/**
 * fdry_image_write_array() - Copy an array into a tensor, element by element.
 * @name: the tensor
 * @src: the array: element [i, j, ...] goes to element [i, j, ...] of the tensor, whatever the strides of either. Its shape and
 *       dtype are the tensor's (FDRY_E_RANGE, FDRY_E_INVAL). Strides may be 0 or negative; @addr is that of the element
 *       whose indices are all 0. FDRY_TENSOR_HOST in its flags: host memory, else memory of the image's device; no other
 *       flags. Its name and use count for nothing
 * @flags: of enum fdry_array_flags
 * @stream: as for fdry_image_write(), as are order, completion and what is refused
 *
 * An array in device memory has been filled when @stream gets there: what fills it is ordered by the caller.
 * FDRY_E_LIMIT if the two orders would take the driver more than 65536 copies on the device.
 */
int fdry_image_write_array(struct fdry_image *img, const char *name, const struct fdry_tensor *src, uint32_t flags,
			   CUstream stream);
/* Copy a tensor into an array, described as for fdry_image_write_array(); ordered and complete as fdry_image_write(). Memory between
 * the array's elements is not touched. FDRY_E_INVAL if elements of the array share memory. */
int fdry_image_read_array(struct fdry_image *img, const char *name, const struct fdry_tensor *dst, CUstream stream);
/**
 * fdry_image_host() - Ask where a host tensor lies.
 * @ret: pinned memory that lives as long as the image; element 0 of the tensor
 *
 * Graphs read and write it when they are launched: write between launches that are complete,
 * and look at it when a launch is (fdry_image_synchronize()). An external tensor that was
 * filled this way is declared so with fdry_image_filled(). FDRY_E_STATE for a tensor on the device.
 */
int fdry_image_host(struct fdry_image *img, const char *name, void **ret);
/* Declare an external tensor filled by other means; NULL: all of them. */
int fdry_image_filled(struct fdry_image *img, const char *name);

/* Build and upload graph @key now, so that its first launch costs what every launch costs.
 * Does nothing where that was done. */
int fdry_image_build(struct fdry_image *img, uint64_t key);
/* Wait until all graphs are built, and build what the background left out: where it could
 * not build a graph the error of a second try is told, here and at that graph's launch. */
int fdry_image_wait(struct fdry_image *img);
/* Build nothing more in the background; what is not built is built at its first launch. */
int fdry_image_build_stop(struct fdry_image *img);
/**
 * fdry_image_launch() - Launch a graph.
 * @key: which; FDRY_E_NOKEY where the image has none
 * @stream: of the primary context of the image's device; NULL is its legacy default stream.
 *          FDRY_E_INVAL for a stream of another device or context or, as far as the driver tells, one
 *          that was destroyed; FDRY_E_STATE for one that captures
 *
 * Asynchronous, from any thread. A graph that is not built is built at once, before what else is to be built
 * in the background; where the device has no memory for it (FDRY_E_NODEVMEM) everything else
 * stays usable. Graphs of one image share memory: launches must not overlap, so use one
 * stream, or order several by events. Refused with FDRY_E_UNBOUND while an external
 * tensor was neither written, copied nor declared filled.
 *
 * With FDRY_LOAD_CHECK_OVERLAP, or FOUNDRY_DEBUG=overlap, a launch on another stream than the
 * one before waits for what its stream was given, and is refused (FDRY_E_STATE names both
 * graphs) where that was not ordered after the launch before.
 */
int fdry_image_launch(struct fdry_image *img, uint64_t key, CUstream stream);
/* Put every byte of content back as it was sealed, ordered on @stream and complete on
 * return; scratch, external tensors and what the process keeps (fdry_load_opts.keep) are left alone. Launches on other streams must have
 * ended. If the image was removed from the store meanwhile (FDRY_E_NOENT), or the store was replaced (FDRY_E_STALE), nothing
 * changes. If it fails half way, launches are refused (FDRY_E_STATE) until one succeeds. */
int fdry_image_restore(struct fdry_image *img, CUstream stream);
/**
 * fdry_image_refresh() - Make replays fast again in a process that has used many streams.
 *
 * A context in which 16 streams or more have run kernels replays graphs up to 15 % slower, until
 * the GPU switches to another context (Documentation/design/loading.rst). So one is made on the image's
 * device and destroyed at once: 150 ms, and 520 MiB of device memory meanwhile; launches of other threads
 * go on beside it. It is for the primary context, so for all graphs in it, a framework's too, and lasts until many
 * streams are used again or graphs are built. To be called when all graphs are built.
 *
 * Errors: FDRY_E_NODEVMEM; FDRY_E_NOFUNC before CUDA 12.5. Nothing is changed then.
 */
int fdry_image_refresh(struct fdry_image *img);
/* Wait until @stream (NULL is the legacy default stream) is idle, in the image's context. */
int fdry_image_synchronize(struct fdry_image *img, CUstream stream);

/**
 * struct fdry_load_report - Where the time of a load went, so far.
 * @sz: set by the caller: sizeof(struct fdry_load_report)
 * @driver_ms: open the driver, retain the context
 * @manifest_ms: find, verify and check the manifest, compare identity
 * @memory_ms: reserve, map, zero
 * @content_ms: content to the device, with verification where it was due, from when memory and
 *        kernels are there; it is read and verified ahead as far as it goes
 * @kernels_ms: kernel objects to CUkernels; waits for objects included
 * @total_ms: of fdry_image_load(), with FDRY_LOAD_BUILD also of the building
 * @build_ms: of the graphs built so far: driver graph, instantiation, upload
 * @graphs_built, @nodes_built: how many those are
 * @mapped_bytes: device memory mapped for the image
 * @content_bytes, @verified_bytes: content that the load copied, and what of it it hashed
 * @objects_ms: from the beginning of reading kernel and graph objects until the last of them
 *        was decompressed, verified and checked
 * @objects_cpu_ms: what that took of processors, over all threads
 * @wait_ms: what of @objects_ms the load waited for when all else was done
 * @first_ms, @all_ms: from the call of fdry_image_load() until the first graph, and until all
 *        graphs, could be launched; 0: not yet
 * @object_bytes: kernel and graph objects, uncompressed
 * @threads: that read objects beside the calling one
 * @exec_bytes: device memory that went while graphs were built; the driver takes it in large
 *        pieces, and what others in the process took at the same time counts
 *
 * Phases run side by side, so that their times add up to more than @total_ms: objects are
 * read from the manifest on, beside everything else; memory is beside kernels.
 */
struct fdry_load_report {
	size_t sz;
	double driver_ms, manifest_ms, memory_ms, content_ms, kernels_ms, total_ms, build_ms;
	uint64_t graphs_built, nodes_built;
	uint64_t mapped_bytes, content_bytes, verified_bytes;
	double objects_ms, objects_cpu_ms, wait_ms, first_ms, all_ms;
	uint64_t object_bytes, threads, exec_bytes;
};
int fdry_image_report(const struct fdry_image *img, struct fdry_load_report *report);

/* ------------------------------------------------------------ load, or capture --- */

/* Captures: is given a capture that has begun, allocates, warms up, captures, and adds
 * graphs and tensors to it; does not end it. 0; a negative code of the library's, whose
 * sentence is handed on; or a positive number of its own (FDRY_E_CALLBACK). */
typedef int (*fdry_capture_fn)(void *arg, struct fdry_capture *cap);

enum fdry_start_flags {
	FDRY_START_STRICT = 1 << 0, /* never capture: where nothing can be loaded, fail and say why */
	FDRY_START_NOWAIT = 1 << 1, /* capture also while another process captures the same */
};

/**
 * struct fdry_start_opts - How to start a workload.
 * @sz: sizeof(struct fdry_start_opts)
 * @names: @nnames images to look for, as for fdry_image_load(), the best first
 * @ref: what to call the image that is sealed; NULL: the first of @names
 * @load: how to load: the device and the facts count for capturing too; NULL for the
 *        defaults
 * @capture: where to capture; the base follows from @ref unless said; NULL for the defaults
 * @fn, @arg: captures; may be NULL where FDRY_START_STRICT is set
 * @flags: of enum fdry_start_flags
 * @wait_ms: how long to wait for a process that captures the same; 0: ten minutes
 */
struct fdry_start_opts {
	size_t sz;
	const char *const *names;
	size_t nnames;
	const char *ref;
	const struct fdry_load_opts *load;
	const struct fdry_capture_opts *capture;
	fdry_capture_fn fn;
	void *arg;
	uint32_t flags;
	uint32_t wait_ms;
};

/**
 * struct fdry_start_unused - An image that was looked for and is not used.
 * @name: as it was asked for
 * @id: of the image found; "" where there is none
 * @field, @wanted, @found: the fact that differs, its value here and in the image, where
 *        the image was made for something else (FDRY_E_IDENTITY); else ""
 * @why: the sentence
 * @code: -FDRY_E_NOENT, -FDRY_E_IDENTITY, ...
 */
struct fdry_start_unused {
	const char *name, *id, *field, *wanted, *found, *why;
	int code;
};

/**
 * struct fdry_start_report - How a workload started.
 * @image: what was loaded; yours until fdry_image_unload(). NULL where it was captured.
 * @captured: 1 where it was
 * @name, @id: of the image that was loaded or sealed; @id is "" where sealing failed
 * @seal_code, @seal_why: why the captured graphs could not be sealed; 0 and "" where they
 *        were. They can be used all the same
 * @capture: where sealing failed: the capture, paused; yours until fdry_capture_end(), to
 *        be sealed again perhaps. Else NULL: it has ended
 * @unused: @nunused images that were not used
 * @text: all of it for people, some lines
 * @wait_ms: waited for another process
 */
struct fdry_start_report {
	struct fdry_image *image;
	struct fdry_capture *capture;
	int captured, seal_code;
	const char *name, *seal_why, *text;
	char id[FDRY_ID_SIZE];
	const struct fdry_start_unused *unused;
	size_t nunused;
	double load_ms, wait_ms, capture_ms, seal_ms;
};

/**
 * fdry_load_or_capture() - Load an image, or capture the workload and seal it.
 * @ret: what came of it, yours until fdry_start_report_free()
 *
 * Tries the names in order. Where none can be loaded (there is none, it was made for
 * something else, it is damaged, does not fit, its addresses are taken) it captures with
 * @opts->fn, states the facts of the load, and seals under the ref. Mistakes of the caller
 * and failures of the driver are errors at once: a capture would meet them too.
 *
 * Capturing needs the stand-in, which this puts in place where libcuda is not loaded yet:
 * call it, or fdry_hook_install(), before a framework. Where that is not so it fails
 * (FDRY_E_LATE, FDRY_E_NOHOOK) before @opts->fn runs, but only once nothing can be loaded.
 *
 * Of processes with equal ref and facts that find nothing one captures, the others wait,
 * then load. Processes that capture together (ranks) state facts that differ. A wait that
 * takes too long, or a store that cannot be written, makes a process capture on its own.
 *
 * Of the code behind @opts->fn nothing is compared but the facts: state those that change with it,
 * such as a build id and the revision of the weights.
 *
 * A function that fails leaves nothing in the store, and no capture; its memory is its own.
 * A seal that fails is told in @ret. Errors beside those: FDRY_E_CALLBACK, FDRY_E_OPTS,
 * FDRY_E_NAME, those of fdry_capture_begin(); with FDRY_START_STRICT why nothing was loaded.
 */
int fdry_load_or_capture(struct fdry_store *store, const struct fdry_start_opts *opts, struct fdry_start_report **ret);
/* Free the report; image and capture stay. NULL is fine. */
void fdry_start_report_free(struct fdry_start_report *start);

/* ------------------------------------------------------------ before loading --- */

/* An external tensor, which whoever loads fills; @addr is 0 for host memory. */
struct fdry_requirements_external {
	const char *name;
	fdry_devptr addr;
	uint64_t bytes;     /* with the sizes that were asked with */
	uint64_t max_bytes; /* what it may have */
};

/**
 * struct fdry_requirements - What a load of an image will take.
 * @base: the first of @address_bytes device addresses that it lies at
 * @mapped_bytes: device memory that the load maps, in whole units of 2 MiB, small holes
 *        included; a device with less of it free refuses the load (FDRY_E_NODEVMEM)
 * @content_bytes, @scratch_bytes, @external_bytes: what of it is what
 * @copied_bytes: content that is read from the store and copied; the rest of it is zero
 * @exec_bytes: about what the driver takes besides when all graphs are built: 3 KiB a node
 * @kernel_bytes: of the kernel objects, which take about as much device memory
 * @externals: @nexternals of them, by name
 * @host_bytes: pinned host memory that the load allocates for host tensors
 */
struct fdry_requirements {
	fdry_devptr base;
	uint64_t address_bytes;
	uint64_t mapped_bytes, content_bytes, scratch_bytes, external_bytes;
	uint64_t copied_bytes, exec_bytes, kernel_bytes;
	uint64_t graphs, nodes, kernels;
	const struct fdry_requirements_external *externals;
	size_t nexternals;
	uint64_t host_bytes;
};

/**
 * fdry_image_requirements() - Ask what a load will take, without a GPU or a driver.
 * @name: as for fdry_image_load()
 * @opts: as the load will get them; NULL for the defaults
 * @ret: one block of memory, yours to free()
 *
 * Reads the manifest alone. Errors: FDRY_E_NOENT, FDRY_E_CORRUPT, FDRY_E_BADIMAGE, FDRY_E_OPTS.
 */
int fdry_image_requirements(struct fdry_store *store, const char *name, const struct fdry_load_opts *opts,
		     struct fdry_requirements **ret);

/**
 * fdry_image_describe() - Describe an image without loading it.
 * @name: as for fdry_image_load()
 * @ret: text, yours to free()
 *
 * Identity, memory, tensors, graphs with their nodes by kind and their edges, kernels with
 * their objects, which kernels are whole cubins and why, and what a load needs.
 */
int fdry_image_describe(struct fdry_store *store, const char *name, char **ret);

/* --------------------------------------------------------------- names --- */

/*
 * A ref holds several images, by what they are for: everything that a load compares and that must be
 * equal (architecture, number of SMs, the facts that were stated). Sealing or tagging replaces the one
 * that is for the same and leaves the others; a load takes the one that fits, of several that fit the
 * one that was set last. NAME:DIGITS means one of them, by the first digits of its id.
 */

/**
 * fdry_image_tag() - Give an image another name.
 * @image: a ref (all its images), NAME:DIGITS, an id, or an unambiguous prefix of an id
 * @ref: the name
 *
 * Errors: FDRY_E_NOENT, FDRY_E_NAME, FDRY_E_PERM, FDRY_E_LIMIT, FDRY_E_CORRUPT, FDRY_E_BADIMAGE.
 */
int fdry_image_tag(struct fdry_store *store, const char *image, const char *ref);

#ifdef __cplusplus
}
#endif

#endif
