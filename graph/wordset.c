// SPDX-License-Identifier: Apache-2.0
/*
 * wordset.c - see wordset.h. At most half of the slots are in use, so probing ends.
 */
#include "graph/wordset.h"
#include "lib/search.h"

#include <stdlib.h>

#define SLOTS_MIN 1024u

/* The slot of a word, or the free slot for it. */
static struct fdry_word *slot_of(const struct fdry_wordset *w, uint64_t word)
{
	uint64_t i = word * 0x9e3779b97f4a7c15u;

	for (i ^= i >> 32;; i++) {
		struct fdry_word *slot = &w->slots[i & (w->nslots - 1)];

		if (slot->word == word || !slot->word)
			return slot;
	}
}

struct fdry_word *fdry_wordset_find(const struct fdry_wordset *w, uint64_t word)
{
	struct fdry_word *slot = w->nslots ? slot_of(w, word) : NULL;

	return slot && slot->word ? slot : NULL;
}

static int slots_grow(struct fdry_wordset *w)
{
	struct fdry_wordset bigger = { .nslots = w->nslots ? 2 * w->nslots : SLOTS_MIN };
	size_t i;

	bigger.slots = calloc(bigger.nslots, sizeof(*bigger.slots));
	if (!bigger.slots)
		return fdry_nomem();
	for (i = 0; i < w->nslots; i++)
		if (w->slots[i].word)
			*slot_of(&bigger, w->slots[i].word) = w->slots[i];
	free(w->slots);
	w->slots = bigger.slots;
	w->nslots = bigger.nslots;
	return 0;
}

int fdry_wordset_add(struct fdry_wordset *w, uint64_t word, uint64_t stamp)
{
	int err = 2 * fdry_wordset_count(w) < w->nslots ? 0 : slots_grow(w);

	if (err)
		return err;
	err = fdry_buf_put(&w->list, &word, sizeof(word));
	if (err)
		return err;
	*slot_of(w, word) = (struct fdry_word){ word, stamp };
	return 0;
}

/* Merge the @n ascending words at @tail into the @sorted ascending words at @all, where they fit.
 */
static void tail_merge(uint64_t *all, size_t sorted, const uint64_t *tail, size_t n)
{
	while (n)
		if (sorted && all[sorted - 1] > tail[n - 1]) {
			all[sorted + n - 1] = all[sorted - 1];
			sorted--;
		} else {
			all[sorted + n - 1] = tail[n - 1];
			n--;
		}
}

int fdry_wordset_sort(struct fdry_wordset *w)
{
	uint64_t *words = (uint64_t *)w->list.data, *tail;
	size_t n = fdry_wordset_count(w) - w->sorted;

	if (!n)
		return 0;
	tail = malloc(n * sizeof(*tail));
	if (!tail)
		return fdry_nomem();
	memcpy(tail, words + w->sorted, n * sizeof(*tail));
	qsort(tail, n, sizeof(*tail), fdry_u64_cmp);
	tail_merge(words, w->sorted, tail, n);
	free(tail);
	w->sorted += n;
	return 0;
}

void fdry_wordset_release(struct fdry_wordset *w)
{
	fdry_buf_release(&w->list);
	free(w->slots);
	memset(w, 0, sizeof(*w));
}
