/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - load an image, fill its tensors, launch its graphs. Part of foundry.h, whose rules for
 * errors, threads, handles and units apply.
 */
#ifndef FOUNDRY_IMAGE_H
#define FOUNDRY_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/store.h"
#include "foundry/tensor.h"
#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fdry_capture;

/* ------------------------------------------------------------ loading --- */

struct fdry_image;

/* A fact to compare. */
struct fdry_fact {
	const char *key;
	const char *value;
};

enum fdry_load_flags {
	FDRY_LOAD_VERIFY = 1 << 0, /* hash content, here and when it is restored, even where this
				    * boot has done so already */
	FDRY_LOAD_POISON = 1 << 1, /* fill scratch and external memory with 0xA5: shows reads of
				    * memory that was never written */
	FDRY_LOAD_BUILD = 1 << 2,  /* build every graph before returning: this allocates all
				    * the device memory that they need */
	FDRY_LOAD_BACKGROUND = 1 << 3, /* build graphs in the background after returning, and
				    * beside the copies of much content, unless there is a
				    * progress function */
	FDRY_LOAD_OWN_CONTEXT = 1 << 4, /* kernels and graphs in a context of the image's own:
				    * replays are faster in a process that has used many streams */
	FDRY_LOAD_CHECK_OVERLAP = 1 << 5, /* find launches that may overlap; slow, for debugging */
	FDRY_LOAD_ORDERED = 1 << 6, /* with FDRY_LOAD_BACKGROUND: build there only the graphs
				    * that fdry_load_opts.order names */
	FDRY_LOAD_CHECK_AT_LAUNCH = 1 << 7, /* compare content on the device with its fingerprints
				    * when it is first used: see fdry_image_check_content() */
};

/* The phases of a load, as its progress function gets them. */
enum fdry_phase {
	FDRY_PHASE_MANIFEST = 0, /* found and verified: 1 of 1 */
	FDRY_PHASE_DRIVER = 1,   /* started, the context there: 1 of 1 */
	FDRY_PHASE_MEMORY = 2,   /* mapped: bytes */
	FDRY_PHASE_CONTENT = 3,  /* being copied, at the end there: bytes; again for a restore */
	FDRY_PHASE_KERNELS = 4,  /* loaded: kernels */
	FDRY_PHASE_OBJECTS = 5,  /* verified: bytes */
	FDRY_PHASE_GRAPHS = 6,   /* built: graphs */
};

/**
 * fdry_progress_fn - A function that gets a load's progress.
 * @phase: of enum fdry_phase
 * @done, @total: in the unit of the phase
 * @ms: since the call of fdry_image_load()
 *
 * It is called in the thread that loads, in threads of the library that end with the load, and for
 * graphs in the thread that built one: the background thread, or a thread that launches. It is
 * never called twice at the same time, and should return soon. In it, calls that wait for work on
 * the same image fail with FDRY_E_STATE: fdry_image_wait(), _build_stop(), _restore(),
 * _check_content(), and every call that would build one of its graphs or compare its content.
 * fdry_image_unload() does nothing there: fdry_last_error() says so, and the image stays loaded. If
 * another thread makes such a call, the function must not wait for that thread.
 */
typedef void (*fdry_progress_fn)(void *arg, int phase, uint64_t done, uint64_t total, double ms);

/* The size of an external tensor that has a capacity: so much of it gets memory. */
struct fdry_external {
	const char *name;
	uint64_t bytes; /* a multiple of its rows' size */
};

