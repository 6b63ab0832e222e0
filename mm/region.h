/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h - a fixed range of device addresses, and the memory in it.
 *
 * A region is reserved once. Memory is handed out from what was freed (free_ranges.h), else by a
 * bump cursor (bump.h), so the same calls give the same addresses in every process. A
 * part of it can be mapped ahead in one piece (the arena): allocation there is pointer
 * arithmetic. The ledger remembers every live allocation. Running out, overlap and driver
 * failures are errors, never an address from elsewhere; a call that fails changes nothing.
 *
 * Addresses that were ever handed out while nothing captured are never handed out while
 * something does, and the other way round: what was first allocated by a capture stays
 * known to be that.
 *
 * Context: a region keeps its device's primary context and a stream of its own. Whatever
 * context is current, memory comes from the region's device; the caller's context and its
 * capture mode are as before when a call returns. All memory is read-write on that device, and on
 * those that fdry_region_open() names.
 *
 * Locking: a region locks itself; every function may be called from any thread, but not
 * after or at the same time as fdry_region_free(). Nothing is locked while work is waited for.
 */
#ifndef FDRY_MM_REGION_H
#define FDRY_MM_REGION_H

#include <stdbool.h>
#include <stddef.h>
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
/* Allocations of this size and more start and end at multiples of it, so that none shares physical memory. */
#define FDRY_ALLOC_BLOCK (2u << 20)

struct fdry_region;

/* Where an allocation comes from. */
enum fdry_alloc_kind {
	FDRY_KIND_ALLOC,  /* fdry_region_alloc() */
	FDRY_KIND_POOL,   /* fdry_region_alloc_async() */
	FDRY_KIND_GRAPH,  /* a slab of memory that graphs allocate in: theirs until the region ends */
	FDRY_KIND_MAP,    /* memory that the program mapped itself: fdry_region_map() */
	FDRY_KIND_SHARED, /* the same, but seen elsewhere too, or made elsewhere: no image can hold it */
	FDRY_KIND_SLAB,   /* the region's own: a slab of its pool */
};

/* One live allocation, as the ledger has it. */
struct fdry_alloc {
	CUdeviceptr addr;
	uint64_t size;    /* as asked for, in bytes */
	uint64_t extent;    /* what it occupies: size rounded up, in bytes */
	uint64_t serial;  /* 1 for the region's first allocation, counting every one ever made */
	uint64_t owner;   /* the caller's: which graph's or whose pool's it is */
	enum fdry_alloc_kind kind;
	bool capturing;   /* made while a stream of the process was capturing; stamped */
	bool blank;       /* mapped, and not yet filled: not to be read */
};

enum fdry_alloc_flags {
	/* A stream of the process is capturing. Memory is stamped and marked so; nothing that a
	 * capture forbids is done: freed memory is given back later. */
	FDRY_ALLOC_CAPTURING = 1 << 0,
};

/**
 * fdry_region_new() - Reserve [@base, @base + @size) for a device.
 * @base, @size: multiples of FDRY_ALLOC_BLOCK and of the driver's granularity (2 MiB both), neither 0
 *
 * Retains the device's primary context and creates one stream in it.
 *
 * Errors: FDRY_E_INVAL; FDRY_E_RANGE (past the end of the address space); FDRY_E_TAKEN,
 * naming what lies there; FDRY_E_NODEVMEM, FDRY_E_DRIVER.
 */
int fdry_region_new(const struct fdry_driver *drv, CUdevice dev, CUdeviceptr base, uint64_t size,
		    struct fdry_region **ret) __must_check;
/* Wait for work in flight, then unmap and release everything. Not while a stream captures. NULL is fine. */
void fdry_region_free(struct fdry_region *r);
/* The same, but keep the addresses reserved for the next region of this object that begins there: see va_cache.h. */
void fdry_region_free_to_cache(struct fdry_region *r);

/**
 * fdry_region_alloc() - Hand out memory: the lowest freed addresses that hold it, else those at the cursor.
 * @size: bytes; 0 is FDRY_E_INVAL, as for cuMemAlloc
 * @flags: enum fdry_alloc_flags
 *
 * The memory is zero, or FDRY_STAMP up to the end of its extent, when the call returns. Capturing
 * allocations take no freed addresses. Allocations under 2 MiB and others have freed addresses of their own.
 *
 * Errors: FDRY_E_RANGE where the region is used up; FDRY_E_NODEVMEM; FDRY_E_STATE where the
 * cursor has reached memory mapped by fdry_region_back(); FDRY_E_DRIVER.
 */
