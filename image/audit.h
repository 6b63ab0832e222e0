/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit.h - counts the words of an image by what they point to.
 *
 * A word has 8 bytes and lies at a multiple of 8, in a kernel node's arguments or in content. A
 * seal counts the words and stores the result in the manifest; it refuses pointers to memory of
 * the process that the image does not hold. The result follows from the rest of the image, so equal
 * images stay equal, and the audit of an image that older versions sealed is made when it is asked
 * for.
 */
#ifndef FDRY_IMAGE_AUDIT_H
#define FDRY_IMAGE_AUDIT_H

#include "graph/codec.h"
#include "image/manifest.h"

struct fdry_reader;

/* The memory by which words are judged: the image's segments and the bounds of its region. */
struct fdry_audit_memory {
	uint64_t base, end;
	const struct fdry_mf_segment *segments;
	size_t n;
};

enum fdry_audit_target {
#define X(member, text) FDRY_AUDIT_##member,
	FDRY_MF_AUDIT_TARGETS(X)
#undef X
	FDRY_AUDIT_TARGETS,
};

/* The target of a word: inside, outside, or none of the region's memory. A pointer one past the end
 * of memory counts as a pointer into it, as in C. */
enum fdry_audit_target fdry_audit_target(const struct fdry_audit_memory *m, uint64_t word);

/* The number of words in content. */
uint64_t fdry_audit_content_words(const struct fdry_audit_memory *m);

/* Add @n to the count of a target. */
void fdry_audit_add(struct fdry_mf_audit *a, enum fdry_audit_target target, int64_t n);

/* Call @fn for each word of the arguments of each kernel node, until it fails. @at: in the node's
 * arguments. */
typedef int (*fdry_audit_fn)(void *arg, uint32_t node, uint64_t at, uint64_t word);
int fdry_audit_args(const struct fdry_graph_view *view, fdry_audit_fn fn, void *arg) __must_check;

/* Count the pointers to variables. The image has zeros in their places, which were counted as no
 * pointers. @entries: those of all graphs and of content. */
void fdry_audit_variables(struct fdry_mf_audit *entries, uint32_t graphs,
			  const struct fdry_mf_arg_pointer *args, size_t nargs, size_t ncontent);

/* Put the word into a list of words that point outside, unless it has FDRY_MF_AUDIT_WORDS_MAX. */
int fdry_audit_list(struct fdry_buf *words, const struct fdry_mf_audit_word *w) __must_check;

/* The audit of an image, as the manifest's sections have it. */
struct fdry_audit {
	struct fdry_buf entries; /* of struct fdry_mf_audit: one a graph, then content */
	struct fdry_buf words;   /* of struct fdry_mf_audit_word */
};

/* Make the audit of an image from its graphs and content, whether it has a stored one or not. */
int fdry_audit_make(struct fdry_reader *reader, const struct fdry_manifest *m,
		    struct fdry_audit *ret) __must_check;
void fdry_audit_release(struct fdry_audit *a);

#endif
