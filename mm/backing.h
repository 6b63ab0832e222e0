/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backing.h - the reserved addresses of a region and the physical memory behind them.
 *
 * Physical memory comes in blocks, each with one handle and one mapping. A block covers a gap that
 * was unmapped where an allocation lies, rounded to the driver's granularity. It is unmapped when
 * no allocation uses it and nothing keeps it.
 *
 *      base                                                                base + size
 *      |== arena ================|== block ===|= block =|     |== backed ====|   |
 *       a a aaa aaaa a  aaaa   aaaaaaaaaaaaaaa  a aaaa  ^       (a loader's range)
 *                                                     cursor
 *
 * Sizes. A mapping costs about 0.05 ms, whatever its size. Allocations of FDRY_ALLOC_BLOCK (2 MiB)
 * and more are aligned to it (bump.h), so each has a block of its own. Freeing one unmaps exactly
 * its memory, as a framework that empties its cache expects. 1,000 of 20 MiB cost about as much as
 * 1,000 calls of cuMemAlloc. Smaller allocations share blocks of one granule: 10,000 of 4 KiB need
 * 20 mappings. Larger shared blocks would save more calls. But then one live allocation would hold
 * memory that a process without Foundry gets back, and a workload that fits without Foundry might
 * not fit here. A program that must not wait for mappings preallocates an arena.
 *
 * Fresh blocks are zeroed, so bytes that were never allocated are zero.
 *
 * Locking: the region's, unless a function says otherwise.
 */
#ifndef FDRY_MM_BACKING_H
#define FDRY_MM_BACKING_H

#include <stdbool.h>

#include "mm/range.h"
#include "mm/vmm.h"

/* The reason to keep a block that has no allocations. */
enum fdry_keep {
	FDRY_KEEP_NOT,
	FDRY_KEEP_ARENA,  /* until fdry_backing_unkeep() */
	FDRY_KEEP_BACKED, /* until the region ends; no allocation may lie in it */
};

/* A doubly linked list of blocks. */
struct fdry_idle {
	struct fdry_idle *prev, *next;
};

struct fdry_block {
	struct fdry_range range; /* first */
	struct fdry_idle idle;   /* linked while nothing uses or keeps the block */
	uint32_t uses;           /* live allocations in it */
	enum fdry_keep keep;
	uint64_t freed_at;       /* value of the clock at the last free in it that did not wait */
	struct fdry_block *next; /* of one call's new blocks */
};

struct fdry_backing {
	struct fdry_vmm vmm;
	struct fdry_ranges blocks;
	struct fdry_idle idle; /* blocks to unmap */
	uint64_t mapped;       /* bytes */
	uint64_t clock;        /* counts frees that did not wait */
	uint64_t settled;      /* a later wait covered the frees up to this value of the clock */
};

/* The bytes to write before an allocation returns; size 0: none. */
struct fdry_fill {
	CUdeviceptr addr;
	uint64_t size;    /* bytes, a multiple of 4 */
	uint32_t pattern;
};

/* Reserve addresses, and retain the primary context. Errors are those of fdry_region_new(). */
int fdry_backing_init(struct fdry_backing *b, const struct fdry_driver *drv, CUdevice dev,
		      CUdeviceptr base, uint64_t size) __must_check;
/* Wait for the device, unmap and release everything. */
void fdry_backing_release(struct fdry_backing *b);

/* Map the gaps of [@addr, @addr + @size), write @fill, and count a use of every block there.
 * FDRY_E_STATE if a backed block lies there. On failure nothing has changed, except bytes under
 * @fill. */
int fdry_backing_take(struct fdry_backing *b, CUdeviceptr addr, uint64_t size,
		      const struct fdry_fill *fill) __must_check;
/* End the uses that fdry_backing_take() counted. @waited: the device has finished its work since
 * the memory was last used. A block that nothing uses or keeps becomes idle; fdry_backing_trim()
 * unmaps it. */
void fdry_backing_put(struct fdry_backing *b, CUdeviceptr addr, uint64_t size, bool waited);

/* Map the gaps of [@addr, @addr + @size), rounded outwards, and keep the blocks for @keep. With
 * FDRY_KEEP_BACKED all of it must be unmapped, with FDRY_KEEP_ARENA there may be no backed block:
 * FDRY_E_STATE. */
int fdry_backing_keep(struct fdry_backing *b, CUdeviceptr addr, uint64_t size,
		      enum fdry_keep keep) __must_check;
/* Make the blocks of the arena ordinary ones. */
void fdry_backing_unkeep(struct fdry_backing *b);

/* Permit another device @dev to read and write all present and later blocks, or end that
 * permission. A failure changes nothing. */
int fdry_backing_open(struct fdry_backing *b, CUdevice dev, bool open) __must_check;

/* Note that a wait for the device has ended. It began without the lock, when the clock had the
 * value @clock. */
void fdry_backing_settle(struct fdry_backing *b, uint64_t clock);

/* Unmap idle blocks, except those with unsettled frees, and except the granule that @cursor points
 * into: the next small allocation goes there. A block that the driver refuses to unmap stays idle.
 */
void fdry_backing_trim(struct fdry_backing *b, CUdeviceptr cursor);
/* The lowest address from @addr on with @size bytes that no block covers. It is @addr or the end of
 * a block. */
CUdeviceptr fdry_backing_clear_of(const struct fdry_backing *b, CUdeviceptr addr, uint64_t size);
uint64_t fdry_backing_idle_bytes(const struct fdry_backing *b);

#endif