int fdry_region_alloc(struct fdry_region *r, uint64_t size, unsigned int flags, CUdeviceptr *ret) __must_check;

/**
 * fdry_region_claim() - Hand out the memory at @addr, where another process had an allocation of @size bytes.
 *
 * As fdry_region_alloc(), but there and nowhere else. The addresses must be free: freed by allocations of any size, skipped by
 * other claims, or behind the cursor. Addresses that a claim skips are handed out to claims alone. Further errors:
 * FDRY_E_TAKEN, FDRY_E_RANGE, and FDRY_E_INVAL if no allocation of that size can begin there.
 */
int fdry_region_claim(struct fdry_region *r, CUdeviceptr addr, uint64_t size) __must_check;

/**
 * fdry_region_dealloc() - Give an allocation back.
 * @addr: its exact start, else FDRY_E_INVAL, saying which allocation it lies in
 * @flags: enum fdry_alloc_flags
 *
 * Waits for the work in flight in the region's context and in the current one, as cuMemFree
 * does, then unmaps what no live allocation uses. Where a stream captures waiting would
 * break the capture, so nothing is waited for and nothing unmapped: the memory goes back
 * with the next fdry_region_dealloc() or fdry_region_trim() outside a capture. Where the
 * driver refuses to unmap, the allocation is gone all the same and the memory is tried again then.
 */
int fdry_region_dealloc(struct fdry_region *r, CUdeviceptr addr, unsigned int flags) __must_check;
/* Give back what dealloc could not: for the end of a capture. Waits only if there is something. What graphs
 * have freed is not handed out again after it: it is theirs. */
int fdry_region_trim(struct fdry_region *r) __must_check;

/* An allocation in the order of a stream. */
struct fdry_async {
	uint64_t size;       /* bytes */
	uint64_t stream;     /* a number of its own for every stream; 0: not known, shares with none */
	uint64_t graph;      /* the capture that the stream is in, 0 for none */
	unsigned int flags;  /* enum fdry_alloc_flags */
	uint64_t owner;      /* kept in fdry_alloc.owner */
};

/**
 * fdry_region_alloc_async() - Hand out memory in the order of a stream, without waiting for anything.
 *
 * What the stream itself has freed comes first, then what is free for all; its bytes are what
 * they were. Else a slab is mapped, zeroed, and shared by all streams. Where a stream of the
 * process captures (@a's graph), the memory is the graph's: stamped, in slabs of its own, never
 * shared with another capture, kept until the region ends.
 *
 * Waits for the device, outside of captures, where a gigabyte and most of the pool was freed by other streams.
 *
 * Errors: as fdry_region_alloc().
 */
int fdry_region_alloc_async(struct fdry_region *r, const struct fdry_async *a, CUdeviceptr *ret) __must_check;

/**
 * fdry_region_free_async() - Free in the order of a stream; memory of fdry_region_alloc() too.
 * @a: size and owner are not looked at
 * @gone: what was freed
 *
 * The addresses are the stream's to reuse at once. Memory of a graph freed outside of its capture
 * stays as it is: a replay uses it again. FDRY_E_INVAL as for fdry_region_dealloc(), and where a
 * capturing stream frees what its capture has not allocated.
 */
int fdry_region_free_async(struct fdry_region *r, CUdeviceptr addr, const struct fdry_async *a,
			   struct fdry_alloc *gone) __must_check;

/* What graphs have freed so far is not handed out again, not even to them. */
void fdry_region_forget_graphs(struct fdry_region *r);

/* Wait, then give back slabs of the pool that nothing is in, highest first, while more than @keep bytes remain. */
int fdry_region_trim_pool(struct fdry_region *r, uint64_t keep) __must_check;

/**
 * fdry_region_reserve() - Set addresses aside for memory that the program maps itself.
 * @size: bytes, a multiple of the granularity
 * @align: a power of two, or 0
 *
 * The lowest addresses that were freed by fdry_region_unreserve(), else those at the cursor,
 * behind the arena; where the rest of the region is too small, the region is made larger: frameworks
 * reserve more than the device has, for every stream. Errors: FDRY_E_INVAL, FDRY_E_TAKEN, FDRY_E_RANGE.
 */
int fdry_region_reserve(struct fdry_region *r, uint64_t size, uint64_t align, CUdeviceptr *ret) __must_check;
/* Free exactly what was reserved; FDRY_E_INVAL where that is something else, or memory is mapped there. */
int fdry_region_unreserve(struct fdry_region *r, CUdeviceptr addr, uint64_t size) __must_check;
/* The reservation that holds @addr; false where there is none. */
bool fdry_region_reserved(struct fdry_region *r, CUdeviceptr addr, CUdeviceptr *start, uint64_t *size);

