// SPDX-License-Identifier: Apache-2.0
/* Unit tests of pinned host memory through the interposer: addresses, results that the program
 * sees, and when the driver allocates instead. */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mm/host_area.h"
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

#define BASE (TEST_BASE + (1ull << 32))
#define SIZE (1ull << 30)
#define STEP FDRY_HOST_AREA_ALIGN
#define MIB (1ull << 20)

static uint64_t first;

static void region_begin(void)
{
	ck_assert_int_eq(hook->region_begin(BASE, SIZE), 0);
	hook->region_pinned(true);
}

static void begin(void)
{
	test_hook();
	region_begin();
	first = fdry_host_area_base(BASE, false);
}

static uint64_t get(size_t size)
{
	void *p = NULL;

	cuda_ok(cuMemHostAlloc, &p, size, 0);
	return (uintptr_t)p;
}

static void put(uint64_t addr)
{
	cuda_ok(cuMemFreeHost, (void *)(uintptr_t)addr);
}

static bool in_area(uint64_t addr)
{
	return addr - first < 2 * FDRY_HOST_AREA_SIZE;
}

static uint8_t *at(uint64_t addr)
{
	return (uint8_t *)(uintptr_t)addr;
}

START_TEST(addresses_of_pinned_memory)
{
	uint64_t a, b;
	void *p = NULL;

	begin();
	ck_assert_uint_eq(get(1), first);
	ck_assert_uint_eq(a = get(STEP), first + STEP);
	ck_assert_uint_eq(get(STEP + 1), first + 2 * STEP);
	ck_assert_uint_eq(b = get(2 * MIB), first + 2 * MIB);
	cuda_ok(cuMemAllocHost_v2, &p, 100);
	ck_assert_uint_eq((uintptr_t)p, first + 4 * MIB);
	memset(at(a), 1, STEP);
	put(a);
	ck_assert_uint_eq(get(7), a);
	ck_assert_uint_eq(at(a)[0], 0);
	ck_assert_uint_eq(at(a)[6], 0);
	put(b);
	ck_assert_uint_eq(get(3 * STEP), b);
	cuda_ok(cuMemHostAlloc, &p, 0, 0);
	ck_assert_ptr_null(p);
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert(!in_area(get(1)));
}
END_TEST

/* While a stream captures, memory is stamped, and addresses are not used again. */
START_TEST(captures_get_addresses_of_their_own)
{
	uint64_t a, b;
	CUgraph graph;
	CUstream s;

	begin();
	a = get(100);
	put(a);
	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	b = get(100);
	ck_assert_uint_eq(b, a + STEP);
	ck_assert_uint_eq(*(uint32_t *)at(b + 96), FDRY_STAMP);
	put(b);
	ck_assert_uint_eq(get(8), a + 2 * STEP);
	cuda_ok(cuStreamEndCapture, s, &graph);
	ck_assert_uint_eq(get(100), a);
	ck_assert_uint_eq(get(100), a + 3 * STEP);
}
END_TEST

START_TEST(the_aside_area_has_its_own)
{
	test_hook();
	region_begin();
	ck_assert_int_eq(hook->region_aside_begin(SIZE), 0);
	first = fdry_host_area_base(BASE, false);
	ck_assert_uint_eq(get(1), first);
	ck_assert_int_eq(hook->region_aside(true), 0);
	ck_assert_uint_eq(get(1), first + FDRY_HOST_AREA_SIZE);
	ck_assert_int_eq(hook->region_aside(false), 0);
	ck_assert_uint_eq(get(1), first + STEP);
}
END_TEST

/* --- results that the program sees --- */