/**
 * struct fdry_load_opts - How to load.
 * @sz: sizeof(struct fdry_load_opts)
 * @device: ordinal to load on
 * @flags: of enum fdry_load_flags
 * @facts: @nfacts facts that the image must have, with equal values
 * @driver: path of the driver; NULL: FOUNDRY_DRIVER, else libcuda.so.1
 * @order: @norder keys of graphs, the graph that will be launched first at the front. Graphs are
 *         read and built in this order; other graphs follow in the order in which they were sealed
 * @threads: the most threads that may work on the load, the calling one included; 0: as many as
 *         help and as the process may use at the same time. One more thread starts the memory
 * @reserved: zero
 * @progress: NULL, or the function that gets the load's progress, with @progress_arg
 * @externals: sizes of @nexternals external tensors that have a capacity (fdry_capture_capacity());
 *         others have their size from the capture
 * @into: NULL, or a capture of this process, in whose region to place the image: see below
 * @keep: with @into, @nkeep ranges of device memory that keep their bytes; NULL: every allocation
 *         that the process has made in the region
 * @functions: @nfunctions host functions by name (fdry_capture_host_function()), for graphs that
 *         call them. Graphs call them as cuLaunchHostFunc() does: in a thread of the driver, and
 *         they must not call CUDA. FDRY_E_NOKEY names a function that a graph calls and the load
 *         lacks
 * @semaphores: @nsemaphores semaphores by name (fdry_capture_semaphore()), for graphs that signal
 *         or await them: what cuImportExternalSemaphore() returned in the device's primary context.
 *         They outlive the image. FDRY_E_NOKEY names a semaphore that a graph uses and the load
 *         lacks; FDRY_E_OPTS with FDRY_LOAD_OWN_CONTEXT
 * @stop, @stop_arg: NULL, or asked while the load fetches the image from a registry, in the thread
 *         that fetches; in the calling one while it waits for another process that fetches, and
 *         while a registry is asked for damaged objects. If it stops the load, with
 *         FDRY_E_CALLBACK, objects that have come stay, and no ref is set. It is not asked after
 *         the load: see fdry_image_stop_set()
 *
 * With @into, the load places the image among the allocations that the process has made in a region
 * with the same base. Each of these either is an allocation of the image, with the same address and
 * size, or touches no memory of the image. The load makes the allocations of the image that the
 * process lacks, at the same addresses; they are freed with the image. It writes content everywhere
 * but in the ranges that the process keeps. FDRY_E_LAYOUT names the first allocation that is in the
 * way, or a missing allocation of a pool (cuMemAllocAsync), which the load cannot make alone: the
 * process must allocate stream-ordered memory as the capturing process did. FDRY_E_TAKEN means that
 * the process used addresses of the image for memory that is freed but cannot be allocated again.
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
	const struct fdry_host_function *functions;
	size_t nfunctions;
	const struct fdry_semaphore *semaphores;
	size_t nsemaphores;
	fdry_stop_fn stop;
	void *stop_arg;
};

/**
 * fdry_image_load() - Load an image.
 * @store: the store that has it
 * @name: a ref (of several images the one that is for this GPU and has the facts of @opts),
 *         NAME:DIGITS, an id, or an unambiguous prefix of an id
 * @opts: NULL for the defaults
 * @ret: the image; unload it with fdry_image_unload()
 *
 * The load compares the identity first. Then it retains the device's primary context, maps the
 * image's memory at its own addresses on the device, restores content, and loads kernels. Graphs
 * are built at their first launch, by fdry_image_build(), or in the background
 * (FDRY_LOAD_BACKGROUND). A capture in the process is not disturbed. If kernels need it, the load
 * raises the device's stack limit. Errors: FDRY_E_NOENT, FDRY_E_IDENTITY (names the field),
 * FDRY_E_TAKEN, FDRY_E_NODEVMEM, FDRY_E_CORRUPT, FDRY_E_BADIMAGE, FDRY_E_NODRIVER, FDRY_E_NOGPU.
 */
int fdry_image_load(struct fdry_store *store, const char *name, const struct fdry_load_opts *opts,
		    struct fdry_image **ret);
/* Wait for the device and for a graph that is being built, destroy graphs, unload kernels, unmap
 * and release everything. NULL is allowed. Do not call it while another thread uses the image, nor
 * while a stream of the device captures: waiting breaks captures. The addresses of the last 64
 * images stay reserved, without memory, so that they can be loaded again. */
