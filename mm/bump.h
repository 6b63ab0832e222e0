/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bump.h - where the next allocation of a region lies: pure arithmetic.
 *
 * It uses no driver, no lock, no I/O and no memory. An address depends only on the calls that were
 * made, not on the driver's granularity or on mappings. So addresses are the same in every process.
 *
 *      base                  base + cursor        base + touched            base + size
 *      |                          |                     |                        |
 *      v                          v                     v                        v
 *      +--------------------------+---------------------+------------------------+
 *      | handed out, or skipped   | handed out before   | never handed out       |
 *      | to align                 | the cursor was set  |                        |
 *      |                          | back                |                        |
 *      +--------------------------+---------------------+------------------------+
 *
 * Rule: an allocation smaller than a block starts at the next multiple of the unit, and its extent
 * is a multiple of the unit. An allocation of a block or more starts at the next multiple of the
 * block, and its extent is a multiple of the block.
 *
 * Invariants (fdry_bump_check): cursor <= size, touched <= size, base + size does not
 * overflow, unit and block are powers of two, unit <= block, base is a multiple of block.
 */
#ifndef FDRY_MM_BUMP_H
#define FDRY_MM_BUMP_H

#include <stdint.h>

#include "lib/err.h"

struct fdry_bump {
	uint64_t base;   /* first address */
	uint64_t size;   /* bytes */
	uint64_t cursor; /* offset of the next byte to allocate */
	uint64_t touched; /* offset of the end of all bytes that were ever allocated; bytes below
			     may not be zero */
	uint64_t unit;  /* alignment of every allocation, bytes */
	uint64_t block; /* alignment of large ones, bytes */
};

/* The place of an allocation. */
struct fdry_place {
	uint64_t addr;
	uint64_t extent; /* bytes it occupies: the size rounded up */
};

/* FDRY_E_INVAL if an invariant would not hold, FDRY_E_RANGE if base + size overflows. */
int fdry_bump_init(struct fdry_bump *b, uint64_t base, uint64_t size, uint64_t unit,
		   uint64_t block) __must_check;

/**
 * fdry_bump_place() - Compute the place of the next allocation; changes nothing.
 * @size: bytes, not 0
 * @align: a power of two, or 0; less than the rule's alignment has no effect
 *
 * Errors: FDRY_E_INVAL; FDRY_E_RANGE if the rest of the region is too small.
 */
int fdry_bump_place(const struct fdry_bump *b, uint64_t size, uint64_t align,
		    struct fdry_place *ret) __must_check;

/* The rule's alignment for an allocation of @size bytes, of which its extent is a multiple. */
static inline uint64_t fdry_bump_step(const struct fdry_bump *b, uint64_t size)
{
	return size < b->block ? b->unit : b->block;
}

/*
 * Memory that no image can hold is not placed where a number looks like its address. Structures of
 * kernel arguments have padding, with old bytes of the stack: the upper half of a pointer behind a
 * number of 32 bits looks like an address of the same 4 GiB, whose lower half is the number. Counts
 * and sizes are below this, and so are the bits of floats from 0 to 8e9. Negative numbers are not.
 */
#define FDRY_NUMBERS_END 0x50000000u
/* Addresses from fdry_bump_past_numbers() are multiples of this, if @addr is one. */
#define FDRY_NUMBERS_STEP (1u << 28)

/* The first address from @addr on, at or above the cursor, at which @size bytes lie past these
 * numbers. It is @addr if 4 GiB have no room for so many bytes, or if more than a sixteenth of the
 * rest of the region would be skipped. */
uint64_t fdry_bump_past_numbers(const struct fdry_bump *b, uint64_t addr, uint64_t size);

/* Move the cursor past @p, which fdry_bump_place() must have computed for the current cursor.
 * Cannot fail. */
void fdry_bump_take(struct fdry_bump *b, const struct fdry_place *p);

/* Set the cursor anywhere in the region; FDRY_E_RANGE outside. The caller must check that no
 * allocation lies above it. */
int fdry_bump_set(struct fdry_bump *b, uint64_t cursor) __must_check;

/* @v rounded down or up to a multiple of @align, a power of two; up is FDRY_E_RANGE if it
 * overflows. */
static inline uint64_t fdry_round_down(uint64_t v, uint64_t align)
{
	return v & ~(align - 1);
}
int fdry_round_up(uint64_t v, uint64_t align, uint64_t *ret) __must_check;

#endif
