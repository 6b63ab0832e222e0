// SPDX-License-Identifier: Apache-2.0
/*
 * Stream-ordered allocations of a region, and memory that programs map in it themselves.
 */
#include "tests/lib/region.h"
#include "tests/lib/test.h"
#include "tests/lib/check_mm.h"

#define SLAB (32 * MiB)

static CUdeviceptr async(uint64_t size, uint64_t stream, uint64_t graph)
{
	struct fdry_async a = { .size = size, .stream = stream, .graph = graph, .owner = 77,
				.flags = graph ? FDRY_ALLOC_CAPTURING : 0 };
	CUdeviceptr addr = 0;

	ck_assert_msg(!fdry_region_alloc_async(region, &a, &addr), "%s", fdry_last_error());
	ok(check_region(region));
	return addr;
}

static int release(CUdeviceptr addr, uint64_t stream, uint64_t graph)
{
	struct fdry_async a = { .stream = stream, .graph = graph,
				.flags = graph ? FDRY_ALLOC_CAPTURING : 0 };
	struct fdry_alloc gone;
	int ret = fdry_region_free_async(region, addr, &a, &gone);

	ok(check_region(region));
	return ret;
}

START_TEST(order_of_streams)
{
	CUdeviceptr a = async(1000, 1, 0), b = async(1000, 2, 0);

	ck_assert_uint_eq(a, BASE);
	ck_assert_uint_eq(b, BASE + 1024);
	ck_assert(region_all(a, SLAB, 0));
	region_soil(a, 1024);
	ok(release(a, 1, 0));
	ck_assert_uint_eq(async(1000, 2, 0), BASE + 2048);
	ck_assert_uint_eq(async(600, 1, 0), a);
	ck_assert(!region_all(a, 1024, 0)); /* as it was: the stream's order is all there is */
	ok(release(a, 2, 0)); /* another stream frees it: now it is that one's */
	ck_assert_uint_eq(async(600, 1, 0), a + 3072);
	ck_assert_uint_eq(async(600, 2, 0), a);
	ck_assert_int_eq(release(a + 512, 1, 0), -FDRY_E_INVAL);
	ck_assert_int_eq(release(b + 5, 1, 0), -FDRY_E_INVAL);
	ck_assert_uint_eq(region_stats().allocs, 4);
	ck_assert_uint_eq(region_stats().blocks, 1);
}
END_TEST

START_TEST(no_driver_call_on_the_way)
{
	CUdeviceptr a = async(4096, 1, 0);
	int i;

	test_sim_fail("*:1+");
	for (i = 0; i < 100; i++) {
		ok(release(a, 1, 0));
		ck_assert_uint_eq(async(4096, 1, 0), a);
	}
	ck_assert_uint_eq(test_sim_calls(NULL), 0);
	test_sim_fail("");
}
END_TEST

/* cuMemFree waits for the device: everything that was freed before is free for all. */
START_TEST(a_wait_settles)
{
	CUdeviceptr a = async(MiB, 1, 0), b = async(MiB, 2, 0), other = region_get(100);

	ok(release(a, 1, 0));
	ck_assert_uint_eq(async(MiB, 3, 0), b + MiB);
	region_put(other);
	ck_assert_uint_eq(async(MiB, 3, 0), a);
	region_put(b); /* a stream-ordered allocation, freed by waiting */
	ck_assert_uint_eq(async(MiB, 3, 0), b);
	ck_assert_int_eq(fdry_region_dealloc(region, b + 512, 0), -FDRY_E_INVAL);
	ck_assert_ptr_nonnull(
		strstr(fdry_last_error(), "512 bytes into the allocation of 1048576"));
}
END_TEST

