// SPDX-License-Identifier: Apache-2.0
/* Unit tests of sets of words: all added words are found, and the list is always sorted. */
#include "graph/wordset.h"
#include "tests/lib/test.h"

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 17 | 1;
}

START_TEST(words_are_found)
{
	struct fdry_wordset w = { 0 };
	uint64_t state = 1, word;
	struct fdry_word *found;
	int i;

	ck_assert_ptr_null(fdry_wordset_find(&w, 5));
	for (i = 0; i < 5000; i++) {
		word = next(&state);
		ck_assert_ptr_null(fdry_wordset_find(&w, word));
		ok(fdry_wordset_add(&w, word, (uint64_t)i));
	}
	ck_assert_uint_eq(fdry_wordset_count(&w), 5000);
	for (i = 0, state = 1; i < 5000; i++) {
		word = next(&state);
		found = fdry_wordset_find(&w, word);
		ck_assert_ptr_nonnull(found);
		ck_assert_uint_eq(found->word, word);
		ck_assert_uint_eq(found->stamp, (uint64_t)i);
		ck_assert_ptr_null(fdry_wordset_find(&w, word + 1));
	}
	fdry_wordset_release(&w);
	ck_assert_uint_eq(fdry_wordset_count(&w), 0);
	ck_assert_ptr_null(fdry_wordset_find(&w, word));
}
END_TEST

static void list_check(const struct fdry_wordset *w, uint64_t sum)
{
	const uint64_t *words = (const uint64_t *)w->list.data;
	size_t i;

	for (i = 0; i < fdry_wordset_count(w); i++) {
		sum -= words[i];
		ck_assert(!i || words[i - 1] < words[i]);
	}
	ck_assert_uint_eq(sum, 0);
}

START_TEST(the_list_is_sorted)
{
	static const int runs[] = { 0, 1, 300, 1, 2, 0, 700 };
	struct fdry_wordset w = { 0 };
	uint64_t state = 7, sum = 0, word;
	size_t i;
	int k;

	for (i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		for (k = 0; k < runs[i]; k++) {
			word = next(&state);
			ok(fdry_wordset_add(&w, word, 0));
			sum += word;
		}
		ok(fdry_wordset_sort(&w));
		list_check(&w, sum);
	}
	ck_assert_uint_eq(fdry_wordset_count(&w), 1004);
	fdry_wordset_release(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_wordset");
	TCase *tc = tcase_create("wordset");

	tcase_add_test(tc, words_are_found);
	tcase_add_test(tc, the_list_is_sorted);
	suite_add_tcase(s, tc);
	return test_main(s);
}
