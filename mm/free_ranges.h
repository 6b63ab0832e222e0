/* SPDX-License-Identifier: Apache-2.0 */
/*
 * free_ranges.h - address ranges that were freed and may be handed out again.
 *
 * Ranges that touch become one, and an allocation takes the lowest addresses that hold it. Both
 * depend on the ranges alone, so the same calls give the same addresses.
 *
 * The set is that of range.h. These functions allocate and free its nodes, so a set that they
 * change has no other nodes. Zero a set to start, and call fdry_free_ranges_release() at the end.
 *
 * Locking: the owner's.
 */
#ifndef FDRY_MM_FREE_RANGES_H
#define FDRY_MM_FREE_RANGES_H

#include "lib/err.h"
#include "mm/range.h"

/* Add the bytes of [@start, @end), which is not empty, that are not in the set. FDRY_E_NOMEM:
 * perhaps a part was added. */
int fdry_free_ranges_add(struct fdry_ranges *s, uint64_t start, uint64_t end) __must_check;

/* Take @extent bytes at the lowest multiple of @align, a power of two, at which they are free.
 * False if there is none, or no host memory to note the rest of the range. */
bool fdry_free_ranges_take(struct fdry_ranges *s, uint64_t extent, uint64_t align, uint64_t *ret);

/* Take [@start, @end). False if a byte of it is not in the set, or if there is no host memory to
 * note the rest of the range. */
bool fdry_free_ranges_remove(struct fdry_ranges *s, uint64_t start, uint64_t end);

/* Move the bytes of [@start, @end) that are in the set to @to. FDRY_E_NOMEM: perhaps a part was
 * moved. */
int fdry_free_ranges_extract(struct fdry_ranges *s, uint64_t start, uint64_t end,
			     struct fdry_ranges *to) __must_check;

/* True if a byte of [@start, @end) is in the set. */
bool fdry_free_ranges_overlap(const struct fdry_ranges *s, uint64_t start, uint64_t end);

/* Move all ranges of @from, which is empty afterwards. FDRY_E_NOMEM: perhaps a part was moved. */
int fdry_free_ranges_move(struct fdry_ranges *s, struct fdry_ranges *from) __must_check;

void fdry_free_ranges_release(struct fdry_ranges *s);

#endif