START_TEST(slabs_go_back)
{
	CUdeviceptr a = async(20 * MiB, 1, 0), b = async(20 * MiB, 1, 0), c = async(50 * MiB, 1, 0);

	ck_assert_uint_eq(region_stats().slab_bytes,
			  2 * SLAB + 52 * MiB); /* a little more than the requested size */
	ck_assert_uint_eq(region_stats().pool_bytes, 90 * MiB);
	ok(release(a, 1, 0));
	ok(release(c, 1, 0));
	ck_assert_uint_eq(region_stats().mapped_bytes, 2 * SLAB + 52 * MiB);
	ok(fdry_region_trim_pool(region, 2 * SLAB)); /* the highest first */
	ck_assert_uint_eq(region_stats().mapped_bytes, 2 * SLAB);
	ok(fdry_region_trim_pool(region, 0));
	ck_assert_uint_eq(region_stats().mapped_bytes, SLAB);
	ok(check_region(region));
	ok(release(b, 1, 0));
	ok(fdry_region_trim_pool(region, 0));
	ck_assert_uint_eq(region_stats().mapped_bytes, 0);
	ck_assert(fdry_region_unused(region));
	ck_assert_uint_eq(async(1, 9, 0), a); /* addresses of slabs are used again, too */
}
END_TEST

/* If device memory runs out, memory that streams have freed is released before an allocation
 * fails. */
START_TEST(pressure_frees_slabs)
{
	CUdeviceptr a = async(60 * MiB, 1, 0);

	ok(release(a, 1, 0));
	ck_assert_uint_eq(region_stats().mapped_bytes, 62 * MiB);
	region_get(110 * MiB); /* of 160 */
	ck_assert_uint_eq(region_stats().slab_bytes, 0);
	ok(check_region(region));
}
END_TEST

START_TEST(graphs_have_memory_of_their_own)
{
	CUdeviceptr plain = async(1000, 1, 0), a, b, again;
	struct fdry_alloc *all_of_them;
	size_t count;

	ok(release(plain, 1, 0));
	a = async(1000, 1, 5);
	b = async(1000, 2, 5);
	ck_assert_uint_ge(a, plain + SLAB);
	ck_assert(region_all(a, SLAB, FDRY_STAMP));
	ok(release(a, 1, 5));
	ck_assert_uint_eq(async(500, 1, 5), a); /* in the order of its stream */
	ck_assert_uint_ge(async(1000, 1, 6), a + SLAB); /* another capture */
	ck_assert_int_eq(release(plain, 1, 5), -FDRY_E_INVAL);
	again = async(1000, 1, 0);
	ck_assert_uint_eq(again, plain);
	ck_assert_int_eq(release(again, 1, 5),
			 -FDRY_E_INVAL); /* natively not the graph's to free */
	ok(fdry_region_ledger(region, &all_of_them, &count));
	ck_assert_uint_eq(count, 3); /* again, and two slabs */
	ck_assert_int_eq(all_of_them[1].kind, FDRY_KIND_GRAPH);
	ck_assert(all_of_them[1].capturing && all_of_them[1].addr == a &&
		  all_of_them[1].extent == SLAB);
	free(all_of_them);
	ok(fdry_region_trim(region)); /* the captures have ended */
	ok(release(b, 2, 0));
	ck_assert_uint_ne(async(1000, 2, 7), b);
	ck_assert(!fdry_region_unused(region));
	ok(release(b, 2, 0)); /* another launch allocated it again */
	ok(fdry_region_dealloc(region, b, 0));
	ck_assert(fdry_region_find(region, b, &(struct fdry_alloc){ 0 }));
	ok(release(b, 2, 8)); /* another capture frees it, and it does not exist then */
	ck_assert(!fdry_region_find(region, b, &(struct fdry_alloc){ 0 }));
	ck_assert_int_eq(release(b, 2, 0), -FDRY_E_INVAL);
	ok(check_region(region));
}
END_TEST