void fdry_image_unload(struct fdry_image *img);

/* The id as text: FDRY_ID_SIZE bytes into @id. */
void fdry_image_id(const struct fdry_image *img, char *id);

/* Graphs and tensors of an image, by position; FDRY_E_NOKEY past the end. The name of a graph is ""
 * if it has none; every out parameter but the last may be NULL. */
size_t fdry_image_graph_count(const struct fdry_image *img);
int fdry_image_graph(const struct fdry_image *img, size_t i, uint64_t *key, const char **name,
		     uint32_t *nodes);
size_t fdry_image_tensor_count(const struct fdry_image *img);
int fdry_image_tensor(const struct fdry_image *img, size_t i, struct fdry_tensor *ret);
/* By name; FDRY_E_NOKEY. */
int fdry_image_tensor_find(const struct fdry_image *img, const char *name, struct fdry_tensor *ret);
/* The value of a fact, which belongs to the image; FDRY_E_NOKEY if the image does not have it. */
int fdry_image_fact(const struct fdry_image *img, const char *key, const char **value);
/* Facts by position, in the order of their keys; FDRY_E_NOKEY past the end. */
int fdry_image_fact_at(const struct fdry_image *img, size_t i, const char **key,
		       const char **value);

/**
 * fdry_image_write() - Copy host memory into a tensor.
 * @name: the tensor
 * @data: @len bytes: the elements row by row (the last index changes fastest), without gaps,
 *         whatever the tensor's strides are. @len must be the tensor's size (FDRY_E_RANGE names
 *         both numbers)
 * @stream: NULL is the legacy default stream; FDRY_E_STATE if it is capturing
 *
 * The copy runs after all work on @stream, and is complete when the call returns. An external
 * tensor then counts as filled. Bytes between the elements of a tensor with gaps are not touched. A
 * tensor whose elements share memory (a stride of 0) is refused with FDRY_E_INVAL; it can be read.
 */
int fdry_image_write(struct fdry_image *img, const char *name, const void *data, size_t len,
		     CUstream stream);
/**
 * fdry_image_write_async() - Refresh a tensor for the launches that follow.
 *
 * As fdry_image_write(), but the call returns when it has copied the bytes: @data may be used
 * again. Earlier launches on @stream see the tensor's old bytes, later ones the new bytes. The
 * library keeps up to 4 MiB or 64 writes in pinned memory, and waits for the stream if there are
 * more.
 */
int fdry_image_write_async(struct fdry_image *img, const char *name, const void *data, size_t len,
			   CUstream stream);
/* The same from device memory @src, asynchronous on @stream, which must not be capturing: the
 * stream reads @src in its order. FDRY_E_LIMIT if the tensor's strides need more than 65536 copies
 * of the driver. */
int fdry_image_copy(struct fdry_image *img, const char *name, fdry_devptr src, size_t len,
		    CUstream stream);
/* Copy a tensor into host memory, row by row without gaps. Order and completion are those of
 * fdry_image_write(). */
int fdry_image_read(struct fdry_image *img, const char *name, void *data, size_t len,
		    CUstream stream);

enum fdry_array_flags {
	/* Return when the copy is on the stream. Host memory may be used again then; the stream
	 * reads device memory in its order. */
	FDRY_ARRAY_ASYNC = 1 << 0,
};

/**
 * fdry_image_write_array() - Copy an array into a tensor, element by element.
 * @name: the tensor
 * @src: the array: element [i, j, ...] goes to element [i, j, ...] of the tensor, whatever the
 *         strides of both. Its shape and dtype are the tensor's (FDRY_E_RANGE, FDRY_E_INVAL).
 *         Strides may be 0 or negative; @addr is the address of the element whose indices are all
 *         0. FDRY_TENSOR_HOST is the only flag: host memory, else memory of the image's device.
 *         Name and use are ignored
 * @flags: of enum fdry_array_flags
 * @stream: as for fdry_image_write(), as are order, completion and refusals
 *
 * The caller orders the work that fills an array in device memory before the copy on @stream.
 * FDRY_E_LIMIT if the two orders need more than 65536 copies of the driver on the device.
 */
