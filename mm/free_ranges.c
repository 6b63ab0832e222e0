// SPDX-License-Identifier: Apache-2.0
/*
 * free_ranges.c - the treap behind free_ranges.h.
 *
 * A range is taken out and put back to be changed, so that only two functions know how
 * the tree is built. What a change needs is allocated before anything is changed.
 */
#include "mm/free_ranges.h"

#include <inttypes.h>
#include <stdlib.h>

struct fdry_free_range {
	uint64_t start;
	uint64_t end;
	uint64_t most; /* bytes of the largest range of this subtree */
	struct fdry_free_range *kid[2];
};

/* A node's place in the heap order: the finaliser of a 64-bit mixing hash over its start. */
static uint64_t rank(const struct fdry_free_range *n)
{
	uint64_t v = n->start;

	v = (v ^ v >> 33) * 0xff51afd7ed558ccdull;
	v = (v ^ v >> 33) * 0xc4ceb9fe1a85ec53ull;
	return v ^ v >> 33;
}

static uint64_t size_of(const struct fdry_free_range *n)
{
	return n->end - n->start;
}

static struct fdry_free_range *measured(struct fdry_free_range *n)
{
	int i;

	n->most = size_of(n);
	for (i = 0; i < 2; i++)
		if (n->kid[i] && n->kid[i]->most > n->most)
			n->most = n->kid[i]->most;
	return n;
}

/* What starts below @at to @less, the rest to @more. */
static void split(struct fdry_free_range *n, uint64_t at, struct fdry_free_range **less, struct fdry_free_range **more)
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
static struct fdry_free_range *join(struct fdry_free_range *a, struct fdry_free_range *b)
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

static void put(struct fdry_free_ranges *h, struct fdry_free_range *n, uint64_t start, uint64_t end)
{
	struct fdry_free_range *less, *more;

	*n = (struct fdry_free_range){ .start = start, .end = end };
	split(h->root, start, &less, &more);
	h->root = join(join(less, measured(n)), more);
	h->count++;
	h->bytes += size_of(n);
}

/* Take out the node that starts at @start, which there is; it is the caller's then. */
static struct fdry_free_range *out(struct fdry_free_ranges *h, uint64_t start)
{
	struct fdry_free_range *less, *n, *more;

	split(h->root, start, &less, &more);
	split(more, start + 1, &n, &more);
	h->root = join(less, more);
	h->count--;
	h->bytes -= size_of(n);
	return n;
}

/* The first range that ends at @addr or above. */
static struct fdry_free_range *reaching(const struct fdry_free_ranges *h, uint64_t addr)
{
	struct fdry_free_range *n = h->root, *best = NULL;

	while (n) {
		if (n->end >= addr)
			best = n;
		n = n->kid[n->end < addr];
	}
	return best;
}

int fdry_free_ranges_add(struct fdry_free_ranges *h, uint64_t start, uint64_t end)
{
	struct fdry_free_range *n = calloc(1, sizeof(*n)), *near;

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

static bool fits(const struct fdry_free_range *n, uint64_t extent, uint64_t align, uint64_t *ret)
{
	uint64_t skip = -n->start & (align - 1);

	if (skip >= size_of(n) || size_of(n) - skip < extent)
		return false;
	*ret = n->start + skip;
	return true;
}

/* The lowest range that fits. */
static struct fdry_free_range *lowest(struct fdry_free_range *n, uint64_t extent, uint64_t align, uint64_t *ret)
{
	struct fdry_free_range *found;

	if (!n || n->most < extent)
		return NULL;
	found = lowest(n->kid[0], extent, align, ret);
	if (found)
		return found;
	return fits(n, extent, align, ret) ? n : lowest(n->kid[1], extent, align, ret);
}

/* Take [@start, @end) out of @n, which holds it. */
static bool carve(struct fdry_free_ranges *h, struct fdry_free_range *n, uint64_t start, uint64_t end)
{
	uint64_t below = n->start, above = n->end;
	struct fdry_free_range *spare = NULL;

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

bool fdry_free_ranges_take(struct fdry_free_ranges *h, uint64_t extent, uint64_t align, uint64_t *ret)
{
	uint64_t at = 0;
	struct fdry_free_range *n = lowest(h->root, extent, align, &at);

	if (!n || !carve(h, n, at, at + extent))
		return false;
	*ret = at;
	return true;
}

bool fdry_free_ranges_remove(struct fdry_free_ranges *h, uint64_t start, uint64_t end)
{
	struct fdry_free_range *n = reaching(h, end);

	return n && n->start <= start && carve(h, n, start, end);
}

int fdry_free_ranges_extract(struct fdry_free_ranges *h, uint64_t start, uint64_t end, struct fdry_free_ranges *to)
{
	struct fdry_free_range *n;
	uint64_t from, until;
	int err;

	while ((n = reaching(h, start + 1)) && n->start < end) {
		from = n->start > start ? n->start : start;
		until = n->end < end ? n->end : end;
		err = fdry_free_ranges_add(to, from, until);
		if (err)
			return err;
		if (!carve(h, n, from, until))
			return fdry_nomem(); /* in both sets, which moving back mends */
	}
	return 0;
}

bool fdry_free_ranges_overlap(const struct fdry_free_ranges *h, uint64_t start, uint64_t end)
{
	const struct fdry_free_range *n = reaching(h, start + 1);

	return n && n->start < end;
}

int fdry_free_ranges_move(struct fdry_free_ranges *h, struct fdry_free_ranges *from)
{
	int ret = 0;

	while (from->root && !ret) {
		ret = fdry_free_ranges_add(h, from->root->start, from->root->end);
		if (!ret)
			free(out(from, from->root->start));
	}
	return ret;
}

static int check(const struct fdry_free_range *n, struct fdry_free_ranges *sum, uint64_t *end)
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

int fdry_free_ranges_check(const struct fdry_free_ranges *h)
{
	struct fdry_free_ranges sum = { 0 };
	uint64_t end = 0;
	int ret = check(h->root, &sum, &end);

	if (!ret && (sum.count != h->count || sum.bytes != h->bytes))
		ret = fdry_bug("%zu free ranges, and the count says %zu", sum.count, h->count);
	return ret;
}

void fdry_free_ranges_release(struct fdry_free_ranges *h)
{
	while (h->root)
		free(out(h, h->root->start));
}
