// SPDX-License-Identifier: Apache-2.0
/*
 * ledger.c - live allocations; see ledger.h.
 *
 * Each entry is one allocation of host memory. Only adding and copying can fail. So a region adds
 * an entry first, and makes other calls that may fail after that.
 */
#include "mm/ledger.h"

#include <inttypes.h>
#include <stdlib.h>

struct entry {
	struct fdry_range range; /* first: a range of the ledger is an entry */
	struct fdry_alloc alloc;
};

static struct entry *entry_of(struct fdry_range *n)
{
	return (struct entry *)n;
}

int fdry_ledger_add(struct fdry_ledger *l, const struct fdry_alloc *a)
{
	struct fdry_range *next = fdry_ranges_from(&l->entries, a->addr);
	struct entry *e;

	if (next && next->start < a->addr + a->extent)
		return fdry_bug("an allocation of %" PRIu64
				" bytes at %#llx overlaps the live one at %#" PRIx64,
				a->extent, a->addr, next->start);
	e = calloc(1, sizeof(*e));
	if (!e)
		return fdry_nomem();
	e->range.start = a->addr;
	e->range.end = a->addr + a->extent;
	e->alloc = *a;
	e->alloc.serial = ++l->serial;
	l->bytes += a->size;
	fdry_ranges_add(&l->entries, &e->range);
	return 0;
}

/* The entry that starts at @addr, or NULL. */
static struct entry *entry_at(const struct fdry_ledger *l, CUdeviceptr addr)
{
	struct fdry_range *n = fdry_ranges_floor(&l->entries, addr);

	return n && n->start == addr ? entry_of(n) : NULL;
}

void fdry_ledger_del(struct fdry_ledger *l, CUdeviceptr addr)
{
	struct entry *e = entry_at(l, addr);

	fdry_ranges_del(&l->entries, &e->range);
	l->bytes -= e->alloc.size;
	free(e);
}

void fdry_ledger_undo(struct fdry_ledger *l, CUdeviceptr addr)
{
	fdry_ledger_del(l, addr);
	l->serial--;
}

int fdry_ledger_at(const struct fdry_ledger *l, CUdeviceptr addr, struct fdry_alloc *ret)
{
	struct fdry_range *n = fdry_ranges_floor(&l->entries, addr);

	if (!n || n->end <= addr)
		return fdry_fail(FDRY_E_INVAL,
				 "%#llx lies in no live allocation: it was freed before, or is "
				 "not from this region",
				 addr);
	if (n->start != addr)
		return fdry_fail(FDRY_E_INVAL,
				 "%#llx lies %" PRIu64 " bytes into the allocation of %" PRIu64
				 " bytes at %#" PRIx64 "; give that address instead",
				 addr, (uint64_t)(addr - n->start), entry_of(n)->alloc.size,
				 n->start);
	*ret = entry_of(n)->alloc;
	return 0;
}

bool fdry_ledger_find(const struct fdry_ledger *l, CUdeviceptr addr, struct fdry_alloc *ret)
{
	struct fdry_range *n = fdry_ranges_floor(&l->entries, addr);

	if (!n || addr - n->start >= entry_of(n)->alloc.size)
		return false;
	*ret = entry_of(n)->alloc;
	return true;
}

struct fdry_alloc *fdry_ledger_entry(struct fdry_range *n)
{
	return &entry_of(n)->alloc;
}

bool fdry_ledger_last(const struct fdry_ledger *l, struct fdry_alloc *ret)
{
	struct fdry_range *n = fdry_ranges_floor(&l->entries, UINT64_MAX);

	if (n)
		*ret = entry_of(n)->alloc;
	return n;
}

void fdry_ledger_release(struct fdry_ledger *l)
{
	struct fdry_range *n;

	while ((n = l->entries.root)) {
		fdry_ranges_del(&l->entries, n);
		free(entry_of(n));
	}
	*l = (struct fdry_ledger){ 0 };
}

int fdry_alloc_cmp(const void *a, const void *b)
{
	const struct fdry_alloc *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}
