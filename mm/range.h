/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range.h - a set of address ranges that do not overlap, in address order.
 *
 * A node is embedded in each structure that has a range: an allocation of the ledger, a block of
 * physical memory, free addresses. Each function takes O(log n) and allocates nothing, so none can
 * fail. The owner of a node owns its memory.
 *
 * The tree is a treap: a search tree by the start of ranges, and a heap by a hash of the start. So
 * its shape depends only on the ranges in it. Each node holds the size of the largest range in its
 * subtree.
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
	uint64_t end; /* one past the last address; larger than start */
	/* The set maintains the fields below. */
	uint64_t largest; /* size of the largest range of this subtree, bytes */
	struct fdry_range *kid[2];
};

/* Zero it to start. */
struct fdry_ranges {
	struct fdry_range *root;
	size_t count;
	uint64_t bytes; /* sum of the sizes */
};

/* Add @n, which must not overlap a range of the set. */
void fdry_ranges_add(struct fdry_ranges *s, struct fdry_range *n);
/* Remove @n, which must be in the set. */
void fdry_ranges_del(struct fdry_ranges *s, struct fdry_range *n);

/* The last range that starts at or below @addr; NULL if there is none. */
struct fdry_range *fdry_ranges_floor(const struct fdry_ranges *s, uint64_t addr);
/* The first range that ends above @addr: the one that holds it, else the next; NULL if there is
 * none. */
struct fdry_range *fdry_ranges_from(const struct fdry_ranges *s, uint64_t addr);

/* The lowest range that holds @size bytes at a multiple of @align, a power of two, and the lowest
 * such address. NULL if there is none. */
struct fdry_range *fdry_ranges_fit(const struct fdry_ranges *s, uint64_t size, uint64_t align,
				   uint64_t *ret);

/* Walk all ranges that overlap [@from, @to), in order. The loop must not remove @n. */
#define fdry_ranges_each(n, s, from, to) \
	for ((n) = fdry_ranges_from(s, from); (n) && (n)->start < (to); \
	     (n) = fdry_ranges_from(s, (n)->end))

#endif
