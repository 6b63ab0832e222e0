// SPDX-License-Identifier: Apache-2.0
/*
 * Regions on the software driver: the addresses of allocations, their initial bytes, when memory is
 * unmapped, and calls that are refused.
 */
#include "tests/lib/region.h"
#include "tests/lib/test.h"
#include "tests/lib/check_mm.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK ((uint64_t)FDRY_ALLOC_BLOCK)

/* --- addresses --- */

START_TEST(addresses_by_the_rule)
{
	ck_assert_uint_eq(region_get(1), BASE);
	ck_assert_uint_eq(region_get(513), BASE + 512);
	ck_assert_uint_eq(region_get(BLOCK - 1), BASE + 1536);
	ck_assert_uint_eq(region_get(BLOCK), BASE + 2 * BLOCK);
	ck_assert_uint_eq(region_get(BLOCK + 1), BASE + 3 * BLOCK);
	ck_assert_uint_eq(region_get(512), BASE + 5 * BLOCK);
	ck_assert_uint_eq(region_get_with(100, FDRY_ALLOC_CAPTURING), BASE + 5 * BLOCK + 512);
	ck_assert_uint_eq(fdry_region_offset(region), 5 * BLOCK + 1024);
}
END_TEST

/* Make a fixed mix of calls. @ahead: bytes to preallocate, in two steps if it is odd. */
static void script(uint64_t ahead)
{
	CUdeviceptr kept[60];
	uint64_t size = 1;
	int i;

	if (ahead)
		ok(fdry_region_preallocate(region, ahead));
	for (i = 0; i < 60; i++) {
		size = (size * 48271 + 11) % (i % 8 ? 70000 : 3 * MiB) + 1;
		kept[i] = region_get_with(size, i % 5 == 3 ? FDRY_ALLOC_CAPTURING : 0);
		if (i % 3 == 2)
			region_put(kept[i - 1]);
		if (i == 30 && ahead % 2)
			ok(fdry_region_preallocate(region, 5 * MiB));
		if (i == 45 && ahead)
			ok(fdry_region_free_preallocated(region, 0));
		ok(check_region(region));
	}
}

/* The script's ledger in a region of its own. */
static struct fdry_alloc *ledger_of(uint64_t ahead, size_t *count)
{
	struct fdry_alloc *ledger;

	fdry_region_free(region);
	region = region_at(BASE, SIZE);
	script(ahead);
	ok(fdry_region_ledger(region, &ledger, count));
	return ledger;
}

START_TEST(addresses_do_not_depend_on_preallocation)
{
	static const uint64_t ahead[] = { 1, 700, 2 * MiB, 3 * MiB + 1, 40 * MiB };
	size_t count, other, i, k;
	struct fdry_alloc *want = ledger_of(0, &count);

	ck_assert_uint_eq(count, 40);
	for (i = 0; i < sizeof(ahead) / sizeof(ahead[0]); i++) {
		struct fdry_alloc *got = ledger_of(ahead[i], &other);

		ck_assert_uint_eq(other, count);
		for (k = 0; k < count; k++)
			ck_assert(got[k].addr == want[k].addr && got[k].size == want[k].size &&
				  got[k].extent == want[k].extent &&
				  got[k].serial == want[k].serial &&
				  got[k].capturing == want[k].capturing);
		free(got);
	}
	free(want);
}
END_TEST

/* --- the content of fresh memory --- */

START_TEST(memory_is_zero_or_stamped)
{
	static const uint64_t sizes[] = { 1, 100, 512, 5000, BLOCK - 1, BLOCK, 3 * MiB + 5 };
	struct fdry_alloc a;
	CUdeviceptr addr;
	size_t i;

	if (_i)
		ok(fdry_region_preallocate(region, 11 * MiB));
	for (i = 0; i < 4 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		addr = region_get_with(sizes[i / 4], i % 2 ? FDRY_ALLOC_CAPTURING : 0);
		ck_assert(fdry_region_find(region, addr, &a));
		ck_assert(a.capturing == i % 2);
		ck_assert_msg(region_all(addr, a.extent, i % 2 ? FDRY_STAMP : 0), "allocation %zu",
			      i);
		region_soil(addr, a.extent);
	}
}
END_TEST

