/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - kernels without graphs: code to functions, through a cache in memory and one in
 * a store. Part of foundry/run.h, whose rules for errors, threads and units hold here.
 *
 *   fdry_kernels_new()        a cache for one device, with or without a store
 *   fdry_kernels_prepare()    compile and load ahead, in the background
 *   fdry_kernels_function()   code and an entry's name to a CUfunction
 *   fdry_kernels_launch()     a launch whose arguments are counted and measured
 *
 * What is compiled is kept by a key: the SHA-256 of content, target, options and the version
 * of what compiles. In memory each key is compiled and loaded once, however many threads
 * ask; with a store, once for all processes of the host, until the driver changes.
 */
#ifndef FOUNDRY_RUN_KERNELS_H
#define FOUNDRY_RUN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/store.h"
#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fdry_kernels;

/**
 * struct fdry_kernels_opts - How to open a cache.
 * @sz: sizeof(struct fdry_kernels_opts)
 * @device: ordinal; its primary context is retained, and functions belong to it
 * @reserved: zero
 * @store: where compiled code is kept, open until the cache is closed. NULL: in memory only.
 *         Open read-only it is read and not written
 * @driver: path of the driver; NULL: FOUNDRY_DRIVER, else libcuda.so.1
 * @nvrtc: path of NVRTC; NULL: FOUNDRY_NVRTC, else libnvrtc.so.13, .12 or libnvrtc.so as the
 *         dynamic linker finds them. It is opened when source is asked for, and not before
 */
struct fdry_kernels_opts {
	size_t sz;
	int32_t device;
	uint32_t reserved;
	struct fdry_store *store;
	const char *driver;
	const char *nvrtc;
};

/**
 * fdry_kernels_new() - Open a cache of kernels for a device.
 * @opts: NULL for the defaults
 * @ret: the cache, yours until fdry_kernels_free()
 *
 * Errors: FDRY_E_NODRIVER, FDRY_E_NOGPU, FDRY_E_FORKED, FDRY_E_ENV (FOUNDRY_TRACE), FDRY_E_DRIVER.
 */
int fdry_kernels_new(const struct fdry_kernels_opts *opts, struct fdry_kernels **ret);
/* Wait for what is prepared in the background, unload every module, release the context. Functions
 * are gone with it, so nothing may use them any more. NULL is fine. */
void fdry_kernels_free(struct fdry_kernels *k);

/* What a source is. */
enum fdry_kernels_form {
	FDRY_KERNELS_CODE = 0,   /* PTX, a cubin, a fatbin or its wrapper: told apart by their first bytes */
	FDRY_KERNELS_SOURCE = 1, /* CUDA C++, for NVRTC */
};

/**
 * struct fdry_kernels_source - Code, and how it is compiled.
 * @sz: sizeof(struct fdry_kernels_source)
 * @form: of enum fdry_kernels_form
 * @reserved: zero
 * @data: @len bytes; of text a terminating NUL may be counted or not. @len may be 0 for a fatbin, whose header
 *        says how long it is. It must be 0 for a wrapper: the pointer in it is right only in the process that was
 *        linked with it, so bytes of a file cannot be one
 * @name: for messages, such as a file's; NULL: none. Not a part of the key
 * @target: of source: "sm_90", "sm_90a", "compute_80"; NULL: the device's own, or where NVRTC does not know
 *        that one, the highest below it that it knows, as PTX. NULL for code
 * @options: @noptions options of the compiler. Of source: NVRTC's, but for the target's. Of PTX: -O0 to -O4,
 *        --maxrregcount=N, --generate-line-info, --device-debug. None for cubins
 * @version: text that becomes part of the key; NULL: none. The key knows nothing of the files that a source
 *        includes, of its @name or of the time. So source that mentions "include", __FILE__, __DATE__ or __TIME__, or has
 *        options that name files, is kept in memory alone, unless this says which version of those it is
 */
struct fdry_kernels_source {
	size_t sz;
	uint32_t form;
	uint32_t reserved;
	const void *data;
	size_t len;
	const char *name;
	const char *target;
	const char *const *options;
	size_t noptions;
	const char *version;
};

