// SPDX-License-Identifier: Apache-2.0
/*
 * host.c - checks host memory that copies use; see host.h.
 *
 * The driver has a range and a number for pinned memory, however it was pinned. It knows nothing
 * about pageable memory. There the library can only check that the memory can be read; the program
 * must keep it allocated.
 */
#include "image/capture/host.h"

#include "lib/safe_read.h"
#include "graph/host.h"

static int pageable_look(const struct fdry_capture_tensor *t, uint64_t *serial)
{
	struct fdry_safe_read p;
	char byte;
	int err = fdry_safe_read_init(&p);

	if (err)
		return err;
	err = fdry_safe_read(&p, t->desc.addr, &byte, 1) ?:
	      fdry_safe_read(&p, t->desc.addr + t->extent - 1, &byte, 1);
	fdry_safe_read_release(&p);
	if (err)
		return fdry_fail_at(err, "host tensor '%s'", t->desc.name);
	*serial = 0;
	return 0;
}

static int pinned_look(const struct fdry_driver *drv, const struct fdry_capture_tensor *t,
		       uint64_t *serial)
{
	CUdeviceptr start = 0;
	unsigned long long id = 0;
	size_t size = 0;
	int err;

	err = fdry_call(drv, cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
			t->desc.addr);
	if (err)
		return err;
	err = fdry_call(drv, cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
			t->desc.addr);
	if (err)
		return err;
	err = fdry_call(drv, cuPointerGetAttribute, &id, CU_POINTER_ATTRIBUTE_BUFFER_ID,
			t->desc.addr);
	if (err)
		return err;
	if (t->desc.addr - start > size || t->extent > size - (t->desc.addr - start))
		return fdry_fail(
			FDRY_E_RANGE,
			"host tensor '%s' (%llu bytes at %#llx) ends behind the %zu bytes "
			"at %#llx that were pinned together; name a part of one allocation",

			t->desc.name, (unsigned long long)t->extent, t->desc.addr, size, start);
	*serial = id;
	return 0;
}

static int memory_look(const struct fdry_driver *drv, const struct fdry_capture_tensor *t,
		       uint64_t *serial)
{
	unsigned int type = 0, managed = 0;
	CUresult res = fdry_call_raw(drv, cuPointerGetAttribute, &type,
				     CU_POINTER_ATTRIBUTE_MEMORY_TYPE, t->desc.addr);

	if (res == CUDA_ERROR_INVALID_VALUE)
		return pageable_look(t, serial);
	if (res != CUDA_SUCCESS)
		return fdry_driver_result(drv, FDRY_DRV_cuPointerGetAttribute, res);
	(void)fdry_call_raw(drv, cuPointerGetAttribute, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
			    t->desc.addr);
	if (managed || type != CU_MEMORYTYPE_HOST)
		return fdry_fail(FDRY_E_RANGE, "host tensor '%s' lies in %s memory; %s",
				 t->desc.name, managed ? "managed" : "device",
				 managed ? "copy from pinned memory"
					 : "name it without FDRY_TENSOR_HOST");
	return pinned_look(drv, t, serial);
}

int fdry_capture_host_look(const struct fdry_capture *cap, const struct fdry_capture_tensor *t,
			   uint64_t *serial)
{
	CUstreamCaptureMode mode;
	int err;

	if (!t->extent)
		return fdry_fail(FDRY_E_RANGE, "host tensor '%s' has no bytes; leave it out",
				 t->desc.name);
	if (t->extent > FDRY_HOST_SIZE_MAX - FDRY_HOST_ALIGN)
		return fdry_fail(FDRY_E_LIMIT,
				 "host tensor '%s' has %llu bytes, more than the limit of %llu",
				 t->desc.name, (unsigned long long)t->extent,
				 FDRY_HOST_SIZE_MAX - FDRY_HOST_ALIGN);
	err = fdry_driver_enter(cap->drv, cap->ctx, &mode);
	if (err)
		return err;
	err = memory_look(cap->drv, t, serial);
	fdry_driver_leave(cap->drv, &mode);
	return err;
}

int fdry_capture_host_still(const struct fdry_capture *cap, const struct fdry_capture_tensor *t)
{
	uint64_t serial = 0;
	int err = fdry_capture_host_look(cap, t, &serial);

	if ((err && err != -FDRY_E_RANGE) || (!err && serial == t->serial))
		return err;
	return fdry_fail(
		FDRY_E_STATE,
		"the host memory of tensor '%s' was freed before the seal; keep it allocated",
		t->desc.name);
}