/* Memory that stayed mapped, in an arena or a shared block, is allocated again. */
START_TEST(memory_handed_out_again_is_fresh)
{
	CUdeviceptr first, addr;

	if (_i)
		ok(fdry_region_preallocate(region, 16 * MiB));
	first = region_get(4096);
	addr = region_get(3 * MiB);
	region_soil(addr, 3 * MiB);
	region_put(addr);
	addr = region_get(5000);
	region_soil(addr, 5000);
	region_put(addr);
	ok(fdry_region_set_offset(region, 4096));
	ck_assert_uint_eq(region_get(8192), first + 4096);
	ck_assert(region_all(first + 4096, 8192, 0));
	ck_assert_uint_eq(region_get_with(4 * MiB, FDRY_ALLOC_CAPTURING), first + BLOCK);
	ck_assert(region_all(first + BLOCK, 4 * MiB, FDRY_STAMP));
	ck_assert_uint_eq(region_get(12 * MiB), first + BLOCK + 4 * MiB);
	ck_assert(region_all(first + BLOCK + 4 * MiB, 12 * MiB, 0));
}
END_TEST

/* --- arenas --- */

START_TEST(arena_needs_no_driver_call)
{
	CUdeviceptr addr;
	int i;

	ok(fdry_region_preallocate(region, 80 * MiB));
	ck_assert_uint_eq(region_stats().blocks, 1);
	ck_assert_uint_eq(region_stats().mapped_bytes, 80 * MiB);
	test_sim_fail("*:1+"); /* nothing of the driver works */
	for (i = 0; i < 100; i++)
		addr = region_get(i % 10 ? 4000 : 6 * MiB - 7);
	ck_assert_uint_eq(test_sim_calls(NULL), 0);
	test_sim_fail("");
	region_put(addr);
	ck_assert_uint_eq(region_stats().mapped_bytes, 80 * MiB);
	ck_assert_uint_eq(region_stats().idle_bytes, 0);
}
END_TEST

START_TEST(arena_end_is_straddled)
{
	CUdeviceptr a, b;

	ok(fdry_region_preallocate(region, 4 * MiB));
	region_get(1000);
	a = region_get(6 * MiB);
	ck_assert_uint_eq(a, BASE + 2 * MiB);
	ck_assert_uint_eq(region_stats().blocks, 2);
	ck_assert_uint_eq(region_stats().mapped_bytes, 8 * MiB);
	ck_assert(region_all(a, 6 * MiB, 0));
	region_soil(a, 6 * MiB);
	region_put(a);
	ck_assert_uint_eq(region_stats().mapped_bytes, 4 * MiB);
	/* A small one across the end of another arena: 2 of its 3 granules are ahead. */
	ok(fdry_region_preallocate(region, 2 * BLOCK));
	region_get(BLOCK - 512);
	region_get(BLOCK - 512);
	b = region_get_with(BLOCK / 2, FDRY_ALLOC_CAPTURING);
	ck_assert_uint_eq(b, BASE + 8 * MiB + 2 * BLOCK - 1024);
	ck_assert(region_all(b, BLOCK / 2, FDRY_STAMP));
	ck_assert_uint_eq(region_stats().mapped_bytes, 4 * MiB + 3 * BLOCK);
	region_put(b);
	ck_assert_uint_eq(region_stats().blocks, 3); /* the cursor is in the third */
}
END_TEST

