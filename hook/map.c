// SPDX-License-Identifier: Apache-2.0
/*
 * map.c - handles addresses that the program reserves, and memory that it maps there.
 *
 * Addresses come from the region, unless the program asks for certain addresses. The physical
 * memory comes from the driver and belongs to the program. When memory becomes accessible for the
 * first time, it is filled like all new memory of a region. An image holds only memory that is
 * mapped once, from a handle whose creation was seen here. Other memory is marked as shared: it is
 * mapped twice, shared with another process, or was created before the region began or outside of
 * this process.
 *
 * Locking: a lock around handles and mappings, taken before the regions'. In a forked child the
 * driver handles all calls.
 */
#include "hook/internal.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/log.h"
#include "mm/range.h"

#define BUCKETS 1024u

/* Physical memory that was created while a region was current. */
struct phys {
	struct phys *next;
	CUmemGenericAllocationHandle handle;
	unsigned int handles; /* that the program holds */
	unsigned int maps;    /* mappings now */
	bool used;            /* was mapped before */
	bool shared;          /* mapped twice, or shared with another process */
	const char *origin;   /* why it was shared from the start; NULL: it was not */
};

struct mapping {
	struct fdry_range range; /* first */
	struct phys *phys;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct phys *table[BUCKETS];
static struct fdry_ranges mappings; /* of memory in the table */

static struct phys **bucket(CUmemGenericAllocationHandle handle)
{
	return &table[(handle ^ handle >> 10 ^ handle >> 20) % BUCKETS];
}

static struct phys *phys_of(CUmemGenericAllocationHandle handle)
{
	struct phys *p = *bucket(handle);

	while (p && (p->handle != handle || !p->handles))
		p = p->next;
	return p;
}

static void phys_note(CUmemGenericAllocationHandle handle, const char *origin)
{
	struct phys *p = calloc(1, sizeof(*p));

	if (!p)
		return; /* then it counts as unknown, and no image may hold it */
	p->handle = handle;
	p->handles = 1;
	p->origin = origin;
	p->used = p->shared = origin != NULL; /* then it must not be filled */
	p->next = *bucket(handle);
	*bucket(handle) = p;
}

static void phys_put(struct phys *p)
{
	struct phys **link = bucket(p->handle);

	if (p->handles || p->maps)
		return;
	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
	free(p);
}

/* --- addresses --- */

CUresult cuMemAddressReserve(CUdeviceptr *ret, size_t size, size_t align, CUdeviceptr hint,
			     unsigned long long flags)
{
	struct fdry_region *r;
	int err = ret && !hint && !flags ? fdry_dispatch_current(&r) : FDRY_FOREIGN;

	if (err == FDRY_FOREIGN)
		return fdry_real(cuMemAddressReserve)(ret, size, align, hint, flags);
	if (err)
		return fdry_dispatch_alloc_result(err);
	err = fdry_region_reserve(r, size, align, ret);
	fdry_dispatch_put(false);
	return fdry_dispatch_alloc_result(err);
}

CUresult cuMemAddressFree(CUdeviceptr addr, size_t size)
{
	struct fdry_region *r;
	int err = fdry_dispatch_holder(addr, &r);

	if (err == FDRY_FOREIGN)
		return fdry_real(cuMemAddressFree)(addr, size);
	err = fdry_region_unreserve(r, addr, size);
	fdry_dispatch_put(!err);
	return fdry_dispatch_free_result(err);
}

/* --- handles --- */

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult res = fdry_real(cuMemCreate)(ret, size, prop, flags);
	struct fdry_region *r;
	bool ours;

	if (res || fdry_dispatch_current(&r))
		return res;
	ours = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       prop->location.id == fdry_region_device(r);
	fdry_dispatch_put(false);
	if (!ours)
		return res;
	pthread_mutex_lock(&lock);
	phys_note(*ret, NULL);
	pthread_mutex_unlock(&lock);
	return res;
}

static CUresult foreign_note(CUresult res, const CUmemGenericAllocationHandle *handle,
			     const char *origin)
{
	if (res || fdry_start_is_forked())
		return res;
	pthread_mutex_lock(&lock);
	phys_note(*handle, origin);
	pthread_mutex_unlock(&lock);
	return res;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret, void *from,
					CUmemAllocationHandleType type)
{
	return foreign_note(fdry_real(cuMemImportFromShareableHandle)(ret, from, type), ret,
			    "imported memory (cuMemImportFromShareableHandle)");
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *ret, const CUmulticastObjectProp *prop)
{
	return foreign_note(fdry_real(cuMulticastCreate)(ret, prop), ret,
			    "multicast memory (cuMulticastCreate)");
}

const char *fdry_hook_origin(CUmemGenericAllocationHandle handle)
{
	const char *ret = "memory of a loaded image or a library, or that the program created "
			  "before fdry_capture_begin() or while the capture was paused";
	struct phys *p;

	pthread_mutex_lock(&lock);
	for (p = *bucket(handle); p && p->handle != handle; p = p->next)
		;
	if (p)
		ret = p->origin ? p->origin
		      : p->shared
			      ? "memory that the program mapped at two places"
			      : "memory that the program mapped outside of the capture's region";
	pthread_mutex_unlock(&lock);
	return ret;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct phys *p;
	CUresult res;

	if (fdry_start_is_forked())
		return fdry_real(cuMemRelease)(handle);
	pthread_mutex_lock(&lock); /* locked, so that no other thread gets the same handle in the
				      meantime */
	res = fdry_real(cuMemRelease)(handle);
	p = res ? NULL : phys_of(handle);
	if (p) {
		p->handles--;
		phys_put(p);
	}
	pthread_mutex_unlock(&lock);
	return res;
}

