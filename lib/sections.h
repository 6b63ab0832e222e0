/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sections.h - the section directory that follows the header of our formats.
 *
 * Entries of 24 bytes, by ascending id; the sections behind it in the same order, each at
 * the next multiple of 8 after the one before, padding zero, nothing behind the last. So
 * there is one way to lay sections out. A section is never empty.
 */
#ifndef FDRY_LIB_SECTIONS_H
#define FDRY_LIB_SECTIONS_H

#include <stdbool.h>

#include "lib/buf.h"

#define FDRY_SECTION_ALIGN 8u
/* A section with this bit in its id may be skipped by a reader that does not know it. */
#define FDRY_SECTION_OPTIONAL 0x80000000u

/* An entry of the directory, on disk. */
struct fdry_section {
	uint32_t id;
	uint32_t reserved; /* zero */
	uint64_t offset;   /* from the start of the object, bytes */
	uint64_t length;   /* bytes, without padding */
};

_Static_assert(sizeof(struct fdry_section) == 24, "frozen");
_Static_assert(offsetof(struct fdry_section, offset) == 8 && offsetof(struct fdry_section, length) == 16, "frozen");

/* A length with its padding; @bytes is a checked one. */
static inline uint64_t fdry_section_padded(uint64_t bytes)
{
	return (bytes + FDRY_SECTION_ALIGN - 1) & ~(uint64_t)(FDRY_SECTION_ALIGN - 1);
}

bool fdry_all_zero(const void *p, size_t len);

/* --- reading --- */

/* Walks the sections of an object. */
struct fdry_sections {
	struct fdry_span bytes;
	uint64_t entry; /* where the next entry of the directory is, ... */
	uint64_t first; /* ... where the directory ends ... */
	uint64_t at;    /* ... and where the next section must begin */
	uint32_t id;    /* of the section before */
};

/* @bytes: the whole object; @header: bytes of its header; @count: entries of the directory, a checked number below 2^32.
 * FDRY_E_BADIMAGE where the directory ends beyond the object. */
int fdry_sections_begin(struct fdry_span bytes, size_t header, uint32_t count, struct fdry_sections *ret) __must_check;
/* The next section, checked to lie where it must; @id is 0 after the last. FDRY_E_BADIMAGE names the section. */
int fdry_sections_next(struct fdry_sections *s, uint32_t *id, struct fdry_span *data) __must_check;

/* --- writing --- */

struct fdry_section_part {
	uint32_t id;
	struct fdry_span bytes;
};
/* Append directory and sections to @out, which holds the header; empty parts are left out. @count: entries written. */
int fdry_sections_put(const struct fdry_section_part *parts, size_t n, struct fdry_buf *out, uint32_t *count) __must_check;

#endif
