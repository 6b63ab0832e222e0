// SPDX-License-Identifier: Apache-2.0
/*
 * map.c - see map.h.
 *
 * At most three quarters of the slots are in use, so every probe ends. When an entry is removed,
 * entries behind it move up, so the table needs no markers for removed ones.
 */
#include "lib/map.h"

#include <stdlib.h>

static size_t home(const struct fdry_map *m, uint64_t key)
{
	return (size_t)((key * 0x9e3779b97f4a7c15ull) >> 20) & (m->capacity - 1);
}

/* The slot that has @key, or that it would get. */
static size_t find(const struct fdry_map *m, uint64_t key)
{
	size_t i = home(m, key);

	while (m->slots[i].key && m->slots[i].key != key)
		i = (i + 1) & (m->capacity - 1);
	return i;
}

int fdry_map_reserve(struct fdry_map *m)
{
	struct fdry_map more = { .capacity = m->capacity ? 2 * m->capacity : 64 };
	size_t i;

	if (m->capacity && m->count + 1 <= m->capacity / 4 * 3)
		return 0;
	more.slots = calloc(more.capacity, sizeof(*more.slots));
	if (!more.slots)
		return fdry_nomem();
	for (i = 0; i < m->capacity; i++)
		if (m->slots[i].key)
			fdry_map_put(&more, m->slots[i].key, m->slots[i].value);
	free(m->slots);
	*m = more;
	return 0;
}

void fdry_map_put(struct fdry_map *m, uint64_t key, void *value)
{
	m->slots[find(m, key)] = (struct fdry_map_slot){ key, value };
	m->count++;
}

void *fdry_map_get(const struct fdry_map *m, uint64_t key)
{
	return m->capacity && key ? m->slots[find(m, key)].value : NULL;
}

/* An entry at @i may move to the free slot @hole only if @hole lies between its home and @i. */
static int may_fill(const struct fdry_map *m, size_t hole, size_t i)
{
	size_t from = home(m, m->slots[i].key);

	return ((i - from) & (m->capacity - 1)) >= ((i - hole) & (m->capacity - 1));
}

void *fdry_map_take(struct fdry_map *m, uint64_t key)
{
	size_t hole, i;
	void *value;

	if (!m->capacity || !key)
		return NULL;
	hole = find(m, key);
	value = m->slots[hole].value;
	if (!m->slots[hole].key)
		return NULL;
	for (i = (hole + 1) & (m->capacity - 1); m->slots[i].key; i = (i + 1) & (m->capacity - 1))
		if (may_fill(m, hole, i)) {
			m->slots[hole] = m->slots[i];
			hole = i;
		}
	m->slots[hole] = (struct fdry_map_slot){ 0, NULL };
	m->count--;
	return value;
}

void fdry_map_release(struct fdry_map *m)
{
	free(m->slots);
	*m = (struct fdry_map){ .slots = NULL };
}