START_TEST(answers_are_those_for_allocations)
{
	unsigned int flags, got = 99, type = 0;
	CUdeviceptr dev = 0;
	size_t size = 0;
	void *p = NULL;

	begin();
	for (flags = 0; flags < 8; flags++) {
		cuda_ok(cuMemHostAlloc, &p, 1000, flags);
		ck_assert(in_area((uintptr_t)p));
		cuda_ok(cuMemHostGetFlags, &got, (char *)p + 8);
		ck_assert_uint_eq(got, flags | CU_MEMHOSTALLOC_DEVICEMAP);
	}
	cuda_ok(cuMemHostGetDevicePointer_v2, &dev, (char *)p + 8, 0);
	ck_assert_uint_eq(dev, (uintptr_t)p + 8);
	cuda_ok(cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, dev);
	ck_assert_uint_eq(size, 1000);
	cuda_ok(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, dev);
	ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
	ck_assert_int_eq(cuda(cuMemHostUnregister, p), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemHostRegister_v2, p, 64, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemFreeHost, (char *)p + 8), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemFree_v2, dev - 8), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemHostAlloc, &p, 64, 8), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemHostAlloc, NULL, 64, 0), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuMemFreeHost, p);
	ck_assert_int_eq(cuda(cuMemFreeHost, p), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuMemFreeHost, NULL);
}
END_TEST

