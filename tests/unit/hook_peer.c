// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of other devices' access to a region's memory, under the interposer: it follows the
 * program's settings for contexts and pools, like memory from cuMemAlloc.
 */
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

#include <string.h>

#define MIB (1ull << 20)
#define SIZE (512 * MIB)

#define NONE CU_MEM_ACCESS_FLAGS_PROT_NONE
#define READWRITE CU_MEM_ACCESS_FLAGS_PROT_READWRITE

static CUcontext ctx[3]; /* the devices' primary contexts; the first is current */

static void devices(void)
{
	int i;

	setenv("FDRY_SIM_DEVICES", "3", 1);
	test_hook();
	for (i = 0; i < 3; i++)
		cuda_ok(cuDevicePrimaryCtxRetain, &ctx[i], i);
}

static CUdeviceptr alloc(size_t size)
{
	CUdeviceptr p = 0;

	ck_assert_msg(!cuda(cuMemAlloc_v2, &p, size), "%s", hook->last_error());
	ck_assert(p >= TEST_BASE && p < TEST_BASE + SIZE);
	return p;
}

/* Return the driver's access rights of device @dev at @p. */
static unsigned long long access_of(int dev, CUdeviceptr p)
{
	CUmemLocation where = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev };
	unsigned long long flags = 99;

	cuda_ok(cuMemGetAccess, &flags, &where, p);
	return flags;
}

/* Let context @who use the memory of @of, or end this permission. */
static CUresult may(CUcontext who, CUcontext of, bool yes)
{
	CUcontext was;
	CUresult res;

	cuda_ok(cuCtxPushCurrent_v2, who);
	res = yes ? cuda(cuCtxEnablePeerAccess, of, 0) : cuda(cuCtxDisablePeerAccess, of);
	cuda_ok(cuCtxPopCurrent_v2, &was);
	return res;
}

START_TEST(context_opened_before_the_region)
{
	CUdeviceptr p;

	devices();
	ck_assert_int_eq(may(ctx[1], ctx[0], true), CUDA_SUCCESS);
	hook_region_begin(SIZE);
	p = alloc(5 * MIB);
	ck_assert_uint_eq(access_of(0, p), READWRITE);
	ck_assert_uint_eq(access_of(1, p), READWRITE);
	ck_assert_uint_eq(access_of(2, p), NONE);
	ck_assert_int_eq(hook->region_end(), 0);
	cuda_ok(cuMemFree_v2, p);
	hook_region_begin(SIZE); /* the next one, too */
	ck_assert_uint_eq(access_of(1, alloc(100)), READWRITE);
}
END_TEST

