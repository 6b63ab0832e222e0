/* SPDX-License-Identifier: Apache-2.0 */
/*
 * free_ranges.h - address ranges that were freed and may be handed out again.
 *
 * Ranges that touch become one, and an allocation takes the lowest addresses that hold
 * it. Both depend on nothing but the ranges, so the same calls give the same addresses.
 *
 * A treap as in range.h, in which every node knows the largest range below it: adding and
 * taking are O(log n). Locking: the owner's.
 */
#ifndef FDRY_MM_FREE_RANGES_H
#define FDRY_MM_FREE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct fdry_free_range;

/* Zero it to start; fdry_free_ranges_release() at the end. */
struct fdry_free_ranges {
	struct fdry_free_range *root;
	size_t count;
	uint64_t bytes;
};

/* Add what is not yet there of [@start, @end), which is not empty. FDRY_E_NOMEM: perhaps a part of it was added. */
int fdry_free_ranges_add(struct fdry_free_ranges *h, uint64_t start, uint64_t end) __must_check;

/* Take @extent bytes at the lowest multiple of @align, a power of two, that has them; false where
 * none has, or no memory for what remains. */
bool fdry_free_ranges_take(struct fdry_free_ranges *h, uint64_t extent, uint64_t align, uint64_t *ret);

/* Take [@start, @end) where all of it is there; false where not, or no memory for what remains. */
bool fdry_free_ranges_remove(struct fdry_free_ranges *h, uint64_t start, uint64_t end);

/* Move what of [@start, @end) is there to @to. FDRY_E_NOMEM: perhaps a part of it was moved. */
int fdry_free_ranges_extract(struct fdry_free_ranges *h, uint64_t start, uint64_t end, struct fdry_free_ranges *to) __must_check;

/* Is any byte of [@start, @end) there? */
bool fdry_free_ranges_overlap(const struct fdry_free_ranges *h, uint64_t start, uint64_t end);

/* Move everything from @from, which is empty then, unless memory runs out: FDRY_E_NOMEM. */
int fdry_free_ranges_move(struct fdry_free_ranges *h, struct fdry_free_ranges *from) __must_check;

/* FDRY_E_BUG where ranges overlap, touch or disagree with the counts. */
int fdry_free_ranges_check(const struct fdry_free_ranges *h) __must_check;

void fdry_free_ranges_release(struct fdry_free_ranges *h);

#endif
