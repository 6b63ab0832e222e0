// SPDX-License-Identifier: Apache-2.0
/*
 * idset.c - sets of ids in memory: a hash table, and sorted lists.
 *
 * The table uses open addressing and is at most half full. Ids are hashes, so their first bytes
 * select the first slot.
 */
#include <stdlib.h>

#include "store/internal.h"
#include "store/repair.h"

#define CAP_MIN 1024

/* The slot that holds @oid, or the free one where it belongs. */
static size_t slot_of(const struct fdry_idset *set, const struct fdry_oid *oid)
{
	size_t i = fdry_get64(oid->b) & (set->cap - 1);

	while (set->used[i] && !fdry_oid_eq(&set->slots[i], oid))
		i = (i + 1) & (set->cap - 1);
	return i;
}

static int set_grow(struct fdry_idset *set)
{
	struct fdry_idset big = { .cap = set->cap ? set->cap * 2 : CAP_MIN, .count = set->count };
	size_t i, slot;

	big.slots = calloc(big.cap, sizeof(*big.slots));
	big.used = calloc(big.cap, 1);
	if (!big.slots || !big.used) {
		fdry_idset_release(&big);
		return fdry_nomem();
	}
	for (i = 0; i < set->cap; i++) {
		if (!set->used[i])
			continue;
		slot = slot_of(&big, &set->slots[i]);
		big.slots[slot] = set->slots[i];
		big.used[slot] = 1;
	}
	fdry_idset_release(set);
	*set = big;
	return 0;
}

int fdry_idset_add(struct fdry_idset *set, const struct fdry_oid *oid, bool *is_new)
{
	size_t slot;
	int err = set->count >= set->cap / 2 ? set_grow(set) : 0;

	if (err)
		return err;
	slot = slot_of(set, oid);
	if (is_new)
		*is_new = !set->used[slot];
	set->count += !set->used[slot];
	set->slots[slot] = *oid;
	set->used[slot] = 1;
	return 0;
}

int fdry_idset_push(struct fdry_idset *set, const struct fdry_oid *oid, struct fdry_buf *stack)
{
	bool is_new = false;
	int err = fdry_idset_add(set, oid, &is_new);

	return err || !is_new ? err : fdry_buf_put(stack, oid, sizeof(*oid));
}

void fdry_oids_sort(struct fdry_buf *ids)
{
	struct fdry_oid *id = (void *)ids->data;
	size_t i, n = ids->len / sizeof(*id), out = 1;

	if (n < 2)
		return;
	qsort(id, n, sizeof(*id), fdry_oid_cmp);
	for (i = 1; i < n; i++)
		if (!fdry_oid_eq(&id[i], &id[out - 1]))
			id[out++] = id[i];
	ids->len = out * sizeof(*id);
}

bool fdry_idset_has(const struct fdry_idset *set, const struct fdry_oid *oid)
{
	return set->cap && set->used[slot_of(set, oid)];
}

int fdry_idset_list(const struct fdry_idset *set, struct fdry_buf *ret)
{
	size_t i;
	int err = 0;

	for (i = 0; i < set->cap && !err; i++)
		if (set->used[i])
			err = fdry_buf_put(ret, &set->slots[i], sizeof(set->slots[i]));
	return err;
}

void fdry_idset_release(struct fdry_idset *set)
{
	free(set->slots);
	free(set->used);
	*set = (struct fdry_idset){ 0 };
}
