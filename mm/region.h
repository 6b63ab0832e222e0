/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h - a fixed range of device addresses, and the memory in it.
 *
 * A region is reserved once. An allocation gets freed addresses (free_ranges.h), or else addresses
 * at a cursor (bump.h). So the same calls return the same addresses in every process. A part of the
 * region can be mapped ahead in one piece (the arena); allocations there only move the cursor. The
 * ledger has every live allocation. If addresses or memory run out, or the driver fails, the call
 * returns an error, never an address outside of the region. A call that fails changes nothing.
 *
 * Addresses that were allocated outside of captures are never allocated during a capture, and the
 * reverse. So the addresses of a capture's allocations belong to captures for good.
 *
 * Context: a region keeps its device's primary context and a stream of its own. Memory comes from
 * the region's device in every current context. A call restores the caller's context and capture
 * mode. All memory is read-write on that device, and on those that fdry_region_open() names.
 *
 * Locking: a region locks itself. Any thread may call every function, but not during or after
 * fdry_region_free(). The lock is not held while a call waits for work.
 */
#ifndef FDRY_MM_REGION_H
#define FDRY_MM_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/driver.h"

/* The meaning of a range's bytes to an image. */
enum fdry_role {
	FDRY_ROLE_CONTENT,  /* kept in the image, restored before the first launch */
	FDRY_ROLE_SCRATCH,  /* written before it is read, as the seal has proven */
	FDRY_ROLE_EXTERNAL, /* filled by the program that loads the image */
};

/* Allocations made during a capture are filled with this 32-bit pattern. Bytes that still have it
 * at the seal were never written, so they are scratch. */
#define FDRY_STAMP 0xF0D25A17u

/* Every address that an allocation gets is a multiple of this, as cuMemAlloc promises. */
#define FDRY_ALLOC_ALIGN 512u
/* Allocations of this size and more start and end at multiples of it, so that they share physical
 * memory with no other. */
#define FDRY_ALLOC_BLOCK (2u << 20)

struct fdry_region;

/* The call that made an allocation. */
enum fdry_alloc_kind {
	FDRY_KIND_ALLOC, /* fdry_region_alloc() */
	FDRY_KIND_POOL,  /* fdry_region_alloc_async() */
	FDRY_KIND_GRAPH, /* a slab for allocations of graphs, kept until the region ends */
	FDRY_KIND_MAP,   /* memory that the program mapped: fdry_region_map() */
	FDRY_KIND_SHARED, /* the same, but mapped memory that is shared with or made by another
			     process or API, so no image can hold it */
	FDRY_KIND_SLAB,	  /* a slab of the region's own pool */
	FDRY_KIND_PINNED, /* pinned host memory: fdry_host_area_alloc() */
	FDRY_KIND_REGISTERED, /* the program's own host memory, which it has registered */
};

/* One live allocation: an entry of the ledger. */
struct fdry_alloc {
	CUdeviceptr addr;
	uint64_t size;   /* as requested, in bytes */
	uint64_t extent; /* bytes that it occupies: size rounded up */
	uint64_t serial; /* 1 for the region's first allocation, counting every one ever made */
	uint64_t owner;  /* set by the caller: the graph or pool that it belongs to */
	enum fdry_alloc_kind kind;
	bool capturing; /* made while a stream of the process captured; filled with FDRY_STAMP */
	bool blank;     /* mapped, and not filled yet: must not be read */
};

enum fdry_alloc_flags {
	/* A stream of the process is capturing. The memory is stamped and marked. The call does
	 * nothing that a capture forbids; freed memory goes back to the driver later. */
	FDRY_ALLOC_CAPTURING = 1 << 0,
};

