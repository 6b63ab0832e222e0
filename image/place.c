// SPDX-License-Identifier: Apache-2.0
/*
 * place.c - places an image among the allocations of a live capture; see place.h.
 */
#include "image/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/capture/capture.h"
#include "lib/opts.h"
#include "lib/search.h"
#include "image/pinned.h"
#include "image/va_claims.h"

/* Wait for the work in the program's current context. It is no longer current when the image is
 * placed: there, quiet() waits for the primary context, and refuses to run while a stream
 * captures. */
static int program_wait(const struct fdry_capture *cap)
{
	struct fdry_hook_live live;

	cap->hook->live(&live);
	return live.captures ? 0 : fdry_capture_wait(cap);
}

int fdry_placement_check(const struct fdry_load_opts *o)
{
	int err = o->into ? fdry_capture_check(o->into) : 0;

	if (err)
		return err;
	if (!o->into && (o->keep || o->nkeep))
		return fdry_fail(FDRY_E_OPTS, "fdry_load_opts.keep needs a capture that the "
					      "image is loaded into; set fdry_load_opts.into");
	if (o->into && o->flags & FDRY_LOAD_CHECK_AT_LAUNCH)
		return fdry_fail(FDRY_E_OPTS,
				 "content that is placed into a region of the process is compared "
				 "at once, since others may write there; leave "
				 "FDRY_LOAD_CHECK_AT_LAUNCH out");
	if (o->nkeep && !o->keep)
		return fdry_fail(FDRY_E_OPTS,
				 "fdry_load_opts.nkeep is %zu, but keep is NULL; set keep",
				 o->nkeep);
	if (o->into && o->nexternals)
		return fdry_fail(FDRY_E_OPTS, "external tensors of an image that is loaded into "
					      "a capture have the size that they were captured "
					      "with; leave fdry_load_opts.externals out");
	return o->into ? program_wait(o->into) : 0;
}

/* --- what the process keeps --- */

static int memory_cmp(const void *a, const void *b)
{
	uint64_t x = ((const struct fdry_memory *)a)->addr,
		 y = ((const struct fdry_memory *)b)->addr;

	return (x > y) - (x < y);
}

/* A range that would end beyond the last address ends there. */
static int keep_add(struct fdry_image *img, uint64_t addr, uint64_t bytes)
{
	if (bytes > UINT64_MAX - addr)
		bytes = UINT64_MAX - addr;
	return bytes ? fdry_buf_put(&img->kept, &(struct fdry_memory){ addr, bytes },
				    sizeof(struct fdry_memory))
		     : 0;
}

/* Sort the kept ranges, and join those that overlap or touch. */
static void keep_sort(struct fdry_image *img)
{
	struct fdry_memory *k = fdry_array(img->kept, struct fdry_memory);
	size_t i, last = 0, n = fdry_array_count(img->kept, struct fdry_memory);

	if (!n)
		return;
	qsort(k, n, sizeof(*k), memory_cmp);
	for (i = 1; i < n; i++) {
		if (k[i].addr > k[last].addr + k[last].bytes)
			k[++last] = k[i];
		else if (k[i].addr + k[i].bytes > k[last].addr + k[last].bytes)
			k[last].bytes = k[i].addr + k[i].bytes - k[last].addr;
	}
	img->kept.len = (last + 1) * sizeof(*k);
}

int fdry_placement_pieces(const struct fdry_image *img, uint64_t addr, uint64_t size,
			  fdry_placement_fn fn, void *arg)
{
	const struct fdry_memory *k = fdry_array(img->kept, struct fdry_memory);
	size_t n = fdry_array_count(img->kept, struct fdry_memory);
	size_t next = fdry_lower_bound(i, n, k[i].addr + k[i].bytes <= addr);
	uint64_t at = addr, end = addr + size;
	int err;

	for (; next < n && k[next].addr < end; next++) {
		err = k[next].addr > at ? fn(arg, at, k[next].addr - at) : 0;
		if (err)
			return err;
		at = k[next].addr + k[next].bytes;
	}
	return at < end ? fn(arg, at, end - at) : 0;
}

/* --- allocations --- */

static int serial_cmp(const void *a, const void *b)
{
	uint64_t x = ((const struct fdry_alloc *)a)->serial,
		 y = ((const struct fdry_alloc *)b)->serial;

	return (x > y) - (x < y);
}

/* Drop the allocations that images claimed and sort the others, which are the process' own, in the
 * order in which they were made. Returns their number. */
static size_t allocs_own(struct fdry_alloc *made, size_t n)
{
	size_t i, nown = 0;

	qsort(made, n, sizeof(*made), serial_cmp);
	for (i = 0; i < n; i++)
		if (!fdry_va_claim_exists(made[i].addr, made[i].size))
			made[nown++] = made[i];
	return nown;
}

/* The image's allocations by address. @made: which of them the process has made itself. */
struct expected {
	const struct fdry_manifest *m;
	uint32_t *by_addr;
	bool *made;
};

