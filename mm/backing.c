// SPDX-License-Identifier: Apache-2.0
/*
 * backing.c - blocks of physical memory; see backing.h.
 *
 * Blocks never overlap, start and end at multiples of the granule, and lie inside the
 * reservation. A call keeps its new blocks on a list of its own, and adds them to
 * the set when it cannot fail any more.
 */
#include "mm/backing.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "lib/log.h"
#include "mm/bump.h"

static struct fdry_block *block_of(const struct fdry_range *n)
{
	return (struct fdry_block *)n;
}

static uint64_t block_size(const struct fdry_block *blk)
{
	return blk->range.end - blk->range.start;
}

/* --- new blocks of one call --- */

/* Map the gaps between blocks in [@start, @end), multiples of the granule. @fresh lists the new
 * blocks, also after a failure. */
static int map_gaps(const struct fdry_backing *b, uint64_t start, uint64_t end,
		    struct fdry_block **fresh)
{
	struct fdry_block *blk;
	struct fdry_range *n;
	uint64_t stop;
	int err;

	for (; start < end; start = stop) {
		n = fdry_ranges_from(&b->blocks, start);
		if (n && n->start <= start) {
			stop = n->end;
			continue;
		}
		stop = n && n->start < end ? n->start : end;
		blk = calloc(1, sizeof(*blk));
		if (!blk)
			return fdry_nomem();
		err = fdry_vmm_map(&b->vmm, start, stop - start);
		if (err) {
			free(blk);
			return err;
		}
		blk->range.start = start;
		blk->range.end = stop;
		blk->next = *fresh;
		*fresh = blk;
	}
	return 0;
}

/* Only the stream that fills them uses fresh blocks. */
static void drop_fresh(const struct fdry_backing *b, struct fdry_block *fresh)
{
	struct fdry_block *next;

	fdry_vmm_quiesce(&b->vmm);
	for (; fresh; fresh = next) {
		next = fresh->next;
		fdry_vmm_unmap(&b->vmm, fresh->range.start, block_size(fresh));
		free(fresh);
	}
}

static void adopt(struct fdry_backing *b, struct fdry_block *fresh, enum fdry_keep keep)
{
	for (; fresh; fresh = fresh->next) {
		fresh->keep = keep;
		b->mapped += block_size(fresh);
		fdry_ranges_add(&b->blocks, &fresh->range);
	}
}

/* Map the gaps of [@start, @end), write @fill, wait for both. */
static int supply(const struct fdry_backing *b, uint64_t start, uint64_t end,
		  const struct fdry_fill *fill, struct fdry_block **ret)
{
	struct fdry_block *fresh = NULL;
	CUstreamCaptureMode mode;
	int err = fdry_vmm_enter(&b->vmm, &mode);

	if (err)
		return err;
	err = map_gaps(b, start, end, &fresh);
	if (err)
		goto out_drop;
	err = fill->size ? fdry_vmm_fill(&b->vmm, fill->addr, fill->size, fill->pattern) : 0;
	if (err)
		goto out_drop;
	err = fdry_vmm_sync(&b->vmm);
	if (err)
		goto out_drop;
	*ret = fresh;
	goto out_leave;

out_drop:
	drop_fresh(b, fresh);
out_leave:
	fdry_vmm_leave(&b->vmm, &mode);
	return err;
}

/* --- taking and putting --- */

static void idle_link(struct fdry_backing *b, struct fdry_block *blk)
{
	if (blk->uses || blk->keep)
		return;
	blk->idle.next = &b->idle;
	blk->idle.prev = b->idle.prev;
	b->idle.prev->next = &blk->idle;
	b->idle.prev = &blk->idle;
}

static void idle_unlink(struct fdry_block *blk)
{
	if (!blk->idle.next)
		return;
	blk->idle.prev->next = blk->idle.next;
	blk->idle.next->prev = blk->idle.prev;
	blk->idle.prev = blk->idle.next = NULL;
}

/* Fail if [@start, @end) has a block of @keep's kind; FDRY_KEEP_NOT: of any kind. */
static int refuse(const struct fdry_backing *b, uint64_t start, uint64_t end, enum fdry_keep keep)
{
	struct fdry_range *n;

	fdry_ranges_each(n, &b->blocks, start, end)
		if (!keep || block_of(n)->keep == keep)
			return fdry_fail(FDRY_E_STATE,
					 "%#" PRIx64 "-%#" PRIx64
					 " overlaps memory mapped at %#" PRIx64 "-%#" PRIx64
					 "; set the offset past it, or back each range once",
					 start, end, n->start, n->end);
	return 0;
}

