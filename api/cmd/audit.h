/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit.h - classifies every aligned word of arguments and content of an image, by its target.
 *
 * The result follows from the image alone, so it is computed when it is asked for. A seal refuses
 * pointers to memory of the process that the image does not hold.
 */
#ifndef FDRY_API_CMD_AUDIT_H
#define FDRY_API_CMD_AUDIT_H

#include "api/cmd/image.h"

/* X(member, text): the targets of a word. */
#define AUDIT_CLASSES(X) \
	X(inside, "inside the image") \
	X(variables, "to module variables") \
	X(host, "to pinned host memory") \
	X(outside, "to memory of the region that the image does not hold") \
	X(none, "are no pointers")

struct audit_counts {
#define X(member, text) uint64_t member;
	AUDIT_CLASSES(X)
#undef X
};

/* A word that points outside. */
struct audit_word {
	int64_t graph;   /* index in the manifest; -1: content */
	uint32_t node;
	uint64_t at;     /* in the node's arguments, or an address of content */
	uint64_t word;
};

#define AUDIT_WORDS_MAX 16u /* words that are listed, in all */

struct audit {
	struct audit_counts *graphs; /* arguments, by position in the manifest */
	struct audit_counts content;
	struct audit_word words[AUDIT_WORDS_MAX];
	size_t nwords;
};

int audit_make(struct fdry_reader *reader, const struct fdry_manifest *m,
	       struct audit *ret) __must_check;
void audit_release(struct audit *a);
/* "3 inside the image, 5 are no pointers", without classes that have no word. */
void audit_text(const struct audit_counts *c, char *ret, size_t len);
void audit_print(const struct fdry_manifest *m, const struct audit *a);
void audit_json(struct json *j, const struct fdry_manifest *m, const struct audit *a);

#endif
