// SPDX-License-Identifier: Apache-2.0
/*
 * Freed ranges, and the pool that uses them, compared with an array that has a byte for every unit
 * and is searched from its beginning.
 */
#include <stdlib.h>
#include <string.h>

#include "mm/free_ranges.h"
#include "mm/stream_pool.h"
#include "tests/lib/test.h"
#include "tests/lib/check_mm.h"

enum { UNITS = 512, UNIT = 16, BASE = 4096 };

static uint64_t addr_of(int unit)
{
	return BASE + (uint64_t)unit * UNIT;
}

static struct fdry_ranges holes;
static uint8_t model[UNITS]; /* 1: a hole */

static int model_find(int n, int align)
{
	int i, k;

	for (i = 0; i + n <= UNITS; i++) {
		for (k = 0; k < n && model[i + k]; k++)
			;
		if (k == n && addr_of(i) % ((uint64_t)align * UNIT) == 0)
			return i;
	}
	return -1;
}

static void model_same(void)
{
	uint64_t bytes = 0;
	size_t runs = 0;
	int i;

	for (i = 0; i < UNITS; i++) {
		bytes += model[i] * (uint64_t)UNIT;
		runs += model[i] && !(i && model[i - 1]);
		ck_assert(fdry_free_ranges_overlap(&holes, addr_of(i) + 3, addr_of(i) + 4) ==
			  model[i]);
	}
	ck_assert_uint_eq(holes.bytes, bytes);
	ck_assert_uint_eq(holes.count, runs);
	ck_assert_int_eq(check_free_ranges(&holes), 0);
}

static void take(int n, int align)
{
	int want = model_find(n, align);
	uint64_t got = 0;

	ck_assert(fdry_free_ranges_take(&holes, (uint64_t)n * UNIT, (uint64_t)align * UNIT, &got) ==
		  (want >= 0));
	if (want < 0)
		return;
	ck_assert_uint_eq(got, addr_of(want));
	memset(model + want, 0, (size_t)n);
}

static void cut(int start, int n)
{
	bool all = !memchr(model + start, 0, (size_t)n);

	ck_assert(fdry_free_ranges_remove(&holes, addr_of(start), addr_of(start + n)) == all);
	if (all)
		memset(model + start, 0, (size_t)n);
}

START_TEST(lowest_first)
{
	unsigned int seed = 7 + (unsigned int)_i;
	int step, start, n;

	memset(model, 0, sizeof(model));
	for (step = 0; step < 1200; step++) {
		start = rand_r(&seed) % UNITS;
		n = rand_r(&seed) % (step % 7 ? 6 : 60) + 1;
		if (n > UNITS - start)
			n = UNITS - start;
		if (step % 3 == 0) {
			ck_assert_int_eq(
				fdry_free_ranges_add(&holes, addr_of(start), addr_of(start + n)),
				0);
			memset(model + start, 1, (size_t)n);
		} else if (step % 3 == 1) {
			take(n, 1 << rand_r(&seed) % 4);
		} else {
			cut(start, n);
		}
		if (step % 20 == 0)
			model_same();
	}
	model_same();
	fdry_free_ranges_release(&holes);
	ck_assert_uint_eq(holes.bytes, 0);
}
END_TEST

START_TEST(moving_joins)
{
	struct fdry_ranges from = { 0 };

	ck_assert_int_eq(fdry_free_ranges_add(&holes, 100, 200), 0);
	ck_assert_int_eq(fdry_free_ranges_add(&holes, 300, 400), 0);
	ck_assert_int_eq(fdry_free_ranges_add(&from, 200, 300), 0);
	ck_assert_int_eq(fdry_free_ranges_add(&from, 500, 600), 0);
	ck_assert_int_eq(fdry_free_ranges_move(&holes, &from), 0);
	ck_assert_uint_eq(from.count, 0);
	ck_assert_uint_eq(holes.count, 2);
	ck_assert(fdry_free_ranges_remove(&holes, 100, 400));
	ck_assert(!fdry_free_ranges_remove(&holes, 550, 601));
	ck_assert(!fdry_free_ranges_remove(&holes, 499, 550));
	fdry_free_ranges_release(&holes);
}
END_TEST

/* --- the pool --- */

static struct fdry_stream_pool pool;

static uint64_t get(uint64_t stream, uint64_t extent)
{
	uint64_t at = 0;

	return fdry_stream_pool_take(&pool, stream, extent, UNIT, &at) ? at : 0;
}

START_TEST(only_its_own_stream_or_all)
{
	uint64_t a, b;

	ck_assert_int_eq(fdry_stream_pool_grow(&pool, BASE, BASE + 256), 0);
	a = get(1, 64);
	b = get(2, 64);
	ck_assert_uint_eq(a, BASE);
	ck_assert_uint_eq(b, BASE + 64);
	fdry_stream_pool_give(&pool, 1, a, a + 64, 1);
	fdry_stream_pool_give(&pool, 1, b, b + 64,
			      2); /* the freeing thread decides, not the allocating one */
	ck_assert_uint_eq(get(2, 32), BASE + 128);
	ck_assert_uint_eq(get(1, 128), BASE);
	fdry_stream_pool_give(&pool, 1, BASE, BASE + 128, 3);
	ck_assert_uint_eq(fdry_stream_pool_foreign(&pool, 1), 0);
	ck_assert_uint_eq(fdry_stream_pool_foreign(&pool, 2), 128);
	fdry_stream_pool_settle(&pool, 2); /* that was before */
	ck_assert_uint_eq(get(2, 128), 0);
	fdry_stream_pool_settle(&pool, 3);
	ck_assert_uint_eq(get(2, 128), BASE);
	ck_assert_int_eq(check_stream_pool(&pool), 0);
	fdry_stream_pool_release(&pool);
}
END_TEST

START_TEST(unknown_streams_share_nothing)
{
	uint64_t a;

	ck_assert_int_eq(fdry_stream_pool_grow(&pool, BASE, BASE + 64), 0);
	a = get(FDRY_STREAM_UNKNOWN, 64);
	ck_assert_uint_eq(a, BASE);
	fdry_stream_pool_give(&pool, FDRY_STREAM_UNKNOWN, a, a + 64, 1);
	ck_assert_uint_eq(get(FDRY_STREAM_UNKNOWN, 64), 0);
	ck_assert_uint_eq(get(5, 64), 0);
	ck_assert_uint_eq(fdry_stream_pool_foreign(&pool, FDRY_STREAM_UNKNOWN), 64);
	ck_assert(!fdry_stream_pool_shrink(&pool, BASE, BASE + 64));
	fdry_stream_pool_settle(&pool, 1);
	ck_assert_uint_eq(get(5, 32), BASE);
	ck_assert(!fdry_stream_pool_shrink(&pool, BASE, BASE + 64));
	fdry_stream_pool_return(&pool, BASE, BASE + 32);
	ck_assert(fdry_stream_pool_shrink(&pool, BASE, BASE + 64));
	ck_assert_uint_eq(pool.slabs, 0);
	ck_assert_int_eq(check_stream_pool(&pool), 0);
	fdry_stream_pool_release(&pool);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mm_free_ranges");
	TCase *tc = tcase_create("holes");

	tcase_add_loop_test(tc, lowest_first, 0, 4);
	tcase_add_test(tc, moving_joins);
	tcase_add_test(tc, only_its_own_stream_or_all);
	tcase_add_test(tc, unknown_streams_share_nothing);
	suite_add_tcase(s, tc);
	return test_main(s);
}
