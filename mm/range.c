// SPDX-License-Identifier: Apache-2.0
/*
 * range.c - the treap behind range.h.
 *
 * Every function follows one path from the root, whose length is O(log n).
 */
#include "mm/range.h"

/* A node's place in the heap order: the finaliser of a 64-bit mixing hash over its start. */
static uint64_t rank(const struct fdry_range *n)
{
	uint64_t v = n->start;

	v = (v ^ v >> 33) * 0xff51afd7ed558ccdull;
	v = (v ^ v >> 33) * 0xc4ceb9fe1a85ec53ull;
	return v ^ v >> 33;
}

/* Set the largest size of the subtree @n from its two children. */
static struct fdry_range *measure(struct fdry_range *n)
{
	int i;

	n->largest = n->end - n->start;
	for (i = 0; i < 2; i++)
		if (n->kid[i] && n->kid[i]->largest > n->largest)
			n->largest = n->kid[i]->largest;
	return n;
}

/* Ranges that start below @at go to @less, the others to @more. */
static void split(struct fdry_range *n, uint64_t at, struct fdry_range **less,
		  struct fdry_range **more)
{
	if (!n) {
		*less = *more = NULL;
	} else if (n->start < at) {
		split(n->kid[1], at, &n->kid[1], more);
		*less = measure(n);
	} else {
		split(n->kid[0], at, less, &n->kid[0]);
		*more = measure(n);
	}
}

/* Everything in @a lies below everything in @b. */
static struct fdry_range *join(struct fdry_range *a, struct fdry_range *b)
{
	if (!a || !b)
		return a ? a : b;
	if (rank(a) >= rank(b)) {
		a->kid[1] = join(a->kid[1], b);
		return measure(a);
	}
	b->kid[0] = join(a, b->kid[0]);
	return measure(b);
}

void fdry_ranges_add(struct fdry_ranges *s, struct fdry_range *n)
{
	struct fdry_range **link = &s->root;
	uint64_t size = n->end - n->start;

	while (*link && rank(*link) >= rank(n)) {
		if ((*link)->largest < size)
			(*link)->largest = size;
		link = &(*link)->kid[n->start > (*link)->start];
	}
	split(*link, n->start, &n->kid[0], &n->kid[1]);
	*link = measure(n);
	s->count++;
	s->bytes += size;
}

void fdry_ranges_del(struct fdry_ranges *s, struct fdry_range *n)
{
	struct fdry_range *less, *more;

	split(s->root, n->start, &less, &more);
	split(more, n->start + 1, &n, &more);
	s->root = join(less, more);
	s->count--;
	s->bytes -= n->end - n->start;
}

struct fdry_range *fdry_ranges_floor(const struct fdry_ranges *s, uint64_t addr)
{
	struct fdry_range *n = s->root, *best = NULL;

	while (n) {
		if (n->start <= addr)
			best = n;
		n = n->kid[n->start <= addr];
	}
	return best;
}

struct fdry_range *fdry_ranges_from(const struct fdry_ranges *s, uint64_t addr)
{
	struct fdry_range *n = s->root, *best = NULL;

	while (n) {
		if (n->end > addr)
			best = n;
		n = n->kid[n->end <= addr];
	}
	return best;
}

static bool fits(const struct fdry_range *n, uint64_t size, uint64_t align, uint64_t *ret)
{
	uint64_t skip = -n->start & (align - 1), all = n->end - n->start;

	if (skip >= all || all - skip < size)
		return false;
	*ret = n->start + skip;
	return true;
}

static struct fdry_range *lowest(struct fdry_range *n, uint64_t size, uint64_t align, uint64_t *ret)
{
	struct fdry_range *found;

	if (!n || n->largest < size)
		return NULL;
	found = lowest(n->kid[0], size, align, ret);
	if (found)
		return found;
	return fits(n, size, align, ret) ? n : lowest(n->kid[1], size, align, ret);
}

struct fdry_range *fdry_ranges_fit(const struct fdry_ranges *s, uint64_t size, uint64_t align,
				   uint64_t *ret)
{
	return lowest(s->root, size, align, ret);
}
