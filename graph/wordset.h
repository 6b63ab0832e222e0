/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wordset.h - a set of 64-bit words that are not 0, with a stamp for each.
 *
 * The reader of a graph adds each word of the graph to the list once: a word's stamp names the
 * graph that listed it last.
 */
#ifndef FDRY_GRAPH_WORDSET_H
#define FDRY_GRAPH_WORDSET_H

#include "lib/buf.h"
#include "lib/err.h"

struct fdry_word {
	uint64_t word; /* 0: a free slot */
	uint64_t stamp;
};

/* Zero it to start. */
struct fdry_wordset {
	struct fdry_word *slots; /* open addressing; nslots is a power of two */
	size_t nslots;
	struct fdry_buf list; /* u64 each: the first @sorted are ascending, the others are in the
				 order of adding */
	size_t sorted;
	uint64_t reading; /* the stamp of the graph that is being read; even */
};

static inline size_t fdry_wordset_count(const struct fdry_wordset *w)
{
	return w->list.len / sizeof(uint64_t);
}

/* The entry of a word, valid until a word is added; NULL if the set does not have it. */
struct fdry_word *fdry_wordset_find(const struct fdry_wordset *w, uint64_t word);
/* Add a word that the set does not have. */
int fdry_wordset_add(struct fdry_wordset *w, uint64_t word, uint64_t stamp) __must_check;
/* Sort the list: new words are sorted and merged into the others. */
int fdry_wordset_sort(struct fdry_wordset *w) __must_check;
void fdry_wordset_release(struct fdry_wordset *w);

#endif
