// SPDX-License-Identifier: Apache-2.0
/*
 * order.c - the order in which a pull asks for objects; see order.h.
 *
 * Each object gets a rank: its position among the ids that the caller wants, or behind all of them.
 * An object that another one links to gets the lower rank of the two. A list has every object
 * behind those that it links to, so one pass from its end suffices, and objects of one rank keep
 * the list's order.
 */
#include "registry/order.h"

#include <stdlib.h>

#include "lib/search.h"

#define EARLY_BYTES (64u << 20) /* manifests that are kept in memory */

struct fdry_order_entry {
	struct fdry_oid oid;
	size_t i; /* in the list */
};

static int entry_cmp(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct fdry_oid)); /* the first member */
}

int fdry_order_init(struct fdry_order *o, const struct fdry_fetch *f)
{
	size_t i;

	*o = (struct fdry_order){ .f = f };
	o->count = fdry_fetch_objects(f, &o->objects);
	o->ids = calloc(o->count + 1, sizeof(*o->ids));
	o->early = calloc(o->count + 1, sizeof(*o->early));
	if (!o->ids || !o->early)
		return fdry_nomem();
	for (i = 0; i < o->count; i++)
		o->ids[i] = (struct fdry_order_entry){ .oid = o->objects[i].oid, .i = i };
	qsort(o->ids, o->count, sizeof(*o->ids), entry_cmp);
	return 0;
}

void fdry_order_release(struct fdry_order *o)
{
	free(o->ids);
	free(o->early);
}

size_t fdry_order_find(const struct fdry_order *o, const struct fdry_oid *oid)
{
	size_t low = fdry_lower_bound(k, o->count,
				      memcmp(&o->ids[k].oid, oid, sizeof(*oid)) < 0);

	return low < o->count && fdry_oid_eq(&o->ids[low].oid, oid) ? o->ids[low].i : o->count;
}

/* --- manifests --- */

/* An object that links to a manifest can only be stored after it. */
static void linked_drop(struct fdry_order *o)
{
	const struct fdry_oid *links;
	size_t i, at;
	uint32_t k;

	for (i = 0; i < o->count; i++) {
		links = fdry_fetch_links(o->f, i);
		for (k = 0; k < o->objects[i].nlinks; k++) {
			at = fdry_order_find(o, &links[k]);
			if (at < o->count)
				o->early[at] = false;
		}
	}
}

int fdry_order_early(struct fdry_order *o, struct fdry_buf *ret)
{
	const struct fdry_pack_image *images;
	size_t i, at, n = fdry_fetch_images(o->f, &images);
	uint64_t bytes = 0;
	int err = 0;

	for (i = 0; i < n; i++) {
		at = fdry_order_find(o, &images[i].oid);
		if (at == o->count || o->early[at])
			continue;
		bytes += o->objects[at].size;
		o->early[at] = true;
	}
	if (bytes > EARLY_BYTES)
		memset(o->early, 0, o->count * sizeof(*o->early));
	else
		linked_drop(o);
	for (i = 0; i < o->count && !err; i++)
		if (o->early[i])
			err = fdry_buf_put(ret, &i, sizeof(i));
	return err;
}

/* --- the others --- */

static void ranks_pass_on(const struct fdry_order *o, size_t *rank)
{
	const struct fdry_oid *links;
	size_t i, at;
	uint32_t k;

	for (i = o->count; i-- > 0;) {
		links = fdry_fetch_links(o->f, i);
		for (k = 0; !o->early[i] && k < o->objects[i].nlinks; k++) {
			at = fdry_order_find(o, &links[k]);
			if (at < o->count && rank[at] > rank[i])
				rank[at] = rank[i];
		}
	}
}

static int rank_cmp(const void *a, const void *b, void *arg)
{
	const size_t *rank = arg;
	size_t x = *(const size_t *)a, y = *(const size_t *)b;

	if (rank[x] != rank[y])
		return rank[x] < rank[y] ? -1 : 1;
	return (x > y) - (x < y);
}

int fdry_order_rest(const struct fdry_order *o, const struct fdry_oid *wanted, size_t count,
		    struct fdry_buf *ret)
{
	size_t *rank = calloc(o->count + 1, sizeof(*rank)), i, at;
	int err = rank ? 0 : fdry_nomem();

	if (err)
		return err;
	for (i = 0; i < o->count; i++)
		rank[i] = count;
	for (i = count; i-- > 0;) { /* an id that occurs twice counts where it occurs first */
		at = fdry_order_find(o, &wanted[i]);
		rank[at] = i; /* one entry more than objects: ids that are not in the list */
	}
	ranks_pass_on(o, rank);
	for (i = 0; i < o->count && !err; i++)
		if (!o->early[i] && !o->objects[i].has)
			err = fdry_buf_put(ret, &i, sizeof(i));
	if (!err && ret->len)
		qsort_r(ret->data, ret->len / sizeof(i), sizeof(i), rank_cmp, rank);
	free(rank);
	return err;
}
