// SPDX-License-Identifier: Apache-2.0
/* manifest_check_arrays.c - checks a manifest's sections about CUDA arrays. */
#include "image/manifest_check.h"

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
	return pieces_check(m);
}
