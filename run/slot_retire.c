// SPDX-License-Identifier: Apache-2.0
/* slot_retire.c - removes slots from a table, and destroys them when their launches have ended. */
#include "run/slots.h"

#include <stdlib.h>

#include "lib/log.h"

static void slot_free(struct fdry_slot *slot)
{
	struct fdry_slot_stream *s = atomic_load_explicit(&slot->streams, memory_order_relaxed),
				*next;

	for (; s; s = next) {
		next = s->next;
		free(s);
	}
	free(slot);
}

/* Note that a slot was removed from the map. Under the lock. */
static void slot_leaves(struct fdry_slots *t, struct fdry_slot *slot)
{
	slot->left = ++t->left;
	slot->leaving = t->leaving;
	t->leaving = slot;
}

static void slot_gone(struct fdry_slots *t, const struct fdry_slot *slot)
{
	struct fdry_slot **p;

	pthread_mutex_lock(&t->lock);
	for (p = &t->leaving; *p != slot; p = &(*p)->leaving)
		;
	*p = slot->leaving;
	pthread_cond_broadcast(&t->gone);
	pthread_mutex_unlock(&t->lock);
}

/* Whether one of the first @left removed slots still exists, with key *@key, or with any key if
 * @key is NULL. Under the lock. */
static bool is_leaving(const struct fdry_slots *t, uint64_t left, const uint64_t *key)
{
	const struct fdry_slot *s;

	for (s = t->leaving; s; s = s->leaving)
		if (s->left <= left && (!key || s->key == *key))
			return true;
	return false;
}

/* Wait until all slots are destroyed that any thread removed before this call. */
static void leaving_wait(struct fdry_slots *t, const uint64_t *key)
{
	uint64_t left;

	pthread_mutex_lock(&t->lock);
	for (left = t->left; is_leaving(t, left, key);)
		pthread_cond_wait(&t->gone, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

void fdry_slot_retire(struct fdry_slots *t, struct fdry_slot *slot)
{
	CUresult exec = CUDA_SUCCESS, graph = CUDA_SUCCESS;

	fdry_slot_wait(t, slot);
	if (slot->owned & FDRY_SLOTS_OWN_EXEC)
		exec = fdry_call_raw(t->drv, cuGraphExecDestroy, slot->exec);
	if (slot->owned & FDRY_SLOTS_OWN_GRAPH)
		graph = fdry_call_raw(t->drv, cuGraphDestroy, slot->graph);
	if (exec || graph)
		fdry_warn("slot %llu: its graph could not be destroyed (%d, %d)",
			  (unsigned long long)slot->key, (int)exec, (int)graph);
	slot_gone(t, slot);
	slot_free(slot);
}

/* Under the lock. */
static void map_leaves(struct fdry_slots *t, struct fdry_slot_map *map)
{
	size_t i;

	for (i = 0; i < fdry_slot_map_places(map); i++)
		if (map->places[i])
			slot_leaves(t, map->places[i]);
}

static void map_retire(struct fdry_slots *t, struct fdry_slot_map *map)
{
	size_t i;

	for (i = 0; i < fdry_slot_map_places(map); i++)
		if (map->places[i])
			fdry_slot_retire(t, map->places[i]);
	free(map);
}

/* Publish @map, and return the old map when no reader uses it any more. Under the lock. */
static struct fdry_slot_map *map_exchange(struct fdry_slots *t, struct fdry_slot_map *map)
{
	struct fdry_slot_map *old = atomic_exchange(&t->map, map);

	fdry_rcu_wait(&t->readers);
	return old;
}

int fdry_slot_set(struct fdry_slots *t, uint64_t key, struct fdry_slot *slot,
		  struct fdry_slot **old)
{
	struct fdry_slot_map *now = atomic_load(&t->map), *map;
	int err = fdry_slot_map_with(now, key, slot, &map);

	if (err)
		return err;
	*old = fdry_slot_map_find(now, key);
	if (*old)
		slot_leaves(t, *old);
	free(map_exchange(t, map));
	return 0;
}

void fdry_slots_retire(struct fdry_slots *t, struct fdry_slot_map *map)
{
	map_leaves(t, map);
	map_retire(t, map);
}

void fdry_slots_drop(struct fdry_slot_map *map)
{
	size_t i;

	for (i = 0; i < fdry_slot_map_places(map); i++)
		if (map->places[i])
			slot_free(map->places[i]);
	free(map);
}

int fdry_slots_invalidate(struct fdry_slots *t, uint64_t key)
{
	CUstreamCaptureMode mode;
	struct fdry_slot *old = NULL;
	int err = fdry_slots_check_outside(t);

	if (err)
		return err;
	err = fdry_driver_enter(t->drv, t->ctx, &mode);
	if (err)
		return err;
	pthread_mutex_lock(&t->lock);
	if (fdry_slot_map_find(atomic_load(&t->map), key))
		err = fdry_slot_set(t, key, NULL, &old);
	pthread_mutex_unlock(&t->lock);
	if (err)
		goto out_leave;
	if (old)
		fdry_slot_retire(t, old);
	leaving_wait(t, &key);
out_leave:
	fdry_driver_leave(t->drv, &mode);
	return err;
}

int fdry_slots_invalidate_all(struct fdry_slots *t)
{
	CUstreamCaptureMode mode;
	struct fdry_slot_map *old, *empty;
	int err = fdry_slots_check_outside(t);

	if (err)
		return err;
	err = fdry_driver_enter(t->drv, t->ctx, &mode);
	if (err)
		return err;
	empty = fdry_slot_map_new(0);
	if (!empty) {
		err = fdry_nomem();
		goto out_leave;
	}
	pthread_mutex_lock(&t->lock);
	old = map_exchange(t, empty);
	map_leaves(t, old);
	pthread_mutex_unlock(&t->lock);
	map_retire(t, old);
	leaving_wait(t, NULL);
out_leave:
	fdry_driver_leave(t->drv, &mode);
	return err;
}
