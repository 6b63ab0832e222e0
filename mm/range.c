// SPDX-License-Identifier: Apache-2.0
/* range.c - the treap behind range.h. */
#include "mm/range.h"

/* A node's place in the heap order: the finaliser of a 64-bit mixing hash over its start. */
static uint64_t rank(const struct fdry_range *n)
{
	uint64_t v = n->start;

	v = (v ^ v >> 33) * 0xff51afd7ed558ccdull;
	v = (v ^ v >> 33) * 0xc4ceb9fe1a85ec53ull;
	return v ^ v >> 33;
}

/* Take the tree @n apart: what starts below @at goes to kid[0] of @ret, the rest to kid[1]. */
static void split(struct fdry_range *n, uint64_t at, struct fdry_range *ret)
{
	struct fdry_range **less = &ret->kid[0], **more = &ret->kid[1];

	while (n) {
		if (n->start < at) {
			*less = n;
			less = &n->kid[1];
			n = *less;
		} else {
			*more = n;
			more = &n->kid[0];
			n = *more;
		}
	}
	*less = *more = NULL;
}

/* Join two trees, everything in @a below everything in @b, at @link. */
static void join(struct fdry_range *a, struct fdry_range *b, struct fdry_range **link)
{
	while (a && b) {
		if (rank(a) >= rank(b)) {
			*link = a;
			link = &a->kid[1];
			a = *link;
		} else {
			*link = b;
			link = &b->kid[0];
			b = *link;
		}
	}
	*link = a ? a : b;
}

void fdry_ranges_add(struct fdry_ranges *s, struct fdry_range *n)
{
	struct fdry_range **link = &s->root;

	while (*link && rank(*link) >= rank(n))
		link = &(*link)->kid[n->start > (*link)->start];
	split(*link, n->start, n);
	*link = n;
	s->count++;
}

void fdry_ranges_del(struct fdry_ranges *s, struct fdry_range *n)
{
	struct fdry_range **link = &s->root;

	while (*link != n)
		link = &(*link)->kid[n->start > (*link)->start];
	join(n->kid[0], n->kid[1], link);
	s->count--;
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
