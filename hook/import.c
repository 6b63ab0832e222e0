// SPDX-License-Identifier: Apache-2.0
/*
 * import.c - notes memory of other processes and APIs, so that a message can name it if a graph
 * uses it.
 *
 * Such memory stays with the driver: no image can hold bytes that others write. map.c notes memory
 * that is imported by handle and mapped.
 *
 * Locking: a lock around the ranges. A free takes no lock if no memory is imported.
 */
#include "hook/internal.h"

#include <stdlib.h>

#include "mm/range.h"

struct import {
	struct fdry_range range; /* first */
	const char *origin;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_ranges imports;
static unsigned int count; /* atomic */

/* Lock held. */
static void drop(CUdeviceptr start, CUdeviceptr end)
{
	struct fdry_range *n;

	while ((n = fdry_ranges_from(&imports, start)) && n->start < end) {
		fdry_ranges_del(&imports, n);
		free(n);
		__atomic_fetch_sub(&count, 1, __ATOMIC_RELAXED);
	}
}

static CUresult note(CUresult res, const CUdeviceptr *addr, const char *origin)
{
	struct import *m;
	CUdeviceptr start;
	size_t size;

	if (res || fdry_start_is_forked() ||
	    fdry_real(cuMemGetAddressRange_v2)(&start, &size, *addr))
		return res;
	m = calloc(1, sizeof(*m));
	if (!m)
		return res; /* not noted: a seal refuses unknown memory in any case */
	m->range.start = start;
	m->range.end = start + size;
	m->origin = origin;
	pthread_mutex_lock(&lock);
	drop(start, start + size); /* the old range was freed in another way */
	fdry_ranges_add(&imports, &m->range);
	__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
	return res;
}

void fdry_import_gone(CUdeviceptr addr)
{
	if (!__atomic_load_n(&count, __ATOMIC_RELAXED) || fdry_start_is_forked())
		return;
	pthread_mutex_lock(&lock);
	drop(addr, addr + 1);
	pthread_mutex_unlock(&lock);
}

const char *fdry_hook_origin_at(CUdeviceptr addr)
{
	const struct fdry_range *n;
	const char *ret = NULL;

	pthread_mutex_lock(&lock);
	n = fdry_ranges_floor(&imports, addr);
	if (n && addr < n->end)
		ret = ((const struct import *)n)->origin;
	pthread_mutex_unlock(&lock);
	return ret;
}

static const char of_process[] = "memory of another process (cuIpcOpenMemHandle)";

CUresult cuIpcOpenMemHandle(CUdeviceptr *ret, CUipcMemHandle handle, unsigned int flags)
{
	return note(fdry_real(cuIpcOpenMemHandle)(ret, handle, flags), ret, of_process);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ret, CUipcMemHandle handle, unsigned int flags)
{
	return note(fdry_real(cuIpcOpenMemHandle_v2)(ret, handle, flags), ret, of_process);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr addr)
{
	fdry_import_gone(addr);
	return fdry_real(cuIpcCloseMemHandle)(addr);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ret, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	return note(fdry_real(cuMemPoolImportPointer)(ret, pool, data), ret,
		    "memory of another process's pool (cuMemPoolImportPointer)");
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *ret, CUexternalMemory memory,
					 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
	return note(fdry_real(cuExternalMemoryGetMappedBuffer)(ret, memory, desc), ret,
		    "memory of another API (cuExternalMemoryGetMappedBuffer)");
}
