// SPDX-License-Identifier: Apache-2.0
/*
 * into.c - an image placed among the allocations of a live capture; see into.h.
 */
#include "api/into.h"

#include <stdlib.h>
#include <string.h>

#include "api/capture.h"
#include "api/opts.h"
#include "api/stakes.h"

/* The context that the program works in is current now, and no longer when the image is placed: quiet() waits for the
 * primary one, and refuses what captures. */
static int program_wait(const struct fdry_capture *cap)
{
	struct fdry_hook_live live;

	cap->hook->live(&live);
	return live.captures ? 0 : fdry_capture_wait(cap);
}

int fdry_into_check(const struct fdry_load_opts *o)
{
	int err = o->into ? fdry_capture_check(o->into) : 0;

	if (err)
		return err;
	if (!o->into && (o->keep || o->nkeep))
		return fdry_fail(FDRY_E_OPTS, "memory is to be kept, but no capture is named that the image goes into; set "
				 "fdry_load_opts.into");
	if (o->nkeep && !o->keep)
		return fdry_fail(FDRY_E_OPTS, "fdry_image_load() was given %zu ranges to keep at NULL", o->nkeep);
	if (o->into && o->nexternals)
		return fdry_fail(FDRY_E_OPTS, "an image that goes into a capture has external tensors as large as they were "
				 "captured; leave fdry_load_opts.externals out");
	return o->into ? program_wait(o->into) : 0;
}

/* --- what the process keeps --- */

static int memory_cmp(const void *a, const void *b)
{
	uint64_t x = ((const struct fdry_memory *)a)->addr, y = ((const struct fdry_memory *)b)->addr;

	return (x > y) - (x < y);
}

/* What would go beyond the last address ends there. */
static int keep_add(struct fdry_image *img, uint64_t addr, uint64_t bytes)
{
	if (bytes > UINT64_MAX - addr)
		bytes = UINT64_MAX - addr;
	return bytes ? fdry_buf_put(&img->kept, &(struct fdry_memory){ addr, bytes }, sizeof(struct fdry_memory)) : 0;
}

/* Ascending; where two overlap the pieces between come out right all the same. */
static void keep_sort(struct fdry_image *img)
{
	if (img->kept.len)
		qsort(img->kept.data, img->kept.len / sizeof(struct fdry_memory), sizeof(struct fdry_memory), memory_cmp);
}

int fdry_into_pieces(const struct fdry_image *img, uint64_t addr, uint64_t size, fdry_into_fn fn, void *arg)
{
	const struct fdry_memory *k = (const struct fdry_memory *)img->kept.data;
	size_t i, n = img->kept.len / sizeof(*k);
	uint64_t at = addr, end = addr + size;
	int err = 0;

	for (i = 0; i < n && at < end && k[i].addr < end && !err; i++) {
		if (k[i].addr > at)
			err = fn(arg, at, k[i].addr - at);
		if (k[i].addr + k[i].bytes > at)
			at = k[i].addr + k[i].bytes;
	}
	return err || at >= end ? err : fn(arg, at, end - at);
}

/* --- allocations --- */

static int alloc_cmp(const void *a, const void *b)
{
	uint64_t x = ((const struct fdry_alloc *)a)->serial, y = ((const struct fdry_alloc *)b)->serial;

	return (x > y) - (x < y);
}

static int differs(const struct fdry_manifest *m, size_t i, size_t k, const struct fdry_alloc *a)
{
	if (k >= m->n_allocs)
		return fdry_fail(FDRY_E_LAYOUT, "allocation %zu of this process (%llu bytes at %#llx) is one that the image does not "
				 "have: it was sealed with %u; load it before allocating more", i, (unsigned long long)a->size,
				 (unsigned long long)a->addr, m->n_allocs);
	return fdry_fail(FDRY_E_LAYOUT, "allocation %zu of this process has %llu bytes at %#llx, that of the process that sealed the "
			 "image %llu bytes at %#llx; make the same allocations in the same order", i, (unsigned long long)a->size,
			 (unsigned long long)a->addr, (unsigned long long)m->allocs[k].size, (unsigned long long)m->allocs[k].addr);
}

static bool matches(const struct fdry_alloc *a, const struct fdry_mf_alloc *want)
{
	return a->addr == want->addr && a->size == want->size;
}

/* Leave out what images have claimed; how many remain, which are the process' own, in the order in which they were made. */
static size_t allocs_own(struct fdry_alloc *made, size_t n)
{
	size_t i, own = 0;

	qsort(made, n, sizeof(*made), alloc_cmp);
	for (i = 0; i < n; i++)
		if (!fdry_stake_held(made[i].addr, made[i].size))
			made[own++] = made[i];
	return own;
}

