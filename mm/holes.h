/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holes.h - address ranges that were freed and may be handed out again.
 *
 * Ranges that touch become one, and an allocation takes the lowest addresses that hold
 * it. Both depend on nothing but the ranges, so the same calls give the same addresses.
 *
 * A treap as in range.h, in which every node knows the largest range below it: adding and
 * taking are O(log n). Locking: the owner's.
 */
#ifndef FDRY_MM_HOLES_H
#define FDRY_MM_HOLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct fdry_hole;

/* Zero it to start; fdry_holes_release() at the end. */
struct fdry_holes {
	struct fdry_hole *root;
	size_t count;
	uint64_t bytes;
};

/* Add what is not yet there of [@start, @end), which is not empty. FDRY_E_NOMEM: perhaps a part of it was added. */
int fdry_holes_add(struct fdry_holes *h, uint64_t start, uint64_t end) __must_check;

/* Take @room bytes at the lowest multiple of @align, a power of two, that has them; false where
 * none has, or no memory for what remains. */
bool fdry_holes_take(struct fdry_holes *h, uint64_t room, uint64_t align, uint64_t *ret);

/* Take [@start, @end) where all of it is there; false where not, or no memory for what remains. */
bool fdry_holes_remove(struct fdry_holes *h, uint64_t start, uint64_t end);

/* Move what of [@start, @end) is there to @to. FDRY_E_NOMEM: perhaps a part of it was moved. */
int fdry_holes_extract(struct fdry_holes *h, uint64_t start, uint64_t end, struct fdry_holes *to) __must_check;

/* Is any byte of [@start, @end) there? */
bool fdry_holes_overlap(const struct fdry_holes *h, uint64_t start, uint64_t end);

/* Move everything from @from, which is empty then, unless memory runs out: FDRY_E_NOMEM. */
int fdry_holes_move(struct fdry_holes *h, struct fdry_holes *from) __must_check;

/* FDRY_E_BUG where ranges overlap, touch or disagree with the counts. */
int fdry_holes_check(const struct fdry_holes *h) __must_check;

void fdry_holes_release(struct fdry_holes *h);

#endif
