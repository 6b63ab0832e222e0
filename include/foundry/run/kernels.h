/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - kernels without graphs: from code to functions, through a cache in memory and one in
 * a store. Part of foundry/run.h. The rules of foundry.h for errors, threads, handles and units
 * apply.
 *
 *   fdry_kernels_new()        make a cache for one device, with or without a store
 *   fdry_kernels_prepare()    compile and load ahead, in the background
 *   fdry_kernels_function()   from code and an entry's name to a CUfunction
 *   fdry_kernels_launch()     launch; number and sizes of the arguments are checked
 *
 * Compiled code is kept by a key: the SHA-256 of content, target, options and the version of the
 * compiler. In memory each key is compiled and loaded once, however many threads ask for it. With a
 * store it is compiled once for all processes of the host, until the driver changes.
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
 * struct fdry_kernels_opts - The options of a cache.
 * @sz: sizeof(struct fdry_kernels_opts)
 * @device: ordinal; the cache retains its primary context, to which functions belong
 * @reserved: zero
 * @store: a store that keeps compiled code; it must stay open until the cache is freed. A store
 *         that is open read-only is read and not written. NULL: keep code in memory only
 * @driver: path of the driver; NULL: FOUNDRY_DRIVER, else libcuda.so.1
 * @nvrtc: path of NVRTC; NULL: FOUNDRY_NVRTC, else libnvrtc.so.13, .12 or libnvrtc.so as the
 *         dynamic linker finds them. The library opens it when source is first compiled
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
 * fdry_kernels_new() - Make a cache of kernels for a device.
 * @opts: NULL for the defaults
 * @ret: the cache; free it with fdry_kernels_free()
 *
 * Errors: FDRY_E_NODRIVER, FDRY_E_NOGPU, FDRY_E_FORKED, FDRY_E_ENV (FOUNDRY_TRACE), FDRY_E_DRIVER.
 */
int fdry_kernels_new(const struct fdry_kernels_opts *opts, struct fdry_kernels **ret);
/* Wait for preparations in the background, unload every module, release the context. The functions
 * of the cache must not be used any more. NULL is allowed. */
void fdry_kernels_free(struct fdry_kernels *k);

/* The form of a source. */
enum fdry_kernels_form {
	FDRY_KERNELS_CODE =
		0, /* PTX, a cubin, a fatbin or its wrapper; the first bytes say which */
	FDRY_KERNELS_SOURCE = 1, /* CUDA C++, for NVRTC */
};

/**
 * struct fdry_kernels_source - Code, and how it is compiled.
 * @sz: sizeof(struct fdry_kernels_source)
 * @form: of enum fdry_kernels_form
 * @reserved: zero
 * @data: @len bytes. @len may include the terminating NUL of a text. It may be 0 for a fatbin,
 *         whose header has its length. It must be 0 for a wrapper: the pointer in a wrapper is
 *         valid only in the process that was linked with it, so bytes of a file cannot be a wrapper
 * @name: for messages, such as the name of a file; NULL: none. Not a part of the key
 * @target: of source: "sm_90", "sm_90a", "compute_80". NULL: the device's own target; if NVRTC does
 *         not know it, the highest lower target that it knows, as PTX. NULL for code
 * @options: @noptions options of the compiler. For source: NVRTC's options except the target. For
 *         PTX: -O0 to -O4, --maxrregcount=N, --generate-line-info, --device-debug. None for cubins
 * @version: text that becomes a part of the key; NULL: none. The key covers neither the files that
 *         a source includes nor its @name nor the time. So source that mentions "include",
 *         __FILE__, __DATE__ or __TIME__, or has options that name files, is kept in memory only,
 *         unless @version says which version of these it uses
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
 * fdry_kernels_function() - Get the function of an entry; compile and load its code if necessary.
 * @entry: name of the kernel, as the code has it (mangled, unless extern "C"); NULL: only load the
 *         code
 * @ret: the function, valid until fdry_kernels_clear() or fdry_kernels_free(); NULL if @entry is
 *         NULL
 *
 * The code comes from memory, else from the store, else from the compiler; then memory and store
 * keep it. If several threads ask for the same code at once, one compiles and the others wait for
 * it. The same is true of several processes with one store. A failure is not kept: the next call
 * tries again. Code that is damaged in the store, or that the driver refuses, is compiled again and
 * replaced. If the store cannot be written (read-only, full, damaged) the call succeeds without
 * saving the kernel, and fdry_kernels_stats() counts it.
 *
 * Errors: FDRY_E_COMPILE (the message has the first lines of the compiler's log,
 * fdry_kernels_log() has all of it); FDRY_E_UNABLE (this device cannot run the target, or the PTX
 * is too new for this driver: the message has both versions); FDRY_E_NONVRTC; FDRY_E_BADCODE;
 * FDRY_E_NOENT (no such entry, or a fatbin without code for the device); FDRY_E_INVAL (options);
 * FDRY_E_DRIVER; FDRY_E_NODEVMEM; FDRY_E_FORKED.
 */
int fdry_kernels_function(struct fdry_kernels *k, const struct fdry_kernels_source *source,
			  const char *entry, CUfunction *ret);
/* The key of a source, for fdry_kernels_find(). The call compiles nothing. Errors as for
 * fdry_kernels_function(). */
int fdry_kernels_key(struct fdry_kernels *k, const struct fdry_kernels_source *source,
		     struct fdry_kernels_key *ret);
