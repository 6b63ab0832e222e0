// SPDX-License-Identifier: Apache-2.0
/* usage.c - the space that each image takes, for reports; sealing and loading do not need this. */
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"

#define SHARED UINT32_MAX
#define SLOTS_MIN 1024

/* An object that some image reaches. */
struct reached {
	struct fdry_oid oid;
	uint64_t size, stored;
	uint32_t owner; /* the only image that reaches it, or SHARED */
};

struct usage {
	struct fdry_usage u;
	struct fdry_buf reached; /* struct reached */
	uint32_t *slots;         /* place in reached + 1, by the id's first bytes */
	size_t cap;
	uint32_t image;          /* the image that is being walked */
};

static struct reached *reached_at(const struct usage *x, uint32_t slot)
{
	return (struct reached *)(void *)x->reached.data + x->slots[slot] - 1;
}

/* The slot that holds @oid, or the free one where it belongs. */
static size_t slot_of(const struct usage *x, const struct fdry_oid *oid)
{
	size_t i = fdry_get64(oid->b) & (x->cap - 1);

	while (x->slots[i] && !fdry_oid_eq(&reached_at(x, (uint32_t)i)->oid, oid))
		i = (i + 1) & (x->cap - 1);
	return i;
}

static int slots_grow(struct usage *x)
{
	const struct reached *r = (const void *)x->reached.data;
	size_t i, n = x->reached.len / sizeof(*r), cap = x->cap ? x->cap * 2 : SLOTS_MIN;
	uint32_t *slots;

	if (n >= UINT32_MAX / 2)
		return fdry_fail(
			FDRY_E_LIMIT,
			"the store has too many objects to compute the size of each image");
	slots = calloc(cap, sizeof(*slots));
	if (!slots)
		return fdry_nomem();
	free(x->slots);
	x->slots = slots;
	x->cap = cap;
	for (i = 0; i < n; i++)
		x->slots[slot_of(x, &r[i].oid)] = (uint32_t)i + 1;
	return 0;
}

static void sum_add(struct fdry_sum *sum, uint64_t size, uint64_t stored)
{
	sum->objects++;
	sum->bytes += size;
	sum->stored += stored;
}

static void sum_sub(struct fdry_sum *sum, uint64_t size, uint64_t stored)
{
	sum->objects--;
	sum->bytes -= size;
	sum->stored -= stored;
}

static int reached_first(struct usage *x, size_t slot, const struct fdry_oid *oid,
			 const struct fdry_record *rec)
{
	struct reached r = {
		.oid = *oid, .size = rec->size, .stored = rec->stored, .owner = x->image
	};
	int err = fdry_buf_put(&x->reached, &r, sizeof(r));

	if (err)
		return err;
	x->slots[slot] = (uint32_t)(x->reached.len / sizeof(r));
	sum_add(&x->u.images[x->image].unique, r.size, r.stored);
	sum_add(&x->u.reached, r.size, r.stored);
	return 0;
}

static int reached_put(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	struct usage *x = arg;
	struct reached *r;
	size_t slot;
	int err = x->reached.len / sizeof(*r) >= x->cap / 2 ? slots_grow(x) : 0;

	if (err)
		return err;
	if (!rec) {
		x->u.images[x->image].broken = true;
		return 0;
	}
	sum_add(&x->u.images[x->image].all, rec->size, rec->stored);
	slot = slot_of(x, oid);
	if (!x->slots[slot])
		return reached_first(x, slot, oid, rec);
	r = reached_at(x, (uint32_t)slot);
	if (r->owner != SHARED)
		sum_sub(&x->u.images[r->owner].unique, r->size, r->stored);
	r->owner = SHARED;
	return 0;
}

static int usage_walk(struct fdry_store *s, struct usage *x)
{
	struct fdry_idset seen = { 0 };
	struct fdry_txn t;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = fdry_reach(&t, &x->u.images[x->image].oid, &seen, reached_put, x);
	fdry_txn_abort(&t);
	fdry_idset_release(&seen);
	return err;
}

static int image_put(void *arg, const struct fdry_ref *ref)
{
	struct fdry_image_usage image = { .oid = ref->oid };

	return fdry_buf_put(arg, &image, sizeof(image));
}

/* Images that refs name, each once. */
static int images_list(struct fdry_store *s, struct fdry_usage *ret)
{
	struct fdry_image_usage *images;
	struct fdry_buf all = { 0 };
	size_t i, n = 0, count;
	int err = fdry_ref_each(s, image_put, &all);

	if (err) {
		fdry_buf_release(&all);
		return err;
	}
	images = (void *)all.data;
	count = all.len / sizeof(*images);
	if (count)
		qsort(images, count, sizeof(*images), fdry_oid_cmp);
	for (i = 0; i < count; i++)
		if (!i || !fdry_oid_eq(&images[i].oid, &images[n - 1].oid))
			images[n++] = images[i];
	ret->images = images;
	ret->count = n;
	return 0;
}

int fdry_store_usage(struct fdry_store *s, fdry_step_fn step, void *arg, struct fdry_usage *ret)
{
	struct usage x = { 0 };
	int err = images_list(s, &x.u);

	if (err)
		return err;
	for (x.image = 0; x.image < x.u.count && !err; x.image++) {
		err = usage_walk(s, &x);
		if (step)
			step(arg, x.image + 1, x.u.count);
	}
	free(x.slots);
	fdry_buf_release(&x.reached);
	if (err)
		fdry_usage_release(&x.u);
	else
		*ret = x.u;
	return err;
}

void fdry_usage_release(struct fdry_usage *u)
{
	free(u->images);
	*u = (struct fdry_usage){ 0 };
}

const struct fdry_image_usage *fdry_usage_of(const struct fdry_usage *u, const struct fdry_oid *oid)
{
	return u->count ? bsearch(oid, u->images, u->count, sizeof(*u->images), fdry_oid_cmp)
			: NULL;
}