START_TEST(arena_ends_when_freed)
{
	CUdeviceptr a;

	ck_assert_int_eq(fdry_region_free_preallocated(region, 0), -FDRY_E_STATE);
	ck_assert_int_eq(fdry_region_preallocate(region, 0), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_preallocate(region, SIZE + 1), -FDRY_E_RANGE);
	ok(fdry_region_preallocate(region, 32 * MiB));
	a = region_get(6 * MiB);
	region_put(region_get(4 * MiB));
	ok(fdry_region_free_preallocated(region, 0));
	ck_assert_uint_eq(region_stats().mapped_bytes, 32 * MiB); /* one piece, and a lives in it */
	region_put(a);
	ck_assert_uint_eq(region_stats().mapped_bytes, 0);
	ck_assert_int_eq(test_sim_live("memory"), 0);
	ck_assert_int_eq(fdry_region_free_preallocated(region, 0), -FDRY_E_STATE);
	ck_assert_uint_eq(fdry_region_offset(region), 10 * MiB);
	ok(fdry_region_preallocate(region, 32 * MiB));
	ok(fdry_region_free_preallocated(region, 0));
	ck_assert_uint_eq(region_stats().mapped_bytes, 0);
}
END_TEST

/* --- memory returned to the driver --- */

START_TEST(freed_memory_is_the_drivers_again)
{
	CUdeviceptr a, b = 0;
	int i;

	for (i = 0; i < 15; i++) { /* 120 MiB altogether, of 100 */
		a = region_get(8 * MiB);
		ck_assert_uint_eq(a, BASE);
		region_put(a);
		ck_assert_uint_eq(region_stats().free_bytes, 8 * MiB);
	}
	ck_assert_int_eq(test_sim_live("memory"), 0);
	a = region_get(8 * MiB);
	ck_assert_int_eq(fdry_region_alloc(region, 94 * MiB, 0, &b), -FDRY_E_NODEVMEM);
	ck_assert_uint_eq(b, 0);
	ck_assert_uint_eq(fdry_region_offset(region), 8 * MiB);
	region_put(a);
	ck_assert_uint_eq(region_get(8 * MiB), BASE);
}
END_TEST

/* An allocation gets the lowest freed addresses that hold it, separately for small and large ones.
 * Captures get none. */
START_TEST(addresses_are_used_again)
{
	CUdeviceptr small[6], large[6];
	int i;

	for (i = 0; i < 6; i++) {
		small[i] = region_get(1000);
		large[i] = region_get(4 * MiB);
	}
	region_put(large[3]);
	region_put(large[1]);
	region_put(small[4]);
	region_put(small[1]);
	ck_assert_uint_eq(region_stats().free_bytes, 8 * MiB + 2048);
	ck_assert_uint_gt(region_get_with(1000, FDRY_ALLOC_CAPTURING), large[5]);
	ck_assert_uint_gt(region_get_with(4 * MiB, FDRY_ALLOC_CAPTURING), large[5]);
	ck_assert_uint_gt(region_get(6 * MiB), large[5]); /* no hole is as large */
	ck_assert_uint_eq(region_get(3 * MiB), large[1]);
	ck_assert_uint_eq(region_get(2 * MiB), large[3]);
	ck_assert_uint_eq(region_get(2 * MiB), large[3] + 2 * MiB);
	ck_assert_uint_eq(region_get(600), small[1]);
	ck_assert_uint_eq(region_get(1), small[4]);
	ck_assert_uint_eq(region_get(1), small[4] + 512);
	ck_assert_uint_eq(region_stats().free_bytes, 0);
	region_put(large[5]);
	/* forgets freed addresses */
	ok(fdry_region_set_offset(region, fdry_region_offset(region)));
	ck_assert_uint_gt(region_get(4 * MiB), large[5]);
}
END_TEST

START_TEST(memory_at_used_addresses_is_fresh)
{
	CUdeviceptr keep, a, b;

	if (_i)
		ok(fdry_region_preallocate(region, 16 * MiB));
	keep = region_get(4096); /* holds the granule */
	a = region_get(4096);
	b = region_get(2 * MiB);
	region_soil(a, 4096);
	region_soil(b, 2 * MiB);
	region_put(a);
	region_put(b);
	ck_assert_uint_eq(region_get(4000), a);
	ck_assert(region_all(a, 4096, 0));
	ck_assert_uint_eq(region_get(2 * MiB), b);
	ck_assert(region_all(b, 2 * MiB, 0));
	region_put(keep);
}
END_TEST

