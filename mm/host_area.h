/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_area.h - a fixed range of host addresses, and the pinned memory in it.
 *
 * A host area is to pinned host memory what a region (region.h) is to device memory: the same
 * allocations get the same addresses in every process. Freed addresses are used again, the lowest
 * first, else those at a cursor. Allocations of captures use no freed addresses and leave none, and
 * are filled with FDRY_STAMP.
 *
 * Every allocation has pages of its own, and is registered with the driver (host_map.h).
 *
 * Locking: an area locks itself; the lock is not held while the driver is called. Any thread may
 * call every function, but not during or after fdry_host_area_free().
 */
#ifndef FDRY_MM_HOST_AREA_H
#define FDRY_MM_HOST_AREA_H

#include "lib/buf.h"
#include "mm/region.h"

/* The bytes of a host area. */
#define FDRY_HOST_AREA_SIZE (32ull << 30)
/* The addresses of allocations are multiples of this, so they do not depend on the size of
 * pages. */
#define FDRY_HOST_AREA_ALIGN (64u << 10)

/* The host areas of a region lie below the multiple of this that precedes its base. */
#define FDRY_HOST_AREA_STEP (1ull << 38)

/* The base of the host area of the region at @base, or of its aside area; 0 if there is no place
 * for one. Regions begin up to 64 GiB above multiples of FDRY_HOST_AREA_STEP (image/base.c), so
 * the addresses below such a multiple are the last that a region before it uses. */
static inline uint64_t fdry_host_area_base(uint64_t base, bool aside)
{
	uint64_t step = base & ~(FDRY_HOST_AREA_STEP - 1);

	return step ? step - (aside ? 1 : 2) * FDRY_HOST_AREA_SIZE : 0;
}

struct fdry_host_area;

/* Reserve [@base, @base + @size) for a device, whose primary context the area keeps. FDRY_E_TAKEN,
 * FDRY_E_NOMEM, FDRY_E_DRIVER. */
int fdry_host_area_new(const struct fdry_driver *drv, CUdevice dev, uint64_t base, uint64_t size,
		       struct fdry_host_area **ret) __must_check;
/* Unregister and unmap everything. @a may be NULL. */
void fdry_host_area_free(struct fdry_host_area *a);

/* Allocate @size bytes, at least 1, which are zero, or stamped if @flags has FDRY_ALLOC_CAPTURING.
 * @owner is kept in fdry_alloc.owner. FDRY_E_RANGE if the area is used up; FDRY_E_NOMEM. */
int fdry_host_area_alloc(struct fdry_host_area *a, uint64_t size, unsigned int flags,
			 uint64_t owner, uint64_t *ret) __must_check;
/* Allocate @size bytes at @addr, where another process made an allocation. FDRY_E_TAKEN if these
 * addresses are or were in use; FDRY_E_INVAL if no allocation can begin there. */
int fdry_host_area_claim(struct fdry_host_area *a, uint64_t addr, uint64_t size) __must_check;
/* Free the allocation that begins at @addr; FDRY_E_INVAL if there is none. Waits for work as
 * cuMemFreeHost() does. If the driver refuses, the memory stays, and its addresses are not used
 * again. */
int fdry_host_area_dealloc(struct fdry_host_area *a, uint64_t addr) __must_check;

/* The live allocation whose memory holds @addr; false if there is none. */
bool fdry_host_area_find(struct fdry_host_area *a, uint64_t addr, struct fdry_alloc *ret);
/* Append the live allocations to @ret, by address. */
int fdry_host_area_ledger(struct fdry_host_area *a, struct fdry_buf *ret) __must_check;
/* One past the last address that was ever allocated. */
uint64_t fdry_host_area_used(struct fdry_host_area *a);
bool fdry_host_area_unused(struct fdry_host_area *a);

#endif
