// SPDX-License-Identifier: Apache-2.0
/* manifest_check_arrays.c - checks a manifest's sections about CUDA arrays. */
#include "image/manifest_check.h"

#include <stdlib.h>
#include <string.h>

#include "image/array_pieces.h"

#define bad fdry_manifest_bad

static int pieces_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_array_piece *p = m->array_pieces;
	struct fdry_cuarray a;
	uint32_t i;

	for (i = 0; i < m->n_array_pieces; i++, p++) {
		if (p->array >= m->n_arrays)
			return bad("piece %u belongs to no array", i);
		a = fdry_cuarray_of(&m->arrays[p->array]);
		if (p->piece >= fdry_cuarray_pieces(&a))
			return bad("piece %u lies beyond its array", i);
		if (i && (p[-1].array > p->array ||
			  (p[-1].array == p->array && p[-1].piece >= p->piece)))
			return bad("piece %u of an array is out of order", i);
	}
	return 0;
}

/* @seen: for each mipmapped array, a bit for each level of the entries before. */
static int level_check(const struct fdry_manifest *m, uint32_t i, uint32_t *count, uint32_t *seen)
{
	const struct fdry_mf_mipmap_level *l = &m->mipmap_levels[i];
	struct fdry_mf_array want;

	if (l->array >= m->n_arrays || l->mipmap >= m->n_mipmaps || l->reserved ||
	    l->level >= m->mipmaps[l->mipmap].levels)
		return bad("level %u names an array, a mipmapped array or a level that is not "
			   "there", i);
	if (l->mipmap > *count || (i && l[-1].array >= l->array))
		return bad("level %u of a mipmapped array is out of order", i);
	*count += l->mipmap == *count;
	if (seen[l->mipmap] >> l->level & 1)
		return bad("level %u of a mipmapped array is there twice", i);
	seen[l->mipmap] |= 1u << l->level;
	want = fdry_mipmap_level_of(&m->mipmaps[l->mipmap], l->level);
	if (memcmp(&want, &m->arrays[l->array], sizeof(want)))
		return bad("array %u differs from its level of a mipmapped array", l->array);
	return 0;
}

/* There are no more levels than arrays, and no more mipmapped arrays than levels. */
static int levels_check(const struct fdry_manifest *m)
{
	uint32_t i, count = 0, *seen;
	int err = 0;

	if (m->n_mipmaps > m->n_mipmap_levels)
		return bad("a mipmapped array has no level that graphs use");
	seen = calloc(m->n_mipmaps + 1u, sizeof(*seen));
	if (!seen)
		return fdry_nomem();
	for (i = 0; i < m->n_mipmap_levels && !err; i++)
		err = level_check(m, i, &count, seen);
	free(seen);
	if (!err && count < m->n_mipmaps)
		return bad("a mipmapped array has no level that graphs use");
	return err;
}

static int mipmaps_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_mipmap *p = m->mipmaps;
	const char *fault;
	uint32_t i;

	for (i = 0; i < m->n_mipmaps; i++, p++) {
		fault = fdry_cuarray_fault(&p->top);
		if (fault)
			return bad("mipmapped array %u has %s", i, fault);
		if (!p->levels || p->levels > FDRY_MF_LEVELS_MAX || p->reserved)
			return bad("mipmapped array %u has a number of levels that none has, or "
				   "sets a reserved field", i);
	}
	return levels_check(m);
}

int fdry_manifest_check_arrays(const struct fdry_manifest *m)
{
	const char *fault;
	uint32_t i;

	if (m->n_arrays > FDRY_CUARRAYS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the image has %u arrays, and %u are allowed",
				 m->n_arrays, FDRY_CUARRAYS_MAX);
	for (i = 0; i < m->n_arrays; i++) {
		fault = fdry_cuarray_fault(&m->arrays[i]);
		if (fault)
			return bad("array %u has %s", i, fault);
	}
	return pieces_check(m) ?: mipmaps_check(m);
}
