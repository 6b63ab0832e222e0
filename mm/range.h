/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range.h - a set of address ranges that do not overlap, in address order.
 *
 * The node is embedded in whatever has a range: an allocation of the ledger, a block of
 * physical memory. Everything takes O(log n) and allocates nothing, so nothing here can
 * fail; the memory of nodes is their owner's.
 *
 * A treap: ordered by start, heap-ordered by a hash of the start, so that its shape
 * depends on the ranges in it alone.
 *
 * Locking: the owner's.
 */
#ifndef FDRY_MM_RANGE_H
#define FDRY_MM_RANGE_H

#include <stddef.h>
#include <stdint.h>

struct fdry_range {
	uint64_t start;
	uint64_t end; /* first address behind it; larger than start */
	struct fdry_range *kid[2];
};

/* Zero it to start. */
struct fdry_ranges {
	struct fdry_range *root;
	size_t count;
};

/* @n overlaps nothing in the set. */
void fdry_ranges_add(struct fdry_ranges *s, struct fdry_range *n);
/* @n is in the set. */
void fdry_ranges_del(struct fdry_ranges *s, struct fdry_range *n);

/* The last range that starts at @addr or below; NULL where there is none. */
struct fdry_range *fdry_ranges_floor(const struct fdry_ranges *s, uint64_t addr);
/* The first range that ends above @addr: the one that holds it, else the next; NULL where there is none. */
struct fdry_range *fdry_ranges_from(const struct fdry_ranges *s, uint64_t addr);

/* Walk all ranges that overlap [@from, @to), in order; @n may not be removed meanwhile. */
#define fdry_ranges_each(n, s, from, to) \
	for ((n) = fdry_ranges_from(s, from); (n) && (n)->start < (to); (n) = fdry_ranges_from(s, (n)->end))

#endif