int fdry_image_write_array(struct fdry_image *img, const char *name, const struct fdry_tensor *src,
			   uint32_t flags, CUstream stream);
/* Copy a tensor into an array, which is described as for fdry_image_write_array(). Order and
 * completion are those of fdry_image_write(). Memory between the array's elements is not touched.
 * FDRY_E_INVAL if elements of the array share memory. */
int fdry_image_read_array(struct fdry_image *img, const char *name, const struct fdry_tensor *dst,
			  CUstream stream);
/**
 * fdry_image_host() - Get the address of a host tensor.
 * @ret: element 0 of the tensor, in pinned memory that lives as long as the image
 *
 * Graphs read and write it during launches. Write it when no launch is in flight, and read it when
 * the launch is complete (fdry_image_synchronize()). After filling an external tensor this way,
 * call fdry_image_filled(). FDRY_E_STATE for a tensor on the device.
 */
int fdry_image_host(struct fdry_image *img, const char *name, void **ret);
/* Declare an external tensor filled by other means; NULL: all of them. */
int fdry_image_filled(struct fdry_image *img, const char *name);

/**
 * fdry_image_check_content() - Compare content now, if the load has left that for later.
 *
 * Every load compares content with the fingerprints of the seal (@checked_bytes of the report).
 * With FDRY_LOAD_CHECK_AT_LAUNCH, the load returns without comparing device memory. The first of
 * these calls does it, and other threads that make one wait for it: fdry_image_launch(), a copy to
 * or from a tensor on the device that is not external, fdry_image_check(), and this call. It works
 * on a stream of the library, and returns to its caller when the content has been compared. Later
 * calls cost nothing more. fdry_image_restore() compares what it restores, in place of this.
 * Other calls (fdry_image_wait(), _build(), _refresh(), _synchronize(), _filled(), copies to and
 * from external tensors) compare nothing. The load itself compares content in host memory.
 *
 * A program that writes to content at its address, by a kernel or a copy of its own, makes this
 * call first: otherwise its bytes are taken for damage.
 *
 * If content is damaged in the store and can be brought back, the call copies it again;
 * fdry_image_stop_set() says what other threads can do until then. Otherwise it fails with
 * FDRY_E_CORRUPT or FDRY_E_BADIMAGE, and so do all later calls that use content. The image stays
 * loaded, with all its memory, until fdry_image_unload(); a restore that succeeds makes it usable
 * again. Other errors leave the comparison to the next call; if content was copied only in part,
 * such calls fail with FDRY_E_STATE until a restore succeeds. FDRY_E_OPTS: a load with @into has no
 * such flag.
 */
int fdry_image_check_content(struct fdry_image *img);

/**
 * fdry_image_stop_set() - Set the function that may end the image's waits for damaged objects.
 * @stop, @arg: NULL, or asked several times a second. Both live until the image is unloaded, also
 *         if others take their place, which may be at any time: a thread may just be asking
 *
 * A restore, and a call that compares content at its first use, may find that objects are damaged
 * in the store. Then they ask the packs, stores and the registry that a load asks. The registry has
 * failed if nothing of use comes from it for as many seconds as FOUNDRY_REGISTRY_TIMEOUT says, with
 * all repetitions of requests. Meanwhile other threads can build graphs and write external tensors.
 * Calls that use content which is not compared yet, or was copied only in part, wait for the thread
 * that asks, and so do other restores, which then ask again if they must.
 *
 * The function is asked in the thread that asks for objects, and in each thread that waits for that
 * one. If it returns another number than 0, the call of its thread fails with FDRY_E_CALLBACK;
 * objects that have come stay. A comparison is then left to the next call that uses content. In
 * the function, calls that wait for work on the image fail with FDRY_E_STATE, as in a progress
 * function.
 */
