// SPDX-License-Identifier: Apache-2.0
/*
 * image_pinned.c - pinned allocations of a loaded image; see image_pinned.h.
 *
 * Allocations may share a page, if the program registered parts of one. So pages are reserved
 * first, those of neighbours together; then each allocation is registered.
 *
 * In the region of a live capture, an allocation that the process has made itself is the process'
 * own, like device memory, and the load does not write there, unless the caller has listed what it
 * keeps. Others are claimed from the capture's host area. The program's registered memory is in no
 * area, so it is mapped.
 */
#include "image/image_pinned.h"

#include <stdlib.h>
#include <string.h>

#include "image/check.h"
#include "lib/buf.h"
#include "image/place.h"
#include "image/va_claims.h"
#include "mm/host_map.h"

/* How an allocation was made. */
enum how { NOT_MADE, MAPPED, CLAIMED, KEPT };

uint64_t fdry_manifest_pinned_bytes(const struct fdry_manifest *m)
{
	uint64_t sum = 0; /* cannot overflow: they are apart, and end below 2^47 */
	uint32_t i;

	for (i = 0; i < m->n_pinned; i++)
		sum += m->pinned[i].size;
	return sum;
}

/* --- pages --- */

static struct fdry_memory pages_of(const struct fdry_mf_pinned *p)
{
	size_t len;
	void *from = fdry_host_pages(p->addr, p->size, &len);

	return (struct fdry_memory){ (uintptr_t)from, len };
}

static int pages_reserve(struct fdry_image *img, const struct fdry_memory *pages)
{
	int err = fdry_host_reserve(pages->addr, pages->bytes);

	if (err)
		return fdry_placed_fail(err, pages->addr, pages->bytes);
	err = fdry_buf_put(&img->pinned_pages, pages, sizeof(*pages));
	if (err)
		fdry_host_unreserve(pages->addr, pages->bytes);
	return err;
}

/* Reserve the pages of all allocations that are mapped. */
static int all_pages_reserve(struct fdry_image *img, const uint8_t *how)
{
	struct fdry_memory run = { 0 }, next;
	uint32_t i;
	int err;

	for (i = 0; i < img->m.n_pinned; i++) {
		if (how[i] != MAPPED)
			continue;
		next = pages_of(&img->m.pinned[i]);
		if (run.bytes && next.addr < run.addr + run.bytes) {
			if (next.addr + next.bytes > run.addr + run.bytes)
				run.bytes = next.addr + next.bytes - run.addr;
			continue;
		}
		err = run.bytes ? pages_reserve(img, &run) : 0;
		if (err)
			return err;
		run = next;
	}
	return run.bytes ? pages_reserve(img, &run) : 0;
}

/* --- among the pinned memory of a live capture --- */

/* The allocation of the process with a byte in that of the image; NULL if there is none. */
static const struct fdry_alloc *overlap(const struct fdry_alloc *made, size_t n,
					const struct fdry_mf_pinned *p)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (made[i].addr < p->addr + p->size && p->addr < made[i].addr + made[i].size)
			return &made[i];
	return NULL;
}

static int place_find(const struct fdry_image *img, const struct fdry_alloc *made, size_t n,
		      uint32_t i, uint8_t *how)
{
	const struct fdry_mf_pinned *p = &img->m.pinned[i];
	const struct fdry_alloc *found = overlap(made, n, p);

	if (!found) {
		*how = p->kind == FDRY_MF_PINNED_ALLOCATED ? CLAIMED : MAPPED;
		return 0;
	}
	if (found->addr != p->addr || found->size != p->size)
		return fdry_fail(FDRY_E_LAYOUT,
				 "this process has %llu bytes of pinned memory at %#llx; in the "
				 "process that sealed the image, %llu bytes were at %#llx; make "
				 "the same pinned allocations in the same order, or load the image "
				 "before others are made",
				 (unsigned long long)found->size, (unsigned long long)found->addr,
				 (unsigned long long)p->size, (unsigned long long)p->addr);
	*how = fdry_va_claim_exists(p->addr, p->size) ? CLAIMED : KEPT;
	return 0;
}

