// SPDX-License-Identifier: Apache-2.0
/*
 * plan.c - computes the ranges to map; see plan.h.
 *
 * A few large mappings cost less than many small ones. So small holes between segments are mapped
 * with them.
 */
#include "image/plan.h"

#include <string.h>

/* Larger holes between segments are not mapped. */
#define HOLE_MAX (64ull << 20)

static uint64_t block_down(uint64_t x)
{
	return x & ~((uint64_t)FDRY_ALLOC_BLOCK - 1);
}

static uint64_t block_up(uint64_t x)
{
	return block_down(x + FDRY_ALLOC_BLOCK - 1);
}

static int range_add(struct fdry_plan *p, uint64_t addr, uint64_t end)
{
	struct fdry_plan_range add = { block_down(addr), block_up(end) - block_down(addr) };

	p->mapped += add.size;
	return fdry_buf_put(&p->ranges, &add, sizeof(add));
}

uint64_t fdry_plan_segment(const struct fdry_plan *p, const struct fdry_mf_segment *s)
{
	const struct fdry_capacity *r = fdry_capacity_in(&p->capacities, s->addr, s->size);

	return r ? r->addr + r->bytes - s->addr : s->size;
}

/* A range ends after a tensor with capacity, so that the tensor gets the memory that was asked for,
 * and no more.
 */
static int ranges_make(struct fdry_plan *p, const struct fdry_manifest *m)
{
	const struct fdry_mf_segment *s = m->segments;
	uint64_t from, end;
	uint32_t i;
	int err;

	if (!m->n_segments)
		return 0;
	from = s[0].addr;
	end = s[0].addr + fdry_plan_segment(p, &s[0]);
	for (i = 1; i < m->n_segments; i++) {
		if (s[i].addr - end > HOLE_MAX ||
		    fdry_capacity_in(&p->capacities, s[i - 1].addr, s[i - 1].size)) {
			err = range_add(p, from, end);
			if (err)
				return err;
			from = s[i].addr;
		}
		end = s[i].addr + fdry_plan_segment(p, &s[i]);
	}
	return range_add(p, from, end);
}

static void sums_make(struct fdry_plan *p, const struct fdry_manifest *m)
{
	uint32_t i;

	for (i = 0; i < m->n_segments; i++)
		p->role[m->segments[i].role] += fdry_plan_segment(p, &m->segments[i]);
	for (i = 0; i < m->n_chunks; i++)
		p->copied += m->chunks[i].size;
	for (i = 0; i < m->n_graphs; i++)
		p->nodes += m->graphs[i].nodes;
}

int fdry_plan_make(const struct fdry_manifest *m, const struct fdry_load_opts *o,
		   struct fdry_plan *ret)
{
	struct fdry_plan p = { .base = m->header->base };
	int err;

	if (m->n_segments)
		p.size = block_up(m->header->end - m->header->base);
	err = fdry_capacities_make(m, o, &p.capacities);
	if (err)
		return err;
	sums_make(&p, m);
	err = ranges_make(&p, m);
	if (err)
		goto out_release;
	*ret = p;
	return 0;
out_release:
	fdry_plan_release(&p);
	return err;
}

void fdry_plan_release(struct fdry_plan *p)
{
	fdry_buf_release(&p->ranges);
	fdry_buf_release(&p->capacities);
	memset(p, 0, sizeof(*p));
}

int fdry_plan_check(const struct fdry_plan *p, const struct fdry_driver *drv)
{
	size_t free = 0, total = 0;
	int err = fdry_call(drv, cuMemGetInfo_v2, &free, &total);

	if (err || p->mapped <= free)
		return err;
	return fdry_fail(
		FDRY_E_NODEVMEM,
		"the image needs %llu bytes of device memory, and the device has %zu of %zu free; "
		"free some, or load on another device",
		(unsigned long long)p->mapped, free, total);
}
