// SPDX-License-Identifier: Apache-2.0
/*
 * mapped.c - records the addresses at which the process has mappings at the beginning of a seal.
 *
 * The driver reserves all its memory in the address space of the process. So the driver has no
 * memory at an unmapped address.
 */
#include <stdlib.h>

#include "image/seal/seal.h"
#include "lib/search.h"

int fdry_seal_maps_init(struct fdry_seal_maps *m)
{
	return fdry_maps_list(&m->list, &m->n);
}

void fdry_seal_maps_release(struct fdry_seal_maps *m)
{
	free(m->list);
}

bool fdry_seal_mapped(struct fdry_seal *s, uint64_t addr)
{
	struct fdry_seal_maps *m = &s->maps;
	size_t lo;

	if (addr - m->near.start < m->near.end - m->near.start)
		return m->near_mapped;
	lo = fdry_lower_bound(i, m->n, m->list[i].end <= addr);
	m->near_mapped = lo < m->n && addr >= m->list[lo].start;
	if (m->near_mapped) {
		m->near = m->list[lo];
	} else {
		m->near.start = lo ? m->list[lo - 1].end : 0;
		m->near.end = lo < m->n ? m->list[lo].start : UINT64_MAX;
	}
	return m->near_mapped;
}