/* Memory of allocation nodes is never used twice, and the ends of captures do not concern it. */
START_TEST(nodes_share_nothing)
{
	CUdeviceptr a = async(1000, 0, FDRY_GRAPH_NODES), b, c;

	ok(release(a, 0, FDRY_GRAPH_NODES));
	ck_assert_int_eq(release(a, 0, FDRY_GRAPH_NODES), -FDRY_E_INVAL);
	ok(fdry_region_trim(region));
	fdry_region_forget_graphs(region);
	b = async(1000, 0, FDRY_GRAPH_NODES);
	ck_assert_uint_eq(b, a + 1024);
	c = async(1000, 1, 5);
	ok(release(b, 1, 5)); /* a capture frees it */
	ok(release(c, 0, FDRY_GRAPH_NODES));
	ck_assert_uint_eq(async(1000, 0, FDRY_GRAPH_NODES), b + 1024);
	ck_assert_uint_eq(async(1000, 1, 5), c + 1024);
	ok(check_region(region));
}
END_TEST

/* Memory that a capture has freed is forgotten; memory that it frees later may be reused. */
START_TEST(graphs_forget)
{
	CUdeviceptr a = async(1000, 1, 5), b = async(1000, 1, 5), c;

	ok(release(a, 1, 5));
	fdry_region_forget_graphs(region);
	ok(check_region(region));
	c = async(1000, 1, 5);
	ck_assert(c != a && c != b);
	ok(release(b, 1, 5));
	ck_assert_uint_eq(async(1000, 1, 5), b);
	ok(release(c, 1, 5));
	ok(fdry_region_trim(region));
	ok(check_region(region));
}
END_TEST

/* Every driver call of an allocation fails in turn. */
START_TEST(fails_clean)
{
	struct fdry_async a = { .size = 40 * MiB, .stream = 1 };
	struct fdry_region_stats before, after;
	CUdeviceptr addr = 1;
	char spec[32];
	int n, ret;

	if (_i) {
		a.graph = 3;
		a.flags = FDRY_ALLOC_CAPTURING;
	}
	for (n = 1;; n++) {
		before = region_stats();
		snprintf(spec, sizeof(spec), "*:%d", n);
		test_sim_fail(spec);
		ret = fdry_region_alloc_async(region, &a, &addr);
		if (!test_sim_failed())
			break;
		test_sim_fail("");
		ok(check_region(region));
		after = region_stats();
		if (ret)
			ck_assert_mem_eq(&before, &after, sizeof(before));
		else
			break; /* a failure that is not the caller's */
	}
	test_sim_fail("");
	ck_assert_int_eq(ret, 0);
	ck_assert_int_gt(n, 4);
	ck_assert_uint_eq(addr, BASE);
}
END_TEST

/* --- memory that the program maps --- */

static CUmemGenericAllocationHandle create(uint64_t size)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemGenericAllocationHandle h;

	ck_assert_int_eq(drv->cuMemCreate(&h, size, &prop, 0), 0);
	return h;
}

static void map_at(CUdeviceptr addr, uint64_t size, unsigned int flags)
{
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h = create(size);

	ok(fdry_region_map(region, addr, size, true, flags));
	ck_assert_int_eq(drv->cuMemMap(addr, size, 0, h, 0), 0);
	ck_assert_int_eq(drv->cuMemRelease(h), 0);
	ck_assert_int_eq(drv->cuMemSetAccess(addr, size, &access, 1), 0);
	ok(fdry_region_fill(region, addr, size));
	ok(check_region(region));
}

static void unmap_at(CUdeviceptr addr, uint64_t size)
{
	ck_assert_int_eq(drv->cuMemUnmap(addr, size), 0);
	fdry_region_unmap(region, addr, size);
}

static CUdeviceptr reserve(uint64_t size, uint64_t align)
{
	CUdeviceptr addr = 0;

	ok(fdry_region_reserve(region, size, align, &addr));
	ok(check_region(region));
	return addr;
}

