/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h - every live allocation of a region, found by address in O(log n).
 *
 * Serial numbers count every allocation ever made, including freed ones, so two processes that made
 * the same calls agree on them. An allocation that fails uses no number: fdry_ledger_undo() takes
 * the number back.
 *
 * Locking: the region's.
 */
#ifndef FDRY_MM_LEDGER_H
#define FDRY_MM_LEDGER_H

#include "mm/range.h"
#include "mm/region.h"

/* Zero it to start; fdry_ledger_release() at the end. */
struct fdry_ledger {
	struct fdry_ranges entries; /* by extent, so that entries may touch but not overlap */
	uint64_t serial;            /* of the last allocation */
	uint64_t bytes;             /* as requested, of live allocations */
};

/* Note the next allocation: a's addr, size, extent and capturing; its serial is set here.
 * FDRY_E_NOMEM; FDRY_E_BUG if it overlaps a live one. */
int fdry_ledger_add(struct fdry_ledger *l, const struct fdry_alloc *a) __must_check;
/* Remove the allocation at @addr as if it had never been made. It must be the last one that was
 * added. */
void fdry_ledger_undo(struct fdry_ledger *l, CUdeviceptr addr);

/* The allocation that starts at @addr. FDRY_E_INVAL names the allocation that holds @addr, if any.
 */
int fdry_ledger_at(const struct fdry_ledger *l, CUdeviceptr addr,
		   struct fdry_alloc *ret) __must_check;
/* Remove the allocation that starts at @addr; it must exist. */
void fdry_ledger_del(struct fdry_ledger *l, CUdeviceptr addr);

/* The allocation that has @addr among its requested bytes. */
bool fdry_ledger_find(const struct fdry_ledger *l, CUdeviceptr addr, struct fdry_alloc *ret);
/* The live allocation with the highest address. */
bool fdry_ledger_last(const struct fdry_ledger *l, struct fdry_alloc *ret);

/* The allocation behind a range of @l->entries. */
struct fdry_alloc *fdry_ledger_entry(struct fdry_range *n);

void fdry_ledger_release(struct fdry_ledger *l);

/* Compare the addresses of two struct fdry_alloc, as qsort() asks for. */
int fdry_alloc_cmp(const void *a, const void *b);

#endif
