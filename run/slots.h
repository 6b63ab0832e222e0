/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.h - a table of executable graphs by key; foundry/run/slots.h explains its use.
 *
 * Replays read a map that never changes. A writer makes a new map, publishes it, waits until no
 * reader can use the old one (rcu.h), and frees the old one. So a replay takes no lock, and its
 * graph is not destroyed during the launch. Writers hold @lock while they change the map, but not
 * while they wait for the device. A slot that was removed from the map belongs to its writer alone.
 * It stays listed until its launches have ended, so that other threads can wait for that.
 */
#ifndef FDRY_RUN_SLOTS_H
#define FDRY_RUN_SLOTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "foundry/run.h"
#include "run/profile.h"
#include "run/rcu.h"
#include "arch/driver.h"

/* A stream on which a slot was launched; never removed from its list. */
struct fdry_slot_stream {
	struct fdry_slot_stream *next;
	CUstream stream;    /* only compared: it may be destroyed, and its handle reused */
	const void *thread; /* for CU_STREAM_PER_THREAD; only compared */
	CUevent done;       /* recorded after the last launch */
	atomic_bool lost;   /* recording after a launch failed */
};

struct fdry_slot {
	uint64_t key;
	CUgraph graph;          /* NULL unless FDRY_SLOTS_OWN_GRAPH */
	CUgraphExec exec;       /* NULL for a graph of an image */
	uint32_t owned;         /* of enum fdry_slots_flags */
	struct fdry_image *img; /* or NULL */
	uint64_t img_key;
	_Atomic(struct fdry_slot_stream *) streams; /* each is added before its first launch */
	struct fdry_slot *leaving; /* the next removed slot; under the table's lock */
	uint64_t left;             /* its number among the removed slots, which count from 1 */
};

/* Never changes after publication. Linear probing; at most half full. */
struct fdry_slot_map {
	unsigned int bits; /* 1 << bits places */
	size_t count;
	struct fdry_slot *places[]; /* NULL: empty */
};

struct fdry_slots {
	struct fdry_rcu readers;
	_Atomic(struct fdry_slot_map *) map;
	_Atomic(struct fdry_profile *) profile; /* NULL: off */
	const struct fdry_driver *drv;
	CUcontext ctx;
	CUdevice device;
	bool retained; /* @ctx is the primary context */
	bool upload;   /* before each launch */
	bool sync;     /* after each launch */
	unsigned int forks;
	pthread_mutex_t lock;
	pthread_cond_t gone;       /* a slot was removed from @leaving */
	struct fdry_slot *leaving; /* removed from the map, perhaps in flight */
	uint64_t left;             /* number of slots that were ever removed */
};

/* --- slot_map.c --- */

/* A map without slots, with places for @count; NULL if there is no memory. */
struct fdry_slot_map *fdry_slot_map_new(size_t count);
size_t fdry_slot_map_places(const struct fdry_slot_map *map);
/* Find a slot; NULL if there is none. The caller must be a reader. */
struct fdry_slot *fdry_slot_map_find(const struct fdry_slot_map *map, uint64_t key);
/* Copy @map without @key, and with @slot, which has that key and may be NULL. */
int fdry_slot_map_with(const struct fdry_slot_map *map, uint64_t key, struct fdry_slot *slot,
		       struct fdry_slot_map **ret) __must_check;

/* --- slot_retire.c --- */

/*
 * fdry_slot_set() - Publish a map in which @slot has @key, or in which no slot has it (@slot NULL).
 * @old: gets the slot that had the key, or NULL. The caller retires it, without the lock.
 *
 * Locking: the caller holds the table's lock.
 */
int fdry_slot_set(struct fdry_slots *t, uint64_t key, struct fdry_slot *slot,
		  struct fdry_slot **old) __must_check;
/* Wait for the launches of a slot that was removed from the map, destroy the graphs that it owns,
 * and free it. The table's context must be current. */
void fdry_slot_retire(struct fdry_slots *t, struct fdry_slot *slot);
/* Do that for all slots of a table that no other thread uses, and free its map. */
void fdry_slots_retire(struct fdry_slots *t, struct fdry_slot_map *map);
/* Free the memory of a map and its slots, and leave their graphs alone: for a forked child. */
void fdry_slots_drop(struct fdry_slot_map *map);

/* --- replay.c --- */

/* The first check of every function: FDRY_E_INVAL for NULL, FDRY_E_FORKED in a child of the process
 * that made the table. */
int fdry_slots_check(const struct fdry_slots *t) __must_check;
/* The first check of functions that wait until no replay runs. FDRY_E_STATE inside a replay. */
int fdry_slots_check_outside(const struct fdry_slots *t) __must_check;
/* How often this process and its ancestors have forked since the first call. */
unsigned int fdry_slots_forks(void);

/* Wait for the slot's launches, and destroy their events. No other thread may use @slot. The
 * table's context must be current. */
void fdry_slot_wait(const struct fdry_slots *t, struct fdry_slot *slot);

#endif