START_TEST(reservations)
{
	CUdeviceptr a, b, c, start = 0;
	uint64_t size = 0;

	region_get(100);
	a = reserve(16 * MiB, 0);
	b = reserve(8 * MiB, 32 * MiB);
	ck_assert_uint_eq(a, BASE + 2 * MiB);
	ck_assert_uint_eq(b, BASE + 32 * MiB);
	ck_assert_uint_eq(region_get(4 * MiB), BASE + 40 * MiB);
	ck_assert(fdry_region_reserved(region, a + 15 * MiB, &start, &size) && start == a &&
		  size == 16 * MiB);
	ck_assert(!fdry_region_reserved(region, a + 16 * MiB, &start, &size));
	ck_assert_int_eq(fdry_region_reserve(region, 3 * MiB, 0, &c), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_reserve(region, 2 * MiB, 3 * MiB, &c), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_reserve(region, 0, 0, &c), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_unreserve(region, a, 8 * MiB), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_unreserve(region, a + 2 * MiB, 14 * MiB), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_region_set_offset(region, 0), -FDRY_E_STATE);
	ok(fdry_region_unreserve(region, a, 16 * MiB));
	ck_assert_uint_eq(reserve(4 * MiB, 0), a);
	ck_assert_uint_eq(reserve(4 * MiB, 0), a + 4 * MiB);
	/* an arena is not the program's to map in */
	ok(fdry_region_preallocate(region, 20 * MiB));
	ck_assert_uint_eq(reserve(16 * MiB, 0), BASE + 64 * MiB);
}
END_TEST

static uint32_t lower(CUdeviceptr addr)
{
	return (uint32_t)addr;
}

/* The upper half of a pointer into the region, behind a number of 32 bits, does not look like an
 * address that the program has reserved. */
START_TEST(reservations_past_numbers)
{
	CUdeviceptr a, b;

	region_down();
	region = region_at(BASE, 64ull << 30);
	a = reserve(16 * MiB, 0);
	b = reserve(16 * MiB, 0);
	ck_assert_uint_eq(a, BASE + FDRY_NUMBERS_END);
	ck_assert_uint_eq(b, a + 16 * MiB);
	/* Only claims get what was skipped. */
	ok(fdry_region_claim(region, BASE, 4 * MiB, UINT64_MAX));
	ok(fdry_region_claim(region, a - 4 * MiB, 4 * MiB, UINT64_MAX));
	ok(check_region(region));
	ok(fdry_region_set_offset(region, (4ull << 30) - 8 * MiB));
	a = reserve(16 * MiB, 64 * MiB);
	ck_assert_uint_eq(lower(a), FDRY_NUMBERS_END);
	ck_assert_uint_gt(a, b);
	/* What has no room there lies where it did. */
	ck_assert_uint_eq(reserve(4096 * MiB, 0), a + 16 * MiB);
	ck_assert_uint_eq(lower(reserve(2 * MiB, 1024 * MiB)), 0x80000000);
	ck_assert_uint_eq(region_get(512), BASE + (10ull << 30) + 2 * MiB);
}
END_TEST

/* Where addresses are short, none is skipped. */
START_TEST(small_regions_skip_nothing)
{
	region_down();
	region = region_at(BASE, 4ull << 30);
	fdry_region_skip_numbers(region);
	ck_assert_uint_eq(reserve(2 * MiB, 0), BASE);
	ck_assert_uint_eq(region_get(512), BASE + 2 * MiB);
}
END_TEST

/* Frameworks reserve more than the region's size, for every stream: the region grows, and
 * allocations continue where they were. */
START_TEST(reservations_beyond_the_end)
{
	CUdeviceptr a = reserve(SIZE / 2, 0), b, c;

	ck_assert_uint_eq(a, BASE);
	b = reserve(SIZE / 2, 0);
	ck_assert_uint_ge(b, BASE + SIZE);
	c = reserve(SIZE * 16, 0);
	ck_assert_uint_ge(c, b + SIZE / 2);
	ck_assert_uint_ge(fdry_region_size(region), c + SIZE * 16 - BASE);
	ck_assert_uint_eq(region_get(4 * MiB), BASE + SIZE / 2);
	map_at(b, 2 * MiB, 0);
	map_at(c + SIZE * 16 - 2 * MiB, 2 * MiB, 0);
	ck_assert(region_all(b, 2 * MiB, 0));
	unmap_at(b, 2 * MiB);
	unmap_at(c + SIZE * 16 - 2 * MiB, 2 * MiB);
	ok(fdry_region_unreserve(region, b, SIZE / 2));
	ok(fdry_region_unreserve(region, c, SIZE * 16));
	ck_assert_uint_eq(reserve(SIZE, 0), c); /* the driver's borders stay borders */
	ck_assert_uint_eq(reserve(SIZE / 2, 0), b);
}
END_TEST

