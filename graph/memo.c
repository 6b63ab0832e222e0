// SPDX-License-Identifier: Apache-2.0
/*
 * memo.c - keeps results about words and kernels from one reader of graphs to the next.
 *
 * The print of a kernel has its code, parameters and attributes, which determine the attributes of
 * a new node. Prints are numbered in one table. An emptied table gets a new id, so numbers of
 * earlier tables are not mistaken for its own.
 */
#include "graph/read.h"

/* The most words and prints that are kept. Words are dropped without a check of them: then the
 * reader must find those of kept graphs again, so that the next reader knows them all. */
#define WORDS_MAX (4u << 20)
#define PRINTS_MAX 8192u

static uint64_t last_id;

static int number_new(struct fdry_graph_memo *memo, struct fdry_kernel_set *set, uint32_t kernel,
		      uint32_t *ret)
{
	struct fdry_buf print = { 0 };
	int err = fdry_kernel_set_print(set, kernel, &print) ?:
		  fdry_intern(&memo->prints, print.data, print.len, ret, NULL);

	fdry_buf_release(&print);
	if (!memo->prints_id)
		memo->prints_id = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
	return err;
}

int fdry_read_print(struct fdry_graph_reader *in, uint32_t kernel, uint32_t *ret)
{
	struct fdry_graph_memo *memo = &in->memo;
	size_t have = memo->numbers.len / sizeof(uint32_t);
	uint32_t number, *known;
	int err = 0;

	if (kernel >= have)
		err = fdry_buf_grow(&memo->numbers, (kernel + 1 - have) * sizeof(*known), NULL);
	if (err)
		return err;
	known = (uint32_t *)memo->numbers.data + kernel;
	if (!*known) {
		err = number_new(memo, in->kernels, kernel, &number);
		if (err)
			return err;
		*known = number + 1;
	}
	*ret = *known - 1;
	return 0;
}

/* Is each word still a number, or does it point into the region? */
static bool words_hold(const struct fdry_graph_reader *in, struct fdry_wordset *words)
{
	enum fdry_where where = FDRY_WHERE_NOTHING;
	const uint64_t *word = (const uint64_t *)words->list.data;
	size_t i, n = fdry_wordset_count(words);
	const char *what;

	if (fdry_wordset_sort(words))
		return false;
	for (i = 0; i < n; i++)
		if (in->where(in->where_arg, word[i], 0, &where, &what) ||
		    (where != FDRY_WHERE_NOTHING && where != FDRY_WHERE_REGION))
			return false;
	return true;
}

static void prints_release(struct fdry_graph_memo *memo)
{
	fdry_intern_release(&memo->prints);
	fdry_buf_release(&memo->fresh);
	fdry_intern_release(&memo->rehearsed);
	memo->prints_id = 0;
}

void fdry_graph_memo_adopt(struct fdry_graph_reader *rd, struct fdry_graph_memo *memo)
{
	size_t words = fdry_wordset_count(&memo->words);

	rd->words_again = words && words <= WORDS_MAX && words_hold(rd, &memo->words);
	if (!rd->words_again)
		fdry_wordset_release(&memo->words);
	if (memo->prints.count > PRINTS_MAX)
		prints_release(memo);
	rd->memo = *memo;
	rd->memo.numbers.len = 0; /* this reader has another set */
	*memo = (struct fdry_graph_memo){ 0 };
}

void fdry_graph_memo_yield(struct fdry_graph_reader *rd, bool all, struct fdry_graph_memo *memo)
{
	if (!all)
		fdry_wordset_release(&rd->memo.words);
	*memo = rd->memo;
	rd->memo = (struct fdry_graph_memo){ 0 };
}

void fdry_graph_memo_release(struct fdry_graph_memo *memo)
{
	fdry_wordset_release(&memo->words);
	prints_release(memo);
	fdry_buf_release(&memo->numbers);
}
