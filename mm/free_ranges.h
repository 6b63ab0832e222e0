/* SPDX-License-Identifier: Apache-2.0 */
/*
 * free_ranges.h - address ranges that were freed and may be allocated again.
 *
 * Ranges that touch become one. An allocation gets the lowest addresses at which it fits. Both
 * depend only on the ranges, so the same calls return the same addresses.
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

/* Add the bytes of [@start, @end), which is not empty, that are not in the set. FDRY_E_NOMEM: a
 * part may have been added. */
int fdry_free_ranges_add(struct fdry_ranges *s, uint64_t start, uint64_t end) __must_check;

/* Remove @extent bytes at the lowest multiple of @align, a power of two, at which they are free.
 * False if there are none, or if host memory is too short to note the rest of the range. */
bool fdry_free_ranges_take(struct fdry_ranges *s, uint64_t extent, uint64_t align, uint64_t *ret);

/* Remove [@start, @end). False if a byte of it is not in the set, or if host memory is too short to
 * note the rest of the range. */
bool fdry_free_ranges_remove(struct fdry_ranges *s, uint64_t start, uint64_t end);

/* Move the bytes of [@start, @end) that are in the set to @to. FDRY_E_NOMEM: a part may have been
 * moved. */
int fdry_free_ranges_extract(struct fdry_ranges *s, uint64_t start, uint64_t end,
			     struct fdry_ranges *to) __must_check;

/* True if a byte of [@start, @end) is in the set. */
bool fdry_free_ranges_overlap(const struct fdry_ranges *s, uint64_t start, uint64_t end);

/* Move all ranges of @from, which is empty afterwards. FDRY_E_NOMEM: a part may have been moved. */
int fdry_free_ranges_move(struct fdry_ranges *s, struct fdry_ranges *from) __must_check;

void fdry_free_ranges_release(struct fdry_ranges *s);

#endif