/**
 * fdry_region_map() - Note memory that the program has mapped in a reservation.
 * @blank: never seen by anybody: it is to be filled before it is used
 *
 * FDRY_E_INVAL outside of reservations and over what is mapped; FDRY_E_NOMEM.
 */
int fdry_region_map(struct fdry_region *r, CUdeviceptr addr, uint64_t size, bool blank, unsigned int flags) __must_check;
/* Fill what is blank and in [@addr, @addr + @size), which has been made accessible: zero, or FDRY_STAMP where
 * it was mapped while a stream captured and these addresses never held anything else. */
int fdry_region_fill(struct fdry_region *r, CUdeviceptr addr, uint64_t size) __must_check;
/* The memory mapped at @addr has become FDRY_KIND_SHARED. */
void fdry_region_share(struct fdry_region *r, CUdeviceptr addr);
/* The program has unmapped this. */
void fdry_region_unmap(struct fdry_region *r, CUdeviceptr addr, uint64_t size);

/* Map the next @size bytes at the cursor ahead, in one piece, as (a further part of) the arena.
 * FDRY_E_RANGE, FDRY_E_STATE and FDRY_E_NODEVMEM as above. */
int fdry_region_preallocate(struct fdry_region *r, uint64_t size) __must_check;
/* Keep the arena no longer: what no live allocation uses goes back as in fdry_region_dealloc().
 * FDRY_E_STATE where there is none. */
int fdry_region_free_preallocated(struct fdry_region *r, unsigned int flags) __must_check;

/* Map [@addr, @addr + @size) now, zeroed, whatever the cursor says, until the region is freed: how a
 * loader backs an image's ranges. Rounded outwards to the granularity. FDRY_E_RANGE outside the
 * region, FDRY_E_STATE over a mapping. */
int fdry_region_back(struct fdry_region *r, CUdeviceptr addr, uint64_t size) __must_check;

/* Let device @dev read and write all memory that the region has mapped and will map, as a peer of the region's device, or no
 * longer; both may be said twice. What the program maps itself is the program's to open. Work of that device's is not waited
 * for. FDRY_E_LIMIT; FDRY_E_DRIVER where it can be no peer. */
int fdry_region_open(struct fdry_region *r, CUdevice dev, bool open) __must_check;

CUdeviceptr fdry_region_base(const struct fdry_region *r);
uint64_t fdry_region_size(const struct fdry_region *r);
CUdevice fdry_region_device(const struct fdry_region *r);
/* The device's primary context, which the region keeps. */
CUcontext fdry_region_context(const struct fdry_region *r);
/* The cursor as an offset from the base. */
uint64_t fdry_region_offset(struct fdry_region *r);
/* Setting it back below the end of a live allocation is FDRY_E_STATE, outside the region FDRY_E_RANGE.
 * May wait as fdry_region_trim() does. */
int fdry_region_set_offset(struct fdry_region *r, uint64_t offset) __must_check;

/* No allocation, reservation or graph needs the region any more. */
bool fdry_region_unused(struct fdry_region *r);
/* The live allocation that holds @addr, that is, one of the bytes asked for; false where there is none. */
bool fdry_region_find(struct fdry_region *r, CUdeviceptr addr, struct fdry_alloc *ret);
/* A copy of the ledger, in address order; free() it. Slabs of graphs stand in it in place of what graphs
 * allocated, slabs of the pool and blank memory do not. */
int fdry_region_ledger(struct fdry_region *r, struct fdry_alloc **ret, size_t *count) __must_check;

struct fdry_region_stats {
	uint64_t allocs;       /* live allocations */
	uint64_t alloc_bytes;  /* as asked for */
	uint64_t mapped_bytes; /* physical memory held, arena and backed ranges included */
	uint64_t idle_bytes;   /* of it, what no live allocation uses and nothing keeps: goes back at the next chance */
	uint64_t blocks;       /* pieces of physical memory */
	uint64_t free_bytes;   /* addresses that were freed and wait to be handed out again */
	uint64_t slab_bytes;   /* of mapped_bytes, what the pool and graphs hold */
	uint64_t pool_bytes;   /* of it, what stream-ordered allocations use */
};
void fdry_region_stats(struct fdry_region *r, struct fdry_region_stats *ret);

/* Check every invariant that memory.rst names, in time proportional to the ledger: FDRY_E_BUG. For tests. */
int fdry_region_check(struct fdry_region *r) __must_check;

#endif
