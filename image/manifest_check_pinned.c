// SPDX-License-Identifier: Apache-2.0
/*
 * manifest_check_pinned.c - checks a manifest's sections about pinned memory: allocations lie apart
 * and outside of the region, roles and chunks inside of them, and host segments with an address in
 * one of them.
 */
#include "image/manifest_check.h"

#include "lib/search.h"
#include "mm/region.h"

#define bad fdry_manifest_bad

/* Pinned memory ends below the addresses that no process can map. */
#define PINNED_END (1ull << 47)

static int allocs_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_pinned *p = m->pinned;
	uint64_t at = FDRY_MF_HOST_ALIGN_MAX;
	uint32_t i;

	for (i = 0; i < m->n_pinned; i++, p++) {
		if (p->kind > FDRY_MF_PINNED_REGISTERED || p->reserved)
			return bad("pinned allocation %u is of an unknown kind", i);
		if (p->addr < at || !p->size || p->addr > PINNED_END ||
		    p->size > PINNED_END - p->addr)
			return bad("pinned allocation %u overlaps another or has a bad size", i);
		if (p->addr < m->header->end && p->addr + p->size > m->header->base)
			return bad("pinned allocation %u lies in the region", i);
		at = p->addr + p->size;
	}
	return 0;
}

static int roles_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_pinned_role *r = m->pinned_roles;
	uint64_t at = 0;
	uint32_t i;

	for (i = 0; i < m->n_pinned_roles; i++, r++) {
		if ((r->role != FDRY_ROLE_SCRATCH && r->role != FDRY_ROLE_EXTERNAL) || r->reserved)
			return bad("pinned role %u is unknown", i);
		if (r->addr < at || !r->size || !fdry_manifest_pinned(m, r->addr, r->size))
			return bad("pinned role %u does not lie in a pinned allocation", i);
		at = r->addr + r->size;
	}
	return 0;
}

static int chunks_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_pinned_chunk *c = m->pinned_chunks;
	const struct fdry_mf_pinned_role *r = m->pinned_roles;
	uint64_t at = 0;
	uint32_t i;
	size_t k;

	for (i = 0; i < m->n_pinned_chunks; i++, c++) {
		if (c->addr < at || !c->size || c->size > FDRY_MF_CHUNK_MAX ||
		    !fdry_manifest_pinned(m, c->addr, c->size))
			return bad("pinned chunk %u does not lie in a pinned allocation", i);
		at = c->addr + c->size;
		k = fdry_lower_bound(j, m->n_pinned_roles, r[j].addr + r[j].size <= c->addr);
		if (k < m->n_pinned_roles && r[k].addr < at)
			return bad("pinned chunk %u does not lie in content", i);
	}
	return 0;
}

/* Whether a segment lies in one pinned allocation. It begins up to 15 bytes before its first
 * tensor, in the same page. */
static bool host_place_ok(const struct fdry_manifest *m, const struct fdry_mf_host_place *p)
{
	const struct fdry_mf_pinned *in;

	if (p->segment >= m->n_hosts || p->reserved || p->addr % FDRY_HOST_ALIGN ||
	    p->addr >= PINNED_END)
		return false;
	in = fdry_manifest_pinned(m, p->addr + m->hosts[p->segment].size - 1, 1);
	return in && in->addr < p->addr + FDRY_HOST_ALIGN;
}

static int host_places_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_host_place *p = m->host_places;
	uint32_t i;

	for (i = 0; i < m->n_host_places; i++, p++)
		if ((i && p[-1].segment >= p->segment) || !host_place_ok(m, p))
			return bad("host segment of place %u does not lie in pinned memory", i);
	return 0;
}

int fdry_manifest_check_pinned(const struct fdry_manifest *m)
{
	int err = allocs_check(m);

	if (err)
		return err;
	err = roles_check(m);
	if (err)
		return err;
	err = chunks_check(m);
	return err ? err : host_places_check(m);
}
