// SPDX-License-Identifier: Apache-2.0
/*
 * multicast.c - multicast objects, for one device.
 *
 * An object has no memory of its own. Its mapping shows the bytes of the bound memory, which
 * equals a multicast to one device. More devices are refused.
 */
#include "arch/sim/vmm.h"

static CUresult prop_check(const CUmulticastObjectProp *prop)
{
	if (!prop || !prop->size || !sim_granular(prop->size) || prop->flags || !prop->numDevices)
		return CUDA_ERROR_INVALID_VALUE;
	return prop->numDevices == 1 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static struct sim_mem *multicast_find(CUmemGenericAllocationHandle handle)
{
	struct sim_mem *mc = sim_mem_find(handle);

	return mc && mc->multicast ? mc : NULL;
}

CUresult cuMulticastGetGranularity(size_t *ret, const CUmulticastObjectProp *prop,
				   CUmulticastGranularity_flags option)
{
	SIM_ENTER(cuMulticastGetGranularity);
	if (!ret || (option != CU_MULTICAST_GRANULARITY_MINIMUM &&
		     option != CU_MULTICAST_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(prop_check(prop));
	*ret = SIM_GRANULARITY;
	return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *ret, const CUmulticastObjectProp *prop)
{
	CUmemAllocationProp own = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	struct sim_mem *mc;

	SIM_ENTER(cuMulticastCreate);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(prop_check(prop));
	mc = sim_mem_new(prop->size, &own);
	if (!mc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mc->multicast = true;
	return sim_mem_open(mc, ret);
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice dev)
{
	struct sim_mem *mc;

	SIM_ENTER(cuMulticastAddDevice);
	mc = multicast_find(handle);
	if (!mc || mc->joined)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	mc->joined = true;
	mc->prop.location.id = dev;
	return CUDA_SUCCESS;
}

/* Only the whole object can be bound at once. */
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
			    CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
			    unsigned long long flags)
{
	struct sim_mem *mc, *mem;

	SIM_ENTER(cuMulticastBindMem);
	mc = multicast_find(handle);
	mem = sim_mem_find(memory);
	if (!mc || !mem || mem->multicast || flags || !mc->joined || mc->bound || size > mc->size ||
	    size > mem->size)
		return CUDA_ERROR_INVALID_VALUE;
	if (offset || memory_offset || size != mc->size ||
	    mem->prop.location.id != mc->prop.location.id)
		return CUDA_ERROR_NOT_SUPPORTED;
	sim_obj_get(&mem->obj);
	mc->bound = mem;
	return CUDA_SUCCESS;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice dev, size_t offset,
			   size_t size)
{
	struct sim_mem *mc;

	SIM_ENTER(cuMulticastUnbind);
	mc = multicast_find(handle);
	if (!mc || !mc->bound || mc->mappings || offset || size != mc->size ||
	    dev != mc->prop.location.id)
		return CUDA_ERROR_INVALID_VALUE;
	sim_obj_put(&mc->bound->obj);
	mc->bound = NULL;
	return CUDA_SUCCESS;
}