/* No other allocation gets addresses of a capture, not even the next capture. */
START_TEST(addresses_of_captures_are_not_used_again)
{
	CUdeviceptr a = region_get_with(1000, FDRY_ALLOC_CAPTURING),
		    b = region_get_with(4 * MiB, FDRY_ALLOC_CAPTURING);

	region_put(a);
	region_put(b);
	ck_assert_uint_eq(region_stats().free_bytes, 0);
	ck_assert_uint_gt(region_get(1000), b);
	ck_assert_uint_gt(region_get(4 * MiB), b);
	ck_assert_uint_gt(region_get_with(1000, FDRY_ALLOC_CAPTURING), b);
}
END_TEST

/* Memory freed while a stream captured may be in use: its addresses are not reused until a call has
 * waited for the device. */
START_TEST(addresses_freed_in_a_capture_wait)
{
	CUdeviceptr a = region_get(4 * MiB);

	ok(fdry_region_dealloc(region, a, FDRY_ALLOC_CAPTURING));
	ck_assert_uint_gt(region_get(4 * MiB), a);
	ok(fdry_region_trim(region));
	ck_assert_uint_eq(region_get(4 * MiB), a);
	ck_assert(region_all(a, 4 * MiB, 0));
}
END_TEST

/* As after a framework empties its cache, exactly the memory between live segments is unmapped. */
START_TEST(each_large_allocation_is_unmapped_alone)
{
	CUdeviceptr seg[4];
	int i;

	for (i = 0; i < 4; i++)
		seg[i] = region_get(6 * MiB + 1);
	ck_assert_uint_eq(region_stats().mapped_bytes, 32 * MiB);
	region_put(seg[1]);
	ck_assert_uint_eq(region_stats().mapped_bytes, 24 * MiB);
	region_put(seg[3]);
	ck_assert_uint_eq(region_stats().mapped_bytes, 16 * MiB);
	ck_assert_uint_eq(region_stats().alloc_bytes, 12 * MiB + 2);
	ck_assert_int_eq(test_sim_live("memory"), 2);
}
END_TEST

START_TEST(small_allocations_share)
{
	CUdeviceptr first = BASE;
	int i;

	test_sim_fail("");
	for (i = 0; i < 10000; i++)
		region_get(4096);
	ck_assert_uint_eq(test_sim_calls("cuMemCreate"), 20);
	for (i = 0; i < 512; i++) {
		ck_assert_uint_eq(region_stats().blocks, 20);
		region_put(first + i * 4096ull);
	}
	ck_assert_uint_eq(region_stats().blocks, 19);
}
END_TEST

/* The granule under the cursor stays mapped for the next allocation, until the cursor has left
 * it. */
START_TEST(cursor_keeps_its_granule)
{
	int i;

	test_sim_fail("");
	for (i = 0; i < 100; i++)
		region_put(region_get(4096));
	ck_assert_uint_eq(test_sim_calls("cuMemCreate"), 1);
	ck_assert_uint_eq(region_stats().idle_bytes, BLOCK);
	region_get(BLOCK);
	ck_assert_uint_eq(region_stats().idle_bytes, 0);
	ck_assert_uint_eq(region_stats().mapped_bytes, BLOCK);
}
END_TEST

/* --- refused calls --- */

START_TEST(bad_sizes_and_addresses)
{
	CUdeviceptr a, b = 7;

	ck_assert_int_eq(fdry_region_alloc(region, 0, 0, &b), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_alloc(region, SIZE + 1, 0, &b), -FDRY_E_RANGE);
	ck_assert_int_eq(fdry_region_alloc(region, UINT64_MAX, 0, &b), -FDRY_E_RANGE);
	ck_assert_uint_eq(b, 7);
	a = region_get(5000);
	test_sim_fail("");
	ck_assert_int_eq(fdry_region_dealloc(region, a + 512, 0), -FDRY_E_INVAL);
	ck_assert_ptr_nonnull(
		strstr(fdry_last_error(), "512 bytes into the allocation of 5000 bytes"));
	ck_assert_int_eq(fdry_region_dealloc(region, a + 8192, 0), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_dealloc(region, 0, 0), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_dealloc(region, BASE + SIZE, 0), -FDRY_E_INVAL);
	ck_assert_uint_eq(test_sim_calls(NULL), 0); /* nothing was waited for */
	region_put(a);
	ck_assert_int_eq(fdry_region_dealloc(region, a, 0), -FDRY_E_INVAL);
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "no live allocation"));
}
END_TEST