START_TEST(children_do_not_inherit_it)
{
	uint64_t a;
	int status;

	begin();
	a = get(4096);
	if (!fork())
		_exit(test_is_mapped(at(a)));
	wait(&status);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* --- the driver allocates instead --- */

START_TEST(outside_of_a_region)
{
	uint64_t other;

	test_hook();
	first = fdry_host_area_base(BASE, false);
	ck_assert(!in_area(get(1)));
	ck_assert_int_eq(hook->region_begin(BASE, SIZE), 0);
	test_sim_fail(NULL);
	other = get(1);
	ck_assert(!in_area(other)); /* the region begins without host areas */
	put(other);
	/* The interposer asks the driver nothing. */
	ck_assert_uint_eq(test_sim_calls("cuCtxGetDevice"), 0);
	hook->region_pinned(true);
	ck_assert_int_eq(hook->region_pause(), 0);
	ck_assert(!in_area(get(1)));
	ck_assert_int_eq(hook->region_resume(), 0);
	ck_assert_uint_eq(get(1), first);
}
END_TEST

START_TEST(addresses_in_use)
{
	uint64_t other;
	void *p;

	begin();
	p = mmap(at(first + 4096), 4096, PROT_READ,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	ck_assert_ptr_eq(p, at(first + 4096));
	other = get(1);
	ck_assert(!in_area(other));
	ck_assert_ptr_nonnull(strstr(hook->last_error(), "that pinned memory needs are in use"));
	put(other);
	munmap(p, 4096);
	ck_assert_uint_eq(get(1), first);
}
END_TEST

START_TEST(memory_that_cannot_be_pinned)
{
	uint64_t other;

	begin();
	ck_assert_uint_eq(get(1), first);
	test_sim_fail("cuMemHostRegister_v2:1:2");
	other = get(1);
	ck_assert(!in_area(other));
	put(other);
	ck_assert_uint_eq(get(1), first + STEP);
	ck_assert(!in_area(get(FDRY_HOST_AREA_SIZE + 1)));
}
END_TEST

/* The area stays as long as memory in it is in use, and is new for the next region. */
START_TEST(areas_outlive_their_region)
{
	uint64_t a, b;

	begin();
	a = get(64);
	b = get(64);
	at(a)[63] = 5;
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert_uint_eq(at(a)[63], 5);
	put(b);
	region_begin();
	ck_assert_uint_eq(get(64), b);
	put(b);
	put(a);
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert(!test_is_mapped(at(first)));
	region_begin();
	ck_assert_uint_eq(get(64), first);
}
END_TEST

/* --- the table --- */

static size_t ledger(struct fdry_alloc *ret)
{
	struct fdry_alloc *list;
	size_t n;

	ck_assert_int_eq(hook->pinned_ledger(&list, &n), 0);
	ck_assert_uint_le(n, 4);
	memcpy(ret, list, n * sizeof(*list));
	free(list);
	return n;
}

START_TEST(the_ledger_lists_both_kinds)
{
	void *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct fdry_alloc list[4];
	uint64_t a, b;

	begin();
	a = get(1000);
	b = get(1000);
	cuda_ok(cuMemHostRegister_v2, own, 500, CU_MEMHOSTREGISTER_PORTABLE);
	ck_assert_uint_eq(ledger(list), 3);
	ck_assert(list[0].addr == a && list[0].kind == FDRY_KIND_PINNED && list[0].size == 1000);
	ck_assert(list[1].addr == b && list[1].serial == list[0].serial + 1);
	ck_assert(list[2].addr == (uintptr_t)own && list[2].kind == FDRY_KIND_REGISTERED);
	put(a);
	cuda_ok(cuMemHostUnregister, own);
	ck_assert_uint_eq(ledger(list), 1);
	ck_assert(hook->pinned_used(a) && hook->pinned_used(b) && !hook->pinned_used(b + STEP));
	ck_assert(!hook->pinned_used((uintptr_t)own));
	ck_assert_int_eq(hook->region_pause(), 0);
	cuda_ok(cuMemHostRegister_v2, own, 500, 0);
	ck_assert_uint_eq(ledger(list), 1);
}
END_TEST

/* If the driver does not give memory back, it can be freed later. */
START_TEST(a_free_that_fails_is_repeated)
{
	long live;
	uint64_t p;

	begin();
	live = test_sim_live("host");
	p = get(MIB);
	test_sim_fail("cuMemHostUnregister:1");
	ck_assert_int_ne(cuda(cuMemFreeHost, (void *)(uintptr_t)p), CUDA_SUCCESS);
	test_sim_fail(NULL);
	*(volatile char *)(uintptr_t)p = 1; /* it is there */
	put(p);
	ck_assert_int_eq(test_sim_live("host"), live);
	ck_assert_uint_eq(get(MIB), p);
	put(p);
	ck_assert_int_eq(hook->region_end(), 0);
}
END_TEST

START_TEST(claims)
{
	begin();
	ck_assert_int_eq(hook->pinned_claim(first + 3 * STEP, 100), 0);
	at(first + 3 * STEP)[99] = 1;
	ck_assert_uint_eq(get(1), first + 4 * STEP);
	ck_assert_int_eq(hook->pinned_claim(first + STEP, STEP), 0);
	ck_assert_int_eq(hook->pinned_claim(first + STEP, STEP), -FDRY_E_TAKEN);
	ck_assert_int_eq(hook->pinned_claim(first + 4 * STEP, 1), -FDRY_E_TAKEN);
	ck_assert_int_eq(hook->pinned_claim(first + 5 * STEP + 8, 1), -FDRY_E_INVAL);
	ck_assert_int_eq(hook->pinned_claim(first + 5 * STEP, 0), -FDRY_E_INVAL);
	ck_assert_int_eq(hook->pinned_claim(first + FDRY_HOST_AREA_SIZE - STEP, 2 * STEP),
			 -FDRY_E_INVAL);
	ck_assert_int_eq(hook->pinned_claim(first - STEP, 1), -FDRY_E_INVAL);
	ck_assert_int_eq(hook->pinned_free(first + STEP), 0);
	ck_assert_int_eq(hook->pinned_free(first + STEP), -FDRY_E_INVAL);
	ck_assert_int_eq(hook->pinned_claim(first + STEP, 7), 0);
	ck_assert_int_eq(hook->pinned_free(4096), -FDRY_E_INVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hook_pinned");
	TCase *tc = tcase_create("pinned memory");

	tcase_add_test(tc, addresses_of_pinned_memory);
	tcase_add_test(tc, captures_get_addresses_of_their_own);
	tcase_add_test(tc, the_aside_area_has_its_own);
	tcase_add_test(tc, answers_are_those_for_allocations);
	tcase_add_test(tc, children_do_not_inherit_it);
	tcase_add_test(tc, outside_of_a_region);
	tcase_add_test(tc, addresses_in_use);
	tcase_add_test(tc, memory_that_cannot_be_pinned);
	tcase_add_test(tc, areas_outlive_their_region);
	tcase_add_test(tc, the_ledger_lists_both_kinds);
	tcase_add_test(tc, a_free_that_fails_is_repeated);
	tcase_add_test(tc, claims);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
