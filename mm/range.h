/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range.h - a set of address ranges that do not overlap, in address order.
 *
 * The node is embedded in a structure that has a range: an allocation of the ledger, a block
 * of physical memory, free addresses. Each function takes O(log n) and allocates nothing, so
 * none can fail. The owner of a node owns its memory.
 *
 * The tree is a treap: ordered by start, heap-ordered by a hash of the start. So its shape
 * depends only on the ranges in it. Each node knows the size of the largest range below it.
 *
 * Locking: the owner's.
 */
#ifndef FDRY_MM_RANGE_H
#define FDRY_MM_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fdry_range {
	uint64_t start;
	uint64_t end; /* first address behind the range; larger than start */
	/* The set keeps the rest. */
	uint64_t largest; /* size of the largest range of this subtree, bytes */
	struct fdry_range *kid[2];
};

/* Zero it to start. */
struct fdry_ranges {
	struct fdry_range *root;
	size_t count;
	uint64_t bytes; /* sum of the sizes */
};

/* @n overlaps nothing in the set. */
void fdry_ranges_add(struct fdry_ranges *s, struct fdry_range *n);
/* @n is in the set. */
void fdry_ranges_del(struct fdry_ranges *s, struct fdry_range *n);

/* The last range that starts at @addr or below; NULL if there is none. */
struct fdry_range *fdry_ranges_floor(const struct fdry_ranges *s, uint64_t addr);
/* The first range that ends above @addr: the one that holds it, else the next; NULL if there is
 * none. */
struct fdry_range *fdry_ranges_from(const struct fdry_ranges *s, uint64_t addr);

/* The lowest range that holds @size bytes at a multiple of @align, a power of two, and the lowest
 * such address. NULL if there is none. */
struct fdry_range *fdry_ranges_fit(const struct fdry_ranges *s, uint64_t size, uint64_t align,
				   uint64_t *ret);

/* Walk all ranges that overlap [@from, @to), in order; @n may not be removed meanwhile. */
#define fdry_ranges_each(n, s, from, to) \
	for ((n) = fdry_ranges_from(s, from); (n) && (n)->start < (to); \
	     (n) = fdry_ranges_from(s, (n)->end))

#endif
