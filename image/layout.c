// SPDX-License-Identifier: Apache-2.0
/*
 * layout.c - roles of memory; see layout.h.
 *
 * The ledger is walked in address order. What external tensors cover is external; what
 * remains of an allocation is content, or, if it was made while a stream captured, is
 * looked at block by block. Blocks lie at multiples of their size, so that the same
 * memory gives the same ranges in every process.
 */
#include "image/layout.h"
#include "lib/search.h"

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

	for (i = 0; i < len && i < sizeof(stamp); i++)
		if (bytes[i] != ((const uint8_t *)&stamp)[(addr + i) & 3])
			return false;
	/* Each byte is as the one four before it. */
	return len <= sizeof(stamp) || !memcmp(bytes, bytes + sizeof(stamp), len - sizeof(stamp));
}

static int stamps_look(void *arg, uint64_t addr, const uint8_t *bytes, size_t len)
{
	struct fdry_layout *l = arg;
	size_t n;
	int err;

	for (; len; addr += n, bytes += n, len -= n) {
		n = FDRY_LAYOUT_BLOCK - addr % FDRY_LAYOUT_BLOCK;
		if (n > len)
			n = len;
		err = range_add(l, addr, n,
				stamped(bytes, n, addr) ? FDRY_ROLE_SCRATCH : FDRY_ROLE_CONTENT);
		if (err)
			return err;
	}
	return 0;
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
	int err;

	for (i = 0; i < fdry_array_count(cap->tensors, struct fdry_capture_tensor); i++) {
		struct external e = { t[i].desc.addr, t[i].desc.addr + t[i].extent };

		if (!(t[i].desc.flags & FDRY_TENSOR_EXTERNAL) ||
		    t[i].desc.flags & FDRY_TENSOR_HOST || !t[i].extent)
			continue;
		err = fdry_buf_put(ret, &e, sizeof(e));
		if (err)
			return err;
	}
	if (ret->len)
		qsort(ret->data, fdry_array_count(*ret, struct external), sizeof(struct external),
		      external_cmp);
	return 0;
}

static int own_add(struct fdry_layout *l, struct fdry_mem_reader *reader,
		   const struct fdry_alloc *a, uint64_t addr, uint64_t end)
{
	if (addr >= end)
		return 0;
	if (!a->capturing)
		return range_add(l, addr, end - addr, FDRY_ROLE_CONTENT);
	return fdry_mem_read(reader, addr, end - addr, stamps_look, l);
}

static int alloc_add(struct fdry_layout *l, struct fdry_mem_reader *reader,
		     const struct fdry_alloc *a, const struct fdry_buf *externals)
{
	const struct external *e = fdry_array(*externals, struct external);
	uint64_t at = a->addr, end = a->addr + a->extent, to;
	size_t i;
	int err;

	for (i = 0; i < fdry_array_count(*externals, struct external); i++) {
		if (e[i].end <= at || e[i].addr >= end)
			continue;
		err = own_add(l, reader, a, at, e[i].addr);
		if (err)
			return err;
		to = e[i].end < end ? e[i].end : end;
		if (e[i].addr > at)
			at = e[i].addr;
		err = range_add(l, at, to - at, FDRY_ROLE_EXTERNAL);
		if (err)
			return err;
		at = to;
	}
	return own_add(l, reader, a, at, end);
}

/* The bounds of the region and a copy of its ledger. */
static int ledger_get(const struct fdry_capture *cap, struct fdry_layout *ret)
{
	const struct fdry_alloc *last;
	CUdeviceptr base = 0;
	uint64_t offset = 0;
	int err;

	err = fdry_interposer_result(cap->hook, cap->hook->region_offset(&offset));
	if (err)
		return err;
	err = fdry_interposer_result(
		cap->hook,
		cap->hook->region_ledger(&base, &ret->size, &ret->ledger, &ret->n_ledger));
	if (err)
		return err;
	ret->base = ret->end = base;
	ret->used = base + (offset > cap->highest ? offset : cap->highest);
	last = ret->n_ledger ? &ret->ledger[ret->n_ledger - 1] : NULL;
	/* Memory that the program maps may lie behind the cursor. */
	if (last && last->addr + last->extent > ret->used)
		ret->used = last->addr + last->extent;
	return 0;
}

