// SPDX-License-Identifier: Apache-2.0
/*
 * layout.c - finds the role of each byte of memory; see layout.h.
 *
 * The ledger is walked in the order of addresses. Memory of external tensors is external. The rest
 * of an allocation is content, unless it was allocated while a stream captured. Then each of its
 * blocks is content or scratch: it is scratch if it still has its stamp. Blocks lie at multiples of
 * their size, so the same memory gives the same ranges in every process.
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

bool fdry_layout_stamped(const uint8_t *bytes, size_t len, uint64_t addr)
{
	const uint32_t stamp = FDRY_STAMP;
	size_t i;

	for (i = 0; i < len && i < sizeof(stamp); i++)
		if (bytes[i] != ((const uint8_t *)&stamp)[(addr + i) & 3])
			return false;
	/* Compare each byte with the one four bytes before it. */
	return len <= sizeof(stamp) || !memcmp(bytes, bytes + sizeof(stamp), len - sizeof(stamp));
}

/*
 * --- finding blocks that still have their stamp ---
 *
 * Memory is checked in pieces, which end at multiples of FDRY_MEM_READ_PIECE. The capture remembers
 * the result for each piece. A seal reads only pieces whose fingerprint differs from that at the
 * last seal.
 */

_Static_assert(FDRY_MEM_READ_PIECE / FDRY_LAYOUT_BLOCK == FDRY_SEALED_BLOCKS,
	       "all blocks of a piece");

/* A fdry_mem_fn: find the stamped blocks of a piece. @arg: points to the piece's entry and moves to
 * the next. */
static int piece_look(void *arg, uint64_t addr, const uint8_t *bytes, size_t len)
{
	struct fdry_sealed_stamps **at = arg, *p = (*at)++;
	size_t n, i;

	p->print = fdry_fingerprint_of(bytes, len);
	memset(p->stamped, 0, sizeof(p->stamped));
	for (i = 0; len; i++, addr += n, bytes += n, len -= n) {
		n = fdry_layout_part(addr, len, FDRY_LAYOUT_BLOCK);
		p->stamped[i / 64] |= (uint64_t)fdry_layout_stamped(bytes, n, addr) << i % 64;
	}
	return 0;
}

/* For pieces that did not change, copy the result of the last seal. @same: whether each piece is
 * one. */
static int pieces_recall(struct fdry_capture *cap, struct fdry_sealed_stamps *p, size_t n,
			 bool *same)
{
	struct fdry_fingerprint_range *ranges = malloc((n + 1) * sizeof(*ranges));
	struct fdry_fingerprint *prints = malloc((n + 1) * sizeof(*prints));
	const struct fdry_sealed_stamps *before;
	size_t i, k = 0;
	bool known;
	int err = ranges && prints ? 0 : fdry_nomem();

	if (err)
		goto out_free;
	for (i = 0; i < n; i++) {
		same[i] = fdry_sealed_stamps(&cap->sealed, p[i].addr, p[i].len) != NULL;
		if (same[i])
			ranges[k++] = (struct fdry_fingerprint_range){ p[i].addr, p[i].len };
	}
	known = fdry_sealed_fingerprints(cap, ranges, k, prints);
	for (i = 0, k = 0; i < n; i++) {
		if (!same[i])
			continue;
		before = fdry_sealed_stamps(&cap->sealed, p[i].addr, p[i].len);
		same[i] = known && fdry_fingerprint_eq(prints[k++], before->print);
		if (same[i])
			p[i] = *before;
	}
out_free:
	free(ranges);
	free(prints);
	return err;
}

/* Whether one call of fdry_mem_read() delivers both as separate pieces. */
static bool joins(const struct fdry_sealed_stamps *p, const struct fdry_sealed_stamps *next)
{
	return next->addr == p->addr + p->len && !(next->addr % FDRY_MEM_READ_PIECE);
}

/* Read the pieces that changed. Adjacent pieces are read by one call. */
static int pieces_read(struct fdry_mem_reader *reader, struct fdry_sealed_stamps *p, size_t n,
		       const bool *same)
{
	struct fdry_sealed_stamps *at;
	size_t i, k;
	int err = 0;

	for (i = 0; i < n && !err; i = k) {
		k = i + 1;
		if (same[i])
			continue;
		while (k < n && !same[k] && joins(&p[k - 1], &p[k]))
			k++;
		at = &p[i];
		err = fdry_mem_read(reader, p[i].addr, p[k - 1].addr + p[k - 1].len - p[i].addr,
				    piece_look, &at);
	}
	return err;
}