static int addr_cmp(const void *a, const void *b, void *allocs)
{
	const struct fdry_mf_alloc *of = allocs;
	uint64_t x = of[*(const uint32_t *)a].addr, y = of[*(const uint32_t *)b].addr;

	return (x > y) - (x < y);
}

static int expected_init(struct expected *e, const struct fdry_manifest *m)
{
	uint32_t i;

	*e = (struct expected){ .m = m, .by_addr = calloc(m->n_allocs + 1ul, sizeof(*e->by_addr)),
				.made = calloc(m->n_allocs + 1ul, sizeof(*e->made)) };
	if (!e->by_addr || !e->made)
		return fdry_nomem();
	for (i = 0; i < m->n_allocs; i++)
		e->by_addr[i] = i;
	qsort_r(e->by_addr, m->n_allocs, sizeof(*e->by_addr), addr_cmp, (void *)m->allocs);
	return 0;
}

static void expected_release(struct expected *e)
{
	free(e->by_addr);
	free(e->made);
}

/* The position, in the order of addresses, of the first allocation that ends above @addr; n_allocs
 * if there is none. */
static uint32_t expected_behind(const struct expected *e, uint64_t addr)
{
	const struct fdry_mf_alloc *a = e->m->allocs;
	return (uint32_t)fdry_lower_bound(i, e->m->n_allocs,
					  a[e->by_addr[i]].addr + a[e->by_addr[i]].size <= addr);
}

static const struct fdry_mf_alloc *expected_at(const struct expected *e, uint32_t i)
{
	return i < e->m->n_allocs ? &e->m->allocs[e->by_addr[i]] : NULL;
}

/* The first segment of the image with a byte in [@addr, @end), or NULL. */
static const struct fdry_mf_segment *segment_in(const struct fdry_manifest *m, uint64_t addr,
						uint64_t end)
{
	uint32_t i = fdry_manifest_segment(m, addr);

	return i < m->n_segments && m->segments[i].addr < end ? &m->segments[i] : NULL;
}

static int conflict(size_t i, const struct fdry_alloc *a, const struct fdry_mf_alloc *other)
{
	return fdry_fail(
		FDRY_E_LAYOUT,
		"allocation %zu of this process has %llu bytes at %#llx; in the process that "
		"sealed the image, it had %llu bytes at %#llx; make the same allocations in "
		"the same order, or load the image before others are made",
		i, (unsigned long long)a->size, (unsigned long long)a->addr,
		(unsigned long long)other->size, (unsigned long long)other->addr);
}

static int in_the_way(size_t i, const struct fdry_alloc *a, const struct fdry_mf_segment *s)
{
	return fdry_fail(FDRY_E_LAYOUT,
			 "allocation %zu of this process (%llu bytes at %#llx) overlaps %llu bytes "
			 "at %#llx that the image "
			 "writes; load the image before it is made",
			 i, (unsigned long long)a->size, (unsigned long long)a->addr,
			 (unsigned long long)s->size, (unsigned long long)s->addr);
}

/* Pool allocations are rounded up by less than others. So the image would write past the end of
 * this one. */
static int small_capacity(size_t i, const struct fdry_alloc *a)
{
	return fdry_fail(
		FDRY_E_LAYOUT,
		"allocation %zu of this process (%llu bytes at %#llx) has only %llu bytes "
		"with padding, fewer than in the process that sealed the image; make it in "
		"the same way, from a pool or not",
		i, (unsigned long long)a->size, (unsigned long long)a->addr,
		(unsigned long long)a->extent);
}

/* Check that allocation @i of the process is also one of the image's, or touches neither these nor
 * other memory of the image. */
static int alloc_compare(struct expected *e, size_t i, const struct fdry_alloc *a)
{
	uint64_t end = a->addr + a->extent;
	uint32_t k = expected_behind(e, a->addr);
	const struct fdry_mf_alloc *found = expected_at(e, k), *next;
	const struct fdry_mf_segment *s;

	if (!found || found->addr >= end) {
		s = segment_in(e->m, a->addr, end);
		return s ? in_the_way(i, a, s) : 0;
	}
	if (found->addr != a->addr || found->size != a->size)
		return conflict(i, a, found);
	next = expected_at(e, k + 1);
	if (next && next->addr < end)
		return conflict(i, a, next);
	if (a->kind == FDRY_KIND_POOL && !(next && next->addr == end) &&
	    segment_in(e->m, end, end + 1))
		return small_capacity(i, a);
	e->made[e->by_addr[k]] = true;
	return 0;
}

static int region_compare(const struct fdry_manifest *m, uint64_t base, uint64_t size)
{
	if (base != m->header->base)
		return fdry_fail(
			FDRY_E_LAYOUT,
			"the image was captured in a region at %#llx, and the region of this "
			"process begins at %#llx; use the same base",
			(unsigned long long)m->header->base, (unsigned long long)base);
	if (m->header->end - base > size)
		return fdry_fail(
			FDRY_E_LAYOUT,
			"the image ends %llu bytes above its base, and the region has %llu; "
			"make it as large as the region of the capture",
			(unsigned long long)(m->header->end - base), (unsigned long long)size);
	return 0;
}