/* Of what is in a pool less is its own than of other memory: what the image has behind it would go into another's. */
static int room_compare(const struct fdry_manifest *m, size_t i, const struct fdry_alloc *a)
{
	uint64_t end = a->addr + a->room;
	uint32_t k;

	for (k = 0; k < m->n_allocs; k++)
		if (m->allocs[k].addr == end)
			return 0; /* what lies there is compared by itself */
	for (k = 0; k < m->n_segments; k++)
		if (end >= m->segments[k].addr && end - m->segments[k].addr < m->segments[k].size)
			return fdry_fail(FDRY_E_LAYOUT, "allocation %zu of this process (%llu bytes at %#llx) has room for %llu bytes, that of the "
					 "process that sealed the image for more; make it in the same way, from a pool or not", i,
					 (unsigned long long)a->size, (unsigned long long)a->addr, (unsigned long long)a->room);
	return 0;
}

/* What the process has must be the beginning of what the image has, apart from what images before it have claimed. */
static int allocs_compare(const struct fdry_manifest *m, const struct fdry_alloc *own, size_t n)
{
	size_t i = 0, k;
	int err = 0;

	for (k = 0; k < m->n_allocs && i < n; k++) {
		if (matches(&own[i], &m->allocs[k]))
			i++;
		else if (!fdry_stake_held(m->allocs[k].addr, m->allocs[k].size))
			break;
	}
	if (i < n)
		return differs(m, i, k, &own[i]);
	for (i = 0; i < n && !err; i++)
		if (own[i].kind == FDRY_KIND_POOL)
			err = room_compare(m, i, &own[i]);
	return err;
}

static int region_compare(const struct fdry_manifest *m, uint64_t base, uint64_t size)
{
	if (base != m->header->base)
		return fdry_fail(FDRY_E_LAYOUT, "the image was captured in a region at %#llx, the one of this process begins at %#llx; "
				 "use the same base", (unsigned long long)m->header->base, (unsigned long long)base);
	if (m->header->end - base > size)
		return fdry_fail(FDRY_E_LAYOUT, "the image ends %llu bytes behind its base, the region has %llu; make it as large as the one "
				 "that was captured in", (unsigned long long)(m->header->end - base), (unsigned long long)size);
	return 0;
}

static int claim(struct fdry_image *img, size_t k)
{
	const struct fdry_mf_alloc *a = &img->m.allocs[k];
	CUdeviceptr addr = a->addr;
	int err = fdry_buf_put(&img->claimed, &addr, sizeof(addr));

	if (err)
		return err;
	err = fdry_stake_take(img->into, a->addr, a->size);
	if (err)
		img->claimed.len -= sizeof(addr);
	if (err != -FDRY_E_INVAL)
		return err;
	return fdry_fail(FDRY_E_LAYOUT, "allocation %zu of the image (%llu bytes at %#llx) is from a pool (cuMemAllocAsync), and by itself "
			 "no allocation can begin there; let this process make it before the load", k, (unsigned long long)a->size,
			 (unsigned long long)a->addr);
}

static int quiet(const struct fdry_image *img)
{
	struct fdry_hook_live live;

	img->into->live(&live);
	if (live.captures)
		return fdry_fail(FDRY_E_STATE, "%llu stream(s) are capturing; end every capture before an image is loaded into the region",
				 (unsigned long long)live.captures);
	return fdry_call(img->drv, cuCtxSynchronize);
}

static int keeps_add(struct fdry_image *img, const struct fdry_load_opts *o, const struct fdry_alloc *made, size_t n)
{
	size_t i;
	int err = 0;

	for (i = 0; i < (o->keep ? o->nkeep : 0) && !err; i++)
		err = keep_add(img, o->keep[i].addr, o->keep[i].bytes);
	for (i = 0; i < n && !o->keep && !err; i++)
		err = keep_add(img, made[i].addr, made[i].room);
	keep_sort(img);
	return err;
}

static int allocs_place(struct fdry_image *img, const struct fdry_load_opts *o, struct fdry_alloc *made, size_t n)
{
	const struct fdry_manifest *m = &img->m;
	size_t i = 0, k, own = allocs_own(made, n);
	int err = keeps_add(img, o, made, own);

	if (!err)
		err = allocs_compare(m, made, own);
	for (k = 0; k < m->n_allocs && !err; k++) {
		if (i < own && matches(&made[i], &m->allocs[k]))
			i++;
		else
			err = claim(img, k);
	}
	return err;
}

int fdry_into_place(struct fdry_image *img, const struct fdry_load_opts *o)
{
	struct fdry_alloc *made = NULL;
	uint64_t size = 0;
	CUdeviceptr base;
	size_t n;
	int err;

	img->into = o->into->hook;
	if (img->device != o->into->device)
		return fdry_fail(FDRY_E_OPTS, "the image is to be loaded on device %d, and the capture is on another; use one device",
				 o->device);
	err = quiet(img);
	if (!err)
		err = fdry_standin_result(img->into, img->into->region_ledger(&base, &size, &made, &n));
	if (err)
		return err;
	err = region_compare(&img->m, base, size);
	if (!err)
		err = allocs_place(img, o, made, n);
	free(made);
	return err;
}

void fdry_into_free(struct fdry_image *img)
{
	const CUdeviceptr *addr = (const CUdeviceptr *)img->claimed.data;
	size_t i;

	for (i = img->claimed.len / sizeof(*addr); i; i--)
		fdry_stake_drop(img->into, addr[i - 1]);
	fdry_buf_release(&img->claimed);
	fdry_buf_release(&img->kept);
}
