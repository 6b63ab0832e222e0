/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h - a table from numbers that are not 0 (addresses, handles) to pointers.
 *
 * Open addressing; it grows, and never shrinks. No locking: its owner's.
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

/* Make capacity for one more, so that the next fdry_map_put() cannot fail. FDRY_E_NOMEM. */
int fdry_map_reserve(struct fdry_map *m) __must_check;
/* Behind fdry_map_reserve(); @key is not in it, nor 0. */
void fdry_map_put(struct fdry_map *m, uint64_t key, void *value);
/* NULL where it is not there. */
void *fdry_map_get(const struct fdry_map *m, uint64_t key);
/* The same, and it is no longer there. */
void *fdry_map_take(struct fdry_map *m, uint64_t key);
/* The table goes, the values are their owner's. */
void fdry_map_release(struct fdry_map *m);

#endif