START_TEST(the_offset_stays_above_what_lives)
{
	CUdeviceptr a = region_get(5000);

	ck_assert_int_eq(fdry_region_set_offset(region, 4096), -FDRY_E_STATE);
	ck_assert_int_eq(fdry_region_set_offset(region, SIZE + 1), -FDRY_E_RANGE);
	ck_assert_uint_eq(fdry_region_offset(region), 5120);
	ok(fdry_region_set_offset(region, 5120));
	ok(fdry_region_set_offset(region, SIZE));
	ck_assert_int_eq(fdry_region_alloc(region, 1, 0, &a), -FDRY_E_RANGE);
	ok(fdry_region_set_offset(region, 3 * MiB + 1));
	ck_assert_uint_eq(region_get(1), BASE + 3 * MiB + 512);
	region_put(BASE);
	region_put(BASE + 3 * MiB + 512);
	ok(fdry_region_set_offset(region, 0));
	ck_assert_uint_eq(region_stats().mapped_bytes, 0);
	ck_assert_uint_eq(region_get(1), BASE);
}
END_TEST

START_TEST(a_region_must_fit)
{
	struct fdry_region *r = NULL;

	ck_assert_int_eq(fdry_region_new(drv, 0, 0, SIZE, &r), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_new(drv, 0, BASE + SIZE, 0, &r), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_new(drv, 0, BASE + SIZE + 4096, SIZE, &r), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_new(drv, 0, BASE + SIZE, SIZE + 4096, &r), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_new(drv, 0, BASE + SIZE, -MiB, &r), -FDRY_E_RANGE);
	ck_assert_int_eq(fdry_region_new(drv, 7, BASE + SIZE, SIZE, &r), -FDRY_E_DRIVER);
	ck_assert_ptr_null(r);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
}
END_TEST

static const char *taken(CUdeviceptr base)
{
	struct fdry_region *r = NULL;

	ck_assert_int_eq(fdry_region_new(drv, 0, base, 16 * MiB, &r), -FDRY_E_TAKEN);
	ck_assert_ptr_null(r);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	ck_assert_int_eq(test_sim_live("stream"), 1);
	return fdry_last_error();
}

/* A process in which the driver looks at the hints of large reservations alone. */
START_TEST(small_regions_get_their_base)
{
	const CUdeviceptr base = BASE + 4096 * MiB;
	struct fdry_region *r, *other = NULL;
	CUdeviceptr p;
	long before = test_sim_live(NULL);

	ck_assert(!setenv("FDRY_SIM_HINT_MIN", _i ? "512" : "32", 1));
	ck_assert_int_eq(fdry_region_new(drv, 0, base, 4 * MiB, &r), 0);
	ck_assert_int_eq(fdry_region_alloc(r, 100, 0, &p), 0);
	ck_assert_uint_eq(p, base);
	ck_assert_uint_eq(fdry_region_size(r), 4 * MiB);
	ck_assert_int_eq(fdry_region_alloc(r, 4 * MiB, 0, &p), -FDRY_E_RANGE);
	/* The other region would begin in addresses that are reserved beyond this one. */
	ck_assert_int_eq(fdry_region_new(drv, 0, base + 16 * MiB, 4 * MiB, &other), -FDRY_E_TAKEN);
	ck_assert_int_eq(fdry_region_new(drv, 0, base + 1024 * MiB, 4 * MiB, &other), 0);
	fdry_region_free(other);
	fdry_region_free(r);
	ck_assert_int_eq(test_sim_live(NULL), before);
	ck_assert_int_eq(fdry_region_new(drv, 0, base + 16 * MiB, 4 * MiB, &other), 0);
	fdry_region_free(other);
}
END_TEST