/**
 * fdry_region_new() - Reserve [@base, @base + @size) for a device.
 * @base, @size: multiples of FDRY_ALLOC_BLOCK and of the driver's granularity (2 MiB both), neither
 * 0
 *
 * Retains the device's primary context and creates one stream in it.
 *
 * Errors: FDRY_E_INVAL; FDRY_E_RANGE (past the end of the address space); FDRY_E_TAKEN,
 * naming the mapping there; FDRY_E_NODEVMEM, FDRY_E_DRIVER.
 */
int fdry_region_new(const struct fdry_driver *drv, CUdevice dev, CUdeviceptr base, uint64_t size,
		    struct fdry_region **ret) __must_check;
/* Wait for work in flight, then unmap and free everything. No stream may be capturing. @r may be
 * NULL. */
void fdry_region_free(struct fdry_region *r);
/* Free the region, but keep its addresses reserved for the next region that begins there: see
 * va_cache.h.
 */
void fdry_region_free_to_cache(struct fdry_region *r);

/* Let the allocations of a new region begin past FDRY_NUMBERS_END (bump.h), if it has plenty of
 * addresses. Claims get those before: images that were sealed otherwise have memory there. */
void fdry_region_skip_numbers(struct fdry_region *r);

/**
 * fdry_region_alloc() - Allocate at the lowest freed addresses where it fits, else at the cursor.
 * @size: bytes; 0 is FDRY_E_INVAL, as for cuMemAlloc
 * @flags: enum fdry_alloc_flags
 *
 * When the call returns, the memory is zero. During a capture, it has FDRY_STAMP up to the end of
 * its extent, and freed addresses are not used. Allocations under 2 MiB and larger ones reuse
 * separate sets of freed addresses.
 *
 * Errors: FDRY_E_RANGE if the region is used up; FDRY_E_NODEVMEM; FDRY_E_STATE if the
 * cursor has reached memory mapped by fdry_region_back(); FDRY_E_DRIVER.
 */
int fdry_region_alloc(struct fdry_region *r, uint64_t size, unsigned int flags,
		      CUdeviceptr *ret) __must_check;

/**
 * fdry_region_claim() - Allocate @size bytes at @addr, where another process made an allocation.
 * @end: the extent ends here or before; UINT64_MAX if no other claim follows
 *
 * It is like fdry_region_alloc(), but at that address only. The addresses must be free: freed by
 * allocations of any size, skipped by other claims or past numbers, above the cursor, or free in a
 * slab of the pool; in the last case the call waits for the device. Only claims get skipped
 * addresses. Large allocations begin at multiples of FDRY_ALLOC_ALIGN here, since those of pools
 * do. Further errors: FDRY_E_TAKEN, FDRY_E_RANGE, and FDRY_E_INVAL if no allocation of that size
 * can begin there.
 */
int fdry_region_claim(struct fdry_region *r, CUdeviceptr addr, uint64_t size,
		      CUdeviceptr end) __must_check;

/**
 * fdry_region_dealloc() - Free an allocation.
 * @addr: its exact start, else FDRY_E_INVAL, and the message names the allocation that holds @addr
 * @flags: enum fdry_alloc_flags
 *
 * Waits for the work in flight in the region's context and in the current one, as cuMemFree does,
 * then unmaps memory that no live allocation uses. Waiting would break a capture, so during one the
 * call neither waits nor unmaps: the next fdry_region_dealloc() or fdry_region_trim() outside of a
 * capture unmaps the memory. If the driver refuses to unmap, the allocation is still freed, and
 * those calls try again.
 */
int fdry_region_dealloc(struct fdry_region *r, CUdeviceptr addr, unsigned int flags) __must_check;
/* Unmap memory that was freed during a capture; call it when the capture ends. Waits only if there
 * is some. Memory that graphs have freed is not allocated again after that: it stays with its
 * graph. */
int fdry_region_trim(struct fdry_region *r) __must_check;

/* The "capture" of allocation and free nodes that a program adds to graphs itself. Its allocations
 * never share memory. */
#define FDRY_GRAPH_NODES UINT64_MAX

