// SPDX-License-Identifier: Apache-2.0
/*
 * Two GPUs: a kernel on one writes to a region on the other, if the program permitted that by
 * cuCtxEnablePeerAccess or cuMemPoolSetAccess, before or after the memory was mapped.
 */
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

#define MIB (1ull << 20)
#define BASE 0x530000000000ull
#define SIZE (1024 * MIB)

static const char ptx[] =
	".version 7.0\n.target sm_60\n.address_size 64\n"
	".visible .entry poke(.param .u64 p, .param .u32 v)\n{\n"
	"\t.reg .b64 %a;\n\t.reg .b32 %x;\n"
	"\tld.param.u64 %a, [p];\n\tld.param.u32 %x, [v];\n\tst.global.u32 [%a], %x;\n\tret;\n}\n";

static CUcontext ctx[2];
static CUfunction poke; /* on device 1 */

/* Device 1 writes @value to @p, and device 0 reads it. */
static void poked(CUdeviceptr p, uint32_t value)
{
	void *args[] = { &p, &value };
	uint32_t got = 0;
	CUcontext was;

	cuda_ok(cuCtxPushCurrent_v2, ctx[1]);
	cuda_ok(cuLaunchKernel, poke, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL);
	cuda_ok(cuCtxSynchronize);
	cuda_ok(cuCtxPopCurrent_v2, &was);
	cuda_ok(cuMemcpyDtoH_v2, &got, p, 4);
	ck_assert_uint_eq(got, value);
}

static unsigned long long access_of(int dev, CUdeviceptr p)
{
	CUmemLocation where = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev };
	unsigned long long flags = 99;

	cuda_ok(cuMemGetAccess, &flags, &where, p);
	return flags;
}

static CUresult may(bool yes)
{
	CUcontext was;
	CUresult res;

	cuda_ok(cuCtxPushCurrent_v2, ctx[1]);
	res = yes ? cuda(cuCtxEnablePeerAccess, ctx[0], 0) : cuda(cuCtxDisablePeerAccess, ctx[0]);
	cuda_ok(cuCtxPopCurrent_v2, &was);
	return res;
}

static CUdeviceptr alloc(size_t size)
{
	CUdeviceptr p = 0;

	ck_assert_msg(!cuda(cuMemAlloc_v2, &p, size), "%s", hook->last_error());
	ck_assert(p >= BASE && p < BASE + SIZE);
	return p;
}

START_TEST(contexts)
{
	CUdeviceptr before, after, small;

	ck_assert_msg(!hook->region_begin(BASE, SIZE), "%s", hook->last_error());
	before = alloc(20 * MIB);
	ck_assert_uint_eq(access_of(1, before), CU_MEM_ACCESS_FLAGS_PROT_NONE);
	ck_assert_int_eq(may(true), CUDA_SUCCESS);
	after = alloc(300 * MIB);
	small = alloc(100);
	poked(before + 20 * MIB - 4, 1);
	poked(after + 300 * MIB - 4, 2);
	poked(small, 3);
	ck_assert_int_eq(may(false), CUDA_SUCCESS);
	ck_assert_uint_eq(access_of(1, before), CU_MEM_ACCESS_FLAGS_PROT_NONE);
	ck_assert_uint_eq(access_of(0, before), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_assert_int_eq(may(true), CUDA_SUCCESS);
	poked(before, 4);
	cuda_ok(cuMemFree_v2, before);
	cuda_ok(cuMemFree_v2, after);
	cuda_ok(cuMemFree_v2, small);
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert_msg(!hook->region_begin(BASE, SIZE), "%s", hook->last_error()); /* still open */
	small = alloc(100);
	poked(small, 5);
	cuda_ok(cuMemFree_v2, small);
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert_int_eq(may(false), CUDA_SUCCESS);
}
END_TEST

START_TEST(pools)
{
	CUmemAccessDesc map = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 1 },
				.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemoryPool pool;
	CUdeviceptr p;

	cuda_ok(cuDeviceGetDefaultMemPool, &pool, 0);
	ck_assert_msg(!hook->region_begin(BASE, SIZE), "%s", hook->last_error());
	cuda_ok(cuMemAllocAsync, &p, 5 * MIB, NULL);
	ck_assert(p >= BASE && p < BASE + SIZE);
	ck_assert_uint_eq(access_of(1, p), CU_MEM_ACCESS_FLAGS_PROT_NONE);
	cuda_ok(cuMemPoolSetAccess, pool, &map, 1);
	poked(p, 6);
	map.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	cuda_ok(cuMemPoolSetAccess, pool, &map, 1);
	ck_assert_uint_eq(access_of(1, p), CU_MEM_ACCESS_FLAGS_PROT_NONE);
	cuda_ok(cuMemFree_v2, p);
	ck_assert_int_eq(hook->region_end(), 0);
}
END_TEST

static void start(void)
{
	int n = 0, can = 0, i;
	CUmodule module;
	CUcontext was;
	CUresult res;

	test_hook_open();
	res = cuda(cuInit, 0);
	if (!res)
		cuda_ok(cuDeviceGetCount, &n);
	if (n > 1)
		cuda_ok(cuDeviceCanAccessPeer, &can, 1, 0);
	if (res || !can) {
		printf("SKIP: no GPU, or %d, no two of which can use each other's memory; this "
		       "needs two\n",
		       n);
		exit(77);
	}
	for (i = 0; i < 2; i++)
		cuda_ok(cuDevicePrimaryCtxRetain, &ctx[i], i);
	cuda_ok(cuCtxSetCurrent, ctx[0]);
	cuda_ok(cuCtxPushCurrent_v2, ctx[1]);
	cuda_ok(cuModuleLoadData, &module, ptx);
	cuda_ok(cuModuleGetFunction, &poke, module, "poke");
	cuda_ok(cuCtxPopCurrent_v2, &was);
}

int main(void)
{
	Suite *s = suite_create("peers");
	TCase *tc = tcase_create("peers");

	tcase_add_unchecked_fixture(tc, start, NULL);
	tcase_add_test(tc, contexts);
	tcase_add_test(tc, pools);
	suite_add_tcase(s, tc);
	return test_main_nofork(s);
}
