// SPDX-License-Identifier: Apache-2.0
/*
 * Ranges and the ledger, compared with a plain array that is searched from its beginning; that
 * finding and freeing stay fast with many entries; frees that are refused.
 */
#include <stdlib.h>
#include <string.h>

#include "mm/ledger.h"
#include "tests/lib/test.h"
#include "tests/lib/check_mm.h"

/* --- ranges against an array --- */

enum { SLOTS = 64, STEP = 8 };

static struct fdry_range nodes[SLOTS]; /* slot i: STEP * i + 1 .. at most STEP * (i + 1) */
static bool in_set[SLOTS];

static struct fdry_range *slow_floor(uint64_t addr)
{
	struct fdry_range *best = NULL;
	int i;

	for (i = 0; i < SLOTS; i++)
		if (in_set[i] && nodes[i].start <= addr)
			best = &nodes[i];
	return best;
}

static struct fdry_range *slow_from(uint64_t addr)
{
	int i;

	for (i = 0; i < SLOTS; i++)
		if (in_set[i] && nodes[i].end > addr)
			return &nodes[i];
	return NULL;
}

static void compare(const struct fdry_ranges *s)
{
	uint64_t addr;

	for (addr = 0; addr < STEP * SLOTS + 3; addr++)
		if (fdry_ranges_floor(s, addr) != slow_floor(addr) ||
		    fdry_ranges_from(s, addr) != slow_from(addr))
			ck_abort_msg("at %lu the set answers otherwise", (unsigned long)addr);
	if (fdry_ranges_floor(s, UINT64_MAX) != slow_floor(UINT64_MAX) ||
	    fdry_ranges_from(s, UINT64_MAX))
		ck_abort_msg("at the last address the set answers otherwise");
}

START_TEST(ranges_like_an_array)
{
	struct fdry_ranges s = { 0 };
	unsigned int seed = (unsigned int)_i + 1;
	size_t count = 0;
	int i, k;

	for (k = 0; k < 1000; k++) {
		i = rand_r(&seed) % SLOTS;
		nodes[i].start =
			in_set[i] ? nodes[i].start : (uint64_t)(STEP * i + 1 + rand_r(&seed) % 4);
		nodes[i].end =
			in_set[i] ? nodes[i].end : (uint64_t)(STEP * i + 5 + rand_r(&seed) % 5);
		(in_set[i] ? fdry_ranges_del : fdry_ranges_add)(&s, &nodes[i]);
		count += in_set[i] ? -1 : 1;
		in_set[i] = !in_set[i];
		if (s.count != count)
			ck_abort_msg("%zu ranges, not %zu", s.count, count);
		compare(&s);
	}
}
END_TEST

static int height(const struct fdry_range *n)
{
	int a, b;

	if (!n)
		return 0;
	a = height(n->kid[0]);
	b = height(n->kid[1]);
	return 1 + (a > b ? a : b);
}

/* A list would be 100,000 high, a perfect tree 17. */
START_TEST(ranges_stay_flat)
{
	enum { N = 100000 };
	struct fdry_range *all = calloc(N, sizeof(*all));
	struct fdry_ranges s = { 0 };
	uint64_t stride = _i ? 2u << 20 : 512;
	size_t i;

	ck_assert_ptr_nonnull(all);
	for (i = 0; i < N; i++) {
		all[i].start = 0x500000000000 + i * stride;
		all[i].end = all[i].start + stride;
		fdry_ranges_add(&s, &all[i]);
	}
	ck_assert_int_lt(height(s.root), 64);
	for (i = 0; i < N; i += 2)
		fdry_ranges_del(&s, &all[i]);
	ck_assert_int_lt(height(s.root), 64);
	ck_assert_uint_eq(s.count, N / 2);
	free(all);
}
END_TEST

/* --- the ledger --- */

static struct fdry_ledger ledger;

static void add(CUdeviceptr addr, uint64_t size, uint64_t extent, bool capturing)
{
	struct fdry_alloc a = {
		.addr = addr, .size = size, .extent = extent, .capturing = capturing
	};

	ck_assert_int_eq(fdry_ledger_add(&ledger, &a), 0);
}

static void three(void)
{
	add(0x1000, 100, 512, false);
	add(0x1200, 512, 512, true);
	add(0x2000, 4096, 4096, false);
}

static void forget(void)
{
	fdry_ledger_release(&ledger);
}

START_TEST(find_holds_what_was_asked_for)
{
	struct fdry_alloc a = { .addr = 1 };

	ck_assert(fdry_ledger_find(&ledger, 0x1000, &a));
	ck_assert(a.addr == 0x1000 && a.size == 100 && a.extent == 512 && a.serial == 1 &&
		  !a.capturing);
	ck_assert(fdry_ledger_find(&ledger, 0x1063, &a));
	ck_assert(fdry_ledger_find(&ledger, 0x13ff, &a));
	ck_assert(a.addr == 0x1200 && a.serial == 2 && a.capturing);
	ck_assert(!fdry_ledger_find(&ledger, 0x1064, &a));
	ck_assert(!fdry_ledger_find(&ledger, 0x1400, &a));
	ck_assert(!fdry_ledger_find(&ledger, 0xfff, &a));
	ck_assert(!fdry_ledger_find(&ledger, 0, &a));
	ck_assert(!fdry_ledger_find(&ledger, UINT64_MAX, &a));
	ck_assert(a.addr == 0x1200);
}
END_TEST