int fdry_image_stop_set(struct fdry_image *img, fdry_stop_fn stop, void *arg);

/**
 * struct fdry_check_report - What fdry_image_check() compared.
 * @sz: set by the caller: sizeof(struct fdry_check_report)
 * @tensors, @bytes: external tensors that were compared, and their bytes
 * @differ: those that have other bytes than at the seal
 * @skipped: external constants that could not be compared
 */
struct fdry_check_report {
	size_t sz;
	uint64_t tensors, bytes, differ, skipped;
	double ms;
};

/**
 * fdry_image_check() - Compare external tensors with their content at the seal.
 * @name: an external tensor; NULL: every external constant (FDRY_USE_CONST)
 * @stream: the call first waits for the work on this stream
 * @report: NULL, or receives the number of compared tensors and bytes, also after FDRY_E_CORRUPT
 *
 * A seal records the fingerprints of external constants, such as weights. Images with other weights
 * are other images. Inputs, outputs and states are not recorded, since they change from launch to
 * launch. The device computes the fingerprints at the speed of its memory, on a stream of the
 * library, and the call waits for it. The call changes nothing: if a tensor differs, fill it again
 * and repeat the call.
 *
 * A tensor without elements is always equal. External tensors have no gaps, because a capture
 * refuses gaps. A tensor with a capacity is compared if the load gave it the size of the seal.
 *
 * Errors: FDRY_E_CORRUPT names the first tensor that differs. FDRY_E_STATE: the tensor is not
 * external, has another size here, or was not recorded (it is no constant, an older version sealed
 * the image, or the GPU could not read it at the seal). With NULL, such constants are skipped; if
 * none remains, the call returns that error. FDRY_E_UNBOUND: the tensor is not filled.
 * FDRY_E_NOKEY: the image has no such tensor.
 */
int fdry_image_check(struct fdry_image *img, const char *name, CUstream stream,
		     struct fdry_check_report *report);

/**
 * fdry_memory_fingerprint() - Compute fingerprints of device memory, which need not be an image's.
 * @device: its ordinal
 * @stream: of the device's primary context; the call waits for the work on it
 * @ranges, @n: device memory, mapped, with at least one byte each
 * @ret: receives 128 bits for each range
 *
 * Equal bytes have equal fingerprints, in every process and on every GPU. A fingerprint finds
 * accidents; it has no key and is no defence against an attacker. The device computes it at the
 * speed of its memory, and needs 32 bytes of memory for each 64 KiB meanwhile.
 *
 * Errors: FDRY_E_NOFUNC if the library has no code for the device; FDRY_E_NODEVMEM; FDRY_E_STATE if
 * the stream captures; FDRY_E_NOGPU.
 */
int fdry_memory_fingerprint(int device, CUstream stream, const struct fdry_memory *ranges, size_t n,
			    uint64_t (*ret)[2]);

/* Build graph @key now. Does nothing if the graph is built already. If the process has not launched
 * a graph by Foundry yet, the call also uploads the graph, so that its first launch costs what
 * every launch costs. Otherwise its first launch uploads it, which takes about a microsecond a
 * node: an upload after a launch would slow down other graphs. */
int fdry_image_build(struct fdry_image *img, uint64_t key);
/* Wait until all graphs are built, and build those that the background thread left out. If it could
 * not build a graph, this call tries again and returns the error of the second try. So does a
 * launch. */
