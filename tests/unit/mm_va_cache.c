// SPDX-License-Identifier: Apache-2.0
/* Unit tests of addresses that stay reserved after their region: reused, cleared, and limited in
 * number. */
#include "mm/va_cache.h"
#include "tests/lib/region.h"
#include "tests/lib/test.h"

/* Can other code reserve [@at, @at + @size)? */
static bool can_have(CUdeviceptr at, uint64_t size)
{
	CUdeviceptr got = 0;
	bool had;

	ok(fdry_call(drv, cuMemAddressReserve, &got, size, 0, at, 0));
	had = got == at;
	ok(fdry_call(drv, cuMemAddressFree, got, size));
	return had;
}

START_TEST(parked_addresses_are_nobodys)
{
	ck_assert_uint_eq(region_get(3 * MiB), BASE);
	fdry_region_free_to_cache(region);
	region = NULL;
	ck_assert_int_eq(test_sim_live("memory"), 0);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	ck_assert(!can_have(BASE, SIZE));
	region = region_at(BASE, SIZE);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	ck_assert_uint_eq(region_get(3 * MiB), BASE);
}
END_TEST

START_TEST(a_smaller_region_uses_cached_addresses_a_larger_one_new_ones)
{
	fdry_region_free_to_cache(region);
	region = region_at(BASE, SIZE / 2);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	fdry_region_free_to_cache(region);
	region = region_at(BASE, 2 * SIZE); /* releases the cached reservations in the way */
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	ck_assert_uint_eq(region_get(SIZE), BASE);
	fdry_region_free_to_cache(region);
	region = region_at(BASE - SIZE, 2 * SIZE);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
}
END_TEST

START_TEST(cleared_addresses_are_free)
{
	fdry_region_free_to_cache(region);
	fdry_va_cache_clear(BASE + SIZE, SIZE);
	fdry_va_cache_clear(BASE - SIZE, SIZE);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	fdry_va_cache_clear(BASE + SIZE - 1, 1);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
	ck_assert(can_have(BASE, SIZE));
	region = region_at(BASE, SIZE);
}
END_TEST

START_TEST(the_oldest_of_many_go)
{
	const uint64_t size = 64 * MiB;
	int i;

	fdry_region_free(region);
	for (i = 0; i < 70; i++)
		fdry_region_free_to_cache(region_at(BASE + i * size, size));
	ck_assert_int_eq(test_sim_live("reservation"), 64);
	ck_assert(can_have(BASE, 6 * size));
	ck_assert(!can_have(BASE + 6 * size, size));
	fdry_va_cache_clear(BASE, 70 * size);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
	region = region_at(BASE, SIZE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mm_va_cache");
	TCase *tc = tcase_create("va_cache");

	tcase_add_checked_fixture(tc, region_up, region_down);
	tcase_add_test(tc, parked_addresses_are_nobodys);
	tcase_add_test(tc, a_smaller_region_uses_cached_addresses_a_larger_one_new_ones);
	tcase_add_test(tc, cleared_addresses_are_free);
	tcase_add_test(tc, the_oldest_of_many_go);
	suite_add_tcase(s, tc);
	return test_main(s);
}