/* As fdry_kernels_function(), for code that is in memory. The call is faster because it does not
 * hash the source. FDRY_E_NOKEY if the code is not in memory. */
int fdry_kernels_find(struct fdry_kernels *k, const struct fdry_kernels_key *key,
		      const char *entry, CUfunction *ret);

/* One of many kernels to prepare. @entry may be NULL. */
struct fdry_kernels_request {
	const struct fdry_kernels_source *source;
	const char *entry;
};
/**
 * fdry_kernels_prepare() - Compile and load before the first launch.
 * @requests: @count requests. The call copies them and their data. Two things are not copied and
 *         must stay until fdry_kernels_wait(): a fatbin of @len 0, and the data that a wrapper
 *         points to
 * @threads: the most threads that may work on it; 0: as many as the process may use at a time
 *
 * The call returns at once. Meanwhile fdry_kernels_function() finds finished code, waits for code
 * in progress, and compiles code that no thread has begun. Errors: FDRY_E_INVAL, FDRY_E_OPTS,
 * FDRY_E_NOMEM: then nothing is prepared.
 */
int fdry_kernels_prepare(struct fdry_kernels *k, const struct fdry_kernels_request *requests,
			 size_t count, uint32_t threads);
/* Wait until all preparations have ended. Returns the first failure since the last wait, with its
 * message; 0: none. */
int fdry_kernels_wait(struct fdry_kernels *k);

/* The number of loaded modules. */
size_t fdry_kernels_count(struct fdry_kernels *k);
/* Unload every module, after the loads in progress. Store and counters stay. The functions of the
 * cache must not be in use. */
int fdry_kernels_clear(struct fdry_kernels *k);

/**
 * struct fdry_kernels_stats - Counters since the cache was made, or since they were reset.
 * @sz: set by the caller: sizeof(struct fdry_kernels_stats)
 * @modules, @bytes: loaded now, and bytes of their code; not reset
 * @hits, @misses: requests that found their code in memory (loaded, or being loaded by another
 *         thread), or did not
 * @source_hits, @source_misses: the same for requests with CUDA C++; NVRTC does not run for a hit
 * @ptx_compilations, @source_compilations: by the driver and by NVRTC, failures included
 * @failures: requests that ended in an error
 * @store_hits, @store_misses: misses that the store could answer, or could not
 * @store_saves: compiled code that was written to the store; @store_bytes of it
 * @store_damaged: code in the store that was of no use: damaged, or refused by the driver
 * @store_errors: times that the store could not be read or written, and the cache worked without it
 * @compile_ms, @store_ms, @load_ms: time in compilers, in the store, and loading modules, summed
 *         over all threads
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
/* Set the counters to zero; nothing is unloaded. */
int fdry_kernels_stats_reset(struct fdry_kernels *k);

/**
 * fdry_kernels_log() - Read the whole log of the compiler's last failure.
 * @text: gets as much as fits into @len bytes, terminated; may be NULL if @len is 0
 * @need: NULL, or the bytes that the whole log needs, with the terminator; 1 if there is none yet
 */
int fdry_kernels_log(struct fdry_kernels *k, char *text, size_t len, size_t *need);

/**
 * struct fdry_kernels_target - Code that a cache's device can run.
 * @sz: set by the caller: sizeof(struct fdry_kernels_target)
 * @arch: the device's own target, such as "sm_90". Lower targets that end in neither a nor f run,
 *         too
 * @exact: the target with the features of exactly this architecture, "sm_90a"; "" if there is none
 * @cc: 10 * major + minor compute capability
 * @driver: CUDA version of the driver, 13000 is 13.0
 * @ptx: the highest version of PTX that the driver compiles, as far as this library knows: 90 is
 *         .version 9.0
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
/* The target to compile for: code for it loads on the cache's device. */
int fdry_kernels_target(struct fdry_kernels *k, struct fdry_kernels_target *ret);

/* ------------------------------------------------------------ launching --- */

enum fdry_kernels_launch_flags {
	FDRY_KERNELS_COOPERATIVE =
		1 << 0, /* all blocks run at a time, so they may wait for each other */
};

/* One argument; the launch copies its bytes. */
struct fdry_kernels_arg {
	const void *data;
	size_t size;
};

/**
 * struct fdry_kernels_launch_opts - How to launch.
 * @sz: sizeof(struct fdry_kernels_launch_opts)
 * @grid: blocks; 0 counts as 1
 * @block: threads of a block; 0 counts as 1
 * @shared: bytes of dynamic shared memory. If the function's limit is lower, the launch raises it
 *         first, for good
 * @flags: of enum fdry_kernels_launch_flags
 * @stream: of the primary context; NULL is its legacy default stream. It may be capturing
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
 * fdry_kernels_launch() - Launch a function of the cache.
 * @opts: not NULL
 * @args: @nargs arguments in order
 *
 * The number of arguments and the size of each must be those of the kernel; otherwise FDRY_E_INVAL
 * names both numbers. FDRY_E_UNABLE if the device has no cooperative launches, or cannot run the
 * whole grid at the same time; the message has both facts. Asynchronous.
 *
 * Errors: also FDRY_E_NOKEY (not a function of this cache), FDRY_E_NOFUNC (a driver older than CUDA
 * 12.4 does not report parameters), FDRY_E_DRIVER.
 */
int fdry_kernels_launch(struct fdry_kernels *k, CUfunction function,
			const struct fdry_kernels_launch_opts *opts,
			const struct fdry_kernels_arg *args, size_t nargs);

#ifdef __cplusplus
}
#endif

#endif