int fdry_image_wait(struct fdry_image *img);
/* Stop building in the background. Other graphs are then built at their first launch. */
int fdry_image_build_stop(struct fdry_image *img);
/**
 * fdry_image_launch() - Launch a graph.
 * @key: of the graph; FDRY_E_NOKEY if the image has no such graph
 * @stream: of the primary context of the image's device; NULL is its legacy default stream.
 *         FDRY_E_INVAL for a stream of another device or context or, as far as the driver reports
 *         it, a destroyed one; FDRY_E_STATE for a stream that is capturing
 *
 * Asynchronous, from any thread. If the graph is not built the call builds it at once, before
 * graphs that wait for the background thread. If the device has no memory for it (FDRY_E_NODEVMEM)
 * everything else stays usable. Graphs of one image share memory, so launches must not overlap: use
 * one stream, or order several by events. The launch fails with FDRY_E_UNBOUND while an external
 * tensor was neither written, copied nor declared filled.
 *
 * With FDRY_LOAD_CHECK_AT_LAUNCH, the first launch compares content before: FDRY_E_CORRUPT.
 *
 * With FDRY_LOAD_CHECK_OVERLAP, or FOUNDRY_DEBUG=overlap, a launch on another stream than the
 * launch before waits for the work on its stream. It fails (FDRY_E_STATE names both graphs) if that
 * work was not ordered after the launch before.
 */
int fdry_image_launch(struct fdry_image *img, uint64_t key, CUstream stream);
/**
 * fdry_image_semaphore_add() - Change the values with which later launches use a semaphore.
 * @name: of a semaphore that the load named (fdry_load_opts.semaphores); FDRY_E_NOKEY
 * @add: what to add to the values of the capture, in place of the number before
 *
 * A graph signals and awaits the same values at each launch, and those of a timeline semaphore must
 * grow. So a program calls this between launches, with the steps that its capture took: if the
 * graph waits for 1 and signals 2, it adds 0, 2, 4, ... Launches before the call keep their values.
 * The call must not come beside a launch of this image by another thread. It changes each built
 * graph that uses semaphores; if the driver does not change one, the call instantiates that graph
 * again. After an error of the driver, the next launches have the new values all the same, or fail
 * with the error. FDRY_E_STATE in a progress function of the load.
 */
int fdry_image_semaphore_add(struct fdry_image *img, const char *name, uint64_t add);
/* Restore every byte of content as it was sealed, in the order of @stream and complete on return;
 * CUDA arrays are content, too. Scratch, external tensors and the ranges that the process keeps
 * (fdry_load_opts.keep) are not touched. Launches on other streams must have ended, and the program
 * must begin no launch and no copy of content before the call returns. If the image was removed
 * from the store (FDRY_E_NOENT), or the store was replaced (FDRY_E_STALE), nothing changes. If
 * objects are damaged in the store, the call asks for them as a load does (fdry_image_stop_set()).
 * If the call fails half way, launches and copies of content fail with FDRY_E_STATE until a restore
 * succeeds. */
int fdry_image_restore(struct fdry_image *img, CUstream stream);
/**
 * fdry_image_refresh() - Make replays fast again in a process that has used many streams.
 *
 * A context in which 16 streams or more have run kernels replays graphs up to 15 % slower, until
 * the GPU switches to another context (Documentation/design/loading.rst). So this call creates a
 * context on the image's device and destroys it at once, which takes 150 ms and, for that time, 520
 * MiB of device memory. Launches of other threads continue. The call helps all graphs in the
 * primary context, those of a framework as well, until many streams are used again or graphs are
 * built. Call it when all graphs are built.
 *
 * Errors: FDRY_E_NODEVMEM; FDRY_E_NOFUNC before CUDA 12.5. Nothing has changed then.
 */
int fdry_image_refresh(struct fdry_image *img);
/* Wait until @stream (NULL is the legacy default stream) is idle, in the image's context. */
int fdry_image_synchronize(struct fdry_image *img, CUstream stream);