/* Two of the driver's reservations may be adjacent; no allocation spans their border. */
START_TEST(borders_stay)
{
	CUdeviceptr a = reserve(1024 * MiB, 0), b = reserve(1024 * MiB, 0), c;

	ck_assert_uint_ge(a, BASE + SIZE);
	ok(fdry_region_unreserve(region, a, 1024 * MiB));
	ok(fdry_region_unreserve(region, b, 1024 * MiB));
	c = reserve(2048 * MiB, 0);
	ck_assert_uint_ge(c, b + 1024 * MiB);
	map_at(c + 1022 * MiB, 4 * MiB, 0);
	unmap_at(c + 1022 * MiB, 4 * MiB);
}
END_TEST

/* A mapping behind the region is in the way: the rest of the region is used up to its end. */
START_TEST(something_behind_the_end)
{
	CUdeviceptr block = 0, a = 1;

	ck_assert_int_eq(drv->cuMemAddressReserve(&block, 2048 * MiB, 0, BASE + SIZE, 0), 0);
	ck_assert_uint_eq(block, BASE + SIZE);
	ck_assert_uint_eq(reserve(SIZE - 64 * MiB, 0), BASE);
	ck_assert_int_eq(fdry_region_reserve(region, SIZE, 0, &a), -FDRY_E_TAKEN);
	ck_assert_uint_eq(a, 1);
	ck_assert_uint_eq(region_get(64 * MiB), BASE + SIZE - 64 * MiB);
	ck_assert_int_eq(drv->cuMemAddressFree(block, 2048 * MiB), 0);
}
END_TEST

START_TEST(mapped_memory)
{
	CUdeviceptr a = reserve(64 * MiB, 0);
	struct fdry_alloc m, *ledger;
	size_t count;

	ck_assert_int_eq(fdry_region_map(region, a + 63 * MiB, 2 * MiB, true, 0), -FDRY_E_INVAL);
	map_at(a + 4 * MiB, 4 * MiB, 0);
	ck_assert(region_all(a + 4 * MiB, 4 * MiB, 0));
	map_at(a, 2 * MiB, FDRY_ALLOC_CAPTURING);
	ck_assert(region_all(a, 2 * MiB, FDRY_STAMP));
	ck_assert_int_eq(fdry_region_map(region, a + 6 * MiB, 4 * MiB, true, 0), -FDRY_E_INVAL);
	ok(fdry_region_map(region, a + 32 * MiB, 2 * MiB, true, 0)); /* no access yet */
	ok(fdry_region_ledger(region, &ledger, &count));
	ck_assert_uint_eq(count, 2);
	ck_assert(ledger[0].addr == a && ledger[0].capturing && ledger[1].addr == a + 4 * MiB &&
		  !ledger[1].capturing);
	free(ledger);
	fdry_region_unmap(region, a + 32 * MiB, 2 * MiB);
	ck_assert(fdry_region_find(region, a + 5 * MiB, &m) && m.kind == FDRY_KIND_MAP &&
		  m.addr == a + 4 * MiB);
	fdry_region_share(region, a + 4 * MiB);
	ck_assert(fdry_region_find(region, a + 5 * MiB, &m) && m.kind == FDRY_KIND_SHARED);
	ck_assert_int_eq(fdry_region_unreserve(region, a, 64 * MiB), -FDRY_E_INVAL);
	unmap_at(a, 8 * MiB);
	ck_assert(!fdry_region_find(region, a + 5 * MiB, &m));
	ok(fdry_region_unreserve(region, a, 64 * MiB));
	ck_assert(fdry_region_unused(region));
}
END_TEST

/* An address that ever held data written before a capture is content, also if other memory is
 * mapped there later. */
