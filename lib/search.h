/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - binary search, and an order for qsort(). */
#ifndef FDRY_LIB_SEARCH_H
#define FDRY_LIB_SEARCH_H

#include <stddef.h>
#include <stdint.h>

/*
 * The first @i in [0, @n) for which the expression @below is false; @n if there is none. The
 * expression names @i, is true up to some number, and is false from there on:
 *
 *	at = fdry_lower_bound(i, count, segments[i].end <= addr);
 */
#define fdry_lower_bound(i, n, below) ({ \
	size_t lo_ = 0, hi_ = (n); \
	while (lo_ < hi_) { \
		const size_t i = lo_ + (hi_ - lo_) / 2; \
		if (below) \
			lo_ = i + 1; \
		else \
			hi_ = i; \
	} \
	lo_; \
})

/* Compare two uint64_t, as qsort() asks for. */
static inline int fdry_u64_cmp(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

#endif