static bool is_covered(const struct fdry_backing *b, uint64_t start, uint64_t end)
{
	struct fdry_range *n;

	for (; start < end; start = n->end) {
		n = fdry_ranges_from(&b->blocks, start);
		if (!n || n->start > start)
			return false;
	}
	return true;
}

static bool is_vacant(const struct fdry_backing *b, uint64_t start, uint64_t end)
{
	const struct fdry_range *n = fdry_ranges_from(&b->blocks, start);

	return !n || n->start >= end;
}

/* The granules that [@addr, @addr + @size) touches. The range lies in the reservation. */
static void granules(const struct fdry_backing *b, CUdeviceptr addr, uint64_t size, uint64_t *start,
		     uint64_t *end)
{
	*start = fdry_round_down(addr, b->vmm.granule);
	*end = fdry_round_down(addr + size - 1, b->vmm.granule) + b->vmm.granule;
}

int fdry_backing_take(struct fdry_backing *b, CUdeviceptr addr, uint64_t size,
		      const struct fdry_fill *fill)
{
	static const struct fdry_fill none;
	struct fdry_block *fresh = NULL;
	struct fdry_range *n;
	uint64_t start, end;
	int ret;

	granules(b, addr, size, &start, &end);
	if (!fill->pattern && is_vacant(b, start, end))
		fill = &none; /* fresh memory is zero already */
	ret = refuse(b, start, end, FDRY_KEEP_BACKED);
	if (ret)
		return ret;
	if (fill->size || !is_covered(b, start, end))
		ret = supply(b, start, end, fill, &fresh);
	if (ret)
		return ret;
	adopt(b, fresh, FDRY_KEEP_NOT);
	fdry_ranges_each(n, &b->blocks, start, end) {
		block_of(n)->uses++;
		idle_unlink(block_of(n));
	}
	return 0;
}

void fdry_backing_put(struct fdry_backing *b, CUdeviceptr addr, uint64_t size, bool waited)
{
	uint64_t start, end;
	struct fdry_range *n;

	granules(b, addr, size, &start, &end);
	if (!waited)
		b->clock++;
	fdry_ranges_each(n, &b->blocks, start, end) {
		if (!waited)
			block_of(n)->freed_at = b->clock;
		block_of(n)->uses--;
		idle_link(b, block_of(n));
	}
}

int fdry_backing_keep(struct fdry_backing *b, CUdeviceptr addr, uint64_t size, enum fdry_keep keep)
{
	static const struct fdry_fill none;
	struct fdry_block *fresh = NULL;
	uint64_t start, end;
	int ret;

	granules(b, addr, size, &start, &end);
	ret = refuse(b, start, end, keep == FDRY_KEEP_BACKED ? FDRY_KEEP_NOT : FDRY_KEEP_BACKED);
	if (ret)
		return ret;
	if (!is_covered(b, start, end))
		ret = supply(b, start, end, &none, &fresh);
	if (ret)
		return ret;
	adopt(b, fresh, keep);
	return 0;
}

void fdry_backing_unkeep(struct fdry_backing *b)
{
	struct fdry_range *n;

	fdry_ranges_each(n, &b->blocks, 0, UINT64_MAX)
		if (block_of(n)->keep == FDRY_KEEP_ARENA) {
			block_of(n)->keep = FDRY_KEEP_NOT;
			idle_link(b, block_of(n));
		}
}

/* --- peers --- */

/* Open or close all blocks, or those before *@end. A failure sets *@end to the block at fault. */
static CUresult open_until(const struct fdry_backing *b, const struct fdry_range **end,
			   CUdevice dev, bool open)
{
	struct fdry_range *n;
	CUresult res;

	fdry_ranges_each(n, &b->blocks, 0, UINT64_MAX) {
		if (n == *end)
			break;
		res = fdry_vmm_open(&b->vmm, n->start, n->end - n->start, dev, open);
		if (res) {
			*end = n;
			return res;
		}
	}
	return CUDA_SUCCESS;
}

static int open_all(struct fdry_backing *b, CUdevice dev, bool open)
{
	const struct fdry_range *end = NULL;
	CUresult res = open_until(b, &end, dev, open);

	if (!res)
		b->vmm.peers = (b->vmm.peers & ~(1ull << dev)) | (uint64_t)open << dev;
	else if (open_until(b, &end, dev, !open))
		fdry_warn("device %d %s the memory at %#" PRIx64, dev,
			  open ? "still has" : "has no longer", end->start);
	return fdry_driver_result(b->vmm.drv, FDRY_DRV_cuMemSetAccess, res);
}

