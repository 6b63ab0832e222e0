// SPDX-License-Identifier: Apache-2.0
/*
 * describe_content.c - lists the memory whose bytes an image holds.
 *
 * Chunks are compared with the named tensors, and with the allocations of the capturing process if
 * the manifest has them, else with its segments.
 */
#include <stdlib.h>

#include "image/describe.h"
#include "image/tensor.h"
#include "lib/search.h"
#include "mm/region.h"

struct range {
	uint64_t addr, end;
};

static struct range *ranges_of(const struct fdry_buf *b)
{
	return (struct range *)b->data;
}

static size_t count_of(const struct fdry_buf *b)
{
	return b->len / sizeof(struct range);
}

static int range_cmp(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

static int range_add(struct fdry_buf *ranges, uint64_t addr, uint64_t size)
{
	const struct range r = { addr, addr + size };

	return fdry_buf_put(ranges, &r, sizeof(r));
}

static void ranges_sort(struct fdry_buf *ranges)
{
	if (ranges->len)
		qsort(ranges->data, count_of(ranges), sizeof(struct range),
		      range_cmp);
}

/* Tensors of content, ascending; those that share bytes are joined. */
static int tensors_list(const struct fdry_manifest *m, struct fdry_buf *ret)
{
	struct range *r;
	struct fdry_tensor t;
	uint64_t extent;
	size_t n, k = 0, j;
	uint32_t i;
	int err;

	for (i = 0; i < m->n_tensors; i++) {
		if (m->tensors[i].flags & (FDRY_TENSOR_EXTERNAL | FDRY_TENSOR_HOST))
			continue;
		fdry_manifest_tensor_get(m, &m->tensors[i], &t);
		err = fdry_tensor_extent(&t, &extent) ?: range_add(ret, t.addr, extent);
		if (err)
			return err;
	}
	ranges_sort(ret);
	r = ranges_of(ret);
	n = count_of(ret);
	for (j = 0; j < n; j++) {
		if (k && r[j].addr <= r[k - 1].end)
			r[k - 1].end = r[j].end > r[k - 1].end ? r[j].end : r[k - 1].end;
		else
			r[k++] = r[j];
	}
	ret->len = k * sizeof(*r);
	return 0;
}

/* The bytes that an allocation occupies (mm/bump.h). */
static uint64_t extent_of(uint64_t size)
{
	uint64_t unit = size < FDRY_ALLOC_BLOCK ? FDRY_ALLOC_ALIGN : FDRY_ALLOC_BLOCK;

	return (size + unit - 1) / unit * unit;
}

/* List the ranges in which content may lie, ascending. */
static int places_list(const struct fdry_manifest *m, struct fdry_buf *ret)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < m->n_allocs && !err; i++)
		err = range_add(ret, m->allocs[i].addr, extent_of(m->allocs[i].size));
	for (i = 0; !m->n_allocs && i < m->n_segments && !err; i++)
		if (m->segments[i].role == FDRY_ROLE_CONTENT)
			err = range_add(ret, m->segments[i].addr, m->segments[i].size);
	ranges_sort(ret);
	return err;
}

/* Bytes of [@addr, @end) that lie in @ranges, which are ascending and apart. */
static uint64_t bytes_in(const struct fdry_buf *ranges, uint64_t addr, uint64_t end)
{
	const struct range *r = ranges_of(ranges);
	size_t n = count_of(ranges);
	size_t i = fdry_lower_bound(at, n, r[at].end <= addr);
	uint64_t from, to, sum = 0;

	for (; i < n && r[i].addr < end; i++) {
		from = r[i].addr > addr ? r[i].addr : addr;
		to = r[i].end < end ? r[i].end : end;
		sum += to - from;
	}
	return sum;
}

/* Bytes that the image keeps of a place and that lie in no tensor. */
static uint64_t place_nameless(const struct fdry_manifest *m, const struct range *place,
			       const struct fdry_buf *tensors)
{
	const struct fdry_mf_chunk *c = m->chunks;
	size_t i = fdry_lower_bound(at, m->n_chunks, c[at].addr + c[at].size <= place->addr);
	uint64_t from, to, sum = 0;

	for (; i < m->n_chunks && c[i].addr < place->end; i++) {
		from = c[i].addr > place->addr ? c[i].addr : place->addr;
		to = c[i].addr + c[i].size < place->end ? c[i].addr + c[i].size : place->end;
		sum += to - from - bytes_in(tensors, from, to);
	}
	return sum;
}

static int sums_text(const struct fdry_manifest *m, const struct fdry_buf *tensors,
		     struct fdry_buf *out)
{
	uint64_t all = 0, named = 0;
	uint32_t i;

	for (i = 0; i < m->n_chunks; i++) {
		all += m->chunks[i].size;
		named +=
			bytes_in(tensors, m->chunks[i].addr, m->chunks[i].addr + m->chunks[i].size);
	}
	return fdry_buf_printf(out, "content of tensors %llu, of other memory %llu\n",
			       (unsigned long long)named, (unsigned long long)(all - named));
}

static int places_text(const struct fdry_manifest *m, const struct fdry_buf *places,
		       const struct fdry_buf *tensors, struct fdry_buf *out)
{
	const struct range *p = ranges_of(places);
	size_t i, n = count_of(places);
	uint64_t nameless;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		nameless = place_nameless(m, &p[i], tensors);
		if (nameless)
			err = fdry_buf_printf(out, "content in no tensor %#llx %llu of %llu\n",
					      (unsigned long long)p[i].addr,
					      (unsigned long long)nameless,
					      (unsigned long long)(p[i].end - p[i].addr));
	}
	return err;
}

int fdry_describe_content(const struct fdry_manifest *m, struct fdry_buf *out)
{
	struct fdry_buf tensors = { 0 }, places = { 0 };
	int err;

	if (!m->n_chunks)
		return 0;
	err = tensors_list(m, &tensors);
	if (err)
		goto out_release;
	err = places_list(m, &places);
	if (err)
		goto out_release;
	err = sums_text(m, &tensors, out) ?: places_text(m, &places, &tensors, out);
out_release:
	fdry_buf_release(&tensors);
	fdry_buf_release(&places);
	return err;
}