/**
 * struct fdry_load_report - The times and sizes of a load, so far.
 * @sz: set by the caller: sizeof(struct fdry_load_report)
 * @driver_ms: opening the driver, retaining the context
 * @manifest_ms: finding, verifying and checking the manifest, comparing identity
 * @memory_ms: reserving, mapping, zeroing
 * @content_ms: copying content to the device, verified if necessary, after memory and kernels are
 *         there. Reading and verifying begins earlier
 * @kernels_ms: from kernel objects to CUkernels; waits for objects included
 * @total_ms: of fdry_image_load(), with FDRY_LOAD_BUILD also of building graphs
 * @build_ms: of the graphs built so far: driver graph, instantiation, upload before a first launch
 * @graphs_built, @nodes_built: number of these graphs and of their nodes
 * @mapped_bytes: device memory mapped for the image
 * @content_bytes, @verified_bytes: content that the load copied, and the part of it that it hashed
 * @objects_ms: from the beginning of reading kernel and graph objects until the last of them was
 *         decompressed, verified and checked
 * @objects_cpu_ms: processor time of that, over all threads
 * @wait_ms: the part of @objects_ms for which the load waited when everything else was done
 * @first_ms, @all_ms: from the call of fdry_image_load() until the first graph, and until all
 *         graphs, could be launched; 0: not yet
 * @object_bytes: kernel and graph objects that the load read, uncompressed. Images of one process
 *         share objects that another image has read
 * @threads: threads that read objects beside the calling one
 * @exec_bytes: device memory that disappeared while graphs were built. The driver allocates large
 *         pieces, and allocations of others in the process at the same time count
 * @checked_bytes: content, with its zeros, that the load compared with the fingerprints of the
 *         seal; 0: the image has none
 * @check_ms: of that, on the device
 *
 * Phases overlap, so their times add up to more than @total_ms: the load reads objects beside
 * everything else, from the manifest on, and maps memory beside loading kernels.
 */
struct fdry_load_report {
	size_t sz;
	double driver_ms, manifest_ms, memory_ms, content_ms, kernels_ms, total_ms, build_ms;
	uint64_t graphs_built, nodes_built;
	uint64_t mapped_bytes, content_bytes, verified_bytes;
	double objects_ms, objects_cpu_ms, wait_ms, first_ms, all_ms;
	uint64_t object_bytes, threads, exec_bytes;
	uint64_t checked_bytes;
	double check_ms;
};
int fdry_image_report(struct fdry_image *img, struct fdry_load_report *report);

/* ------------------------------------------------------------ before loading --- */

/* An external tensor, which the loading program fills; @addr is 0 for host memory. */
struct fdry_requirements_external {
	const char *name;
	fdry_devptr addr;
	uint64_t bytes;     /* with the sizes of the question */
	uint64_t max_bytes; /* its capacity */
};

/**
 * struct fdry_requirements - The resources that a load of an image needs.
 * @base: the first of @address_bytes device addresses of the image
 * @mapped_bytes: device memory that the load maps, in whole units of 2 MiB, small gaps included. If
 *         the device has less free memory, the load fails (FDRY_E_NODEVMEM)
 * @content_bytes, @scratch_bytes, @external_bytes: the parts of that memory
 * @copied_bytes: content that the load reads from the store and copies; the rest is zero
 * @exec_bytes: about the memory that the driver allocates for all built graphs: 3 KiB a node
 * @kernel_bytes: of the kernel objects, which need about as much device memory
 * @externals: @nexternals external tensors, by name
 * @host_bytes: pinned host memory that the load allocates, for host tensors and for memory that the
 *         graphs use at its own address
 * @array_bytes: of CUDA arrays, which need about as much device memory
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
	uint64_t array_bytes;
};

/**
 * fdry_image_requirements() - Read the requirements of a load, without a GPU or a driver.
 * @name: as for fdry_image_load()
 * @opts: the options of the load; NULL for the defaults
 * @ret: one block of memory; the caller frees it with free()
 *
 * The call reads the manifest alone. Errors: FDRY_E_NOENT, FDRY_E_CORRUPT, FDRY_E_BADIMAGE,
 * FDRY_E_OPTS.
 */
