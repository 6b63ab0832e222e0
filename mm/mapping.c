// SPDX-License-Identifier: Apache-2.0
/*
 * mapping.c - handles addresses that the program reserves, and memory that it maps there; see
 * region.h.
 *
 * The addresses come from the region, so they are the same in every process. The program maps and
 * unmaps the memory. The region notes each mapping and fills new memory, so its bytes are the same
 * in every process, too.
 *
 * The program decides what it maps at an address, so captures and other code may use the same
 * addresses. The region remembers all addresses at which memory was ever mapped outside of
 * captures: memory there is content, whenever it is mapped.
 */
#include "mm/internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "lib/log.h"

static struct fdry_range *reservation_of(const struct fdry_region *r, CUdeviceptr addr,
					 uint64_t size)
{
	struct fdry_range *n = fdry_ranges_floor(&r->reservations, addr);

	return n && addr < n->end && size <= n->end - addr ? n : NULL;
}

/* Find a place at the cursor, above memory that is already mapped there. What the program maps may
 * be memory of other processes, so it is a place past numbers, if @align allows that; the addresses
 * before it are [*@skipped, @ret->addr). */
static int place_at_cursor(struct fdry_region *r, uint64_t size, uint64_t align,
			   struct fdry_place *ret, CUdeviceptr *skipped)
{
	struct fdry_bump b = r->bump;
	struct fdry_place p = { 0 };
	CUdeviceptr clear, from = 0;
	int err;

	for (;;) {
		err = fdry_bump_place(&b, size, align, &p);
		if (err)
			return err;
		clear = fdry_backing_clear_of(&r->backing, p.addr, p.extent);
		if (clear == p.addr && align <= FDRY_NUMBERS_STEP) {
			clear = fdry_bump_past_numbers(&r->bump, p.addr, p.extent);
			if (clear != p.addr && !from)
				from = p.addr;
		}
		if (clear == p.addr)
			break;
		err = fdry_bump_set(&b, clear - b.base);
		if (err)
			return err;
	}
	*skipped = from ? from : p.addr;
	*ret = p;
	return 0;
}

/* Reserve at the region's end, which moves; the cursor stays. The driver makes a new reservation,
 * and a mapping must not lie on both sides of its border. So a gap before it is never used, and
 * free ranges do not join across it. */
static int place_behind(struct fdry_region *r, uint64_t size, uint64_t align, uint64_t *ret)
{
	struct fdry_vmm *v = &r->backing.vmm;
	CUstreamCaptureMode mode;
	CUdeviceptr start;
	uint64_t want;
	int err;

	if (__builtin_add_overflow(size, align + v->granule, &want))
		return fdry_fail(FDRY_E_RANGE, "a reservation of %" PRIu64 " bytes; ask for less",
				 size);
	err = fdry_vmm_enter(v, &mode);
	if (err)
		return err;
	err = fdry_vmm_extend(v, want, &start);
	fdry_vmm_leave(v, &mode);
	return err ? err : fdry_round_up(start + v->granule, align, ret);
}

/* True if at least as many bytes remain for allocations. */
static bool is_modest(const struct fdry_region *r, uint64_t size)
{
	return size <= (r->bump.size - r->bump.cursor) / 2;
}

/* Frameworks reserve more addresses than the device has memory, again and again. So reservations
 * lie at the cursor while the region has plenty of addresses, and else at the region's end. If the
 * addresses there are taken, they lie at the cursor after all. */
static int find_place(struct fdry_region *r, uint64_t size, uint64_t align, uint64_t *ret)
{
	CUdeviceptr skipped;
	struct fdry_place p;

	if (fdry_free_ranges_take(&r->unreserved, size, align, ret))
		return 0;
	if (!is_modest(r, size) && !place_behind(r, size, align, ret))
		return 0;
	if (place_at_cursor(r, size, align, &p, &skipped))
		return place_behind(r, size, align, ret);
	fdry_bump_take(&r->bump, &p);
	fdry_region_give(&r->skipped, skipped, p.addr - skipped);
	*ret = p.addr;
	return 0;
}

static int reserve(struct fdry_region *r, uint64_t size, uint64_t align, CUdeviceptr *ret)
{
	struct fdry_range *n = calloc(1, sizeof(*n));
	uint64_t addr = 0;
	int err;

	if (!n)
		return fdry_nomem();
	err = find_place(r, size, align, &addr);
	if (err) {
		free(n);
		return err;
	}
	n->start = addr;
	n->end = addr + size;
	fdry_ranges_add(&r->reservations, n);
	*ret = addr;
	return 0;
}

int fdry_region_reserve(struct fdry_region *r, uint64_t size, uint64_t align, CUdeviceptr *ret)
{
	uint64_t granule = r->backing.vmm.granule;
	int err;

	if (!size || size % granule || align & (align - 1) || align > UINT64_MAX / 4)
		return fdry_fail(FDRY_E_INVAL,
				 "a reservation of %" PRIu64 " bytes at multiples of %" PRIu64
				 "; the size must be "
				 "a multiple of %" PRIu64 ", the alignment a power of two or 0",
				 size, align, granule);
	fdry_region_lock(r);
	err = reserve(r, size, align > granule ? align : granule, ret);
	fdry_region_unlock(r);
	return err;
}