START_TEST(taken_addresses_name_who_has_them)
{
	void *there = (void *)(uintptr_t)(BASE + SIZE + 8 * MiB);
	char self[4096] = "", anonymous[64];
	void *p = mmap(there, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
		       -1, 0);
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	ck_assert_ptr_eq(p, there);
	snprintf(anonymous, sizeof(anonymous), "anonymous (%p-", there);
	ck_assert_ptr_nonnull(strstr(taken(BASE + SIZE), anonymous));
	ck_assert_ptr_eq(mmap(there, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0), there);
	ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
	ck_assert_ptr_nonnull(strstr(taken(BASE + SIZE), self));
	munmap(p, 4096);
	close(fd);
	taken(BASE + SIZE - 2 * MiB); /* the end of the other region */
	fdry_region_free(region_at(BASE + SIZE, 16 * MiB));
}
END_TEST

/* --- ranges of a loader --- */

START_TEST(backed_ranges)
{
	CUdeviceptr a = 1;

	ok(fdry_region_back(region, BASE + 8 * MiB + 512, 5 * MiB));
	ck_assert_uint_eq(region_stats().mapped_bytes, 6 * MiB);
	ck_assert_uint_eq(region_stats().blocks, 1);
	ck_assert(region_all(BASE + 8 * MiB, 6 * MiB, 0));
	region_soil(BASE + 8 * MiB, 6 * MiB);
	ck_assert_int_eq(fdry_region_back(region, BASE + 12 * MiB, 4 * MiB), -FDRY_E_STATE);
	ck_assert_int_eq(fdry_region_back(region, BASE + 8 * MiB, 1), -FDRY_E_STATE);
	ck_assert_int_eq(fdry_region_back(region, BASE - 1, 2), -FDRY_E_RANGE);
	ck_assert_int_eq(fdry_region_back(region, BASE + SIZE - 1, 2), -FDRY_E_RANGE);
	ck_assert_int_eq(fdry_region_back(region, BASE + 1, UINT64_MAX), -FDRY_E_RANGE);
	ck_assert_int_eq(fdry_region_back(region, BASE, 0), -FDRY_E_INVAL);
	ok(fdry_region_back(region, BASE + SIZE - 1, 1));
	/* The cursor stops in front of it. */
	region_get(7 * MiB);
	ck_assert_int_eq(fdry_region_alloc(region, 1, 0, &a), -FDRY_E_STATE);
	ck_assert_int_eq(fdry_region_preallocate(region, 1), -FDRY_E_STATE);
	ck_assert_uint_eq(fdry_region_offset(region), 8 * MiB);
	ck_assert_uint_eq(region_stats().allocs, 1);
	ck_assert_int_eq(fdry_region_back(region, BASE, 1), -FDRY_E_STATE);
	ok(fdry_region_set_offset(region, 14 * MiB));
	ck_assert_uint_eq(region_get(1), BASE + 14 * MiB);
}
END_TEST

/* --- claims --- */

/* Claims can be in any order; addresses that they skip are for claims, and for no other
 * allocation. */
START_TEST(claims_skip_addresses_for_claims_alone)
{
	CUdeviceptr first = region_get(100);

	ok(fdry_region_claim(region, BASE + 8 * MiB, 2 * MiB, UINT64_MAX));
	ok(fdry_region_claim(region, BASE + 4 * MiB, 3 * MiB, UINT64_MAX));
	ok(fdry_region_claim(region, BASE + 1024, 600, UINT64_MAX));
	ck_assert_int_eq(fdry_region_claim(region, BASE + 1536, 1, UINT64_MAX), -FDRY_E_TAKEN);
	ck_assert_int_eq(fdry_region_claim(region, first, 100, UINT64_MAX), -FDRY_E_TAKEN);
	ck_assert_int_eq(fdry_region_claim(region, BASE + 6 * MiB, 2 * MiB, UINT64_MAX),
			 -FDRY_E_TAKEN);
	ok(check_region(region));
	ck_assert_uint_eq(region_get(512), BASE + 10 * MiB);
	ck_assert_uint_eq(region_get(2 * MiB), BASE + 12 * MiB);
	ok(fdry_region_claim(region, BASE + 2 * MiB, 2 * MiB, UINT64_MAX));
	region_put(BASE + 4 * MiB); /* a freed claim is a hole like any other */
	ck_assert_uint_eq(region_get(4 * MiB), BASE + 4 * MiB);
	ok(check_region(region));
}
END_TEST

