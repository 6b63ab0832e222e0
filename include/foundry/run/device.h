/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - a device by its number: its capabilities, its context, and launches that need all of
 * its multiprocessors at the same time. Part of foundry/run.h. The rules of foundry.h for errors,
 * threads, handles and units apply.
 */
#ifndef FOUNDRY_RUN_DEVICE_H
#define FOUNDRY_RUN_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fdry_device;

/*
 * The device's attributes: FDRY_CAP(field, number of the driver's attribute). Sizes are bytes,
 * clocks are kilohertz. The rest are counts, or 1 for yes and 0 for no. 0 also stands for an
 * attribute that the driver does not know.
 */
#define FDRY_CAPS(X) \
	X(cc_major, 75) X(cc_minor, 76) X(multiprocessors, 16) X(warp_size, 10) \
	X(block_threads, 1) X(block_x, 2) X(block_y, 3) X(block_z, 4) \
	X(grid_x, 5) X(grid_y, 6) X(grid_z, 7) \
	X(multiprocessor_threads, 39) X(multiprocessor_blocks, 106) \
	X(block_registers, 12) X(multiprocessor_registers, 82) \
	X(block_shared, 8) X(block_shared_optin, 97) X(block_shared_reserved, 111) \
	X(multiprocessor_shared, 81) X(constant_memory, 9) X(l2_cache, 38) \
	X(clock_khz, 13) X(memory_clock_khz, 36) X(memory_bus_bits, 37) \
	X(copy_engines, 40) X(concurrent_kernels, 31) X(stream_priorities, 78) \
	X(unified_addressing, 41) X(managed_memory, 83) X(map_host_memory, 19) \
	X(virtual_memory, 102) X(memory_pools, 115) \
	X(cooperative_launch, 95) X(cluster_launch, 120) X(multicast, 132) X(integrated, 18) \
	X(ecc, 32) X(compute_mode, 20)

/**
 * struct fdry_device_caps - A device's attributes, as the library first read them.
 * @sz: set by the caller: sizeof(struct fdry_device_caps)
 * @memory: all memory of the device, in bytes
 * @driver: CUDA version of the driver: 13000 is 13.0
 */
struct fdry_device_caps {
	size_t sz;
	char name[128];
	uint64_t memory;
	int32_t ordinal;
	int32_t driver;
#define X(field, nr) int32_t field;
	FDRY_CAPS(X)
#undef X
};

/**
 * fdry_device_get() - Get a reference to a device, its primary context and its pools.
 * @ordinal: of the devices that the process sees, from 0
 * @ret: the device. The same ordinal returns the same handle; put it once for each get
 *
 * The library reads the capabilities once. In a process with the interposer, memory is allocated
 * through it, so that captures see it.
 *
 * The first call in a process also sets up the driver's cache of compiled code, unless
 * CUDA_CACHE_PATH is set: in FOUNDRY_JIT_CACHE, else in foundry/jit of the cache folder, with a
 * limit of 4 GiB unless CUDA_CACHE_MAXSIZE is set. This changes the environment. So make this call
 * before other threads read the environment, and before anything starts the driver, which reads
 * these variables once.
 *
 * Errors: FDRY_E_NODRIVER, FDRY_E_NOGPU (also: no device with that number), FDRY_E_ENV and
 * FDRY_E_NOHOME (no place for that cache; the message says what to set), FDRY_E_FORKED,
 * FDRY_E_DRIVER, FDRY_E_NOMEM.
 */
int fdry_device_get(int ordinal, struct fdry_device **ret);
/* Put a reference; NULL is allowed. The last put releases everything that the pools keep. Memory
 * that is still in use then stays allocated and is lost to the pools, so put everything back
 * before. */
void fdry_device_put(struct fdry_device *dev);

/* Errors: FDRY_E_OPTS (@ret->sz), FDRY_E_INVAL. */
int fdry_device_caps(const struct fdry_device *dev, struct fdry_device_caps *ret);

/* Make the device's primary context current to the calling thread, ready for use. Errors:
 * FDRY_E_FORKED, FDRY_E_DRIVER. */
int fdry_device_warm_up(struct fdry_device *dev);

/**
 * fdry_device_clean_up() - Release everything that the device's pools keep for later.
 *
 * That is device memory, pinned memory, streams and events that are not in use. The call waits for
 * the work that was on their streams when they were put. Memory in use, such as resident buffers,
 * stays.
 */
int fdry_device_clean_up(struct fdry_device *dev);

/**
 * struct fdry_device_launch_opts - A launch whose blocks all run at the same time.
 * @sz: set by the caller: sizeof(struct fdry_device_launch_opts)
 * @function: a CUfunction of the device's primary context
 * @shared: dynamic shared memory of a block, in bytes
 * @params: as for cuLaunchKernel
 */
struct fdry_device_launch_opts {
	size_t sz;
	struct CUfunc_st *function;
	uint32_t grid[3], block[3];
	uint32_t shared, reserved;
	void **params;
	CUstream stream;
};

/**
 * fdry_device_launch_cooperative() - Launch a kernel whose blocks may wait for one another.
 *
 * Errors: FDRY_E_UNABLE if the device has no cooperative launches (the message has its compute
 * capability and the driver's answer), or if not so many blocks fit (the message has both
 * numbers); FDRY_E_INVAL, FDRY_E_OPTS, FDRY_E_FORKED, FDRY_E_DRIVER.
 */
int fdry_device_launch_cooperative(struct fdry_device *dev,
				   const struct fdry_device_launch_opts *launch);

#ifdef __cplusplus
}
#endif

#endif