/* Decide for each allocation how it is made. */
static int places_find(const struct fdry_image *img, uint8_t *how)
{
	struct fdry_alloc *made = NULL;
	size_t n = 0;
	uint32_t i;
	int err;

	if (!img->place_hook) {
		memset(how, MAPPED, img->m.n_pinned);
		return 0;
	}
	err = fdry_interposer_result(img->place_hook, img->place_hook->pinned_ledger(&made, &n));
	for (i = 0; i < img->m.n_pinned && !err; i++)
		err = place_find(img, made, n, i, &how[i]);
	free(made);
	return err;
}

/* --- all allocations --- */

static int alloc_make(struct fdry_image *img, uint32_t i, uint8_t how)
{
	const struct fdry_mf_pinned *p = &img->m.pinned[i];
	int err = 0;

	if (how == MAPPED)
		err = fdry_host_back(img->drv, p->addr, p->size);
	else if (how == CLAIMED)
		err = fdry_va_claim_pinned_get(img->place_hook, p->addr, p->size);
	if (!err)
		img->pinned[i] = how;
	return err;
}

static int allocs_make(struct fdry_image *img, uint8_t *how)
{
	uint32_t i;
	int err = places_find(img, how);

	if (err)
		return err;
	err = all_pages_reserve(img, how);
	for (i = 0; i < img->m.n_pinned && !err; i++)
		err = alloc_make(img, i, how[i]);
	return err;
}

int fdry_image_pinned_make(struct fdry_image *img)
{
	uint8_t *how;
	int err;

	if (!img->m.n_pinned)
		return 0;
	err = fdry_budget_take(&img->budget, fdry_manifest_pinned_bytes(&img->m),
			       "pinned host memory");
	if (err)
		return err;
	err = fdry_host_map_check(img->drv, img->device);
	if (err)
		return err;
	img->pinned = calloc(img->m.n_pinned, 1);
	how = calloc(img->m.n_pinned, 1);
	err = img->pinned && how ? allocs_make(img, how) : fdry_nomem();
	free(how);
	return err;
}

void fdry_image_pinned_free(struct fdry_image *img)
{
	const struct fdry_memory *pages = (const void *)img->pinned_pages.data;
	const struct fdry_mf_pinned *p = img->m.pinned;
	bool in_use = false;
	size_t k;
	uint32_t i;

	for (i = 0; img->pinned && i < img->m.n_pinned; i++, p++) {
		if (img->pinned[i] == MAPPED)
			in_use |= fdry_call_raw(img->drv, cuMemHostUnregister,
						(void *)(uintptr_t)p->addr) != CUDA_SUCCESS;
		else if (img->pinned[i] == CLAIMED)
			fdry_va_claim_put(img->place_hook, p->addr);
	}
	/* If the driver still uses pages, their addresses must not be mapped again. */
	for (k = 0; !in_use && k < img->pinned_pages.len / sizeof(*pages); k++)
		fdry_host_unreserve(pages[k].addr, pages[k].bytes);
	fdry_buf_release(&img->pinned_pages);
	free(img->pinned);
	img->pinned = NULL;
}

/* --- content --- */

/* Whether the load may write to the allocation that holds @addr. In the region of a capture, pieces
 * that the process keeps are left out besides. */
static bool is_written(const struct fdry_image *img, uint64_t addr)
{
	const struct fdry_mf_pinned *p = fdry_manifest_pinned(&img->m, addr, 1);

	return p && (img->pinned[p - img->m.pinned] != KEPT || img->keep_listed);
}

struct bytes {
	uint64_t addr; /* of the first */
	const uint8_t *data;
};