START_TEST(at_names_the_allocation_there)
{
	struct fdry_alloc a = { .addr = 1 };

	ck_assert_int_eq(fdry_ledger_at(&ledger, 0x2010, &a), -FDRY_E_INVAL);
	ck_assert_ptr_nonnull(
		strstr(fdry_last_error(), "16 bytes into the allocation of 4096 bytes at 0x2000"));
	ck_assert_int_eq(fdry_ledger_at(&ledger, 0x1500, &a), -FDRY_E_INVAL);
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "no live allocation"));
	ck_assert_int_eq(fdry_ledger_at(&ledger, 0x10, &a), -FDRY_E_INVAL);
	ck_assert_uint_eq(a.addr, 1);
	ck_assert_int_eq(fdry_ledger_at(&ledger, 0x1200, &a), 0);
	ck_assert_uint_eq(a.size, 512);
	fdry_ledger_del(&ledger, 0x1200);
	ck_assert_int_eq(fdry_ledger_at(&ledger, 0x1200, &a), -FDRY_E_INVAL);
	ck_assert_int_eq(check_ledger(&ledger, 0x1000, 0x3000), 0);
	ck_assert_uint_eq(ledger.bytes, 4196);
}
END_TEST

START_TEST(serials_count_what_succeeded)
{
	struct fdry_alloc a;

	add(0x3000, 1, 512, false);
	fdry_ledger_undo(&ledger, 0x3000);
	add(0x3000, 2, 512, false);
	ck_assert(fdry_ledger_last(&ledger, &a));
	ck_assert(a.addr == 0x3000 && a.size == 2 && a.serial == 4);
	fdry_ledger_del(&ledger, 0x3000);
	add(0x3200, 3, 512, false);
	ck_assert(fdry_ledger_last(&ledger, &a));
	ck_assert_uint_eq(a.serial, 5);
}
END_TEST

START_TEST(entries_are_in_address_order)
{
	static const CUdeviceptr addr[] = { 0x100, 0x1000, 0x1200, 0x2000 };
	struct fdry_range *n;
	size_t i = 0;

	add(0x100, 5, 512, false); /* as after the offset was set back */
	fdry_ranges_each(n, &ledger.entries, 0, UINT64_MAX)
		ck_assert(i < 4 && fdry_ledger_entry(n)->addr == addr[i++]);
	ck_assert_uint_eq(i, 4);
	ck_assert_uint_eq(fdry_ledger_entry(fdry_ranges_from(&ledger.entries, 0))->serial, 4);
	fdry_ledger_release(&ledger);
	ck_assert(!fdry_ledger_last(&ledger, &(struct fdry_alloc){ 0 }));
	ck_assert_uint_eq(ledger.entries.count, 0);
}
END_TEST

#ifdef NDEBUG /* a broken invariant stops a debug build */
START_TEST(check_sees_what_is_broken)
{
	struct fdry_alloc a = { .addr = 0x1100, .size = 512, .extent = 512 };

	ck_assert_int_eq(fdry_ledger_add(&ledger, &a), -FDRY_E_BUG);
	a.addr = 0xf00;
	ck_assert_int_eq(fdry_ledger_add(&ledger, &a), -FDRY_E_BUG);
	ck_assert_int_eq(check_ledger(&ledger, 0x1000, 0x3000), 0);
	ck_assert_int_eq(check_ledger(&ledger, 0x1200, 0x3000), -FDRY_E_BUG);
	ck_assert_int_eq(check_ledger(&ledger, 0x1000, 0x2fff), -FDRY_E_BUG);
	ledger.bytes++;
	ck_assert_int_eq(check_ledger(&ledger, 0x1000, 0x3000), -FDRY_E_BUG);
	ledger.bytes--;
	ledger.serial = 2;
	ck_assert_int_eq(check_ledger(&ledger, 0x1000, 0x3000), -FDRY_E_BUG);
}
END_TEST
#endif

int main(void)
{
	Suite *s = suite_create("mm_ledger");
	TCase *tc = tcase_create("ranges");

	tcase_add_loop_test(tc, ranges_like_an_array, 0, 4);
	tcase_add_loop_test(tc, ranges_stay_flat, 0, 2);
	suite_add_tcase(s, tc);
	tc = tcase_create("ledger");
	tcase_add_checked_fixture(tc, three, forget);
	tcase_add_test(tc, find_holds_what_was_asked_for);
	tcase_add_test(tc, at_names_the_allocation_there);
	tcase_add_test(tc, serials_count_what_succeeded);
	tcase_add_test(tc, entries_are_in_address_order);
#ifdef NDEBUG
	tcase_add_test(tc, check_sees_what_is_broken);
#endif
	suite_add_tcase(s, tc);
	return test_main(s);
}