/* The arguments of an allocation or free in the order of a stream. */
struct fdry_async {
	uint64_t size;       /* bytes */
	uint64_t stream; /* a unique number of the stream; 0: unknown, so it shares memory with no
			    stream */
	uint64_t graph;      /* the capture that the stream is in, 0 for none; FDRY_GRAPH_NODES */
	unsigned int flags;  /* enum fdry_alloc_flags */
	uint64_t owner;      /* kept in fdry_alloc.owner */
};

/**
 * fdry_region_alloc_async() - Allocate in the order of a stream, without waiting.
 *
 * The call prefers addresses that the stream itself has freed, then addresses that are free for all
 * streams. Their bytes are unchanged. Otherwise it maps and zeroes a slab, which all streams share.
 * In a capture (@a->graph) the memory belongs to the graph. It is filled with FDRY_STAMP and lies
 * in slabs of its own. No other capture shares it, and it is kept until the region ends.
 *
 * Outside of captures the call waits for the device if other streams have freed a gigabyte and most
 * of the pool.
 *
 * Errors: as fdry_region_alloc().
 */
int fdry_region_alloc_async(struct fdry_region *r, const struct fdry_async *a,
			    CUdeviceptr *ret) __must_check;

/**
 * fdry_region_free_async() - Free in the order of a stream, also memory of fdry_region_alloc().
 * @a: size and owner are ignored
 * @gone: the allocation that was freed
 *
 * The stream may reuse the addresses at once. If memory of a graph is freed outside of captures, it
 * stays an allocation, since each launch of the graph allocates it again. FDRY_E_INVAL as for
 * fdry_region_dealloc(), and if a capturing stream frees memory that no capture has allocated.
 */
int fdry_region_free_async(struct fdry_region *r, CUdeviceptr addr, const struct fdry_async *a,
			   struct fdry_alloc *gone) __must_check;

/* Never allocate again memory that graphs have freed so far, not even for the same graph. */
void fdry_region_forget_graphs(struct fdry_region *r);

/* Wait, then unmap empty slabs of the pool, highest first, while more than @keep bytes remain. */
int fdry_region_trim_pool(struct fdry_region *r, uint64_t keep) __must_check;

/**
 * fdry_region_reserve() - Reserve addresses for memory that the program maps.
 * @size: bytes, a multiple of the granularity
 * @align: a power of two, or 0
 *
 * It prefers the lowest addresses that fdry_region_unreserve() has freed, then those at the cursor,
 * above the arena and, in large regions, past FDRY_NUMBERS_END (bump.h). Only claims get skipped
 * addresses. If the rest of the region is too small, the region grows, since frameworks reserve
 * more addresses for every stream than the device has memory. Errors: FDRY_E_INVAL, FDRY_E_TAKEN,
 * FDRY_E_RANGE.
 */
int fdry_region_reserve(struct fdry_region *r, uint64_t size, uint64_t align,
			CUdeviceptr *ret) __must_check;
/* Free one reservation as a whole. FDRY_E_INVAL if the range is not one reservation, or memory is
 * mapped there. */
int fdry_region_unreserve(struct fdry_region *r, CUdeviceptr addr, uint64_t size) __must_check;
/* The reservation that holds @addr; false if there is none. */
bool fdry_region_reserved(struct fdry_region *r, CUdeviceptr addr, CUdeviceptr *start,
			  uint64_t *size);

/**
 * fdry_region_map() - Note memory that the program has mapped in a reservation.
 * @blank: no process has used the memory yet, so it must be filled first
 *
 * FDRY_E_INVAL if the range lies outside of reservations or overlaps a mapping; FDRY_E_NOMEM.
 */
int fdry_region_map(struct fdry_region *r, CUdeviceptr addr, uint64_t size, bool blank,
		    unsigned int flags) __must_check;