START_TEST(context_opened_and_closed)
{
	CUdeviceptr small, large, later, pool;

	devices();
	hook_region_begin(SIZE);
	small = alloc(100);
	large = alloc(20 * MIB);
	ck_assert_uint_eq(access_of(2, small), NONE);
	ck_assert_int_eq(may(ctx[2], ctx[0], true), CUDA_SUCCESS);
	later = alloc(3 * MIB);
	cuda_ok(cuMemAllocAsync, &pool, 512, NULL);
	ck_assert_uint_eq(access_of(2, small), READWRITE);
	ck_assert_uint_eq(access_of(2, large), READWRITE);
	ck_assert_uint_eq(access_of(2, later), READWRITE);
	ck_assert_uint_eq(access_of(2, pool), READWRITE);
	ck_assert_uint_eq(access_of(1, large), NONE);
	ck_assert_int_eq(may(ctx[2], ctx[0], true), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	ck_assert_int_eq(hook->region_end(), 0); /* the live allocations keep it */
	ck_assert_int_eq(may(ctx[2], ctx[0], false), CUDA_SUCCESS);
	ck_assert_uint_eq(access_of(2, small), NONE);
	ck_assert_uint_eq(access_of(2, large), NONE);
	ck_assert_uint_eq(access_of(2, later), NONE);
	ck_assert_uint_eq(access_of(0, large), READWRITE);
	ck_assert_int_eq(may(ctx[2], ctx[0], false), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}
END_TEST

/* The reverse direction is a separate setting, and so are those of other devices. */
START_TEST(only_what_was_set)
{
	CUdeviceptr p;

	devices();
	hook_region_begin(SIZE);
	p = alloc(100);
	ck_assert_int_eq(may(ctx[0], ctx[1], true), CUDA_SUCCESS);
	ck_assert_int_eq(may(ctx[1], ctx[2], true), CUDA_SUCCESS);
	ck_assert_uint_eq(access_of(1, p), NONE);
	ck_assert_uint_eq(access_of(2, p), NONE);
	ck_assert_int_eq(may(ctx[1], ctx[1], true), CUDA_ERROR_INVALID_CONTEXT);
	ck_assert_int_eq(cuda(cuCtxEnablePeerAccess, ctx[2], 7), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* Access is the device's: it stays while any of its contexts has it. */
START_TEST(two_contexts_of_a_device)
{
	CUcontext own, own_of;
	CUdeviceptr p;

	devices();
	hook_region_begin(SIZE);
	p = alloc(100);
	cuda_ok(cuCtxCreate_v4, &own, NULL, 0, 1);
	cuda_ok(cuCtxCreate_v4, &own_of, NULL, 0, 0);
	ck_assert_int_eq(may(ctx[1], ctx[0], true), CUDA_SUCCESS);
	ck_assert_int_eq(may(own, ctx[0], true), CUDA_SUCCESS);
	ck_assert_int_eq(may(ctx[1], own_of, true), CUDA_SUCCESS);
	ck_assert_int_eq(may(ctx[1], ctx[0], false), CUDA_SUCCESS);
	ck_assert_int_eq(may(ctx[1], own_of, false), CUDA_SUCCESS);
	ck_assert_uint_eq(access_of(1, p), READWRITE);
	ck_assert_int_eq(may(own, ctx[0], false), CUDA_SUCCESS);
	ck_assert_uint_eq(access_of(1, p), NONE);
}
END_TEST

static CUmemAccessDesc desc(int dev, CUmemAccess_flags flags)
{
	return (CUmemAccessDesc){ .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev },
				  .flags = flags };
}

START_TEST(pools)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc map[3] = { desc(0, READWRITE), desc(1, READWRITE), desc(2, READWRITE) };
	CUmemoryPool standard, mine;
	CUdeviceptr p;

	devices();
	cuda_ok(cuDeviceGetDefaultMemPool, &standard, 0);
	cuda_ok(cuMemPoolSetAccess, standard, map, 2);
	hook_region_begin(SIZE);
	cuda_ok(cuMemAllocAsync, &p, 512, NULL);
	ck_assert_uint_eq(access_of(1, p), READWRITE);
	ck_assert_uint_eq(access_of(2, p), NONE);
	cuda_ok(cuMemPoolCreate, &mine, &props);
	cuda_ok(cuMemPoolSetAccess, mine, map, 3);
	cuda_ok(cuMemPoolSetAccess, mine, map, 3);
	ck_assert_uint_eq(access_of(2, p), READWRITE);
	map[1] = desc(1, NONE);
	map[2] = desc(7, READWRITE);
	ck_assert_int_eq(cuda(cuMemPoolSetAccess, standard, map, 3), CUDA_ERROR_INVALID_DEVICE);
	ck_assert_uint_eq(access_of(1, p), READWRITE);
	cuda_ok(cuMemPoolSetAccess, standard, map, 2);
	ck_assert_uint_eq(access_of(1, p), READWRITE); /* the other pool's */
	cuda_ok(cuMemPoolDestroy, mine);
	ck_assert_uint_eq(access_of(1, p), NONE);
	ck_assert_uint_eq(access_of(2, p), NONE);
	ck_assert_uint_eq(access_of(0, p), READWRITE);
}
END_TEST

/* Another device's pool has nothing to do with the region. */
START_TEST(pools_of_other_devices)
{
	CUmemAccessDesc map = desc(2, READWRITE);
	CUmemoryPool other;
	CUdeviceptr p;

	devices();
	hook_region_begin(SIZE);
	p = alloc(100);
	cuda_ok(cuDeviceGetDefaultMemPool, &other, 1);
	cuda_ok(cuMemPoolSetAccess, other, &map, 1);
	ck_assert_uint_eq(access_of(2, p), NONE);
	ck_assert_int_eq(cuda(cuMemPoolSetAccess, other, NULL, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemPoolSetAccess, (CUmemoryPool)7, &map, 1),
			 CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* The program itself sets the access to memory that it maps in the region. */
START_TEST(memory_that_the_program_maps)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc own = desc(0, READWRITE);
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;

	devices();
	ck_assert_int_eq(may(ctx[1], ctx[0], true), CUDA_SUCCESS);
	hook_region_begin(SIZE);
	cuda_ok(cuMemAddressReserve, &p, 4 * MIB, 0, 0, 0);
	cuda_ok(cuMemCreate, &h, 4 * MIB, &prop, 0);
	cuda_ok(cuMemMap, p, 4 * MIB, 0, h, 0);
	cuda_ok(cuMemSetAccess, p, 4 * MIB, &own, 1);
	ck_assert_int_eq(may(ctx[2], ctx[0], true), CUDA_SUCCESS);
	ck_assert_uint_eq(access_of(1, p), NONE);
	ck_assert_uint_eq(access_of(2, p), NONE);
}
END_TEST

/* Every driver call fails in turn: all memory is open and the driver says so, or neither. */
START_TEST(pool_fails_clean)
{
	CUmemAccessDesc open[2] = { desc(1, READWRITE), desc(2, READWRITE) },
			closed[2] = { desc(1, NONE), desc(2, NONE) };
	CUmemAccess_flags set;
	CUdeviceptr p[3], later;
	CUmemoryPool all;
	CUresult res;
	int n, i, failed = 0;
	char spec[32];

	devices();
	hook_region_begin(SIZE);
	for (i = 0; i < 3; i++)
		p[i] = alloc(3 * MIB);
	cuda_ok(cuDeviceGetDefaultMemPool, &all, 0);
	cuda_ok(cuMemPoolSetAccess, all, closed, 2); /* whatever is looked up once in a process */
	for (n = 1;; n++) {
		snprintf(spec, sizeof(spec), "*:%d", n);
		test_sim_fail(spec);
		res = cuda(cuMemPoolSetAccess, all, open, 2);
		if (!test_sim_failed())
			break;
		test_sim_fail("");
		failed += !!res;
		for (i = 0; i < 6; i++)
			ck_assert_uint_eq(access_of(1 + i % 2, p[i / 2]), res ? NONE : READWRITE);
		for (i = 0; i < 2; i++) {
			cuda_ok(cuMemPoolGetAccess, &set, all, &open[i].location);
			ck_assert_int_eq(set, res ? NONE : READWRITE);
		}
		later = alloc(3 * MIB);
		ck_assert_uint_eq(access_of(1, later), res ? NONE : READWRITE);
		cuda_ok(cuMemFree_v2, later);
		if (!res)
			cuda_ok(cuMemPoolSetAccess, all, closed, 2);
	}
	test_sim_fail("");
	ck_assert_int_gt(failed, 9);
	ck_assert_uint_eq(access_of(1, p[2]), READWRITE);
}
END_TEST

/* If a set-access call fails between others, those before it are undone. */
START_TEST(context_fails_clean)
{
	CUdeviceptr p[3];
	char spec[32];
	int n, i;

	devices();
	hook_region_begin(SIZE);
	for (i = 0; i < 3; i++)
		p[i] = alloc(3 * MIB);
	for (n = 1; n <= 3; n++) {
		snprintf(spec, sizeof(spec), "cuMemSetAccess:%d", n);
		test_sim_fail(spec);
		ck_assert_int_ne(may(ctx[1], ctx[0], true), CUDA_SUCCESS);
		test_sim_fail("");
		for (i = 0; i < 3; i++)
			ck_assert_uint_eq(access_of(1, p[i]), NONE);
		ck_assert_uint_eq(access_of(1, alloc(3 * MIB)), NONE);
		ck_assert_int_eq(may(ctx[1], ctx[0], false), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	}
	ck_assert_int_eq(may(ctx[1], ctx[0], true), CUDA_SUCCESS);
	ck_assert_uint_eq(access_of(1, p[0]), READWRITE);
}
END_TEST

/* An allocation fails if a peer cannot be given access to it. */
START_TEST(alloc_fails_clean)
{
	devices();
	ck_assert_int_eq(may(ctx[1], ctx[0], true), CUDA_SUCCESS);
	hook_region_begin(SIZE);
	ck_assert_int_eq(hook->region_preallocate(4 * MIB), 0);
	ck_assert_uint_eq(access_of(1, TEST_BASE), READWRITE);
	test_sim_fail("cuMemSetAccess:1");
	ck_assert_int_eq(cuda(cuMemAlloc_v2, &(CUdeviceptr){ 0 }, 8 * MIB),
			 CUDA_ERROR_OUT_OF_MEMORY);
	test_sim_fail("");
	ck_assert_uint_eq(access_of(1, alloc(8 * MIB)), READWRITE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hook_peer");
	TCase *tc = tcase_create("hook_peer");

	tcase_add_test(tc, context_opened_before_the_region);
	tcase_add_test(tc, context_opened_and_closed);
	tcase_add_test(tc, only_what_was_set);
	tcase_add_test(tc, two_contexts_of_a_device);
	tcase_add_test(tc, pools);
	tcase_add_test(tc, pools_of_other_devices);
	tcase_add_test(tc, memory_that_the_program_maps);
	tcase_add_test(tc, pool_fails_clean);
	tcase_add_test(tc, context_fails_clean);
	tcase_add_test(tc, alloc_fails_clean);
	suite_add_tcase(s, tc);
	return test_main(s);
}