/* Claim the allocation at position @i in the order of addresses. Padding ends where the image's
 * next allocation begins. */
static int claim(struct fdry_image *img, const struct expected *e, uint32_t i)
{
	const struct fdry_mf_alloc *a = expected_at(e, i), *next = expected_at(e, i + 1);
	CUdeviceptr addr = a->addr;
	int err = fdry_buf_put(&img->claimed, &addr, sizeof(addr));

	if (err)
		return err;
	err = fdry_va_claim_get(img->place_hook, addr, a->size, next ? next->addr : UINT64_MAX);
	if (err)
		img->claimed.len -= sizeof(addr);
	return err;
}

static int quiet(const struct fdry_image *img)
{
	struct fdry_hook_live live;

	img->place_hook->live(&live);
	if (live.captures)
		return fdry_fail(FDRY_E_STATE,
				 "%llu stream(s) are capturing; end every capture before an image "
				 "is loaded into the region",
				 (unsigned long long)live.captures);
	return fdry_call(img->drv, cuCtxSynchronize);
}

static int keeps_add(struct fdry_image *img, const struct fdry_load_opts *o,
		     const struct fdry_alloc *made, size_t n)
{
	size_t i;
	int err;

	for (i = 0; o->keep && i < o->nkeep; i++) {
		err = keep_add(img, o->keep[i].addr, o->keep[i].bytes);
		if (err)
			return err;
	}
	for (i = 0; !o->keep && i < n; i++) {
		err = keep_add(img, made[i].addr, made[i].extent);
		if (err)
			return err;
	}
	keep_sort(img);
	return 0;
}

/*
 * Other images have claimed memory in the region, so content may be there already. The kernel that
 * compares must not read memory that the program mapped: the device may have no access to it, and
 * the fault would end the context. A copy from such memory only fails.
 */
static bool may_be_there(const struct fdry_image *img, const struct fdry_alloc *made, size_t nown,
			 size_t n)
{
	size_t i;

	for (i = 0; i < nown; i++)
		if (made[i].kind == FDRY_KIND_MAP)
			return false;
	return nown < n && img->m.n_fingerprints && !img->verify;
}

/* Compare all allocations before the first is claimed. */
static int allocs_place(struct fdry_image *img, const struct fdry_load_opts *o,
			struct fdry_alloc *made, size_t n)
{
	size_t i, nown = allocs_own(made, n);
	struct expected e;
	int err = expected_init(&e, &img->m);

	if (err)
		goto out_release;
	err = keeps_add(img, o, made, nown);
	if (err)
		goto out_release;
	img->reuse = may_be_there(img, made, nown, n);
	for (i = 0; i < nown; i++) {
		err = alloc_compare(&e, i, &made[i]);
		if (err)
			goto out_release;
	}
	for (i = 0; i < img->m.n_allocs; i++) {
		if (!e.made[e.by_addr[i]])
			err = claim(img, &e, i);
		if (err)
			goto out_release;
	}
out_release:
	expected_release(&e);
	return err;
}

int fdry_placement_make(struct fdry_image *img, const struct fdry_load_opts *o)
{
	struct fdry_alloc *made = NULL;
	uint64_t size = 0;
	CUdeviceptr base;
	size_t n;
	int err;

	img->place_hook = o->into->hook;
	img->keep_listed = o->keep != NULL;
	fdry_pinned_hold(img->drv, img->primary);
	if (img->device != o->into->device)
		return fdry_fail(FDRY_E_OPTS,
				 "the image is to be loaded on device %d, and the capture is on "
				 "another; use one device",
				 o->device);
	err = quiet(img);
	if (err)
		return err;
	err = fdry_interposer_result(img->place_hook,
				  img->place_hook->region_ledger(&base, &size, &made, &n));
	if (err)
		return err;
	err = region_compare(&img->m, base, size);
	if (err)
		goto out_free;
	err = allocs_place(img, o, made, n);
out_free:
	free(made);
	return err;
}

void fdry_placement_release(struct fdry_image *img)
{
	const CUdeviceptr *addr = (const CUdeviceptr *)img->claimed.data;
	size_t i;

	for (i = img->claimed.len / sizeof(*addr); i; i--)
		fdry_va_claim_put(img->place_hook, addr[i - 1]);
	fdry_buf_release(&img->claimed);
	fdry_buf_release(&img->kept);
	if (img->place_hook)
		fdry_pinned_release(img->drv, img->primary);
}

int fdry_placement_reserve(struct fdry_image *img, const struct fdry_plan *plan)
{
	char hex[FDRY_OID_HEX_SIZE];
	int err = fdry_plan_check(plan, img->drv);

	if (err)
		return err;
	err = fdry_region_new(img->drv, img->device, plan->base, plan->size, &img->region);
	if (err)
		return fdry_placed_fail(err, plan->base, plan->size);
	img->placed.base = plan->base;
	img->placed.size = plan->size;
	snprintf(img->placed.what, sizeof(img->placed.what), "image %.12s",
		 fdry_oid_hex(&img->id, hex));
	fdry_placed_add(&img->placed);
	return 0;
}