/* Fill blank memory in [@addr, @addr + @size), which has been made accessible. It gets FDRY_STAMP
 * if a stream captured when it was mapped and these addresses never held other memory, else zeros.
 */
int fdry_region_fill(struct fdry_region *r, CUdeviceptr addr, uint64_t size) __must_check;
/* Change the memory mapped at @addr to FDRY_KIND_SHARED. */
void fdry_region_share(struct fdry_region *r, CUdeviceptr addr);
/* Note that the program has unmapped this range. */
void fdry_region_unmap(struct fdry_region *r, CUdeviceptr addr, uint64_t size);

/* Map the next @size bytes at the cursor in one piece, as the arena or a further part of it.
 * FDRY_E_RANGE, FDRY_E_STATE and FDRY_E_NODEVMEM as for fdry_region_alloc(). */
int fdry_region_preallocate(struct fdry_region *r, uint64_t size) __must_check;
/* End the arena: memory that no live allocation uses is unmapped as in fdry_region_dealloc().
 * FDRY_E_STATE if there is none. */
int fdry_region_free_preallocated(struct fdry_region *r, unsigned int flags) __must_check;

/* Map and zero [@addr, @addr + @size), rounded outwards to the granularity, until the region is
 * freed. The cursor does not matter. A load backs an image's ranges in this way. FDRY_E_RANGE if
 * the range lies outside the region, FDRY_E_STATE if it overlaps a mapping. */
int fdry_region_back(struct fdry_region *r, CUdeviceptr addr, uint64_t size) __must_check;

/* Permit device @dev, a peer of the region's device, to read and write all memory that the region
 * has mapped and will map, or end that permission. Repeating a call has no effect. For memory that
 * the program maps itself, the program must do that. The call does not wait for work of that
 * device. FDRY_E_LIMIT; FDRY_E_DRIVER if the device cannot be a peer. */
int fdry_region_open(struct fdry_region *r, CUdevice dev, bool open) __must_check;

uint64_t fdry_region_size(const struct fdry_region *r);
CUdevice fdry_region_device(const struct fdry_region *r);
/* The device's primary context, which the region keeps. */
CUcontext fdry_region_context(const struct fdry_region *r);
/* The cursor as an offset from the base. */
uint64_t fdry_region_offset(struct fdry_region *r);
/* Set the cursor. FDRY_E_STATE below the end of a live allocation, FDRY_E_RANGE outside of the
 * region. May wait as fdry_region_trim() does. */
int fdry_region_set_offset(struct fdry_region *r, uint64_t offset) __must_check;

/* True if no allocation, reservation or graph needs the region any more. */
bool fdry_region_unused(struct fdry_region *r);
/* The live allocation that has @addr among its requested bytes; false if there is none. */
bool fdry_region_find(struct fdry_region *r, CUdeviceptr addr, struct fdry_alloc *ret);
/* Copy the ledger, in the order of addresses; the caller must free() it. It has the slabs of graphs
 * in place of the graphs' allocations. Slabs of the pool and blank memory are left out. */
int fdry_region_ledger(struct fdry_region *r, struct fdry_alloc **ret, size_t *count) __must_check;

struct fdry_region_stats {
	uint64_t allocs;       /* live allocations */
	uint64_t alloc_bytes;  /* as requested */
	uint64_t mapped_bytes; /* physical memory held, arena and backed ranges included */
	uint64_t idle_bytes;   /* part of mapped_bytes: memory that no live allocation uses and
				  nothing keeps, to be unmapped by a later call */
	uint64_t blocks;     /* pieces of physical memory */
	uint64_t free_bytes; /* addresses that were freed and may be allocated again */
	uint64_t slab_bytes; /* part of mapped_bytes: slabs of the pool and of graphs */
	uint64_t pool_bytes; /* part of slab_bytes: stream-ordered allocations */
};
void fdry_region_stats(struct fdry_region *r, struct fdry_region_stats *ret);

#endif
