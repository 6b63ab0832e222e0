/* SPDX-License-Identifier: Apache-2.0 */
/* manifest_check.h - checks a manifest's entries; only the reader uses it. */
#ifndef FDRY_IMAGE_MANIFEST_CHECK_H
#define FDRY_IMAGE_MANIFEST_CHECK_H

#include "image/manifest.h"

#define fdry_manifest_bad(...) fdry_fail(FDRY_E_BADIMAGE, "damaged manifest: " __VA_ARGS__)

/* Check every entry of @m. Its sections must lie inside its bytes. FDRY_E_BADIMAGE, FDRY_E_LIMIT,
 * FDRY_E_NOMEM. */
int fdry_manifest_check(const struct fdry_manifest *m) __must_check;

/* Check the sections about pinned memory, after those about host segments. FDRY_E_BADIMAGE. */
int fdry_manifest_check_pinned(const struct fdry_manifest *m) __must_check;

/* manifest_check_arrays.c: check the sections about arrays. FDRY_E_BADIMAGE, FDRY_E_LIMIT. */
int fdry_manifest_check_arrays(const struct fdry_manifest *m) __must_check;

/* Whether a string begins at @off. */
static inline bool fdry_manifest_str_ok(const struct fdry_manifest *m, uint32_t off)
{
	if (!m->n_strings)
		return off == 0;
	return off < m->n_strings && (!off || !m->strings[off - 1]);
}

/* manifest_check_pointers.c: check the pointers to module variables. FDRY_E_BADIMAGE. */
int fdry_manifest_check_pointers(const struct fdry_manifest *m) __must_check;

/* manifest_check_audit.c: check the audit, after the graphs. FDRY_E_BADIMAGE. */
int fdry_manifest_check_audit(const struct fdry_manifest *m) __must_check;

#endif
