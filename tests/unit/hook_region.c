// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of device memory under the interposer: without a region it comes from the driver. With
 * a region it has the same addresses in every process, and never comes from the driver, whatever
 * fails.
 */
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define SIZE (64 * MIB)

static CUdeviceptr alloc(size_t size)
{
	CUdeviceptr p = 0;

	ck_assert_msg(!cuda(cuMemAlloc_v2, &p, size), "%s", hook->last_error());
	return p;
}

static size_t ledger(struct fdry_alloc **ret)
{
	CUdeviceptr base;
	uint64_t size;
	size_t n;

	ck_assert_int_eq(hook->region_ledger(&base, &size, ret, &n), 0);
	ck_assert_uint_eq(base, TEST_BASE);
	ck_assert_uint_eq(size, SIZE);
	return n;
}

START_TEST(native_without_a_region)
{
	CUdeviceptr p;

	test_hook();
	p = alloc(1000);
	ck_assert(!hook_region_has(p));
	ck_assert_int_eq(test_sim_live("allocation"), 1);
	cuda_ok(cuMemFree_v2, p);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
	ck_assert_int_eq(cuda(cuMemFree_v2, p), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemAlloc_v2, &p, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(addresses_and_bytes)
{
	unsigned char host[1000], want[1000];
	CUdeviceptr a, b, c;
	uint64_t offset;

	test_hook();
	hook_region_begin(SIZE);
	a = alloc(1000);
	b = alloc(2000);
	ck_assert_uint_eq(a, TEST_BASE);
	ck_assert_uint_eq(b, TEST_BASE + 1024);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
	ck_assert_int_eq(hook->region_offset(&offset), 0);
	ck_assert_uint_ge(offset, 3000);
	memset(want, 0, sizeof(want));
	cuda_ok(cuMemcpyDtoH_v2, host, a, 1000);
	ck_assert_mem_eq(host, want, 1000);
	memset(want, 0x77, sizeof(want));
	cuda_ok(cuMemcpyHtoD_v2, a, want, 1000);
	cuda_ok(cuMemcpyDtoD_v2, b, a, 1000);
	cuda_ok(cuMemcpyDtoH_v2, host, b, 1000);
	ck_assert_mem_eq(host, want, 1000);
	ck_assert_int_eq(hook->region_set_offset(32 * MIB), 0);
	c = alloc(1);
	ck_assert_uint_eq(c, TEST_BASE + 32 * MIB);
	ck_assert_int_eq(hook->region_preallocate(4 * MIB), 0);
	ck_assert_uint_ge(alloc(3 * MIB), c);
	ck_assert_int_eq(hook->region_free_preallocated(), 0);
}
END_TEST

/* Return the addresses that one process gets for a sequence of allocations and frees. */
static void sequence(CUdeviceptr *p, int n)
{
	int i;

	test_hook();
	hook_region_begin(SIZE);
	for (i = 0; i < n; i++) {
		p[i] = alloc((size_t)1 + (size_t)i * 7919 % 200000);
		if (i % 5 == 4)
			cuda_ok(cuMemFree_v2, p[i - 2]);
	}
}

START_TEST(the_same_addresses_in_two_processes)
{
	CUdeviceptr p[2][100];
	int i, k, pipes[2], status;

	for (k = 0; k < 2; k++) {
		ck_assert(!pipe(pipes));
		if (!fork()) {
			sequence(p[k], 100);
			_exit(write(pipes[1], p[k], sizeof(p[k])) != sizeof(p[k]));
		}
		close(pipes[1]);
		for (i = 0; i < (int)sizeof(p[k]);) {
			ssize_t n = read(pipes[0], (char *)p[k] + i, sizeof(p[k]) - (size_t)i);

			ck_assert_int_gt(n, 0);
			i += (int)n;
		}
		close(pipes[0]);
		ck_assert(wait(&status) > 0 && !status);
	}
	ck_assert_mem_eq(p[0], p[1], sizeof(p[0]));
	for (i = 0; i < 100; i++)
		ck_assert(p[0][i] >= TEST_BASE && p[0][i] < TEST_BASE + SIZE);
}
END_TEST

START_TEST(bad_sizes_and_exhaustion)
{
	CUdeviceptr p = 7, first;

	test_hook();
	hook_region_begin(SIZE);
	ck_assert_int_eq(cuda(cuMemAlloc_v2, &p, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_str_ne(hook->last_error(), "");
	ck_assert_int_eq(cuda(cuMemAlloc_v2, NULL, 16), CUDA_ERROR_INVALID_VALUE);
	first = alloc(16);
	ck_assert_int_eq(cuda(cuMemAlloc_v2, &p, SIZE), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_msg(strstr(hook->last_error(), "region") != NULL, "%s", hook->last_error());
	ck_assert_int_eq(cuda(cuMemAlloc_v2, &p, SIZE_MAX - 100), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(p, 7);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
	ck_assert_uint_eq(alloc(16), first + 512);
}
END_TEST

/* An allocation across the end of the memory that was mapped ahead is also in the region. */
START_TEST(straddling_the_arena)
{
	CUdeviceptr a, b;

	test_hook();
	hook_region_begin(SIZE);
	ck_assert_int_eq(hook->region_preallocate(4 * MIB), 0);
	a = alloc(3 * MIB);
	b = alloc(3 * MIB);
	ck_assert(hook_region_has(a) && hook_region_has(b));
	ck_assert_uint_ge(b, a + 3 * MIB);
	cuda_ok(cuMemsetD8_v2, b, 0xAB, 3 * MIB);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
}
END_TEST

/* The first version of the call holds 32 bits: it must not return half an address. */
START_TEST(old_cuMemAlloc)
{
	CUresult (*old)(unsigned int *, unsigned int);
	unsigned int p = 7;

	test_hook();
	hook_region_begin(SIZE);
	*(void **)&old = test_hook_symbol("cuMemAlloc");
	ck_assert_int_eq(old(&p, 16), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(p, 7);
	ck_assert_msg(strstr(hook->last_error(), "32-bit") != NULL, "%s", hook->last_error());
}
END_TEST

START_TEST(freeing)
{
	CUdeviceptr native, a, b;
	struct fdry_alloc *all;

	test_hook();
	native = alloc(100);
	hook_region_begin(SIZE);
	a = alloc(5 * MIB);
	b = alloc(100);
	ck_assert_uint_eq(ledger(&all), 2);
	free(all);
	cuda_ok(cuMemFree_v2, native);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
	ck_assert_int_eq(cuda(cuMemFree_v2, a + 512), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuMemFree_v2, a);
	ck_assert_int_eq(cuda(cuMemFree_v2, a), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(ledger(&all), 1);
	ck_assert_uint_eq(all[0].addr, b);
	free(all);
	cuda_ok(cuMemFree_v2, b);
	ck_assert_uint_eq(ledger(&all), 0);
	free(all);
}
END_TEST

START_TEST(ranges_are_per_allocation)
{
	CUpointer_attribute attrs[] = { CU_POINTER_ATTRIBUTE_RANGE_SIZE,
					CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_RANGE_START_ADDR };
	CUdeviceptr a, b, native, base = 0, start = 0;
	size_t size = 0, range = 0;
	unsigned int type = 0;
	void *data[] = { &range, &type, &start };

	test_hook();
	native = alloc(3000);
	hook_region_begin(SIZE);
	a = alloc(1000);
	b = alloc(2000);
	cuda_ok(cuMemGetAddressRange_v2, &base, &size, b + 1999);
	ck_assert_uint_eq(base, b);
	ck_assert_uint_eq(size, 2000);
	cuda_ok(cuMemGetAddressRange_v2, NULL, &size, a);
	ck_assert_uint_eq(size, 1000);
	cuda_ok(cuMemGetAddressRange_v2, &base, NULL, a + 5);
	ck_assert_uint_eq(base, a);
	ck_assert_int_eq(cuda(cuMemGetAddressRange_v2, &base, &size, b + 2000),
			 CUDA_ERROR_NOT_FOUND);
	cuda_ok(cuMemGetAddressRange_v2, &base, &size, native + 1);
	ck_assert_uint_eq(base, native);
	ck_assert_uint_eq(size, 3000);

	cuda_ok(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, b + 7);
	ck_assert_uint_eq(start, b);
	cuda_ok(cuPointerGetAttribute, &range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, b);
	ck_assert_uint_eq(range, 2000);
	cuda_ok(cuPointerGetAttribute, &range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, native);
	ck_assert_uint_eq(range, 3000);
	cuda_ok(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, b);
	ck_assert_uint_eq(type, CU_MEMORYTYPE_DEVICE);
	ck_assert_int_eq(
		cuda(cuPointerGetAttribute, &range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, b + 2000),
		CUDA_ERROR_INVALID_VALUE);

	range = start = type = 0;
	cuda_ok(cuPointerGetAttributes, 3, attrs, data, a + 999);
	ck_assert_uint_eq(range, 1000);
	ck_assert_uint_eq(start, a);
	ck_assert_uint_eq(type, CU_MEMORYTYPE_DEVICE);
	cuda_ok(cuPointerGetAttributes, 3, attrs, data, native + 8);
	ck_assert_uint_eq(range, 3000);
	ck_assert_uint_eq(start, native);
}
END_TEST

START_TEST(pause_and_resume)
{
	CUdeviceptr a, b, native;

	test_hook();
	ck_assert_int_eq(hook->region_pause(), -FDRY_E_STATE);
	hook_region_begin(SIZE);
	a = alloc(512);
	ck_assert_int_eq(hook->region_pause(), 0);
	ck_assert_int_eq(hook->region_pause(), 0);
	native = alloc(512);
	ck_assert(!hook_region_has(native));
	ck_assert_int_eq(hook->region_resume(), 0);
	b = alloc(512);
	ck_assert_uint_eq(b, a + 512);
	ck_assert_int_eq(hook->region_pause(), 0);
	cuda_ok(cuMemFree_v2, a);
	cuda_ok(cuMemFree_v2, native);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
}
END_TEST

static void aside(bool on)
{
	ck_assert_msg(!hook->region_aside(on), "%s", hook->last_error());
}

static void aside_is_refused(void)
{
	ck_assert_int_eq(hook->region_aside_begin(SIZE), -FDRY_E_STATE);
	ck_assert_int_eq(hook->region_aside(true), -FDRY_E_STATE);
}

/* Allocations in the aside area move no address of the region, and the reverse. */
START_TEST(an_aside_area)
{
	uint64_t area = TEST_BASE + SIZE, from, to;
	CUdeviceptr a, gone, kept;

	test_hook();
	aside_is_refused();
	hook_region_begin(SIZE);
	ck_assert_int_eq(hook->region_aside(true), -FDRY_E_STATE);
	ck_assert_int_eq(hook->region_aside_begin(MIB), -FDRY_E_INVAL);
	ck_assert_int_eq(hook->region_aside_begin(SIZE), 0);
	ck_assert_int_eq(hook->region_aside_begin(SIZE), -FDRY_E_STATE);
	a = alloc(512);
	gone = alloc(512);
	cuda_ok(cuMemFree_v2, gone);
	aside(true);
	ck_assert_uint_eq(alloc(512), area);
	kept = alloc(3 * MIB);
	ck_assert_uint_eq(kept, area + 2 * MIB);
	cuda_ok(cuMemFree_v2, area);
	ck_assert_uint_eq(alloc(100), area);
	ck_assert_int_eq(hook->region_claim(TEST_BASE + 8 * MIB, 512, UINT64_MAX), 0);
	ck_assert_int_eq(hook->region_claim(area + 16 * MIB, 512, UINT64_MAX), 0);
	aside(false);
	ck_assert_uint_eq(alloc(512), gone);
	cuda_ok(cuMemFree_v2, TEST_BASE + 8 * MIB);
	cuda_ok(cuMemFree_v2, area + 16 * MIB);
	ck_assert_uint_eq(alloc(512), TEST_BASE + 8 * MIB);
	aside(true);
	ck_assert_uint_eq(alloc(512), area + 16 * MIB);
	ck_assert_int_eq(hook->region_aside_used(&from, &to), 0);
	ck_assert_uint_eq(from, area);
	ck_assert_uint_eq(to, area + 16 * MIB + 512);
	cuda_ok(cuMemFree_v2, a);
	aside(false);
	ck_assert_uint_eq(alloc(512), a);
}
END_TEST

START_TEST(a_large_aside_area_begins_past_numbers)
{
	test_hook();
	hook_region_begin(SIZE);
	ck_assert_int_eq(hook->region_aside_begin(32768 * MIB), 0);
	aside(true);
	ck_assert_uint_eq((uint32_t)alloc(512), 0x50000000);
	ck_assert_int_eq(hook->region_claim(TEST_BASE + SIZE, 512, UINT64_MAX), 0);
}
END_TEST

START_TEST(the_ledger_has_the_aside_area_behind_the_region)
{
	struct fdry_alloc *list;
	CUdeviceptr base, in[3];
	uint64_t size, offset;
	size_t n, i;

	test_hook();
	hook_region_begin(SIZE);
	ck_assert_int_eq(hook->region_aside_begin(SIZE), 0);
	aside(true);
	in[1] = alloc(512);
	in[2] = alloc(1000);
	aside(false);
	in[0] = alloc(512);
	ck_assert_int_eq(hook->region_ledger(&base, &size, &list, &n), 0);
	ck_assert_uint_eq(base, TEST_BASE);
	ck_assert_uint_eq(size, 2 * SIZE);
	ck_assert_uint_eq(n, 3);
	for (i = 0; i < n; i++) {
		ck_assert_uint_eq(list[i].addr, in[i]);
		ck_assert(!i || list[i].serial > list[i - 1].serial);
	}
	free(list);
	ck_assert_int_eq(hook->region_offset(&offset), 0);
	ck_assert_uint_eq(offset, 512);
}
END_TEST

/* A large reservation extends the area, and the addresses of the ledger with it. */
START_TEST(reservations_extend_the_aside_area)
{
	CUdeviceptr base, p;
	struct fdry_alloc *list;
	uint64_t size;
	size_t n;

	test_hook();
	hook_region_begin(SIZE);
	ck_assert_int_eq(hook->region_aside_begin(SIZE), 0);
	aside(true);
	cuda_ok(cuMemAddressReserve, &p, 48 * MIB, 0, 0, 0);
	ck_assert_uint_gt(p, TEST_BASE + 2 * SIZE);
	ck_assert_int_eq(hook->region_ledger(&base, &size, &list, &n), 0);
	free(list);
	ck_assert_uint_eq(base, TEST_BASE);
	ck_assert_uint_ge(size, p + 48 * MIB - base);
	cuda_ok(cuMemAddressFree, p, 48 * MIB);
}
END_TEST

/* Live memory of the area outlives the region, and a region without one can follow. */
START_TEST(an_aside_area_ends_with_its_region)
{
	CUdeviceptr kept;

	test_hook();
	hook_region_begin(SIZE);
	ck_assert_int_eq(hook->region_aside_begin(SIZE), 0);
	aside(true);
	kept = alloc(512);
	cuda_ok(cuMemsetD8_v2, kept, 0x5A, 512);
	ck_assert_int_eq(hook->region_end(), 0);
	aside_is_refused();
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	hook_region_begin(SIZE);
	ck_assert_uint_eq(alloc(512), TEST_BASE);
	ck_assert_int_eq(hook->region_aside(true), -FDRY_E_STATE);
	ck_assert_int_eq(hook->region_aside_begin(SIZE), -FDRY_E_TAKEN);
	cuda_ok(cuMemFree_v2, kept);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	ck_assert_int_eq(hook->region_aside_begin(SIZE), 0);
	cuda_ok(cuMemFree_v2, TEST_BASE);
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
}
END_TEST

START_TEST(an_ended_region_lives_until_its_last_allocation)
{
	CUdeviceptr a, b, native;
	unsigned char byte = 0;
	size_t size;

	test_hook();
	ck_assert_int_eq(hook->region_end(), -FDRY_E_STATE);
	hook_region_begin(SIZE);
	a = alloc(512);
	b = alloc(512);
	cuda_ok(cuMemsetD8_v2, a, 0x5A, 512);
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert_int_eq(hook->region_end(), -FDRY_E_STATE);
	native = alloc(512);
	ck_assert(!hook_region_has(native));
	cuda_ok(cuMemcpyDtoH_v2, &byte, a + 511, 1);
	ck_assert_uint_eq(byte, 0x5A);
	cuda_ok(cuMemGetAddressRange_v2, NULL, &size, a);
	ck_assert_uint_eq(size, 512);
	ck_assert_int_eq(hook->region_begin(TEST_BASE, SIZE), -FDRY_E_TAKEN);
	cuda_ok(cuMemFree_v2, a);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	cuda_ok(cuMemFree_v2, b);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
	ck_assert_int_eq(cuda(cuMemFree_v2, b), CUDA_ERROR_INVALID_VALUE);
	hook_region_begin(SIZE);
	ck_assert_uint_eq(alloc(1), TEST_BASE);
	cuda_ok(cuMemFree_v2, TEST_BASE);
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
}
END_TEST

START_TEST(another_region_beside_an_ended_one)
{
	CUdeviceptr a, b;

	test_hook();
	hook_region_begin(SIZE);
	a = alloc(512);
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert_int_eq(hook->region_begin(TEST_BASE + SIZE, SIZE), 0);
	cuda_ok(cuMemFree_v2,
		a); /* also frees the ended region, but not the one that is still empty */
	b = alloc(512);
	ck_assert_uint_eq(b, TEST_BASE + SIZE);
	cuda_ok(cuMemFree_v2, b);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
}
END_TEST

START_TEST(regions_that_cannot_begin)
{
	uint64_t offset = 7;
	CUcontext ctx;

	test_hook();
	ck_assert_int_eq(hook->region_offset(&offset), -FDRY_E_STATE);
	ck_assert_uint_eq(offset, 7);
	ck_assert_int_eq(hook->region_preallocate(MIB), -FDRY_E_STATE);
	ck_assert_int_eq(hook->region_begin(0, SIZE), -FDRY_E_INVAL);
	ck_assert_int_eq(hook->region_begin(TEST_BASE + 1, SIZE), -FDRY_E_INVAL);
	ck_assert_int_eq(hook->region_begin(TEST_BASE, 0), -FDRY_E_INVAL);
	hook_region_begin(SIZE);
	ck_assert_int_eq(hook->region_begin(TEST_BASE + SIZE, SIZE), -FDRY_E_STATE);
	ck_assert_msg(strstr(hook->last_error(), "0x") != NULL, "%s", hook->last_error());
	ck_assert_int_eq(hook->region_end(), 0);
	cuda_ok(cuCtxGetCurrent, &ctx);
	cuda_ok(cuCtxSetCurrent, NULL);
	ck_assert_int_eq(hook->region_begin(TEST_BASE, SIZE), -FDRY_E_STATE);
	cuda_ok(cuCtxSetCurrent, ctx);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
	hook_region_begin(SIZE);
}
END_TEST

/* Other devices and threads without a context are the driver's. */
START_TEST(other_devices_are_native)
{
	CUcontext zero, one;
	CUdeviceptr p, q = 7;

	setenv("FDRY_SIM_DEVICES", "2", 1);
	test_hook();
	hook_region_begin(SIZE);
	cuda_ok(cuCtxGetCurrent, &zero);
	cuda_ok(cuDevicePrimaryCtxRetain, &one, 1);
	cuda_ok(cuCtxSetCurrent, one);
	p = alloc(512);
	ck_assert(!hook_region_has(p));
	cuda_ok(cuMemFree_v2, p);
	cuda_ok(cuCtxSetCurrent, NULL);
	ck_assert_int_eq(cuda(cuMemAlloc_v2, &q, 512), CUDA_ERROR_INVALID_CONTEXT);
	ck_assert_uint_eq(q, 7);
	/* another context of the region's device is as good as the first */
	cuda_ok(cuCtxCreate_v4, &one, NULL, 0, 0);
	ck_assert_uint_eq(alloc(512), TEST_BASE);
	cuda_ok(cuCtxSetCurrent, zero);
	ck_assert_uint_eq(alloc(512), TEST_BASE + 512);
}
END_TEST

struct worker {
	CUcontext ctx;
	CUdeviceptr p[200];
};

static void *work(void *arg)
{
	struct worker *w = arg;
	int i;

	cuda_ok(cuCtxSetCurrent, w->ctx);
	for (i = 0; i < 200; i++) {
		w->p[i] = alloc(3000);
		if (i % 2)
			cuda_ok(cuMemFree_v2, w->p[i]);
	}
	return NULL;
}

static int by_address(const void *a, const void *b)
{
	const CUdeviceptr x = *(const CUdeviceptr *)a, y = *(const CUdeviceptr *)b;

	return x < y ? -1 : x > y;
}

START_TEST(all_threads_use_the_region)
{
	static struct worker w[2];
	CUdeviceptr live[200];
	struct fdry_alloc *all;
	pthread_t t[2];
	CUcontext ctx;
	int i;

	test_hook();
	hook_region_begin(SIZE);
	cuda_ok(cuCtxGetCurrent, &ctx);
	for (i = 0; i < 2; i++) {
		w[i].ctx = ctx;
		pthread_create(&t[i], NULL, work, &w[i]);
	}
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < 200; i++)
		live[i] = w[i % 2].p[i / 2 * 2];
	qsort(live, 200, sizeof(*live), by_address);
	ck_assert_uint_eq(ledger(&all), 200);
	for (i = 0; i < 200; i++) {
		ck_assert(hook_region_has(live[i]));
		ck_assert(!i || live[i] >= live[i - 1] + 3000);
		ck_assert_uint_eq(all[i].addr, live[i]);
	}
	free(all);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
}
END_TEST

/* Every driver call of beginning a region fails in turn: the region works, or nothing of it stays.
 */
START_TEST(begin_fails_clean)
{
	int n, err, failed = 0;
	char spec[32];

	test_hook();
	hook_region_begin(SIZE); /* whatever is set up once in a process */
	ck_assert_int_eq(hook->region_end(), 0);
	for (n = 1;; n++) {
		snprintf(spec, sizeof(spec), "*:%d", n);
		test_sim_fail(spec);
		err = hook->region_begin(TEST_BASE, SIZE);
		if (!test_sim_failed())
			break;
		test_sim_fail("");
		if (err) {
			failed++;
			ck_assert_str_ne(hook->last_error(), "");
			ck_assert_msg(test_sim_live("reservation") == 0,
				      "call %d: the region stays", n);
			ck_assert_int_eq(hook->region_pause(), -FDRY_E_STATE);
		} else {
			ck_assert_uint_eq(alloc(1), TEST_BASE);
			cuda_ok(cuMemFree_v2, TEST_BASE);
			ck_assert_int_eq(hook->region_end(), 0);
		}
	}
	test_sim_fail("");
	ck_assert_int_eq(err, 0);
	ck_assert_int_gt(failed, 3);
	ck_assert_uint_eq(alloc(1), TEST_BASE);
}
END_TEST

/* Every driver call of an allocation fails in turn: memory of the region, or an error and no trace;
 * never native memory. */
START_TEST(alloc_fails_clean)
{
	int n, kind, failed = 0;
	CUdeviceptr p, next = TEST_BASE;
	char spec[32];
	CUresult res;

	test_hook();
	hook_region_begin(SIZE);
	for (kind = 0; kind < 2; kind++)
		for (n = 1;; n++) {
			snprintf(spec, sizeof(spec), "*:%d:%d", n,
				 kind ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
			test_sim_fail(spec);
			p = 7;
			res = cuda(cuMemAlloc_v2, &p, 4 * MIB);
			ck_assert_int_eq(test_sim_live("allocation"), 0);
			if (res) {
				failed++;
				ck_assert_int_eq(res, CUDA_ERROR_OUT_OF_MEMORY);
				ck_assert_uint_eq(p, 7);
				continue;
			}
			ck_assert_uint_eq(
				p, next); /* the failures before it have not moved the cursor */
			next += 4 * MIB;
			if (!test_sim_failed())
				break;
		}
	ck_assert_int_gt(failed, 6);
}
END_TEST

START_TEST(free_fails_without_losing_the_allocation_twice)
{
	struct fdry_alloc *all;
	CUdeviceptr p;
	char spec[32];
	int n;

	test_hook();
	hook_region_begin(SIZE);
	for (n = 1;; n++) {
		p = alloc(3 * MIB);
		snprintf(spec, sizeof(spec), "*:%d", n);
		test_sim_fail(spec);
		cuda(cuMemFree_v2, p);
		if (!test_sim_failed())
			break;
		test_sim_fail("");
		if (ledger(&all))
			cuda_ok(cuMemFree_v2, p);
		free(all);
		ck_assert_uint_eq(ledger(&all), 0);
		free(all);
	}
	ck_assert_int_gt(n, 1);
	test_sim_fail("");
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
}
END_TEST

static bool stop;
static void *toggle(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		hook->region_pause();
		hook->region_resume();
	}
	return arg;
}

/* A child is forked while a lock may be held: it must not wait for it. */
START_TEST(forked_children_do_not_hang)
{
	int i, status = 0;
	uint64_t offset;
	pthread_t t;

	test_hook();
	hook_region_begin(SIZE);
	pthread_create(&t, NULL, toggle, NULL);
	for (i = 0; i < 30 && !status; i++) {
		pid_t pid = fork();

		if (!pid) {
			alarm(5);
			_exit(hook->region_offset(&offset) != -FDRY_E_FORKED ||
			      hook->region_pause() != -FDRY_E_FORKED ||
			      hook->region_end() != -FDRY_E_FORKED ||
			      !strstr(hook->last_error(), "forked"));
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(hook->region_offset(&offset), 0);
}
END_TEST

static pthread_barrier_t barrier;
static void *first_calls(void *arg)
{
	CUdriverProcAddressQueryResult status;
	void *p = NULL;
	int n = 0;

	pthread_barrier_wait(&barrier);
	cuda_ok(cuGetProcAddress_v2, "cuMemAlloc", &p, 12000, 0, &status);
	ck_assert_ptr_eq(p, test_hook_symbol("cuMemAlloc_v2"));
	cuda_ok(cuDriverGetVersion, &n);
	ck_assert_int_gt(n, 12000);
	ck_assert_str_ne(hook->real_path(), "");
	return arg;
}

START_TEST(threads_that_all_call_first)
{
	pthread_t t[4];
	int i;

	test_hook_load();
	pthread_barrier_init(&barrier, NULL, 4);
	for (i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, first_calls, NULL);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}
END_TEST

START_TEST(the_driver_behind_it)
{
	test_hook_load();
	ck_assert_str_eq(hook->real_path(), test_built("foundry/sim/libcuda.so.1"));
	ck_assert_int_eq(hook->late(), 0);
}
END_TEST

START_TEST(too_late)
{
	test_sim();
	test_hook_load();
	ck_assert_int_eq(hook->late(), -FDRY_E_LATE);
	ck_assert_msg(strstr(hook->last_error(), "foundry/sim/libcuda.so.1"), "%s",
		      hook->last_error());
	ck_assert_int_eq(hook->region_begin(TEST_BASE, SIZE), -FDRY_E_LATE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hook_region");
	TCase *tc = tcase_create("region");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, native_without_a_region);
	tcase_add_test(tc, addresses_and_bytes);
	tcase_add_test(tc, the_same_addresses_in_two_processes);
	tcase_add_test(tc, bad_sizes_and_exhaustion);
	tcase_add_test(tc, straddling_the_arena);
	tcase_add_test(tc, old_cuMemAlloc);
	tcase_add_test(tc, freeing);
	tcase_add_test(tc, ranges_are_per_allocation);
	tcase_add_test(tc, pause_and_resume);
	tcase_add_test(tc, an_aside_area);
	tcase_add_test(tc, a_large_aside_area_begins_past_numbers);
	tcase_add_test(tc, the_ledger_has_the_aside_area_behind_the_region);
	tcase_add_test(tc, reservations_extend_the_aside_area);
	tcase_add_test(tc, an_aside_area_ends_with_its_region);
	tcase_add_test(tc, an_ended_region_lives_until_its_last_allocation);
	tcase_add_test(tc, another_region_beside_an_ended_one);
	tcase_add_test(tc, regions_that_cannot_begin);
	tcase_add_test(tc, other_devices_are_native);
	tcase_add_test(tc, all_threads_use_the_region);
	tcase_add_test(tc, begin_fails_clean);
	tcase_add_test(tc, alloc_fails_clean);
	tcase_add_test(tc, free_fails_without_losing_the_allocation_twice);
	tcase_add_test(tc, forked_children_do_not_hang);
	tcase_add_test(tc, threads_that_all_call_first);
	tcase_add_test(tc, the_driver_behind_it);
	tcase_add_test(tc, too_late);
	suite_add_tcase(s, tc);
	return test_main(s);
}