static int piece_write(void *arg, uint64_t addr, uint64_t size)
{
	const struct bytes *b = arg;
	void *to = (void *)(uintptr_t)addr;

	memcpy(to, b->data + (addr - b->addr), (size_t)size);
	return memcmp(to, b->data + (addr - b->addr), (size_t)size)
		       ? fdry_fail(FDRY_E_CORRUPT, "other bytes arrived in memory; load again, and "
				   "test the memory if that repeats")
		       : 0;
}

/* Write, and compare what arrived. */
static int bytes_write(struct fdry_image *img, uint64_t size, struct bytes b)
{
	return is_written(img, b.addr)
		       ? fdry_placement_pieces(img, b.addr, size, piece_write, &b)
		       : 0;
}

static int piece_fill(void *arg, uint64_t addr, uint64_t size)
{
	memset((void *)(uintptr_t)addr, *(const int *)arg, (size_t)size);
	return 0;
}

static void bytes_fill(struct fdry_image *img, uint64_t addr, uint64_t size, int fill)
{
	int never_fails;

	if (!is_written(img, addr))
		return;
	never_fails = fdry_placement_pieces(img, addr, size, piece_fill, &fill);
	(void)never_fails;
}

int fdry_image_pinned_write(struct fdry_image *img, uint64_t addr, const uint8_t *bytes,
			    size_t len)
{
	const struct fdry_mf_pinned *in = fdry_manifest_pinned(&img->m, addr + len - 1, 1);

	if (!in)
		return 0;
	if (addr < in->addr) { /* the segment begins before its first tensor */
		bytes += in->addr - addr;
		len -= in->addr - addr;
		addr = in->addr;
	}
	return bytes_write(img, len, (struct bytes){ addr, bytes });
}

void fdry_image_pinned_fill(struct fdry_image *img, int fill)
{
	const struct fdry_mf_pinned_role *r = img->m.pinned_roles;
	uint32_t i;

	for (i = 0; i < img->m.n_pinned_roles; i++, r++)
		bytes_fill(img, r->addr, r->size, fill);
}

/* Write zeros to all content from @at to @end, of which roles take a part. */
static void zeros_write(struct fdry_image *img, uint64_t at, uint64_t end, uint32_t *role)
{
	const struct fdry_mf_pinned_role *r;

	for (; *role < img->m.n_pinned_roles && img->m.pinned_roles[*role].addr < end; (*role)++) {
		r = &img->m.pinned_roles[*role];
		if (r->addr > at)
			bytes_fill(img, at, r->addr - at, 0);
		at = r->addr + r->size;
	}
	if (at < end)
		bytes_fill(img, at, end - at, 0);
}

static int chunk_write(struct fdry_image *img, struct fdry_reader *reader,
		       const struct fdry_mf_pinned_chunk *c, struct fdry_content_sum *sum)
{
	struct fdry_span bytes = { .len = c->size };
	int err = fdry_chunk_map(img, reader, &c->oid, sum, &bytes) ?:
		  fdry_chunk_check(img, reader, &c->oid, bytes, c->print) ?:
		  bytes_write(img, c->size, (struct bytes){ c->addr, bytes.data });

	if (err)
		return fdry_fail_at(err, "content of pinned host memory at %#llx",
				    (unsigned long long)c->addr);
	sum->checked += c->size;
	return 0;
}

int fdry_image_pinned_content(struct fdry_image *img, struct fdry_reader *reader,
			      struct fdry_content_sum *sum)
{
	const struct fdry_mf_pinned *p = img->m.pinned;
	uint32_t i, role = 0;
	int err;

	for (i = 0; i < img->m.n_pinned; i++, p++)
		zeros_write(img, p->addr, p->addr + p->size, &role);
	for (i = 0; i < img->m.n_pinned_chunks; i++) {
		err = chunk_write(img, reader, &img->m.pinned_chunks[i], sum);
		if (err)
			return err;
	}
	return 0;
}