static int unreserve(struct fdry_region *r, CUdeviceptr addr, uint64_t size)
{
	struct fdry_range *n = reservation_of(r, addr, size), *m;

	if (!n || n->start != addr || n->end != addr + size)
		return fdry_fail(FDRY_E_INVAL,
				 "%" PRIu64 " bytes at %#llx are not one reservation", size,
				 addr);
	m = fdry_ranges_from(&r->maps.entries, addr);
	if (m && m->start < n->end)
		return fdry_fail(FDRY_E_INVAL, "memory is mapped at %#" PRIx64 "; unmap it first",
				 m->start);
	fdry_ranges_del(&r->reservations, n);
	free(n);
	if (fdry_free_ranges_add(&r->unreserved, addr, addr + size))
		fdry_warn("%" PRIu64 " bytes of addresses at %#llx are lost: %s", size, addr,
			  fdry_last_error());
	return 0;
}

int fdry_region_unreserve(struct fdry_region *r, CUdeviceptr addr, uint64_t size)
{
	int ret;

	fdry_region_lock(r);
	ret = unreserve(r, addr, size);
	fdry_region_unlock(r);
	return ret;
}

bool fdry_region_reserved(struct fdry_region *r, CUdeviceptr addr, CUdeviceptr *start,
			  uint64_t *size)
{
	const struct fdry_range *n;

	fdry_region_lock(r);
	n = reservation_of(r, addr, 1);
	if (n) {
		*start = n->start;
		*size = n->end - n->start;
	}
	fdry_region_unlock(r);
	return n;
}

/* --- mappings --- */

static int map(struct fdry_region *r, struct fdry_alloc *a)
{
	const struct fdry_range *m = fdry_ranges_from(&r->maps.entries, a->addr);
	int ret;

	if (!a->size || !reservation_of(r, a->addr, a->size))
		return fdry_fail(FDRY_E_INVAL,
				 "%" PRIu64
				 " bytes at %#llx do not lie in addresses that the program has "
				 "reserved",
				 a->size, a->addr);
	if (m && m->start < a->addr + a->size)
		return fdry_fail(FDRY_E_INVAL, "memory is mapped at %#" PRIx64 "; unmap it first",
				 m->start);
	if (fdry_free_ranges_overlap(&r->plain, a->addr, a->addr + a->size))
		a->capturing = false;
	ret = a->capturing ? 0 : fdry_free_ranges_add(&r->plain, a->addr, a->addr + a->size);
	return ret ? ret : fdry_region_note(r, &r->maps, a);
}

int fdry_region_map(struct fdry_region *r, CUdeviceptr addr, uint64_t size, bool blank,
		    unsigned int flags)
{
	struct fdry_alloc a = { .addr = addr,
				.size = size,
				.extent = size,
				.kind = FDRY_KIND_MAP,
				.blank = blank,
				.capturing = blank && flags & FDRY_ALLOC_CAPTURING };
	int ret;

	fdry_region_lock(r);
	ret = map(r, &a);
	fdry_region_unlock(r);
	return ret;
}

static int fill(struct fdry_region *r, CUdeviceptr addr, CUdeviceptr end)
{
	const struct fdry_vmm *v = &r->backing.vmm;
	CUstreamCaptureMode mode;
	struct fdry_range *n;
	int ret = fdry_vmm_enter(v, &mode);

	if (ret)
		return ret;
	fdry_ranges_each(n, &r->maps.entries, addr, end) {
		const struct fdry_alloc *a = fdry_ledger_entry(n);

		if (!ret && a->blank)
			ret = fdry_vmm_fill(v, a->addr, a->extent, a->capturing ? FDRY_STAMP : 0);
	}
	if (ret)
		fdry_vmm_quiesce(v);
	else
		ret = fdry_vmm_sync(v);
	fdry_vmm_leave(v, &mode);
	return ret;
}

static bool any_blank(const struct fdry_region *r, CUdeviceptr addr, CUdeviceptr end)
{
	struct fdry_range *n;

	fdry_ranges_each(n, &r->maps.entries, addr, end)
		if (fdry_ledger_entry(n)->blank)
			return true;
	return false;
}

int fdry_region_fill(struct fdry_region *r, CUdeviceptr addr, uint64_t size)
{
	struct fdry_range *n;
	int ret = 0;

	fdry_region_lock(r);
	if (any_blank(r, addr, addr + size))
		ret = fill(r, addr, addr + size);
	if (ret)
		goto out_unlock;
	fdry_ranges_each(n, &r->maps.entries, addr, addr + size) fdry_ledger_entry(n)->blank =
		false;
out_unlock:
	fdry_region_unlock(r);
	return ret;
}

void fdry_region_share(struct fdry_region *r, CUdeviceptr addr)
{
	struct fdry_range *n;

	fdry_region_lock(r);
	fdry_ranges_each(n, &r->maps.entries, addr, addr + 1)
		fdry_ledger_entry(n)->kind = FDRY_KIND_SHARED;
	fdry_region_unlock(r);
}

void fdry_region_unmap(struct fdry_region *r, CUdeviceptr addr, uint64_t size)
{
	struct fdry_range *n;

	fdry_region_lock(r);
	while ((n = fdry_ranges_from(&r->maps.entries, addr)) && n->start < addr + size)
		fdry_ledger_del(&r->maps, n->start);
	fdry_region_unlock(r);
}

CUdeviceptr fdry_region_reserved_end(const struct fdry_region *r)
{
	const struct fdry_range *n =
		fdry_ranges_floor(&r->reservations, r->bump.base + r->bump.size - 1);

	return n ? n->end : r->bump.base;
}

/* Unmap memory that the program left mapped, since it would prevent freeing the region's
 * addresses. */
void fdry_region_mapping_release(struct fdry_region *r)
{
	struct fdry_range *n;

	while ((n = r->reservations.root)) {
		fdry_ranges_del(&r->reservations, n);
		free(n);
	}
	fdry_free_ranges_release(&r->unreserved);
	fdry_free_ranges_release(&r->plain);
	fdry_ledger_release(&r->maps);
}
