/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions.h - the regions of this process, for region.c, dispatch.c and pinned.c.
 *
 * Locking: see region.c.
 */
#ifndef FDRY_HOOK_REGIONS_H
#define FDRY_HOOK_REGIONS_H

#include <pthread.h>
#include <stdbool.h>

#include "hook/internal.h"

#define FDRY_PLACES_MAX 64

struct fdry_place {
	struct fdry_region *region; /* NULL: the place is free */
	CUdeviceptr base;
	uint64_t size;
	CUdevice dev;
};

struct fdry_regions {
	pthread_rwlock_t lock;
	struct fdry_place places[FDRY_PLACES_MAX];
	unsigned int used;	    /* places in use, atomic */
	struct fdry_place *current; /* the region that has begun, or NULL */
	struct fdry_place *aside;   /* the current region's aside area, or NULL */
	bool paused;		    /* new allocations come from the driver */
	bool use_aside;		    /* new allocations come from the aside area */
	bool pinned;		    /* pinned memory comes from host areas */
	uint64_t begun;		    /* the number of regions that have begun */
	void (*ended)(void);	    /* to be called when a region has ended; may be NULL */
};

extern struct fdry_regions fdry_regions;

/* Whether the driver handles all calls, because there is no region or this is a forked child. */
bool fdry_regions_idle(void);
/* Free ended regions without allocations, but not during a capture, since unmapping would break
 * it. The caller holds no lock. */
void fdry_regions_release_ended(void);

#endif