/* A key, in binary. */
struct fdry_kernels_key {
	uint8_t bytes[32];
};

/**
 * fdry_kernels_function() - The function of an entry, compiled and loaded where it is not yet.
 * @entry: name of the kernel, as the code has it (mangled, unless extern "C"); NULL: only load the code
 * @ret: the function, valid until fdry_kernels_clear() or fdry_kernels_free(); NULL with @entry NULL
 *
 * From memory; else from the store; else compiled, and kept in both. Of several threads that ask for the
 * same at once one compiles and the others wait for it; of several processes with one store, too. A
 * failure is not kept: the next one who asks tries again. What is damaged in the store, or refused by the driver,
 * is compiled anew and replaced. Where the store cannot be written (read-only, full, damaged) the kernel
 * is not saved and the call succeeds: fdry_kernels_stats() counts it.
 *
 * Errors: FDRY_E_COMPILE (the first lines of the compiler's log are in the sentence, all of it in fdry_kernels_log());
 * FDRY_E_UNABLE (a target that this device cannot run, or PTX that is too new for this driver: the sentence
 * names both versions); FDRY_E_NONVRTC; FDRY_E_BADCODE; FDRY_E_NOENT (no such entry; or a fatbin without code for the device);
 * FDRY_E_INVAL (options); FDRY_E_DRIVER; FDRY_E_NODEVMEM; FDRY_E_FORKED.
 */
int fdry_kernels_function(struct fdry_kernels *k, const struct fdry_kernels_source *source, const char *entry, CUfunction *ret);
/* The key of a source, for fdry_kernels_find(). Nothing is compiled. Errors as fdry_kernels_function(). */
int fdry_kernels_key(struct fdry_kernels *k, const struct fdry_kernels_source *source, struct fdry_kernels_key *ret);
/* The same as fdry_kernels_function() for what is in memory: without hashing the source, so faster. FDRY_E_NOKEY where it is not. */
int fdry_kernels_find(struct fdry_kernels *k, const struct fdry_kernels_key *key, const char *entry, CUfunction *ret);

/* One of many to be prepared. @entry may be NULL. */
struct fdry_kernels_request {
	const struct fdry_kernels_source *source;
	const char *entry;
};
/**
 * fdry_kernels_prepare() - Compile and load ahead of the first dispatch.
 * @asks: @count, copied with what they point at; but a fatbin of @len 0, and what a wrapper leads to, stays the caller's, until
 *        fdry_kernels_wait() at least
 * @threads: how many may work on it; 0: as many as the process may use at the same time
 *
 * Returns at once. fdry_kernels_function() meanwhile finds what is done, waits for what is being done,
 * and does itself what nobody has begun. Errors: FDRY_E_INVAL, FDRY_E_OPTS, FDRY_E_NOMEM: nothing is prepared then.
 */
int fdry_kernels_prepare(struct fdry_kernels *k, const struct fdry_kernels_request *asks, size_t count, uint32_t threads);
/* Wait until all that was to be prepared is. The first failure since the last wait, with its sentence; 0: none. */
int fdry_kernels_wait(struct fdry_kernels *k);

/* How many modules are loaded. */
size_t fdry_kernels_count(struct fdry_kernels *k);
/* Unload every module, once what is being loaded is. The store and the counters stay. Functions are gone, so nothing may
 * be using them. */
int fdry_kernels_clear(struct fdry_kernels *k);

/**
 * struct fdry_kernels_stats - Counters since the cache was opened, or since they were reset.
 * @sz: set by the caller: sizeof(struct fdry_kernels_stats)
 * @modules, @bytes: loaded now, and bytes of their code; not reset
 * @hits, @misses: asks that found their code in memory (loaded, or being loaded by another), or did not
 * @source_hits, @source_misses: the same of asks with CUDA C++: a hit is a source that NVRTC did not see again
 * @ptx_compilations, @source_compilations: by the driver and by NVRTC, failed ones too
 * @failures: asks that ended in an error
 * @store_hits, @store_misses: misses that the store could answer, or could not
 * @store_saves: compiled code that went into the store; @store_bytes of it
 * @store_damaged: found in the store, and of no use: damaged, or refused by the driver
 * @store_errors: times that the store could not be read or written, and was done without
 * @compile_ms, @store_ms, @load_ms: spent in compilers, in the store, and loading modules, over all threads
 */