/* A claim may span addresses that small and large allocations freed, that other claims skipped, and
 * that are new. */
START_TEST(a_claim_joins_free_addresses_of_every_kind)
{
	CUdeviceptr small = region_get(100), kept = region_get(512), large = region_get(2 * MiB), p;

	ck_assert_uint_eq(large, BASE + 2 * MiB);
	region_put(small);
	region_put(large);
	/* skips from 4 to 8 MiB */
	ok(fdry_region_claim(region, BASE + 8 * MiB, 2 * MiB, UINT64_MAX));
	region_put(BASE + 8 * MiB);
	ck_assert_int_eq(fdry_region_claim(region, BASE, 2 * MiB, UINT64_MAX), -FDRY_E_TAKEN);
	ok(check_region(region));
	p = region_get(100); /* the claim that failed changed nothing */
	ck_assert_uint_eq(p, small);
	region_put(p);
	region_put(kept);
	ok(fdry_region_claim(region, BASE + 512, 100, UINT64_MAX)); /* out of two that became one */
	/* freed, skipped, freed, new */
	ok(fdry_region_claim(region, BASE + 2 * MiB, 12 * MiB, UINT64_MAX));
	ok(check_region(region));
	ck_assert_uint_eq(fdry_region_offset(region), 14 * MiB);
	ck_assert_uint_eq(region_get(2 * MiB), BASE + 14 * MiB);
	region_put(BASE + 2 * MiB);
	ck_assert_uint_eq(region_get(12 * MiB), BASE + 2 * MiB);
	ok(check_region(region));
}
END_TEST

/* Large allocations of a pool lie side by side at any multiple of 512 bytes. */
START_TEST(claims_like_those_of_a_pool)
{
	CUdeviceptr at = BASE + 2 * MiB;

	ck_assert_int_eq(fdry_region_claim(region, at + 100, 3 * MiB, UINT64_MAX), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_claim(region, at, 3 * MiB, at + 2 * MiB), -FDRY_E_INVAL);
	ok(fdry_region_claim(region, at, 3 * MiB, at + 3 * MiB));
	ok(fdry_region_claim(region, at + 3 * MiB + 512, 4 * MiB, UINT64_MAX));
	ok(fdry_region_claim(region, at + 3 * MiB, 100, at + 3 * MiB + 512));
	ok(check_region(region));
	ck_assert(region_all(at + 3 * MiB + 512, 4 * MiB, 0));
	ck_assert_uint_eq(region_get(100), at + 7 * MiB + 512);
	region_put(at);
	region_put(at + 3 * MiB + 512);
	ok(check_region(region));
	ck_assert_uint_eq(region_get(2 * MiB), at + 8 * MiB); /* large ones need whole blocks */
	ck_assert_uint_eq(region_get(1 * MiB), at);
	ok(check_region(region));
}
END_TEST

