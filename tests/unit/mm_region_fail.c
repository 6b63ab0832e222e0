// SPDX-License-Identifier: Apache-2.0
/*
 * Every driver call that a region makes fails in turn. The operation then fails with a message and
 * changes nothing, or it succeeds. In both cases the region is consistent, and a later try
 * succeeds.
 */
#include "tests/lib/region.h"
#include "tests/lib/test.h"
#include "tests/lib/check_mm.h"

#include <stdio.h>

/* All that can be seen of a region and of the driver. */
struct view {
	struct fdry_region_stats stats;
	uint64_t offset;
	size_t count;
	struct fdry_alloc *ledger;
	long live;
};

static struct view view_take(void)
{
	struct view v = { .stats = region_stats(), .offset = fdry_region_offset(region),
			  .live = test_sim_live(NULL) };

	ok(fdry_region_ledger(region, &v.ledger, &v.count));
	return v;
}

static void view_same(const struct view *a, const struct view *b)
{
	size_t i;

	ck_assert_mem_eq(&a->stats, &b->stats, sizeof(a->stats));
	ck_assert_uint_eq(a->offset, b->offset);
	ck_assert_uint_eq(a->count, b->count);
	for (i = 0; i < a->count; i++)
		ck_assert(a->ledger[i].addr == b->ledger[i].addr &&
			  a->ledger[i].serial == b->ledger[i].serial);
	ck_assert_int_eq(a->live, b->live);
}

/* --- operations on a region with live allocations, an arena near its end, and memory freed late
 * --- */

static CUdeviceptr small, large, straddles;

static void prepare(void)
{
	ok(fdry_region_preallocate(region, 6 * MiB));
	small = region_get(1000);
	large = region_get(2 * MiB);
	straddles = region_get(3 * MiB); /* 4 .. 8 MiB */
	region_get_with(700, FDRY_ALLOC_CAPTURING);
	ok(fdry_region_dealloc(region, region_get(2 * MiB), FDRY_ALLOC_CAPTURING));
	ok(fdry_region_back(region, BASE + 128 * MiB, 2 * MiB));
}

static int do_alloc(void)
{
	CUdeviceptr addr = 1;
	int ret = fdry_region_alloc(region, 100, 0, &addr);

	ck_assert((addr == 1) == !!ret);
	return ret;
}

static int do_alloc_large(void)
{
	CUdeviceptr addr = 1;
	int ret = fdry_region_alloc(region, 3 * MiB, 0, &addr);

	ck_assert((addr == 1) == !!ret);
	return ret ? ret : region_all(addr, 3 * MiB, 0) ? 0 : -1;
}

static int do_alloc_capturing(void)
{
	CUdeviceptr addr = 1;
	int ret = fdry_region_alloc(region, 3 * MiB, FDRY_ALLOC_CAPTURING, &addr);

	return ret ? ret : region_all(addr, 4 * MiB, FDRY_STAMP) ? 0 : -1;
}

static int do_dealloc_small(void)
{
	return fdry_region_dealloc(region, small, 0);
}

static int do_dealloc_large(void)
{
	return fdry_region_dealloc(region, large, 0);
}

static int do_dealloc_straddling(void)
{
	return fdry_region_dealloc(region, straddles, 0);
}

static int do_trim(void)
{
	return fdry_region_trim(region);
}

static int do_preallocate(void)
{
	return fdry_region_preallocate(region, 4 * MiB);
}

static int do_free_preallocated(void)
{
	return fdry_region_free_preallocated(region, 0);
}

static int do_back(void)
{
	return fdry_region_back(region, BASE + 136 * MiB, 4 * MiB);
}

static int do_set_offset(void)
{
	return fdry_region_set_offset(region, 9 * MiB);
}

static int (*const operations[])(void) = {
	do_alloc, do_alloc_large, do_alloc_capturing,
	do_dealloc_small, do_dealloc_large, do_dealloc_straddling,
	do_trim, do_preallocate, do_free_preallocated,
	do_back, do_set_offset,
};

/* Fail the @nth driver call of an operation. Returns false if it makes fewer calls. @ret: the
 * operation's result. */
static bool one_failure(int (*operation)(void), int nth, int *ret)
{
	struct view before = view_take(), after;
	char spec[32];
	bool failed;

	snprintf(spec, sizeof(spec), "*:%d", nth);
	fdry_fail(FDRY_E_BUG, "no sentence");
	test_sim_fail(spec);
	*ret = operation();
	failed = test_sim_failed();
	test_sim_fail("");
	ok(check_region(region));
	after = view_take();
	if (*ret) {
		ck_assert_int_eq(*ret, -FDRY_E_DRIVER);
		ck_assert(failed);
		ck_assert_ptr_nonnull(strstr(fdry_last_error(), "CUDA_ERROR_UNKNOWN"));
		view_same(&before, &after);
	}
	free(before.ledger);
	free(after.ledger);
	return failed;
}

static void make(void)
{
	ck_assert_int_eq(drv->cuCtxSetCurrent(NULL), 0); /* if the call that unsets it was made to
							    fail */
	region = region_at(BASE, SIZE);
	prepare();
}

