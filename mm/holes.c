// SPDX-License-Identifier: Apache-2.0
/*
 * holes.c - the treap behind holes.h.
 *
 * A range is taken out and put back to be changed, so that only two functions know how
 * the tree is built. What a change needs is allocated before anything is changed.
 */
#include "mm/holes.h"

#include <inttypes.h>
#include <stdlib.h>

struct fdry_hole {
	uint64_t start;
	uint64_t end;
	uint64_t most; /* bytes of the largest range of this subtree */
	struct fdry_hole *kid[2];
};

/* A node's place in the heap order: the finaliser of a 64-bit mixing hash over its start. */
static uint64_t rank(const struct fdry_hole *n)
{
	uint64_t v = n->start;

	v = (v ^ v >> 33) * 0xff51afd7ed558ccdull;
	v = (v ^ v >> 33) * 0xc4ceb9fe1a85ec53ull;
	return v ^ v >> 33;
}

static uint64_t size_of(const struct fdry_hole *n)
{
	return n->end - n->start;
}

static struct fdry_hole *measured(struct fdry_hole *n)
{
	int i;

	n->most = size_of(n);
	for (i = 0; i < 2; i++)
		if (n->kid[i] && n->kid[i]->most > n->most)
			n->most = n->kid[i]->most;
	return n;
}

/* What starts below @at to @less, the rest to @more. */
static void split(struct fdry_hole *n, uint64_t at, struct fdry_hole **less, struct fdry_hole **more)
{
	if (!n) {
		*less = *more = NULL;
	} else if (n->start < at) {
		split(n->kid[1], at, &n->kid[1], more);
		*less = measured(n);
	} else {
		split(n->kid[0], at, less, &n->kid[0]);
		*more = measured(n);
	}
}

/* Everything in @a lies below everything in @b. */
static struct fdry_hole *join(struct fdry_hole *a, struct fdry_hole *b)
{
	if (!a || !b)
		return a ? a : b;
	if (rank(a) >= rank(b)) {
		a->kid[1] = join(a->kid[1], b);
		return measured(a);
	}
	b->kid[0] = join(a, b->kid[0]);
	return measured(b);
}

static void put(struct fdry_holes *h, struct fdry_hole *n, uint64_t start, uint64_t end)
{
	struct fdry_hole *less, *more;

	*n = (struct fdry_hole){ .start = start, .end = end };
	split(h->root, start, &less, &more);
	h->root = join(join(less, measured(n)), more);
	h->count++;
	h->bytes += size_of(n);
}

/* Take out the node that starts at @start, which there is; it is the caller's then. */
static struct fdry_hole *out(struct fdry_holes *h, uint64_t start)
{
	struct fdry_hole *less, *n, *more;

	split(h->root, start, &less, &more);
	split(more, start + 1, &n, &more);
	h->root = join(less, more);
	h->count--;
	h->bytes -= size_of(n);
	return n;
}

/* The first range that ends at @addr or above. */
static struct fdry_hole *reaching(const struct fdry_holes *h, uint64_t addr)
{
	struct fdry_hole *n = h->root, *best = NULL;

	while (n) {
		if (n->end >= addr)
			best = n;
		n = n->kid[n->end < addr];
	}
	return best;
}

int fdry_holes_add(struct fdry_holes *h, uint64_t start, uint64_t end)
{
	struct fdry_hole *n = calloc(1, sizeof(*n)), *near;

	if (!n)
		return fdry_nomem();
	while ((near = reaching(h, start)) && near->start <= end) {
		if (near->start < start)
			start = near->start;
		if (near->end > end)
			end = near->end;
		free(out(h, near->start));
	}
	put(h, n, start, end);
	return 0;
}

static bool fits(const struct fdry_hole *n, uint64_t room, uint64_t align, uint64_t *ret)
{
	uint64_t skip = -n->start & (align - 1);

	if (skip >= size_of(n) || size_of(n) - skip < room)
		return false;
	*ret = n->start + skip;
	return true;
}

/* The lowest range that fits. */
static struct fdry_hole *lowest(struct fdry_hole *n, uint64_t room, uint64_t align, uint64_t *ret)
{
	struct fdry_hole *found;

	if (!n || n->most < room)
		return NULL;
	found = lowest(n->kid[0], room, align, ret);
	if (found)
		return found;
	return fits(n, room, align, ret) ? n : lowest(n->kid[1], room, align, ret);
}

/* Take [@start, @end) out of @n, which holds it. */
static bool carve(struct fdry_holes *h, struct fdry_hole *n, uint64_t start, uint64_t end)
{
	uint64_t below = n->start, above = n->end;
	struct fdry_hole *spare = NULL;

	if (below < start && end < above) {
		spare = calloc(1, sizeof(*spare));
		if (!spare)
			return false;
	}
	n = out(h, below);
	if (below < start) {
		put(h, n, below, start);
		n = spare;
	}
	if (end < above)
		put(h, n, end, above);
	else
		free(n);
	return true;
}

bool fdry_holes_take(struct fdry_holes *h, uint64_t room, uint64_t align, uint64_t *ret)
{
	uint64_t at = 0;
	struct fdry_hole *n = lowest(h->root, room, align, &at);

	if (!n || !carve(h, n, at, at + room))
		return false;
	*ret = at;
	return true;
}

bool fdry_holes_remove(struct fdry_holes *h, uint64_t start, uint64_t end)
{
	struct fdry_hole *n = reaching(h, end);

	return n && n->start <= start && carve(h, n, start, end);
}

int fdry_holes_extract(struct fdry_holes *h, uint64_t start, uint64_t end, struct fdry_holes *to)
{
	struct fdry_hole *n;
	uint64_t from, until;
	int err;

	while ((n = reaching(h, start + 1)) && n->start < end) {
		from = n->start > start ? n->start : start;
		until = n->end < end ? n->end : end;
		err = fdry_holes_add(to, from, until);
		if (err)
			return err;
		if (!carve(h, n, from, until))
			return fdry_nomem(); /* in both sets, which moving back mends */
	}
	return 0;
}

bool fdry_holes_overlap(const struct fdry_holes *h, uint64_t start, uint64_t end)
{
	const struct fdry_hole *n = reaching(h, start + 1);

	return n && n->start < end;
}

int fdry_holes_move(struct fdry_holes *h, struct fdry_holes *from)
{
	int ret = 0;

	while (from->root && !ret) {
		ret = fdry_holes_add(h, from->root->start, from->root->end);
		if (!ret)
			free(out(from, from->root->start));
	}
	return ret;
}

static int check(const struct fdry_hole *n, struct fdry_holes *sum, uint64_t *end)
{
	int ret = 0;

	if (!n)
		return 0;
	ret = check(n->kid[0], sum, end);
	if (!ret && (n->start >= n->end || (sum->count && n->start <= *end)))
		ret = fdry_bug("the free range at %#" PRIx64 " is empty, or touches another", n->start);
	sum->count++;
	sum->bytes += size_of(n);
	*end = n->end;
	return ret ? ret : check(n->kid[1], sum, end);
}

int fdry_holes_check(const struct fdry_holes *h)
{
	struct fdry_holes sum = { 0 };
	uint64_t end = 0;
	int ret = check(h->root, &sum, &end);

	if (!ret && (sum.count != h->count || sum.bytes != h->bytes))
		ret = fdry_bug("%zu free ranges, and the count says %zu", sum.count, h->count);
	return ret;
}

void fdry_holes_release(struct fdry_holes *h)
{
	while (h->root)
		free(out(h, h->root->start));
}