int fdry_image_requirements(struct fdry_store *store, const char *name,
			    const struct fdry_load_opts *opts, struct fdry_requirements **ret);

/**
 * fdry_image_describe() - Describe an image without loading it.
 * @name: as for fdry_image_load()
 * @ret: text; the caller frees it with free()
 *
 * The text has identity, memory, tensors, graphs with their nodes by kind and their edges, kernels
 * with their objects, the kernels that are whole cubins and why, and the requirements of a load.
 */
int fdry_image_describe(struct fdry_store *store, const char *name, char **ret);

/* Called with a fact, which is valid until it returns. */
typedef void (*fdry_fact_fn)(void *arg, const struct fdry_fact *fact);

/* Call @fn for each fact of the image @name, in the order of their keys, without loading it.
 * @name is as for fdry_image_load(). FDRY_E_NOENT, FDRY_E_CORRUPT, FDRY_E_BADIMAGE. */
int fdry_image_facts(struct fdry_store *store, const char *name, fdry_fact_fn fn, void *arg);

/* ------------------------------------------------------------ files --- */

enum fdry_file_flags {
	FDRY_FILE_EXECUTABLE = 1 << 0,
};

/**
 * struct fdry_file - A file that an image carries, such as a compiled kernel in a cache.
 * @name: 1 to 1,024 bytes: parts between slashes. No part is empty, "." or "..", and no byte is a
 *        control character
 * @data: @len bytes. All files of an image have at most 1 GiB
 * @flags: of enum fdry_file_flags
 * @reserved: zero
 */
struct fdry_file {
	const char *name;
	const void *data;
	uint64_t len;
	uint32_t flags;
	uint32_t reserved;
};

/**
 * fdry_image_attach() - Add files to an image.
 * @name: as for fdry_image_load()
 * @files: @nfiles, in any order; their names differ
 * @id: FDRY_ID_SIZE bytes for the id of the image with the files, or NULL
 *
 * The files make another image, since an image never changes. If @name is a ref or REF:DIGITS, the
 * new image replaces the other one there. If the image has files already, it keeps them, but for
 * those whose name one of @files has. Loads ignore files, and so do older versions of the library.
 * Errors: FDRY_E_NOENT; FDRY_E_EXISTS (two of @files have one name); FDRY_E_BADIMAGE (a name or
 * flag is not allowed); FDRY_E_LIMIT; FDRY_E_RACED (the ref was set meanwhile); FDRY_E_VERSION (a
 * newer version sealed the image, with parts that a copy would lack); FDRY_E_FULL, FDRY_E_PERM.
 */
int fdry_image_attach(struct fdry_store *store, const char *name, const struct fdry_file *files,
		      size_t nfiles, char *id);

/* Called with a file, which is valid until it returns. 0: continue; any other value ends
 * fdry_image_files(), which returns it. */
typedef int (*fdry_file_fn)(void *arg, const struct fdry_file *file);

/* Call @fn for each file of the image @name, by ascending name. The bytes are verified. The
 * caller must trust the image before it uses a file: a kernel is code.
 * FDRY_E_NOENT, FDRY_E_CORRUPT, FDRY_E_BADIMAGE. */
int fdry_image_files(struct fdry_store *store, const char *name, fdry_file_fn fn, void *arg);

/* ------------------------------------------------------------ names --- */

/*
 * A ref holds several images, one for each identity: everything that a load compares and that must
 * be equal (architecture, number of SMs, the stated facts). Sealing or tagging replaces the image
 * with the same identity and leaves the others. A load selects the image that fits; of several that
 * fit it selects the one that was set last. NAME:DIGITS means one of them, by the first digits of
 * its id.
 */

/**
 * fdry_image_tag() - Add a name for an image.
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
