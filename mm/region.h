/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h - a fixed range of device addresses, and the memory in it.
 *
 * A region is reserved once. Memory is handed out by a bump cursor (bump.h), so the same
 * calls give the same addresses in every process. A part of it can be mapped ahead in
 * one piece (the arena): allocation there is pointer arithmetic. The ledger remembers
 * every live allocation. Running out, overlap and driver failures are errors, never an
 * address from elsewhere; a call that fails changes nothing.
 *
 * Locking: a region locks itself; every function may be called from any thread.
 */
#ifndef FDRY_MM_REGION_H
#define FDRY_MM_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/driver.h"

/* What the bytes of a range are to an image. */
enum fdry_role {
	FDRY_ROLE_CONTENT,  /* kept in the image, restored before the first launch */
	FDRY_ROLE_SCRATCH,  /* proven to be written before it is read */
	FDRY_ROLE_EXTERNAL, /* filled by whoever loads the image */
};

/* Capturing allocations are filled with this 32-bit pattern: an untouched byte proves scratch. */
#define FDRY_STAMP 0xF0D25A17u

/* Every address handed out is a multiple of this, as cuMemAlloc promises. */
#define FDRY_ALLOC_ALIGN 512u

struct fdry_region;

/* One live allocation, as the ledger has it. */
struct fdry_alloc {
	CUdeviceptr addr;
	uint64_t size;    /* as asked for, in bytes */
	uint64_t room;    /* what it occupies: size rounded up, in bytes */
	uint64_t serial;  /* 1 for the region's first allocation, counting every one ever made */
	bool capturing;   /* made while a stream of the process was capturing; stamped */
};

enum fdry_alloc_flags {
	FDRY_ALLOC_CAPTURING = 1 << 0, /* stamp it and mark it so */
};

/* Reserve [@base, @base + @size) on @dev (multiples of the granularity; base 0 is an error: FDRY_E_INVAL).
 * FDRY_E_TAKEN names what lies there. The device's primary context must be current. */
int fdry_region_new(const struct fdry_driver *drv, CUdevice dev, CUdeviceptr base, uint64_t size,
		    struct fdry_region **ret) __must_check;
/* Unmap and release everything. NULL is fine. */
void fdry_region_free(struct fdry_region *r);

/* Memory of @size bytes, zeroed or stamped; size 0 is FDRY_E_INVAL, as for cuMemAlloc. */
int fdry_region_alloc(struct fdry_region *r, uint64_t size, unsigned int flags, CUdeviceptr *ret) __must_check;
/* Give an allocation back: its exact start address. Waits for the device's work in flight, as cuMemFree does. */
int fdry_region_dealloc(struct fdry_region *r, CUdeviceptr addr) __must_check;

/* Map the next @size bytes at the cursor ahead, in one piece, as the arena. */
int fdry_region_preallocate(struct fdry_region *r, uint64_t size) __must_check;
int fdry_region_free_preallocated(struct fdry_region *r) __must_check;

/* Map [@addr, @addr + @size) now, zeroed, whatever the cursor says: how a loader backs an image's ranges. */
int fdry_region_back(struct fdry_region *r, CUdeviceptr addr, uint64_t size) __must_check;

CUdeviceptr fdry_region_base(const struct fdry_region *r);
uint64_t fdry_region_size(const struct fdry_region *r);
/* The cursor as an offset from the base; setting it back below a live allocation is FDRY_E_STATE. */
uint64_t fdry_region_offset(struct fdry_region *r);
int fdry_region_set_offset(struct fdry_region *r, uint64_t offset) __must_check;

/* The live allocation that holds @addr; false where there is none. */
bool fdry_region_find(struct fdry_region *r, CUdeviceptr addr, struct fdry_alloc *ret);
/* A copy of the ledger, in address order; free() it. */
int fdry_region_ledger(struct fdry_region *r, struct fdry_alloc **ret, size_t *count) __must_check;

#endif
