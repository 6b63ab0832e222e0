/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep_list.h - what was not marked, in an order in which it can go.
 */
#ifndef FDRY_STORE_SWEEP_LIST_H
#define FDRY_STORE_SWEEP_LIST_H

#include "store/mark.h"

struct fdry_sweep_entry {
	struct fdry_oid oid;
	uint32_t kinds;  /* 0: bytes without a record */
	uint32_t nlinks;
	uint32_t level;  /* what links to it has a lower one */
	uint32_t parents; /* while levels are found: those that have none yet */
	uint64_t size, stored;
};

/* Zero it to start. */
struct fdry_sweep_list {
	struct fdry_buf entries; /* struct fdry_sweep_entry each */
	uint64_t live;        /* objects that were marked */
};

/*
 * Everything that @m has not marked, ordered by level and, within one, by id. @tick as for fdry_mark_update().
 * FDRY_E_CORRUPT where the table does not hold what its root counts: what was lost may be what kept the rest alive.
 */
int fdry_sweep_list_fill(struct fdry_sweep_list *d, struct fdry_mark *m, int (*tick)(void *arg), void *arg) __must_check;

/* --- gc.c --- */

/* For tests: so many objects are deleted in one transaction, and nobody waits between two. 0: as many as there is time for. */
extern unsigned int fdry_sweep_objects_max;

#endif