/* Claims within a slab, whose bytes may be in use, waiting for other streams, or free. */
START_TEST(claims_in_a_slab)
{
	struct fdry_async want = { .size = 4 * MiB, .stream = 1 };
	CUdeviceptr a, b, c, d;
	struct fdry_alloc gone;

	ok(fdry_region_alloc_async(region, &want, &a));
	ok(fdry_region_alloc_async(region, &want, &b));
	ok(fdry_region_free_async(region, a, &want, &gone));
	ck_assert_int_eq(fdry_region_claim(region, b, 512, UINT64_MAX), -FDRY_E_TAKEN);
	ck_assert_int_eq(fdry_region_claim(region, b - 512, 1024, UINT64_MAX), -FDRY_E_TAKEN);
	ck_assert_int_eq(fdry_region_claim(region, a, 40 * MiB, UINT64_MAX), -FDRY_E_TAKEN);
	region_soil(a, 4 * MiB);
	ok(fdry_region_claim(region, a + 512, 3 * MiB, UINT64_MAX));
	ck_assert(region_all(a + 512, 3 * MiB, 0) && region_all(a, 512, 0xc3c3c3c3));
	ok(fdry_region_claim(region, b + 4 * MiB, 4 * MiB, UINT64_MAX));
	ok(check_region(region));
	ok(fdry_region_alloc_async(region, &want, &c));
	ck_assert_uint_eq(c, b + 8 * MiB);
	region_put(a + 512);
	region_put(b);
	ok(fdry_region_alloc_async(region, &want, &d));
	ck_assert_uint_eq(d, a);
	ok(check_region(region));
	ok(fdry_region_dealloc(region, b + 4 * MiB, 0));
	ok(fdry_region_dealloc(region, c, 0));
	ok(fdry_region_dealloc(region, d, 0));
	ok(fdry_region_trim_pool(region, 0));
	ck_assert_uint_eq(region_stats().slab_bytes, 0);
	ok(check_region(region));
}
END_TEST

/* @_i: the number of the driver call that fails. The claim can be repeated, and no other allocation
 * got its addresses. */
START_TEST(a_claim_that_fails_releases_its_addresses)
{
	char spec[32];

	ok(fdry_region_claim(region, BASE + 8 * MiB, 2 * MiB, UINT64_MAX));
	snprintf(spec, sizeof(spec), "*:%d:%d", _i, CUDA_ERROR_OUT_OF_MEMORY);
	test_sim_fail(spec);
	ck_assert_int_lt(fdry_region_claim(region, BASE + 4 * MiB, 2 * MiB, UINT64_MAX), 0);
	test_sim_fail(NULL);
	ok(check_region(region));
	ck_assert_uint_eq(region_get(2 * MiB), BASE + 10 * MiB);
	ok(fdry_region_claim(region, BASE + 4 * MiB, 2 * MiB, UINT64_MAX));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mm_region");
	TCase *tc = tcase_create("region");

	setenv("FDRY_SIM_MEMORY", "100M", 1);
	tcase_add_checked_fixture(tc, region_up, region_down);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, addresses_by_the_rule);
	tcase_add_test(tc, addresses_do_not_depend_on_preallocation);
	tcase_add_loop_test(tc, memory_is_zero_or_stamped, 0, 2);
	tcase_add_loop_test(tc, memory_handed_out_again_is_fresh, 0, 2);
	tcase_add_test(tc, arena_needs_no_driver_call);
	tcase_add_test(tc, arena_end_is_straddled);
	tcase_add_test(tc, arena_ends_when_freed);
	tcase_add_test(tc, freed_memory_is_the_drivers_again);
	tcase_add_test(tc, addresses_are_used_again);
	tcase_add_loop_test(tc, memory_at_used_addresses_is_fresh, 0, 2);
	tcase_add_test(tc, addresses_of_captures_are_not_used_again);
	tcase_add_test(tc, addresses_freed_in_a_capture_wait);
	tcase_add_test(tc, each_large_allocation_is_unmapped_alone);
	tcase_add_test(tc, small_allocations_share);
	tcase_add_test(tc, cursor_keeps_its_granule);
	tcase_add_test(tc, bad_sizes_and_addresses);
	tcase_add_test(tc, the_offset_stays_above_what_lives);
	tcase_add_test(tc, a_region_must_fit);
	tcase_add_test(tc, taken_addresses_name_who_has_them);
	tcase_add_loop_test(tc, small_regions_get_their_base, 0, 2);
	tcase_add_test(tc, backed_ranges);
	tcase_add_test(tc, claims_skip_addresses_for_claims_alone);
	tcase_add_test(tc, a_claim_joins_free_addresses_of_every_kind);
	tcase_add_test(tc, claims_like_those_of_a_pool);
	tcase_add_test(tc, claims_in_a_slab);
	tcase_add_loop_test(tc, a_claim_that_fails_releases_its_addresses, 1, 6);
	suite_add_tcase(s, tc);
	return test_main(s);
}
