/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - the words of one line of a graph object's text form.
 *
 * Words are separated by spaces; '#' starts a comment. Errors are FDRY_E_INVAL and name the
 * expected word; the reader of lines adds the number of the line.
 */
#ifndef FDRY_GRAPH_TEXT_H
#define FDRY_GRAPH_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/buf.h"
#include "graph/attr.h"

struct fdry_words {
	const char *at;
	const char *end; /* of the line */
};

/* A line that is converted to a node. The node's spans point to the memory here until the next
 * line. */
struct fdry_text {
	struct fdry_words w;
	struct fdry_buf args;
	struct fdry_graph_attr attrs[FDRY_ATTR_IDS];
};

/* The next word, or false at the end of the line. */
bool fdry_word(struct fdry_words *w, struct fdry_span *ret);
/* Skip the next word if it is @word, and return true. */
bool fdry_word_is(struct fdry_words *w, const char *word);
int fdry_word_expect(struct fdry_words *w, const char *word) __must_check;
/* The next word as a number from 0 to @max: decimal, or hexadecimal with 0x. @what names it. */
int fdry_word_u64(struct fdry_words *w, const char *what, uint64_t max, uint64_t *ret) __must_check;
int fdry_word_u32(struct fdry_words *w, const char *what, uint32_t *ret) __must_check;
int fdry_word_i32(struct fdry_words *w, const char *what, int32_t *ret) __must_check;
/* The word @name, then a number of up to 64 bits. */
int fdry_named_u64(struct fdry_words *w, const char *name, uint64_t *ret) __must_check;
int fdry_words_end(struct fdry_words *w) __must_check;

/* Convert bytes to words of up to 8 bytes and back, up to the end of the line. Each word is a
 * little-endian number in hexadecimal, with all its digits, after a space. */
int fdry_bytes_to_text(struct fdry_span bytes, struct fdry_buf *ret) __must_check;
int fdry_bytes_from_text(struct fdry_words *w, struct fdry_buf *ret) __must_check;

#endif