struct fdry_kernels_stats {
	size_t sz;
	uint64_t modules, bytes;
	uint64_t hits, misses;
	uint64_t source_hits, source_misses;
	uint64_t ptx_compilations, source_compilations;
	uint64_t failures;
	uint64_t store_hits, store_misses, store_saves, store_bytes, store_damaged, store_errors;
	double compile_ms, store_ms, load_ms;
};
int fdry_kernels_stats(struct fdry_kernels *k, struct fdry_kernels_stats *ret);
/* Counters to zero; nothing is unloaded. */
int fdry_kernels_stats_reset(struct fdry_kernels *k);

/**
 * fdry_kernels_log() - What the compiler said when it last refused something, all of it.
 * @text: gets as much as fits into @len bytes, terminated; may be NULL with @len 0
 * @need: NULL, or the bytes that all of it needs, with the terminator; 1 where nothing was refused yet
 */
int fdry_kernels_log(struct fdry_kernels *k, char *text, size_t len, size_t *need);

/**
 * struct fdry_kernels_target - What code for a cache's device may be.
 * @sz: set by the caller: sizeof(struct fdry_kernels_target)
 * @arch: the device's own target, such as "sm_90". Targets below it that end in neither a nor f run, too
 * @exact: the one with the features of exactly this architecture, "sm_90a"; "" where there is none
 * @cc: 10 * major + minor compute capability
 * @driver: CUDA version of the driver, 13000 is 13.0
 * @ptx: the highest version of PTX that the driver compiles, as far as this library knows: 90 is .version 9.0
 */
struct fdry_kernels_target {
	size_t sz;
	char arch[16];
	char exact[16];
	uint32_t cc;
	int32_t driver;
	uint32_t ptx;
	uint32_t reserved;
};
/* The target to compile for on the cache's device: what is chosen by it loads. */
int fdry_kernels_target(struct fdry_kernels *k, struct fdry_kernels_target *ret);

/* ------------------------------------------------------------ launching --- */

enum fdry_kernels_launch_flags {
	FDRY_KERNELS_COOPERATIVE = 1 << 0, /* all blocks at the same time, so that they can wait for each other */
};

/* One argument: its bytes are copied by the launch. */
struct fdry_kernels_arg {
	const void *data;
	size_t size;
};

/**
 * struct fdry_kernels_launch_opts - How to launch.
 * @sz: sizeof(struct fdry_kernels_launch_opts)
 * @grid: blocks; a zero counts as 1
 * @block: threads of a block; a zero counts as 1
 * @shared: bytes of dynamic shared memory. Where the function is allowed less, it is allowed as much first, and stays so
 * @flags: of enum fdry_kernels_launch_flags
 * @stream: of the primary context; NULL is its legacy default stream. It may capture
 */
struct fdry_kernels_launch_opts {
	size_t sz;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared;
	uint32_t flags;
	CUstream stream;
};

/**
 * fdry_kernels_launch() - Launch a function that the cache gave.
 * @opts: not NULL
 * @args: @nargs arguments in order
 *
 * The number of arguments and the size of each must be those of the kernel: FDRY_E_INVAL tells both numbers.
 * A cooperative launch is refused (FDRY_E_UNABLE) where the device has none, or cannot hold the grid all
 * at once; the sentence has both facts. Asynchronous.
 * Errors: also FDRY_E_NOKEY (not a function of this cache), FDRY_E_NOFUNC (before CUDA 12.4 parameters cannot be asked
 * for), FDRY_E_DRIVER.
 */
int fdry_kernels_launch(struct fdry_kernels *k, CUfunction function, const struct fdry_kernels_launch_opts *opts,
		       const struct fdry_kernels_arg *args, size_t nargs);

#ifdef __cplusplus
}
#endif

#endif