int fdry_backing_open(struct fdry_backing *b, CUdevice dev, bool open)
{
	CUstreamCaptureMode mode;
	int ret;

	if (dev < 0 || dev >= FDRY_VMM_DEVICES)
		return fdry_fail(
			FDRY_E_LIMIT,
			"device %d is none of the first %d; hide some with CUDA_VISIBLE_DEVICES",
			dev, FDRY_VMM_DEVICES);
	ret = fdry_vmm_enter(&b->vmm, &mode);
	if (ret)
		return ret;
	ret = open_all(b, dev, open);
	fdry_vmm_leave(&b->vmm, &mode);
	return ret ? fdry_fail_at(ret, "device %d as a peer of device %d", dev, b->vmm.dev) : 0;
}

/* --- unmapping --- */

void fdry_backing_settle(struct fdry_backing *b, uint64_t clock)
{
	if (b->settled < clock)
		b->settled = clock;
}

static bool may_go(const struct fdry_backing *b, const struct fdry_block *blk, CUdeviceptr cursor)
{
	bool at_cursor = blk->range.start < cursor && cursor < blk->range.end;

	if (at_cursor && block_size(blk) == b->vmm.granule)
		return false;
	return blk->freed_at <= b->settled;
}

static void give_back(struct fdry_backing *b, struct fdry_block *blk)
{
	uint64_t size = block_size(blk);
	CUresult res = fdry_vmm_unmap(&b->vmm, blk->range.start, size);

	if (res) {
		fdry_warn("cuMemUnmap of %" PRIu64 " bytes at %#" PRIx64
			  " failed (%d); a later call tries again",
			  size, blk->range.start, (int)res);
		return;
	}
	b->mapped -= size;
	idle_unlink(blk);
	fdry_ranges_del(&b->blocks, &blk->range);
	free(blk);
}

static struct fdry_block *idle_block(const struct fdry_idle *i)
{
	return (struct fdry_block *)((char *)i - offsetof(struct fdry_block, idle));
}

void fdry_backing_trim(struct fdry_backing *b, CUdeviceptr cursor)
{
	struct fdry_idle *i, *next;
	CUstreamCaptureMode mode;
	bool entered = false;

	for (i = b->idle.next; i != &b->idle; i = next) {
		next = i->next;
		if (!may_go(b, idle_block(i), cursor))
			continue;
		if (!entered && fdry_vmm_enter(&b->vmm, &mode))
			return; /* they stay idle */
		entered = true;
		give_back(b, idle_block(i));
	}
	if (entered)
		fdry_vmm_leave(&b->vmm, &mode);
}

CUdeviceptr fdry_backing_clear_of(const struct fdry_backing *b, CUdeviceptr addr, uint64_t size)
{
	const struct fdry_range *n;

	while ((n = fdry_ranges_from(&b->blocks, addr)) && n->start < addr + size)
		addr = n->end;
	return addr;
}

uint64_t fdry_backing_idle_bytes(const struct fdry_backing *b)
{
	const struct fdry_idle *i;
	uint64_t bytes = 0;

	for (i = b->idle.next; i != &b->idle; i = i->next)
		bytes += block_size(idle_block(i));
	return bytes;
}

/* --- beginning and end --- */

int fdry_backing_init(struct fdry_backing *b, const struct fdry_driver *drv, CUdevice dev,
		      CUdeviceptr base, uint64_t size)
{
	*b = (struct fdry_backing){ 0 };
	b->idle.next = b->idle.prev = &b->idle;
	return fdry_vmm_init(&b->vmm, drv, dev, base, size);
}

static void unmap_all(struct fdry_backing *b)
{
	struct fdry_range *n;

	while ((n = b->blocks.root)) {
		fdry_vmm_unmap(&b->vmm, n->start, n->end - n->start);
		fdry_ranges_del(&b->blocks, n);
		free(block_of(n));
	}
}

void fdry_backing_release(struct fdry_backing *b)
{
	int waited = fdry_vmm_wait(&b->vmm);
	CUstreamCaptureMode mode;
	int err = fdry_vmm_enter(&b->vmm, &mode);

	if (waited)
		fdry_warn("memory is unmapped although the wait for its work failed (%d)", waited);
	unmap_all(b);
	if (!err)
		fdry_vmm_leave(&b->vmm, &mode);
	fdry_vmm_release(&b->vmm);
}