/* Find the stamped blocks of all pieces. @pieces: struct fdry_sealed_stamps each, with address and
 * size; moves into the capture, which remembers them. */
static int pieces_find(struct fdry_capture *cap, struct fdry_mem_reader *reader,
		       struct fdry_buf *pieces)
{
	struct fdry_sealed_stamps *p = fdry_array(*pieces, struct fdry_sealed_stamps);
	size_t n = fdry_array_count(*pieces, struct fdry_sealed_stamps);
	bool *same = calloc(n + 1, sizeof(*same));
	int err;

	if (!same)
		return fdry_nomem();
	err = pieces_recall(cap, p, n, same) ?: pieces_read(reader, p, n, same);
	free(same);
	if (err)
		return err;
	fdry_buf_release(&cap->sealed.stamps);
	cap->sealed.stamps = *pieces;
	*pieces = (struct fdry_buf){ 0 };
	return 0;
}

static int pieces_add(struct fdry_buf *pieces, uint64_t addr, uint64_t len)
{
	struct fdry_sealed_stamps p = { .addr = addr };
	int err = 0;

	for (; len && !err; p.addr += p.len, len -= p.len) {
		p.len = fdry_layout_part(p.addr, len, FDRY_MEM_READ_PIECE);
		err = fdry_buf_put(pieces, &p, sizeof(p));
	}
	return err;
}

/* Add the blocks of a piece, as scratch or content. */
static int piece_add(struct fdry_layout *l, const struct fdry_sealed_stamps *p)
{
	uint64_t at, n;
	size_t i;
	int err = 0;

	for (i = 0, at = 0; at < p->len && !err; i++, at += n) {
		n = fdry_layout_part(p->addr + at, p->len - at, FDRY_LAYOUT_BLOCK);
		err = range_add(l, p->addr + at, n,
				p->stamped[i / 64] >> i % 64 & 1 ? FDRY_ROLE_SCRATCH
								 : FDRY_ROLE_CONTENT);
	}
	return err;
}

static int stamped_add(struct fdry_layout *l, const struct fdry_capture *cap, uint64_t addr,
		       uint64_t len)
{
	uint64_t n;
	int err = 0;

	for (; len && !err; addr += n, len -= n) {
		n = fdry_layout_part(addr, len, FDRY_MEM_READ_PIECE);
		err = piece_add(l, fdry_sealed_stamps(&cap->sealed, addr, n));
	}
	return err;
}

/* --- roles --- */

/* An external range. The list is ascending; ranges may overlap, such as a tensor and its view. */
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

/* The ledger is walked twice: first to collect the pieces to check, in @pieces; then, with @pieces
 * NULL, to add the ranges. */
struct walk {
	struct fdry_layout *l;
	const struct fdry_capture *cap;
	struct fdry_buf externals;
	struct fdry_buf *pieces;
};

static int own_add(const struct walk *w, const struct fdry_alloc *a, uint64_t addr, uint64_t end)
{
	if (addr >= end)
		return 0;
	if (w->pieces)
		return a->capturing ? pieces_add(w->pieces, addr, end - addr) : 0;
	if (a->capturing)
		return stamped_add(w->l, w->cap, addr, end - addr);
	return range_add(w->l, addr, end - addr, FDRY_ROLE_CONTENT);
}

static int alloc_add(const struct walk *w, const struct fdry_alloc *a)
{
	const struct external *e = fdry_array(w->externals, struct external);
	uint64_t at = a->addr, end = a->addr + a->extent, to;
	size_t i;
	int err;

	for (i = 0; i < fdry_array_count(w->externals, struct external); i++) {
		if (e[i].end <= at || e[i].addr >= end)
			continue;
		err = own_add(w, a, at, e[i].addr);
		if (err)
			return err;
		to = e[i].end < end ? e[i].end : end;
		if (e[i].addr > at)
			at = e[i].addr;
		err = w->pieces ? 0 : range_add(w->l, at, to - at, FDRY_ROLE_EXTERNAL);
		if (err)
			return err;
		at = to;
	}
	return own_add(w, a, at, end);
}

