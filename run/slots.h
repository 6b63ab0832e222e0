/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.h - a table of executable graphs by key; foundry/run/slots.h says what it is for.
 *
 * What replays read is a map that never changes: a writer makes another one, publishes it, waits until
 * no reader can hold the old one (readers.h), and frees that. So a replay takes no lock, and what it
 * launches is not destroyed under it. Writers take @lock to change the map, not while they wait for the
 * device. A slot that is out of the map is its writer's alone, and listed until its launches have ended, so that
 * others who find it gone can wait for that.
 */
#ifndef FDRY_RUN_SLOTS_H
#define FDRY_RUN_SLOTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "foundry/run.h"
#include "run/profile.h"
#include "run/readers.h"
#include "arch/driver.h"

/* A stream that a slot was launched on; never taken out of its list. */
struct fdry_slot_stream {
	struct fdry_slot_stream *next;
	CUstream stream;    /* to be compared only: it may be gone, and another one have its handle */
	const void *thread; /* of CU_STREAM_PER_THREAD: whose; compared only */
	CUevent done;       /* recorded behind the last launch */
	atomic_bool lost;   /* a launch could not be marked */
};

struct fdry_slot {
	uint64_t key;
	CUgraph graph;          /* NULL unless FDRY_SLOTS_OWN_GRAPH */
	CUgraphExec exec;       /* NULL for a graph of an image */
	uint32_t owned;         /* of enum fdry_slots_flags */
	struct fdry_image *img; /* or NULL */
	uint64_t img_key;
	_Atomic(struct fdry_slot_stream *) streams; /* noted before the first launch there */
	struct fdry_slot *leaving; /* the next that is out of the map; with the table's lock */
	uint64_t left;             /* how many were out of it before, and this one */
};

/* Never changed once published. By linear probing; at most half full. */
struct fdry_slot_map {
	unsigned int bits; /* 1 << bits places */
	size_t count;
	struct fdry_slot *places[]; /* NULL: nothing there */
};

struct fdry_slots {
	struct fdry_readers readers;
	_Atomic(struct fdry_slot_map *) map;
	_Atomic(struct fdry_profile *) profile; /* NULL: off */
	const struct fdry_driver *drv;
	CUcontext ctx;
	CUdevice device;
	bool retained; /* @ctx is the primary one */
	bool upload;   /* before each launch */
	bool sync;     /* after each launch */
	unsigned int forks;
	pthread_mutex_t lock;
	pthread_cond_t gone;       /* a slot is out of @leaving */
	struct fdry_slot *leaving; /* out of the map, and perhaps in flight */
	uint64_t left;             /* slots that were ever put there */
};

/* First of all in every function: FDRY_E_INVAL for NULL, FDRY_E_FORKED in a child of the process that made it. */
int fdry_slots_check(const struct fdry_slots *t) __must_check;
/* The same for what waits until no replay goes on: FDRY_E_STATE from inside of one. */
int fdry_slots_check_outside(const struct fdry_slots *t) __must_check;

/* Among the readers. NULL where there is none. */
struct fdry_slot *fdry_slot_map_find(const struct fdry_slot_map *map, uint64_t key);
/* A copy of @map without @key, and with @slot (may be NULL), whose key that is. */
int fdry_slot_map_with(const struct fdry_slot_map *map, uint64_t key, struct fdry_slot *slot, struct fdry_slot_map **ret) __must_check;
struct fdry_slot_map *fdry_slot_map_new(size_t count);

/* --- replay.c --- */

/* Note that @slot will be launched on @stream; among the readers, in the table's context. */
int fdry_slot_note(const struct fdry_slots *t, struct fdry_slot *slot, CUstream stream, struct fdry_slot_stream **ret) __must_check;
/* Wait for its launches, and destroy their events; nobody else has @slot, and the table's context is current. */
void fdry_slot_wait(const struct fdry_slots *t, struct fdry_slot *slot);
/* Whether this thread is in a function that a replay has called. */
bool fdry_slots_inside(void);

#endif