int fdry_layout_make(struct fdry_capture *cap, struct fdry_mem_reader *reader,
		     struct fdry_layout *ret)
{
	struct fdry_layout l = { 0 };
	struct fdry_buf externals = { 0 };
	size_t i;
	int err;

	err = ledger_get(cap, &l);
	if (err)
		return err;
	err = externals_make(cap, &externals);
	if (err)
		goto out_layout;
	for (i = 0; i < l.n_ledger; i++) {
		if (l.ledger[i].kind == FDRY_KIND_SHARED)
			continue; /* the seal refuses a graph that uses it */
		err = alloc_add(&l, reader, &l.ledger[i], &externals);
		if (err)
			goto out_layout;
		l.end = l.ledger[i].addr + l.ledger[i].extent;
	}
	*ret = l;
	goto out_externals;
out_layout:
	fdry_layout_release(&l);
out_externals:
	fdry_buf_release(&externals);
	return err;
}

void fdry_layout_release(struct fdry_layout *l)
{
	free(l->ledger);
	fdry_buf_release(&l->ranges);
	memset(l, 0, sizeof(*l));
}

int fdry_layout_still(const struct fdry_layout *l, const struct fdry_capture *cap)
{
	struct fdry_layout now = { 0 };
	size_t i = 0;
	int err;

	err = ledger_get(cap, &now);
	if (err)
		return err;
	while (i < l->n_ledger && i < now.n_ledger && l->ledger[i].serial == now.ledger[i].serial)
		i++;
	if (l->n_ledger != now.n_ledger || i < l->n_ledger || l->used != now.used)
		err = fdry_fail(FDRY_E_STATE,
				"device memory was allocated or freed while the seal ran; "
				"let the program's other threads wait for it");
	fdry_layout_release(&now);
	return err;
}

/* The last allocation that begins at or below @addr; NULL if there is none. */
static const struct fdry_alloc *alloc_below(const struct fdry_layout *l, uint64_t addr)
{
	size_t lo = fdry_lower_bound(i, l->n_ledger, l->ledger[i].addr <= addr);
	return lo ? &l->ledger[lo - 1] : NULL;
}

const struct fdry_alloc *fdry_layout_find(const struct fdry_layout *l, uint64_t addr)
{
	const struct fdry_alloc *a = alloc_below(l, addr);

	return a && addr - a->addr < a->extent && a->kind != FDRY_KIND_SHARED ? a : NULL;
}

bool fdry_layout_holds(const struct fdry_layout *l, uint64_t addr, uint64_t bytes)
{
	const struct fdry_alloc *a = alloc_below(l, addr);
	uint64_t left;

	for (; a && a < l->ledger + l->n_ledger; a++) {
		if (addr < a->addr || addr - a->addr >= a->extent || a->kind == FDRY_KIND_SHARED)
			return false;
		left = a->extent - (addr - a->addr);
		if (bytes <= left)
			return true;
		addr += left;
		bytes -= left;
	}
	return false;
}

bool fdry_layout_shared(const struct fdry_layout *l, uint64_t addr)
{
	const struct fdry_alloc *a = alloc_below(l, addr);

	return a && a->kind == FDRY_KIND_SHARED && addr - a->addr < a->extent;
}

/* Was memory between @a and the next live allocation handed out, and freed? */
static bool freed_behind(const struct fdry_layout *l, const struct fdry_alloc *a)
{
	if (a + 1 == l->ledger + l->n_ledger)
		return l->used > a->addr + a->extent;
	return a[1].serial != a->serial + 1;
}

bool fdry_layout_points(const struct fdry_layout *l, uint64_t addr)
{
	const struct fdry_alloc *a = alloc_below(l, addr);

	if (!a || addr - a->addr > a->extent || a->kind == FDRY_KIND_SHARED)
		return false;
	return addr - a->addr < a->extent || !freed_behind(l, a);
}
