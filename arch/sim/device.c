// SPDX-License-Identifier: Apache-2.0
/*
 * device.c - the devices, which are all equal, and which the environment describes.
 *
 * The first cuInit reads the environment, once.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/sim/sim.h"

#define DEVICE_NAME "Foundry software device"
#define MEMORY_DEFAULT ((size_t)8 << 30)
#define CC_DEFAULT 90

static int device_count = 1;
static int device_cc = CC_DEFAULT;
static size_t device_memory = MEMORY_DEFAULT;

/* Attributes with a fixed value; any other attribute of cuda.h is 0. */
static const struct {
	CUdevice_attribute attr;
	int value;
} attributes[] = {
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, SIM_THREADS_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, SIM_BLOCK_X_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, SIM_BLOCK_Y_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, SIM_BLOCK_Z_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, SIM_GRID_X_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, SIM_GRID_Y_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, SIM_GRID_Z_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SIM_SHARED_DEFAULT },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, SIM_SHARED_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, SIM_SHARED_SM },
	{ CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024 },
	{ CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536 },
	{ CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32 },
	{ CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647 },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536 },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536 },
	{ CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000 },
	{ CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000 },
	{ CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64 },
	{ CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20 },
	{ CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512 },
	{ CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32 },
	{ CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512 },
	{ CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1 },
	{ CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2 },
	{ CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, SIM_SM_COUNT },
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, SIM_THREADS_SM },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, SIM_BLOCKS_SM },
	{ CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
	{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
	{ CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1 },
	{ CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1 },
	{ CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1 },
	{ CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4 },
};

/* A number of at most @max at *@s; moves *@s after it. */
static bool number(const char **s, unsigned long long max, unsigned long long *ret)
{
	char *end;

	if (!isdigit((unsigned char)**s))
		return false;
	*ret = strtoull(*s, &end, 10);
	*s = end;
	return *ret <= max;
}

/* A number, which K, M or G may follow. */
static bool memory_parse(const char *s)
{
	static const char units[] = "KMG";
	const char *unit;
	unsigned long long n;
	int shift = 0;

	if (!number(&s, SIZE_MAX >> 30, &n))
		return false;
	unit = *s ? strchr(units, toupper((unsigned char)*s)) : NULL;
	if (unit) {
		shift = 10 * (int)(unit - units + 1);
		s++;
	}
	device_memory = (size_t)n << shift;
	return n && !*s;
}

static bool cc_parse(const char *s)
{
	unsigned long long major, minor;

	if (!number(&s, 99, &major) || *s++ != '.' || !number(&s, 9, &minor) || *s)
		return false;
	device_cc = 10 * (int)major + (int)minor;
	return major > 0;
}

static bool count_parse(const char *s)
{
	unsigned long long n;

	if (!number(&s, SIM_DEVICES_MAX, &n) || *s)
		return false;
	device_count = (int)n;
	return true;
}

static CUresult environment_read(void)
{
	const char *devices = getenv("FDRY_SIM_DEVICES"), *cc = getenv("FDRY_SIM_CC");
	const char *memory = getenv("FDRY_SIM_MEMORY"),
		   *version = getenv("FDRY_SIM_DRIVER_VERSION");
	unsigned long long n;

	if (version && (!number(&version, INT_MAX, &n) || *version || !n))
		return CUDA_ERROR_INVALID_VALUE;
	if ((devices && !count_parse(devices)) || (cc && !cc_parse(cc)) ||
	    (memory && !memory_parse(memory)))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult sim_device_init(void)
{
	static bool done;

	if (!done)
		SIM_TRY(environment_read());
	done = true;
	return device_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

int sim_device_cc(void)
{
	return device_cc;
}

size_t sim_device_memory(void)
{
	return device_memory;
}

bool sim_device_ok(CUdevice dev)
{
	return dev >= 0 && dev < device_count;
}

CUresult cuDeviceGetCount(int *count)
{
	SIM_ENTER(cuDeviceGetCount);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = device_count;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *dev, int ordinal)
{
	SIM_ENTER(cuDeviceGet);
	if (!dev)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*dev = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	SIM_ENTER(cuDeviceGetName);
	if (!name || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)len, "%s", DEVICE_NAME);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	SIM_ENTER(cuDeviceTotalMem_v2);
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = device_memory;
	return CUDA_SUCCESS;
}

/* The UUID is not random, so a device has the same in every process. */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	static const char bytes[16] = "foundry-software";

	SIM_ENTER(cuDeviceGetUuid_v2);
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	memcpy(uuid->bytes, bytes, sizeof(bytes));
	uuid->bytes[15] = (char)(uuid->bytes[15] ^ dev);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
	SIM_ENTER(cuDeviceGetPCIBusId);
	if (!id || len < 13)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(id, (size_t)len, "0000:%02X:00.0", (unsigned int)dev + 1);
	return CUDA_SUCCESS;
}

static int attribute(CUdevice_attribute attr, CUdevice dev)
{
	size_t i;

	if (attr == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
		return device_cc / 10;
	if (attr == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
		return device_cc % 10;
	if (attr == CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)
		return device_cc >= 60;
	if (attr == CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)
		return device_cc >= 90;
	if (attr == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
		return dev + 1;
	for (i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (attributes[i].attr == attr)
			return attributes[i].value;
	return 0;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attr, CUdevice dev)
{
	SIM_ENTER(cuDeviceGetAttribute);
	if (!value || attr < 1 || attr >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attribute(attr, dev);
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
	SIM_ENTER(cuDeviceCanAccessPeer);
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev) || !sim_device_ok(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*can = dev != peer;
	return CUDA_SUCCESS;
}