/* Get the bounds of the region and a copy of its ledger. */
static int ledger_get(const struct fdry_capture *cap, struct fdry_layout *ret)
{
	uint64_t offset = 0, end, *used;
	CUdeviceptr base = 0;
	size_t i;
	int err;

	err = fdry_interposer_result(cap->hook, cap->hook->region_offset(&offset));
	if (err)
		return err;
	err = fdry_interposer_result(
		cap->hook,
		cap->hook->region_ledger(&base, &ret->size, &ret->ledger, &ret->n_ledger));
	if (err)
		return err;
	err = fdry_interposer_result(
		cap->hook, cap->hook->region_aside_used(&ret->aside, &ret->aside_used));
	if (err)
		return err;
	ret->base = ret->end = base;
	ret->used = base + (offset > cap->highest ? offset : cap->highest);
	/* Memory that the program mapped itself may lie above the cursor. */
	for (i = 0; i < ret->n_ledger; i++) {
		end = ret->ledger[i].addr + ret->ledger[i].extent;
		used = ret->ledger[i].addr < ret->aside ? &ret->used : &ret->aside_used;
		if (end > *used)
			*used = end;
	}
	return 0;
}

static int ledger_walk(const struct walk *w)
{
	const struct fdry_layout *l = w->l;
	size_t i;
	int err = 0;

	for (i = 0; i < l->n_ledger && !err; i++) {
		if (l->ledger[i].kind == FDRY_KIND_SHARED)
			continue; /* the image leaves it out, and the seal refuses a graph that uses
				     it */
		err = alloc_add(w, &l->ledger[i]);
	}
	return err;
}

static int ranges_make(struct fdry_layout *l, struct fdry_capture *cap,
		       struct fdry_mem_reader *reader)
{
	struct fdry_buf pieces = { 0 };
	struct walk w = { .l = l, .cap = cap, .pieces = &pieces };
	int err = externals_make(cap, &w.externals);

	if (err)
		goto out_release;
	err = ledger_walk(&w);
	if (err)
		goto out_release;
	err = pieces_find(cap, reader, &pieces);
	if (err)
		goto out_release;
	w.pieces = NULL;
	err = ledger_walk(&w);
out_release:
	fdry_buf_release(&pieces);
	fdry_buf_release(&w.externals);
	return err;
}

/* Whether the device can read all memory that the program mapped. Other memory may only be copied:
 * the copy then fails, but a kernel that reads it would end the program's context. */
static bool maps_readable(const struct fdry_layout *l, const struct fdry_capture *cap)
{
	unsigned int flags;
	size_t i;

	for (i = 0; i < l->n_ledger; i++) {
		flags = 0;
		if (l->ledger[i].kind == FDRY_KIND_MAP &&
		    (fdry_call_raw(cap->drv, cuPointerGetAttribute, &flags,
				   CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, l->ledger[i].addr) ||
		     !flags))
			return false;
	}
	return true;
}

int fdry_layout_make(struct fdry_capture *cap, struct fdry_mem_reader *reader,
		     struct fdry_layout *ret)
{
	struct fdry_layout l = { 0 };
	size_t i;
	int err;

	err = ledger_get(cap, &l);
	if (err)
		return err;
	cap->sealed.unreadable = !maps_readable(&l, cap);
	err = ranges_make(&l, cap, reader);
	if (err) {
		fdry_layout_release(&l);
		return err;
	}
	for (i = 0; i < l.n_ledger; i++)
		if (l.ledger[i].kind != FDRY_KIND_SHARED)
			l.end = l.ledger[i].addr + l.ledger[i].extent;
	*ret = l;
	return 0;
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
	if (l->n_ledger != now.n_ledger || i < l->n_ledger || l->used != now.used ||
	    l->aside_used != now.aside_used)
		err = fdry_fail(FDRY_E_STATE,
				"device memory was allocated or freed during the seal; let the "
				"program's other threads wait until the seal ends");
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

/* Whether memory between @a and the next live allocation of the region, or of the aside area, was
 * allocated and freed. */
static bool freed_behind(const struct fdry_layout *l, const struct fdry_alloc *a)
{
	const struct fdry_alloc *next = a + 1;
	bool aside = a->addr >= l->aside;

	if (next == l->ledger + l->n_ledger || (!aside && next->addr >= l->aside))
		return (aside ? l->aside_used : l->used) > a->addr + a->extent;
	return next->serial != a->serial + 1;
}

bool fdry_layout_points(const struct fdry_layout *l, uint64_t addr)
{
	const struct fdry_alloc *a = alloc_below(l, addr);

	if (!a || addr - a->addr > a->extent || a->kind == FDRY_KIND_SHARED)
		return false;
	return addr - a->addr < a->extent || !freed_behind(l, a);
}
