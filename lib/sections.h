/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sections.h - the section directory that follows the header of our formats.
 *
 * The directory has entries of 24 bytes, by ascending id. The sections follow it in the same order,
 * each at the next multiple of 8 behind the section before. Padding is zero, and no bytes follow
 * the last section. So sections can be laid out in one way only. A section is never empty.
 */
#ifndef FDRY_LIB_SECTIONS_H
#define FDRY_LIB_SECTIONS_H

#include <stdbool.h>

#include "lib/buf.h"

#define FDRY_SECTION_ALIGN 8u
/* A reader that does not know a section may skip it if its id has this bit. */
#define FDRY_SECTION_OPTIONAL 0x80000000u

/* An entry of the directory, on disk. */
struct fdry_section {
	uint32_t id;
	uint32_t reserved; /* zero */
	uint64_t offset;   /* from the start of the object, bytes */
	uint64_t length;   /* bytes, without padding */
};

_Static_assert(sizeof(struct fdry_section) == 24, "frozen");
_Static_assert(offsetof(struct fdry_section, offset) == 8 &&
		       offsetof(struct fdry_section, length) == 16,
	       "frozen");

/* A length, which was checked, with its padding. */
static inline uint64_t fdry_section_padded(uint64_t bytes)
{
	return (bytes + FDRY_SECTION_ALIGN - 1) & ~(uint64_t)(FDRY_SECTION_ALIGN - 1);
}

bool fdry_all_zero(const void *p, size_t len);

/* --- reading --- */

/* Walks the sections of an object. */
struct fdry_sections {
	struct fdry_span bytes;
	uint64_t entry; /* offset of the next entry of the directory */
	uint64_t first; /* offset of the end of the directory */
	uint64_t at;    /* offset at which the next section must begin */
	uint32_t id;    /* of the section before */
};

/* @bytes: the whole object; @header: bytes of its header; @count: entries of the directory, a
 * checked number below 2^32. FDRY_E_BADIMAGE if the directory ends beyond the object. */
int fdry_sections_begin(struct fdry_span bytes, size_t header, uint32_t count,
			struct fdry_sections *ret) __must_check;
/* The next section, whose position was checked; @id is 0 after the last one. FDRY_E_BADIMAGE names
 * the section. */
int fdry_sections_next(struct fdry_sections *s, uint32_t *id, struct fdry_span *data) __must_check;

/* --- writing --- */

struct fdry_section_part {
	uint32_t id;
	struct fdry_span bytes;
};
/* Append directory and sections to @out, which holds the header; without empty parts. @count:
 * entries written. */
int fdry_sections_put(const struct fdry_section_part *parts, size_t n, struct fdry_buf *out,
		      uint32_t *count) __must_check;

#endif
