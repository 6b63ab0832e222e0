/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h - a table from numbers other than 0 (addresses, handles) to pointers.
 *
 * The table uses open addressing. It grows and never shrinks. Locking: the owner's.
 */
#ifndef FDRY_LIB_MAP_H
#define FDRY_LIB_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct fdry_map_slot {
	uint64_t key; /* 0: free */
	void *value;
};

/* Zero it to start. */
struct fdry_map {
	struct fdry_map_slot *slots;
	size_t capacity; /* a power of two */
	size_t count;
};

/* Grow for one more entry, so that the next fdry_map_put() cannot fail. FDRY_E_NOMEM. */
int fdry_map_reserve(struct fdry_map *m) __must_check;
/* Add @key, which is neither 0 nor in the table, after fdry_map_reserve(). */
void fdry_map_put(struct fdry_map *m, uint64_t key, void *value);
/* The value of @key; NULL if it is not in the table. */
void *fdry_map_get(const struct fdry_map *m, uint64_t key);
/* The same, and remove it. */
void *fdry_map_take(struct fdry_map *m, uint64_t key);
/* Free the table; the values belong to their owner. */
void fdry_map_release(struct fdry_map *m);

#endif
