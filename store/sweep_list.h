/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep_list.h - objects that were not marked, in the order in which they can be deleted.
 */
#ifndef FDRY_STORE_SWEEP_LIST_H
#define FDRY_STORE_SWEEP_LIST_H

#include "store/mark.h"

struct fdry_sweep_entry {
	struct fdry_oid oid;
	uint32_t kinds;  /* 0: bytes without a record */
	uint32_t nlinks;
	uint32_t level;  /* objects that link to it have a lower one */
	uint32_t parents; /* while levels are computed: parents without a level */
	uint64_t size, stored;
};

/* Zero it to start. */
struct fdry_sweep_list {
	struct fdry_buf entries; /* struct fdry_sweep_entry each */
	uint64_t live;        /* objects that were marked */
};

/*
 * List all objects that @m has not marked, ordered by level, then by id. @tick: as for
 * fdry_mark_update(). FDRY_E_CORRUPT if the table does not hold as many entries as its root counts:
 * a lost object may have kept others alive.
 */
int fdry_sweep_list_fill(struct fdry_sweep_list *d, struct fdry_mark *m, int (*tick)(void *arg),
			 void *arg) __must_check;

#endif
