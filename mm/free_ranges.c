// SPDX-License-Identifier: Apache-2.0
/*
 * free_ranges.c - adds and removes freed ranges; see free_ranges.h.
 *
 * To change a range, a function removes it from the set and adds it again. It allocates nodes
 * before it changes anything.
 */
#include "mm/free_ranges.h"

#include <inttypes.h>
#include <stdlib.h>

static void put(struct fdry_ranges *s, struct fdry_range *n, uint64_t start, uint64_t end)
{
	n->start = start;
	n->end = end;
	fdry_ranges_add(s, n);
}

/* The first range that ends at @addr or above. */
static struct fdry_range *reaching(const struct fdry_ranges *s, uint64_t addr)
{
	return fdry_ranges_from(s, addr ? addr - 1 : 0);
}

int fdry_free_ranges_add(struct fdry_ranges *s, uint64_t start, uint64_t end)
{
	struct fdry_range *n = calloc(1, sizeof(*n)), *near;

	if (!n)
		return fdry_nomem();
	while ((near = reaching(s, start)) && near->start <= end) {
		if (near->start < start)
			start = near->start;
		if (near->end > end)
			end = near->end;
		fdry_ranges_del(s, near);
		free(near);
	}
	put(s, n, start, end);
	return 0;
}

/* Remove [@start, @end) from @n, which holds it. */
static bool carve(struct fdry_ranges *s, struct fdry_range *n, uint64_t start, uint64_t end)
{
	uint64_t below = n->start, above = n->end;
	struct fdry_range *spare = NULL;

	if (below < start && end < above) {
		spare = calloc(1, sizeof(*spare));
		if (!spare)
			return false;
	}
	fdry_ranges_del(s, n);
	if (below < start) {
		put(s, n, below, start);
		n = spare;
	}
	if (end < above)
		put(s, n, end, above);
	else
		free(n);
	return true;
}

bool fdry_free_ranges_take(struct fdry_ranges *s, uint64_t extent, uint64_t align, uint64_t *ret)
{
	uint64_t at = 0;
	struct fdry_range *n = fdry_ranges_fit(s, extent, align, &at);

	if (!n || !carve(s, n, at, at + extent))
		return false;
	*ret = at;
	return true;
}

bool fdry_free_ranges_remove(struct fdry_ranges *s, uint64_t start, uint64_t end)
{
	struct fdry_range *n = reaching(s, end);

	return n && n->start <= start && carve(s, n, start, end);
}

int fdry_free_ranges_extract(struct fdry_ranges *s, uint64_t start, uint64_t end,
			     struct fdry_ranges *to)
{
	struct fdry_range *n;
	uint64_t from, until;
	int err;

	while ((n = fdry_ranges_from(s, start)) && n->start < end) {
		from = n->start > start ? n->start : start;
		until = n->end < end ? n->end : end;
		err = fdry_free_ranges_add(to, from, until);
		if (err)
			return err;
		if (!carve(s, n, from, until))
			return fdry_nomem(); /* a part is in both sets; moving it back repairs
						that */
	}
	return 0;
}

bool fdry_free_ranges_overlap(const struct fdry_ranges *s, uint64_t start, uint64_t end)
{
	const struct fdry_range *n = fdry_ranges_from(s, start);

	return n && n->start < end;
}

int fdry_free_ranges_move(struct fdry_ranges *s, struct fdry_ranges *from)
{
	struct fdry_range *n;
	int err;

	while ((n = from->root)) {
		err = fdry_free_ranges_add(s, n->start, n->end);
		if (err)
			return err;
		fdry_ranges_del(from, n);
		free(n);
	}
	return 0;
}

void fdry_free_ranges_release(struct fdry_ranges *s)
{
	struct fdry_range *n;

	while ((n = s->root)) {
		fdry_ranges_del(s, n);
		free(n);
	}
}
