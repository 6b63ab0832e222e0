// SPDX-License-Identifier: Apache-2.0
/*
 * layout.c - roles of memory; see layout.h.
 *
 * The ledger is walked in address order. What external tensors cover is external; what
 * remains of an allocation is content, or, if it was made while a stream captured, is
 * looked at block by block. Blocks lie at multiples of their size, so that the same
 * memory gives the same ranges in every process.
 */
#include "api/layout.h"

#include <stdlib.h>
#include <string.h>

static int range_add(struct fdry_layout *l, uint64_t addr, uint64_t size, enum fdry_role role)
{
	struct fdry_layout_range add = { addr, size, role }, *last;
	size_t n = fdry_array_count(l->ranges, struct fdry_layout_range);

	if (!size)
		return 0;
	if (n) {
		last = &fdry_array(l->ranges, struct fdry_layout_range)[n - 1];
		if (last->role == role && last->addr + last->size == addr) {
			last->size += size;
			return 0;
		}
	}
	return fdry_buf_put(&l->ranges, &add, sizeof(add));
}

static bool stamped(const uint8_t *bytes, size_t len, uint64_t addr)
{
	const uint32_t stamp = FDRY_STAMP;
	size_t i;

	for (i = 0; i < len; i++)
		if (bytes[i] != ((const uint8_t *)&stamp)[(addr + i) & 3])
			return false;
	return true;
}

static int stamps_look(void *arg, uint64_t addr, const uint8_t *bytes, size_t len)
{
	struct fdry_layout *l = arg;
	size_t n;
	int err = 0;

	for (; len && !err; addr += n, bytes += n, len -= n) {
		n = FDRY_LAYOUT_BLOCK - addr % FDRY_LAYOUT_BLOCK;
		if (n > len)
			n = len;
		err = range_add(l, addr, n, stamped(bytes, n, addr) ? FDRY_ROLE_SCRATCH : FDRY_ROLE_CONTENT);
	}
	return err;
}

/* External ranges, ascending; overlapping ones are the caller's right (a tensor and its view). */
struct external {
	uint64_t addr, end;
};

static int external_cmp(const void *a, const void *b)
{
	const struct external *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

static int externals_make(struct fdry_capture *cap, struct fdry_buf *ret)
{
	const struct fdry_capture_tensor *t = fdry_array(cap->tensors, struct fdry_capture_tensor);
	size_t i;
	int err = 0;

	for (i = 0; i < fdry_array_count(cap->tensors, struct fdry_capture_tensor) && !err; i++) {
		struct external e = { t[i].desc.addr, t[i].desc.addr + t[i].extent };

		if (t[i].desc.flags & FDRY_TENSOR_EXTERNAL && t[i].extent)
			err = fdry_buf_put(ret, &e, sizeof(e));
	}
	if (!err && ret->len)
		qsort(ret->data, fdry_array_count(*ret, struct external), sizeof(struct external), external_cmp);
	return err;
}

static int own_add(struct fdry_layout *l, struct fdry_mem_reader *reader, const struct fdry_alloc *a, uint64_t addr, uint64_t end)
{
	if (addr >= end)
		return 0;
	if (!a->capturing)
		return range_add(l, addr, end - addr, FDRY_ROLE_CONTENT);
	return fdry_mem_read(reader, addr, end - addr, stamps_look, l);
}

static int alloc_add(struct fdry_layout *l, struct fdry_mem_reader *reader, const struct fdry_alloc *a, const struct fdry_buf *externals)
{
	const struct external *e = fdry_array(*externals, struct external);
	uint64_t at = a->addr, end = a->addr + a->room, to;
	size_t i;
	int err = 0;

	for (i = 0; i < fdry_array_count(*externals, struct external) && !err; i++) {
		if (e[i].end <= at || e[i].addr >= end)
			continue;
		err = own_add(l, reader, a, at, e[i].addr);
		to = e[i].end < end ? e[i].end : end;
		if (e[i].addr > at)
			at = e[i].addr;
		if (!err)
			err = range_add(l, at, to - at, FDRY_ROLE_EXTERNAL);
		at = to;
	}
	return err ? err : own_add(l, reader, a, at, end);
}

int fdry_layout_make(struct fdry_capture *cap, struct fdry_mem_reader *reader, struct fdry_layout *ret)
{
	struct fdry_layout l = { 0 };
	struct fdry_buf externals = { 0 };
	CUdeviceptr base;
	size_t i;
	int err;

	err = fdry_standin_result(cap->hook, cap->hook->region_ledger(&base, &l.size, &l.ledger, &l.n_ledger));
	if (err)
		return err;
	l.base = l.end = base;
	err = externals_make(cap, &externals);
	for (i = 0; i < l.n_ledger && !err; i++) {
		err = alloc_add(&l, reader, &l.ledger[i], &externals);
		l.end = l.ledger[i].addr + l.ledger[i].room;
	}
	fdry_buf_release(&externals);
	if (err) {
		fdry_layout_release(&l);
		return err;
	}
	*ret = l;
	return 0;
}

void fdry_layout_release(struct fdry_layout *l)
{
	free(l->ledger);
	fdry_buf_release(&l->ranges);
	memset(l, 0, sizeof(*l));
}

const struct fdry_alloc *fdry_layout_find(const struct fdry_layout *l, uint64_t addr)
{
	size_t lo = 0, hi = l->n_ledger, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (l->ledger[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	/* The one past the end of an allocation is a pointer into it, as in C. */
	return lo && addr - l->ledger[lo - 1].addr <= l->ledger[lo - 1].room ? &l->ledger[lo - 1] : NULL;
}
