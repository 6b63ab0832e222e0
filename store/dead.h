/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dead.h - what was not marked, in an order in which it can go.
 */
#ifndef FDRY_STORE_DEAD_H
#define FDRY_STORE_DEAD_H

#include "store/mark.h"

struct fdry_dead {
	struct fdry_oid oid;
	uint32_t kinds;  /* 0: bytes without a record */
	uint32_t nlinks;
	uint32_t level;  /* what links to it has a lower one */
	uint32_t parents; /* while levels are found: those that have none yet */
	uint64_t size, stored;
};

/* Zero it to start. */
struct fdry_deads {
	struct fdry_buf list; /* struct fdry_dead each */
	uint64_t live;        /* objects that were marked */
};

/*
 * Everything that @m has not marked, ordered by level and, within one, by id. @tick as for fdry_mark_update().
 * FDRY_E_CORRUPT where the table does not hold what its root counts: what was lost may be what kept the rest alive.
 */
int fdry_deads_list(struct fdry_deads *d, struct fdry_mark *m, int (*tick)(void *arg), void *arg) __must_check;

/* --- gc.c --- */

/* For tests: so many objects are deleted in one transaction, and nobody waits between two. 0: as many as there is time for. */
extern unsigned int fdry_sweep_objects_max;

#endif
