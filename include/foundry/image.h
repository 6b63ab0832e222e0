/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - load an image, fill its tensors, launch its graphs. Part of foundry.h, whose rules for errors,
 * threads, handles and units apply.
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
 * @object_bytes: kernel and graph objects that the load read, uncompressed; images of one process share
 *        what another one has read
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

/* ------------------------------------------------------------ names --- */

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