/* Free everything, also after a call that was made to fail. */
static void unmake(void)
{
	ok(fdry_region_trim(region));
	ck_assert_uint_eq(region_stats().idle_bytes, 0);
	fdry_region_free(region);
	ck_assert_int_eq(test_sim_live(NULL), 0);
}

/* A failed operation changes nothing, so the next failure, and at last the success, are in the same
 * region. */
START_TEST(every_call_fails_once)
{
	bool more = true;
	int nth, ret = 0;

	make();
	for (nth = 1; more; nth++) {
		more = one_failure(operations[_i], nth, &ret);
		if (!more || ret)
			continue;
		unmake();
		make();
	}
	ck_assert_int_eq(ret, 0);
	unmake();
	ck_assert_int_gt(nth, _i ? 3 : 2); /* the first needs no call: its granule is mapped */
}
END_TEST

START_TEST(every_call_of_making_one_fails)
{
	struct fdry_region *r = NULL;
	bool failed = true;
	char spec[32];
	int nth, ret;

	for (nth = 1; failed; nth++) {
		snprintf(spec, sizeof(spec), "*:%d", nth);
		test_sim_fail(spec);
		ret = fdry_region_new(drv, 0, BASE, SIZE, &r);
		failed = test_sim_failed();
		test_sim_fail("");
		ck_assert(!ret == !!r);
		fdry_region_free(r);
		r = NULL;
		ck_assert_int_eq(test_sim_live(NULL), 0);
	}
	ck_assert_int_gt(nth, 8);
}
END_TEST

/* Nothing works any more, as after a fault of the device: still no crash, and host memory is freed.
 */
START_TEST(a_dead_driver)
{
	CUdeviceptr addr;

	region = region_at(BASE, SIZE);
	prepare();
	test_sim_fail("*:1+:700");
	ck_assert_int_eq(fdry_region_alloc(region, 8 * MiB, 0, &addr), -FDRY_E_DRIVER);
	ck_assert_int_eq(fdry_region_dealloc(region, large, 0), -FDRY_E_DRIVER);
	ck_assert_int_eq(fdry_region_trim(region), -FDRY_E_DRIVER);
	ok(check_region(region));
	fdry_region_free(region);
}
END_TEST

/* Memory that the driver refused to unmap is unmapped by the next call. */
START_TEST(refused_unmapping_is_tried_again)
{
	region = region_at(BASE, SIZE);
	large = region_get(4 * MiB);
	test_sim_fail("cuMemUnmap:1");
	ok(fdry_region_dealloc(region, large, 0));
	ck_assert_uint_eq(region_stats().allocs, 0);
	ck_assert_uint_eq(region_stats().idle_bytes, 4 * MiB);
	ck_assert_int_eq(fdry_region_dealloc(region, large, 0), -FDRY_E_INVAL);
	region_get(1);
	ck_assert_uint_eq(region_stats().idle_bytes, 0);
	ck_assert_int_eq(test_sim_live("memory"), 1);
	fdry_region_free(region);
	ck_assert_int_eq(test_sim_live(NULL), 0);
}
END_TEST

START_TEST(device_memory_runs_out)
{
	struct view before, after;
	CUdeviceptr addr = 1;

	region = region_at(BASE, SIZE);
	prepare();
	ck_assert_uint_eq(region_stats().idle_bytes, 2 * MiB);
	ck_assert_int_eq(fdry_region_alloc(region, 60 * MiB, 0, &addr), -FDRY_E_NODEVMEM);
	ck_assert_uint_eq(region_stats().idle_bytes, 0); /* it was released before the report */
	before = view_take();
	ck_assert_int_eq(fdry_region_alloc(region, 60 * MiB, 0, &addr), -FDRY_E_NODEVMEM);
	ck_assert_int_eq(fdry_region_alloc(region, 60 * MiB, FDRY_ALLOC_CAPTURING, &addr),
			 -FDRY_E_NODEVMEM);
	ck_assert_int_eq(fdry_region_preallocate(region, 60 * MiB), -FDRY_E_NODEVMEM);
	ck_assert_int_eq(fdry_region_back(region, BASE + 192 * MiB, 60 * MiB), -FDRY_E_NODEVMEM);
	ck_assert_ptr_nonnull(
		strstr(fdry_last_error(), "mapping 62914560 bytes of device memory at 0x"));
	ck_assert_uint_eq(addr, 1);
	after = view_take();
	view_same(&before, &after);
	free(before.ledger);
	free(after.ledger);
	fdry_region_free(region);
}
END_TEST

static void driver_up(void)
{
	drv = test_sim_open();
}

int main(void)
{
	Suite *s = suite_create("mm_region_fail");
	TCase *tc = tcase_create("fail");

	setenv("FDRY_SIM_MEMORY", "64M", 1);
	tcase_add_checked_fixture(tc, driver_up, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, every_call_fails_once, 0,
			    sizeof(operations) / sizeof(operations[0]));
	tcase_add_test(tc, every_call_of_making_one_fails);
	tcase_add_test(tc, a_dead_driver);
	tcase_add_test(tc, refused_unmapping_is_tried_again);
	tcase_add_test(tc, device_memory_runs_out);
	suite_add_tcase(s, tc);
	return test_main(s);
}
