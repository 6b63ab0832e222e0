// SPDX-License-Identifier: Apache-2.0
/*
 * handle.c - the table of handles, which are numbers.
 *
 * A process uses a number once, except for streams, arrays and graphs. A new stream gets the number
 * of the last destroyed one, whose work may still run (as in driver 580; tests/gpu/run.c). So does
 * a new array: a driver may do that, and nodes of graphs have only the handle. So does a new graph:
 * a driver may do that, too. A number is a multiple of 16, like an aligned pointer, and larger than
 * any small integer or flag. The table is open-addressed by number; a closed handle leaves a mark,
 * which growing the table clears.
 */
#include "arch/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define ID_FIRST 0x51000000000u
#define ID_STEP 16u
#define GONE ((struct sim_obj *)-1)

static struct {
	struct sim_obj **slots;
	size_t capacity; /* a power of two */
	size_t used; /* objects and marks */
} table;
static uint64_t next_id = ID_FIRST;
static uint64_t spare[SIM_TYPE_COUNT]; /* of streams, arrays and graphs; 0: none */
static unsigned long counts[SIM_TYPE_COUNT];

static size_t slot_of(uint64_t id)
{
	return (size_t)(id / ID_STEP * 0x9e3779b97f4a7c15u >> 20) & (table.capacity - 1);
}

static void table_put(struct sim_obj *obj)
{
	size_t i = slot_of(obj->id);

	while (table.slots[i])
		i = (i + 1) & (table.capacity - 1);
	table.slots[i] = obj;
	table.used++;
}

/* Grow the table so that it is at most half full with one more entry. */
static bool table_grow(void)
{
	struct sim_obj **old = table.slots;
	size_t i, old_capacity = table.capacity, live = 0;

	if (old && table.used < table.capacity / 2)
		return true;
	for (i = 0; i < SIM_TYPE_COUNT; i++)
		live += counts[i];
	table.capacity = 1024;
	while (table.capacity < 4 * live)
		table.capacity *= 2;
	table.slots = calloc(table.capacity, sizeof(*table.slots));
	if (!table.slots) {
		table.slots = old;
		table.capacity = old_capacity;
		return false;
	}
	table.used = 0;
	for (i = 0; i < old_capacity; i++)
		if (old[i] && old[i] != GONE)
			table_put(old[i]);
	free(old);
	return true;
}

static struct sim_obj **table_find(uint64_t id)
{
	size_t i;

	if (!table.slots || id < ID_FIRST || id >= next_id)
		return NULL;
	for (i = slot_of(id); table.slots[i]; i = (i + 1) & (table.capacity - 1))
		if (table.slots[i] != GONE && table.slots[i]->id == id)
			return &table.slots[i];
	return NULL;
}

static uint64_t id_new(enum sim_type type)
{
	uint64_t id = next_id;

	if (spare[type]) {
		id = spare[type];
		spare[type] = 0;
	} else {
		next_id += ID_STEP;
	}
	return id;
}

CUresult sim_obj_open(struct sim_obj *obj, enum sim_type type, void (*release)(struct sim_obj *))
{
	if (!table_grow())
		return CUDA_ERROR_OUT_OF_MEMORY;
	obj->type = type;
	obj->refs = 1;
	obj->release = release;
	obj->id = id_new(type);
	table_put(obj);
	counts[type]++;
	return CUDA_SUCCESS;
}

void sim_obj_close(struct sim_obj *obj)
{
	struct sim_obj **slot = table_find(obj->id);

	if (!slot)
		return;
	*slot = GONE;
	counts[obj->type]--;
	if (obj->type == SIM_STREAM || obj->type == SIM_ARRAY || obj->type == SIM_GRAPH)
		spare[obj->type] = obj->id;
	obj->id = 0;
	sim_obj_put(obj);
}

struct sim_obj *sim_obj_get(struct sim_obj *obj)
{
	obj->refs++;
	return obj;
}

void sim_obj_put(struct sim_obj *obj)
{
	if (!obj || --obj->refs)
		return;
	if (obj->release)
		obj->release(obj);
	else
		free(obj);
}

void *sim_obj_find(uint64_t id, enum sim_type type)
{
	struct sim_obj **slot = table_find(id);

	return slot && (*slot)->type == type ? *slot : NULL;
}

unsigned long sim_obj_count(enum sim_type type)
{
	return counts[type];
}
