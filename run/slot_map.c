// SPDX-License-Identifier: Apache-2.0
/* slot_map.c - searches the map from keys to slots, and copies it with a change; see slots.h. */
#include <stdlib.h>

#include "run/slots.h"
#include "lib/err.h"

size_t fdry_slot_map_places(const struct fdry_slot_map *map)
{
	return (size_t)1 << map->bits;
}

/* The first place for a key. Neighbouring keys, such as batch sizes, get places far apart. */
static size_t place_of(const struct fdry_slot_map *map, uint64_t key)
{
	return (size_t)(key * 0x9E3779B97F4A7C15u >> (64 - map->bits));
}

struct fdry_slot_map *fdry_slot_map_new(size_t count)
{
	struct fdry_slot_map *map;
	unsigned int bits = 2;

	while ((size_t)1 << bits < 2 * count)
		bits++;
	map = calloc(1, sizeof(*map) + sizeof(map->places[0]) * ((size_t)1 << bits));
	if (map)
		map->bits = bits;
	return map;
}

struct fdry_slot *fdry_slot_map_find(const struct fdry_slot_map *map, uint64_t key)
{
	size_t i = place_of(map, key), mask = fdry_slot_map_places(map) - 1;

	while (map->places[i] && map->places[i]->key != key)
		i = (i + 1) & mask;
	return map->places[i];
}

static void map_add(struct fdry_slot_map *map, struct fdry_slot *slot)
{
	size_t i = place_of(map, slot->key), mask = fdry_slot_map_places(map) - 1;

	while (map->places[i])
		i = (i + 1) & mask;
	map->places[i] = slot;
	map->count++;
}

int fdry_slot_map_with(const struct fdry_slot_map *map, uint64_t key, struct fdry_slot *slot,
		       struct fdry_slot_map **ret)
{
	struct fdry_slot_map *copy = fdry_slot_map_new(map->count + 1);
	size_t i;

	if (!copy)
		return fdry_nomem();
	for (i = 0; i < fdry_slot_map_places(map); i++)
		if (map->places[i] && map->places[i]->key != key)
			map_add(copy, map->places[i]);
	if (slot)
		map_add(copy, slot);
	*ret = copy;
	return 0;
}