static struct mapping *mapping_at(CUdeviceptr addr)
{
	struct fdry_range *n = fdry_ranges_floor(&mappings, addr);

	return n && n->end > addr ? (struct mapping *)n : NULL;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret, void *addr)
{
	CUresult res = fdry_real(cuMemRetainAllocationHandle)(ret, addr);
	struct mapping *m;

	if (res || fdry_start_is_forked())
		return res;
	pthread_mutex_lock(&lock);
	m = mapping_at((uintptr_t)addr);
	if (m && m->phys->handle == *ret)
		m->phys->handles++;
	pthread_mutex_unlock(&lock);
	return res;
}

/* Mark the memory @p, wherever it is mapped, as memory that no image can hold. */
static void phys_share(struct phys *p)
{
	struct fdry_region *r;
	struct fdry_range *n;

	p->shared = true;
	fdry_ranges_each(n, &mappings, 0, UINT64_MAX)
		if (((struct mapping *)n)->phys == p && !fdry_dispatch_holder(n->start, &r)) {
			fdry_region_share(r, n->start);
			fdry_dispatch_put(false);
		}
}

CUresult cuMemExportToShareableHandle(void *ret, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult res = fdry_real(cuMemExportToShareableHandle)(ret, handle, type, flags);
	struct phys *p;

	if (res || fdry_start_is_forked())
		return res;
	pthread_mutex_lock(&lock);
	p = phys_of(handle);
	if (p) {
		phys_share(p);
		if (!p->origin)
			p->origin = "memory that was exported to other processes "
				    "(cuMemExportToShareableHandle)";
	}
	pthread_mutex_unlock(&lock);
	return res;
}

/* --- mappings --- */

/* Note that @p is mapped, whether or not it can be listed; lock held. Returns false if it was not
 * listed: then it counts as shared. */
static bool mapping_note(struct phys *p, CUdeviceptr addr, size_t size)
{
	struct mapping *m = calloc(1, sizeof(*m));

	p->used = true;
	if (!m) {
		phys_share(p);
		return false;
	}
	m->range.start = addr;
	m->range.end = addr + size;
	m->phys = p;
	fdry_ranges_add(&mappings, &m->range);
	p->maps++;
	if (p->maps > 1 || p->shared)
		phys_share(p);
	return true;
}

/* Map memory in the region @r. Lock held. */
static CUresult map_in(struct fdry_region *r, CUdeviceptr addr, size_t size, size_t offset,
		       CUmemGenericAllocationHandle handle)
{
	struct phys *p = phys_of(handle);
	CUresult res;
	int err;

	/* Note the mapping in the region first, since that can be undone. The driver would accept
	 * any address, because the whole region is one reservation. */
	err = fdry_region_map(r, addr, size, p && !p->used, fdry_capture_alloc_flags());
	if (err)
		return fdry_dispatch_free_result(err);
	res = fdry_real(cuMemMap)(addr, size, offset, handle, 0);
	if (res) {
		fdry_region_unmap(r, addr, size);
		return res;
	}
	if (!p || !mapping_note(p, addr, size))
		fdry_region_share(r, addr);
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr addr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	struct fdry_region *r;
	struct phys *p;
	CUresult res;
	int err;

	if (flags || fdry_start_is_forked())
		return fdry_real(cuMemMap)(addr, size, offset, handle, flags);
	pthread_mutex_lock(&lock);
	err = fdry_dispatch_holder(addr, &r);
	if (!err) {
		res = map_in(r, addr, size, offset, handle);
		fdry_dispatch_put(false);
	} else {
		res = fdry_real(cuMemMap)(addr, size, offset, handle, flags);
		p = res ? NULL : phys_of(handle);
		if (p)
			(void)mapping_note(p, addr, size);
	}
	pthread_mutex_unlock(&lock);
	return res;
}

static bool is_writable(const struct fdry_region *r, const CUmemAccessDesc *desc, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
		    desc[i].location.id == fdry_region_device(r) &&
		    desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return true;
	return false;
}

CUresult cuMemSetAccess(CUdeviceptr addr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult res = fdry_real(cuMemSetAccess)(addr, size, desc, count);
	struct fdry_region *r;
	int err = 0;

	if (res || fdry_dispatch_holder(addr, &r))
		return res;
	if (is_writable(r, desc, count))
		err = fdry_region_fill(r, addr, size);
	fdry_dispatch_put(false);
	if (err)
		fdry_warn("interposer: cuMemSetAccess: %s", fdry_last_error());
	return fdry_dispatch_alloc_result(err);
}

static void mappings_drop(CUdeviceptr addr, size_t size)
{
	struct fdry_range *n;

	while ((n = fdry_ranges_from(&mappings, addr)) && n->start < addr + size) {
		struct mapping *m = (struct mapping *)n;

		fdry_ranges_del(&mappings, n);
		m->phys->maps--;
		phys_put(m->phys);
		free(m);
	}
}

CUresult cuMemUnmap(CUdeviceptr addr, size_t size)
{
	struct fdry_region *r;
	CUresult res;

	if (fdry_start_is_forked())
		return fdry_real(cuMemUnmap)(addr, size);
	pthread_mutex_lock(&lock); /* locked, so that no other thread maps the address in the
				      meantime */
	res = fdry_real(cuMemUnmap)(addr, size);
	if (!res) {
		mappings_drop(addr, size);
		if (!fdry_dispatch_holder(addr, &r)) {
			fdry_region_unmap(r, addr, size);
			fdry_dispatch_put(true);
		}
	}
	pthread_mutex_unlock(&lock);
	return res;
}