START_TEST(content_stays_content)
{
	CUdeviceptr a = reserve(64 * MiB, 0);
	struct fdry_alloc m;

	map_at(a, 4 * MiB, 0);
	unmap_at(a, 4 * MiB);
	map_at(a + 2 * MiB, 4 * MiB, FDRY_ALLOC_CAPTURING);
	ck_assert(fdry_region_find(region, a + 2 * MiB, &m) && !m.capturing);
	ck_assert(region_all(a + 2 * MiB, 4 * MiB, 0));
	unmap_at(a + 2 * MiB, 4 * MiB);
	ok(fdry_region_unreserve(region, a, 64 * MiB));
	ck_assert_uint_eq(reserve(64 * MiB, 0), a);
	map_at(a, 2 * MiB, FDRY_ALLOC_CAPTURING);
	ck_assert(fdry_region_find(region, a, &m) && !m.capturing);
	map_at(a + 6 * MiB, 2 * MiB, FDRY_ALLOC_CAPTURING);
	ck_assert(fdry_region_find(region, a + 6 * MiB, &m) && m.capturing);
	unmap_at(a, 2 * MiB);
	unmap_at(a + 6 * MiB, 2 * MiB);
	map_at(a + 6 * MiB, 2 * MiB, FDRY_ALLOC_CAPTURING);
	ck_assert(fdry_region_find(region, a + 6 * MiB, &m) && m.capturing);
	ck_assert(region_all(a + 6 * MiB, 2 * MiB, FDRY_STAMP));
	unmap_at(a + 6 * MiB, 2 * MiB);
}
END_TEST

/* Memory that was mapped before keeps its bytes. */
START_TEST(only_blank_memory_is_filled)
{
	CUdeviceptr a = reserve(8 * MiB, 0);
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h = create(2 * MiB);
	struct fdry_alloc m;

	ck_assert_int_eq(drv->cuMemMap(a, 2 * MiB, 0, h, 0), 0);
	ck_assert_int_eq(drv->cuMemSetAccess(a, 2 * MiB, &access, 1), 0);
	region_soil(a, 2 * MiB);
	ok(fdry_region_map(region, a, 2 * MiB, false, FDRY_ALLOC_CAPTURING));
	ok(fdry_region_fill(region, a, 2 * MiB));
	ck_assert(fdry_region_find(region, a, &m) && !m.capturing);
	ck_assert(region_all(a, 2 * MiB, 0xc3c3c3c3));
	unmap_at(a, 2 * MiB);
	ck_assert_int_eq(drv->cuMemRelease(h), 0);
}
END_TEST

static void up(void)
{
	setenv("FDRY_SIM_MEMORY", "160M", 1);
	region_up();
}

static void down(void)
{
	region_down();
}

int main(void)
{
	Suite *s = suite_create("mm_async");
	TCase *tc = tcase_create("async");

	tcase_add_checked_fixture(tc, up, down);
	tcase_add_test(tc, order_of_streams);
	tcase_add_test(tc, no_driver_call_on_the_way);
	tcase_add_test(tc, a_wait_settles);
	tcase_add_test(tc, slabs_go_back);
	tcase_add_test(tc, pressure_frees_slabs);
	tcase_add_test(tc, graphs_have_memory_of_their_own);
	tcase_add_test(tc, graphs_forget);
	tcase_add_test(tc, nodes_share_nothing);
	tcase_add_loop_test(tc, fails_clean, 0, 2);
	tcase_add_test(tc, reservations);
	tcase_add_test(tc, reservations_past_numbers);
	tcase_add_test(tc, small_regions_skip_nothing);
	tcase_add_test(tc, reservations_beyond_the_end);
	tcase_add_test(tc, borders_stay);
	tcase_add_test(tc, something_behind_the_end);
	tcase_add_test(tc, mapped_memory);
	tcase_add_test(tc, content_stays_content);
	tcase_add_test(tc, only_blank_memory_is_filled);
	suite_add_tcase(s, tc);
	return test_main(s);
}
