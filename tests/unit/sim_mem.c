// SPDX-License-Identifier: Apache-2.0
/* The software driver: devices, contexts, memory, and calls that fail by request. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/sim.h"
#include "tests/lib/test.h"

#define MIB ((size_t)1 << 20)
#define BLOCK (2 * MIB)

static const struct fdry_driver *drv;

static CUmemAllocationProp on_device(int dev)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev },
	};
}

static CUmemAccessDesc access_for(CUmemAccess_flags flags)
{
	return (CUmemAccessDesc){ { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 }, flags };
}

static CUmemGenericAllocationHandle create(size_t size)
{
	CUmemAllocationProp prop = on_device(0);
	CUmemGenericAllocationHandle h;

	ok(drv->cuMemCreate(&h, size, &prop, 0));
	return h;
}

static void grant(CUdeviceptr addr, size_t size, CUmemAccess_flags flags)
{
	CUmemAccessDesc desc = access_for(flags);

	ok(drv->cuMemSetAccess(addr, size, &desc, 1));
}

START_TEST(device_facts)
{
	char name[64];
	int n, major, minor;
	size_t total;

	drv = test_sim();
	ok(drv->cuDeviceGetCount(&n));
	ck_assert_int_eq(n, 1);
	ok(drv->cuDeviceGetName(name, sizeof(name), 0));
	ck_assert_str_eq(name, "Foundry software device");
	ok(drv->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
	ok(drv->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
	ck_assert_int_eq(10 * major + minor, 90);
	ok(drv->cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
	ck_assert_int_eq(n, 32);
	is(CUDA_ERROR_INVALID_VALUE, drv->cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_MAX, 0));
	is(CUDA_ERROR_INVALID_DEVICE,
	   drv->cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1));
	ok(drv->cuDeviceTotalMem_v2(&total, 0));
	ck_assert_uint_eq(total, (size_t)8 << 30);
}
END_TEST

START_TEST(context_stack)
{
	CUcontext first, ctx, other;

	drv = test_sim_open();
	ok(drv->cuCtxGetCurrent(&ctx));
	ck_assert_ptr_null(ctx);
	is(CUDA_ERROR_INVALID_CONTEXT, drv->cuCtxSynchronize());
	is(CUDA_ERROR_INVALID_CONTEXT, drv->cuCtxPopCurrent_v2(&ctx));
	ok(drv->cuDevicePrimaryCtxRetain(&first, 0));
	ok(drv->cuDevicePrimaryCtxRetain(&other, 0));
	ck_assert_ptr_eq(first, other);
	ok(drv->cuCtxPushCurrent_v2(first));
	ok(drv->cuCtxPushCurrent_v2(first));
	ok(drv->cuCtxPopCurrent_v2(&ctx));
	ck_assert_ptr_eq(ctx, first);
	ok(drv->cuCtxSynchronize());
	ok(drv->cuDevicePrimaryCtxRelease_v2(0));
	ok(drv->cuCtxSynchronize());
	ok(drv->cuDevicePrimaryCtxRelease_v2(0));
	is(CUDA_ERROR_CONTEXT_IS_DESTROYED, drv->cuCtxSynchronize());
	is(CUDA_ERROR_INVALID_CONTEXT, drv->cuDevicePrimaryCtxRelease_v2(0));
	is(CUDA_ERROR_INVALID_CONTEXT, drv->cuCtxSetCurrent(first));
	is(CUDA_ERROR_INVALID_CONTEXT, drv->cuCtxSetCurrent((CUcontext)(uintptr_t)0x1234));
	ok(drv->cuCtxSetCurrent(NULL));
	ok(drv->cuCtxGetCurrent(&ctx));
	ck_assert_ptr_null(ctx);
	ck_assert_int_eq(test_sim_live(NULL), 0);
}
END_TEST

START_TEST(allocations)
{
	CUdeviceptr p, base;
	size_t size, free0, free1, total;
	unsigned int byte;
	int i, zeros = 0;
	unsigned char seen[512];

	drv = test_sim();
	ok(drv->cuMemGetInfo_v2(&free0, &total));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemAlloc_v2(&p, 0));
	ok(drv->cuMemAlloc_v2(&p, 1000));
	ck_assert_uint_eq(p % 512, 0);
	ok(drv->cuMemGetInfo_v2(&free1, &total));
	ck_assert_uint_lt(free1, free0);
	ok(drv->cuMemcpyDtoH_v2(seen, p, sizeof(seen)));
	for (i = 0; i < (int)sizeof(seen); i++)
		zeros += !seen[i];
	ck_assert_int_lt(zeros, (int)sizeof(seen) / 2);
	ok(drv->cuMemGetAddressRange_v2(&base, &size, p + 999));
	ck_assert_uint_eq(base, p);
	ck_assert_uint_eq(size, 1000);
	is(CUDA_ERROR_NOT_FOUND, drv->cuMemGetAddressRange_v2(&base, &size, p + 1000));
	ok(drv->cuPointerGetAttribute(&byte, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	ck_assert_uint_eq(byte, CU_MEMORYTYPE_DEVICE);
	is(CUDA_ERROR_INVALID_VALUE,
	   drv->cuPointerGetAttribute(&byte, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				      (CUdeviceptr)(uintptr_t)&byte));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemFree_v2(p + 1));
	ok(drv->cuMemFree_v2(p));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemFree_v2(p));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemcpyDtoH_v2(seen, p, sizeof(seen)));
	ok(drv->cuMemGetInfo_v2(&free1, &total));
	ck_assert_uint_eq(free1, free0);
	is(CUDA_ERROR_OUT_OF_MEMORY, drv->cuMemAlloc_v2(&p, total + 1));
}
END_TEST

START_TEST(copies_and_sets)
{
	uint32_t from[256], to[256];
	CUdeviceptr p, q;
	int i;

	drv = test_sim();
	for (i = 0; i < 256; i++)
		from[i] = (uint32_t)i * 2654435761u;
	ok(drv->cuMemAlloc_v2(&p, sizeof(from)));
	ok(drv->cuMemAlloc_v2(&q, sizeof(from)));
	ok(drv->cuMemcpyHtoD_v2(p, from, sizeof(from)));
	ok(drv->cuMemcpyDtoDAsync_v2(q, p, sizeof(from), NULL));
	ok(drv->cuMemcpyDtoH_v2(to, q, sizeof(to)));
	ck_assert_mem_eq(from, to, sizeof(from));
	ok(drv->cuMemsetD32Async(q + 4, 0x01020304, 254, NULL));
	ok(drv->cuMemsetD8Async(q + 8, 0x5a, 3, NULL));
	ok(drv->cuMemcpyDtoH_v2(to, q, sizeof(to)));
	ck_assert_uint_eq(to[0], from[0]);
	ck_assert_uint_eq(to[1], 0x01020304);
	ck_assert_uint_eq(to[2], 0x015a5a5a);
	ck_assert_uint_eq(to[254], 0x01020304);
	ck_assert_uint_eq(to[255], from[255]);
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemsetD32Async(q + 2, 0, 1, NULL));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemsetD32Async(q + 4, 0, 256, NULL));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemcpyHtoD_v2(p + 4, from, sizeof(from)));
	ok(drv->cuMemcpyHtoD_v2(0, NULL, 0));
	is(CUDA_ERROR_INVALID_HANDLE,
	   drv->cuMemcpyDtoHAsync_v2(to, q, sizeof(to), (CUstream)(uintptr_t)0x51000000990));
}
END_TEST

START_TEST(pinned)
{
	unsigned int type;
	char *p, *own;

	drv = test_sim();
	ok(drv->cuMemAllocHost_v2((void **)&p, 100));
	ok(drv->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				      (CUdeviceptr)(uintptr_t)p));
	ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemFree_v2((CUdeviceptr)(uintptr_t)p));
	ok(drv->cuMemFreeHost(p));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemFreeHost(p));
	own = aligned_alloc(4096, 8192);
	memset(own, 0, 8192);
	ok(drv->cuMemHostRegister_v2(own, 8192, CU_MEMHOSTREGISTER_READ_ONLY));
	is(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
	   drv->cuMemHostRegister_v2(own + 4096, 4096, 0));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemHostUnregister(own + 4096));
	ok(drv->cuMemHostUnregister(own));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemHostRegister_v2((void *)(uintptr_t)0x1000, 4096, 0));
	free(own);
	ck_assert_int_eq(test_sim_live("host"), 0);
}
END_TEST

START_TEST(reserve_honours_a_free_hint)
{
	CUdeviceptr p, q;

	drv = test_sim();
	ok(drv->cuMemAddressReserve(&p, (size_t)64 << 30, 0, TEST_BASE, 0));
	ck_assert_uint_eq(p, TEST_BASE);
	ok(drv->cuMemAddressReserve(&q, BLOCK, 0, TEST_BASE + BLOCK, 0));
	ck_assert_uint_ne(q, TEST_BASE + BLOCK);
	ck_assert_uint_eq(q % BLOCK, 0);
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemAddressFree(p, BLOCK));
	ok(drv->cuMemAddressFree(p, (size_t)64 << 30));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemAddressFree(p, (size_t)64 << 30));
	ok(drv->cuMemAddressFree(q, BLOCK));
	ok(drv->cuMemAddressReserve(&q, BLOCK, 64 * MIB, 0, 0));
	ck_assert_uint_eq(q % (64 * MIB), 0);
	ok(drv->cuMemAddressFree(q, BLOCK));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemAddressReserve(&q, BLOCK, 3, 0, 0));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemAddressReserve(&q, 100, 0, 0, 0));
	ck_assert_int_eq(test_sim_live("reservation"), 0);
}
END_TEST

START_TEST(map_then_access)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	uint32_t word = 7, back = 0;

	drv = test_sim();
	ok(drv->cuMemAddressReserve(&p, 4 * BLOCK, 0, TEST_BASE, 0));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemcpyHtoD_v2(p, &word, 4));
	h = create(BLOCK);
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemMap(p + 4096, BLOCK, 0, h, 0));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemMap(p + 4 * BLOCK, BLOCK, 0, h, 0));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemMap(p, 2 * BLOCK, 0, h, 0));
	ok(drv->cuMemMap(p, BLOCK, 0, h, 0));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemMap(p, BLOCK, 0, h, 0));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemcpyHtoD_v2(p, &word, 4));
	grant(p, BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(drv->cuMemcpyHtoD_v2(p, &word, 4));
	grant(p, BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READ);
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemcpyHtoD_v2(p, &word, 4));
	ok(drv->cuMemcpyDtoH_v2(&back, p, 4));
	ck_assert_uint_eq(back, 7);
	ok(drv->cuMemMap(p + 2 * BLOCK, BLOCK, 0, h, 0)); /* a second time */
	grant(p + 2 * BLOCK, BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	word = 8;
	ok(drv->cuMemcpyHtoD_v2(p + 2 * BLOCK, &word, 4));
	ok(drv->cuMemcpyDtoH_v2(&back, p, 4));
	ck_assert_uint_eq(back, 8);
	ok(drv->cuMemRelease(h));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemRelease(h));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemMap(p + BLOCK, BLOCK, 0, h, 0));
	ok(drv->cuMemcpyDtoH_v2(&back, p, 4));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemUnmap(p, BLOCK / 2));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemUnmap(p, 8 * BLOCK));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemAddressFree(p, 4 * BLOCK));
	ok(drv->cuMemUnmap(
		p, 2 * BLOCK)); /* as seen on the real driver: unmapped addresses are ignored */
	ok(drv->cuMemUnmap(p, BLOCK));
	ck_assert_int_eq(test_sim_live("memory"), 1);
	ok(drv->cuMemUnmap(p + 2 * BLOCK, BLOCK));
	ok(drv->cuMemAddressFree(p, 4 * BLOCK));
	ck_assert_int_eq(test_sim_live("memory"), 0);
}
END_TEST

START_TEST(range_attributes)
{
	CUmemGenericAllocationHandle h = 0;
	CUdeviceptr p, start;
	size_t size;
	int managed = 7, ordinal = 7;
	uint64_t data[2];
	int i;

	drv = test_sim();
	ok(drv->cuMemAddressReserve(&p, 4 * BLOCK, 0, 0, 0));
	h = create(BLOCK);
	ok(drv->cuMemMap(p + BLOCK, BLOCK, 0, h, 0));
	ok(drv->cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
				      p + BLOCK + 5));
	ck_assert_uint_eq(start, p);
	ok(drv->cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + BLOCK + 5));
	ck_assert_uint_eq(size, 4 * BLOCK);
	ok(drv->cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p + BLOCK));
	ck_assert_int_eq(managed, 0);
	ok(drv->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p + BLOCK));
	ck_assert_int_eq(ordinal, 0);
	/* as seen on the real driver: memory without access has no device pointer, and unmapped
	 * addresses have no attributes */
	is(CUDA_ERROR_INVALID_VALUE,
	   drv->cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + BLOCK + 5));
	is(CUDA_ERROR_NOT_FOUND, drv->cuMemGetAddressRange_v2(&start, &size, p + BLOCK + 5));
	grant(p + BLOCK, BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(drv->cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + BLOCK + 5));
	ck_assert_uint_eq(start, p + BLOCK + 5);
	for (i = CU_POINTER_ATTRIBUTE_CONTEXT; i <= CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE; i++)
		is(CUDA_ERROR_INVALID_VALUE, drv->cuPointerGetAttribute(data, i, p));
	ok(drv->cuMemGetAddressRange_v2(&start, &size, p + BLOCK + 5));
	ck_assert_uint_eq(start, p + BLOCK);
	ck_assert_uint_eq(size, BLOCK);
}
END_TEST

START_TEST(memory_that_is_shared)
{
	CUresult (*export)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
			   unsigned long long);
	CUresult (*import)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);
	const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CUmemAllocationProp prop = on_device(0);
	CUmemGenericAllocationHandle h, other, plain;
	size_t free0, free1, total;
	uint32_t word = 77, back = 0;
	CUdeviceptr p;
	int fd, foreign, lowest = dup(0);

	close(lowest);
	drv = test_sim();
	plain = create(BLOCK);
	*(void **)&export = test_sim_symbol("cuMemExportToShareableHandle");
	*(void **)&import = test_sim_symbol("cuMemImportFromShareableHandle");
	is(CUDA_ERROR_INVALID_VALUE, export(&fd, plain, type, 0));
	prop.requestedHandleTypes = type;
	ok(drv->cuMemCreate(&h, BLOCK, &prop, 0));
	ok(export(&fd, h, type, 0));
	foreign = memfd_create("somebody-else-s-0", 0);
	ck_assert_int_eq(ftruncate(foreign, BLOCK), 0);
	is(CUDA_ERROR_INVALID_VALUE, import(&other, (void *)(intptr_t)foreign, type));
	is(CUDA_ERROR_INVALID_VALUE, import(&other, (void *)(intptr_t)-1, type));
	close(foreign);
	ok(drv->cuMemGetInfo_v2(&free0, &total));
	ok(import(&other, (void *)(intptr_t)fd, type));
	ok(drv->cuMemGetInfo_v2(&free1, &total));
	ck_assert_uint_eq(free0, free1);
	close(fd);
	ok(drv->cuMemAddressReserve(&p, 2 * BLOCK, 0, 0, 0));
	ok(drv->cuMemMap(p, BLOCK, 0, h, 0));
	ok(drv->cuMemMap(p + BLOCK, BLOCK, 0, other, 0));
	grant(p, 2 * BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(drv->cuMemcpyHtoD_v2(p, &word, 4));
	ok(drv->cuMemcpyDtoH_v2(&back, p + BLOCK, 4));
	ck_assert_uint_eq(back, 77);
	ok(drv->cuMemUnmap(p, 2 * BLOCK));
	ok(drv->cuMemRelease(h));
	ok(drv->cuMemRelease(other));
	ok(drv->cuMemRelease(plain));
	ok(drv->cuMemAddressFree(p, 2 * BLOCK));
	ok(drv->cuMemGetInfo_v2(&free1, &total));
	ck_assert_uint_eq(free1, total);
	ck_assert_int_eq(test_sim_live("memory"), 0);
	ck_assert_int_le(dup(0), lowest + 1); /* the file of all memory stays open, no other */
}
END_TEST

START_TEST(memory_through_multicast)
{
	CUresult (*make)(CUmemGenericAllocationHandle *, const CUmulticastObjectProp *);
	CUresult (*join)(CUmemGenericAllocationHandle, CUdevice);
	CUresult (*bind)(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t,
			 size_t, unsigned long long);
	CUresult (*unbind)(CUmemGenericAllocationHandle, CUdevice, size_t, size_t);
	CUmulticastObjectProp prop = { .numDevices = 1, .size = BLOCK };
	CUmemGenericAllocationHandle mc, h;
	uint32_t word = 78, back = 0;
	CUdeviceptr p;

	drv = test_sim();
	*(void **)&make = test_sim_symbol("cuMulticastCreate");
	*(void **)&join = test_sim_symbol("cuMulticastAddDevice");
	*(void **)&bind = test_sim_symbol("cuMulticastBindMem");
	*(void **)&unbind = test_sim_symbol("cuMulticastUnbind");
	prop.numDevices = 2;
	is(CUDA_ERROR_NOT_SUPPORTED, make(&mc, &prop));
	prop.numDevices = 1;
	ok(make(&mc, &prop));
	h = create(BLOCK);
	ok(drv->cuMemAddressReserve(&p, 2 * BLOCK, 0, 0, 0));
	is(CUDA_ERROR_NOT_PERMITTED, drv->cuMemMap(p, BLOCK, 0, mc, 0));
	is(CUDA_ERROR_INVALID_VALUE, bind(mc, 0, h, 0, BLOCK, 0)); /* no device yet */
	ok(join(mc, 0));
	is(CUDA_ERROR_INVALID_VALUE, join(mc, 0));
	is(CUDA_ERROR_INVALID_VALUE, bind(h, 0, h, 0, BLOCK, 0));
	is(CUDA_ERROR_INVALID_VALUE, bind(mc, 0, mc, 0, BLOCK, 0));
	ok(bind(mc, 0, h, 0, BLOCK, 0));
	ok(drv->cuMemMap(p, BLOCK, 0, mc, 0));
	is(CUDA_ERROR_INVALID_VALUE, unbind(mc, 0, 0, BLOCK)); /* it is mapped */
	ok(drv->cuMemMap(p + BLOCK, BLOCK, 0, h, 0));
	grant(p, 2 * BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(drv->cuMemcpyHtoD_v2(p, &word, 4));
	ok(drv->cuMemcpyDtoH_v2(&back, p + BLOCK, 4));
	ck_assert_uint_eq(back, 78);
	ok(drv->cuMemUnmap(p, 2 * BLOCK));
	ok(drv->cuMemRelease(h)); /* bound, it stays */
	ok(unbind(mc, 0, 0, BLOCK));
	ok(drv->cuMemRelease(mc));
	ok(drv->cuMemAddressFree(p, 2 * BLOCK));
	ck_assert_int_eq(test_sim_live("memory"), 0);
}
END_TEST

START_TEST(memory_is_limited)
{
	CUmemGenericAllocationHandle h, more;
	CUmemAllocationProp prop = on_device(0);
	size_t free, total;
	CUdeviceptr p;

	setenv("FDRY_SIM_MEMORY", "16M", 1);
	drv = test_sim();
	h = create(14 * MIB);
	is(CUDA_ERROR_OUT_OF_MEMORY, drv->cuMemCreate(&more, 4 * MIB, &prop, 0));
	is(CUDA_ERROR_OUT_OF_MEMORY, drv->cuMemAlloc_v2(&p, 3 * MIB));
	ok(drv->cuMemGetInfo_v2(&free, &total));
	ck_assert_uint_eq(free, 2 * MIB);
	ck_assert_uint_eq(total, 16 * MIB);
	ok(drv->cuMemRelease(h));
	ok(drv->cuMemAlloc_v2(&p, 3 * MIB));
	prop = on_device(1);
	is(CUDA_ERROR_INVALID_DEVICE, drv->cuMemCreate(&more, 4 * MIB, &prop, 0));
	prop = on_device(0);
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemCreate(&more, 4096, &prop, 0));
}
END_TEST

START_TEST(the_nth_call_fails)
{
	CUdeviceptr p;

	drv = test_sim();
	test_sim_fail("cuMemAlloc_v2:2");
	ok(drv->cuMemAlloc_v2(&p, 8));
	is(CUDA_ERROR_UNKNOWN, drv->cuMemAlloc_v2(&p, 8));
	ok(drv->cuMemAlloc_v2(&p, 8));
	ck_assert_uint_eq(test_sim_failed(), 1);
	ck_assert_uint_eq(test_sim_calls("cuMemAlloc_v2"), 3);
	ck_assert_int_eq(test_sim_live("allocation"), 2);
	test_sim_fail("*:2+:2");
	ok(drv->cuMemFree_v2(p));
	is(CUDA_ERROR_OUT_OF_MEMORY, drv->cuMemAlloc_v2(&p, 8));
	is(CUDA_ERROR_OUT_OF_MEMORY, drv->cuCtxSynchronize());
	ck_assert_uint_eq(test_sim_failed(), 2);
	ck_assert_uint_eq(test_sim_calls(NULL), 3);
	test_sim_fail(NULL);
	ok(drv->cuCtxSynchronize());
}
END_TEST

START_TEST(malformed_failures)
{
	static const char *const specs[] = { "cuMemAlloc_v2", "nothing:1",
					     "cuInit:0", "cuInit:x",
					     "*:1:", "*:1:x",
					     "*:1+2", ":1",
					     "cuMem:1", "*:99999999999999999999" };
	int (*arm)(const char *);
	size_t i;

	drv = test_sim();
	*(void **)&arm = test_sim_symbol("fdry_sim_fail");
	for (i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
		ck_assert_msg(arm(specs[i]) == -1, "%s was accepted", specs[i]);
	ok(drv->cuCtxSynchronize());
}
END_TEST

/* A context frees all its objects; only objects of no context remain. */
START_TEST(everything_ends_with_its_context)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p, q;
	CUlibrary lib;
	CUmodule mod;
	CUstream s;
	CUevent e;
	size_t len;
	void *host, *own = aligned_alloc(4096, 4096), *cubin;

	drv = test_sim();
	cubin = test_sim_cubin("kernels", &len);
	memset(own, 0, 4096);
	ok(drv->cuMemAlloc_v2(&p, 100));
	ok(drv->cuMemAllocHost_v2(&host, 100));
	ok(drv->cuMemHostRegister_v2(own, 4096, 0));
	ok(drv->cuStreamCreate(&s, 0));
	ok(drv->cuEventCreate(&e, 0));
	ok(drv->cuMemsetD8Async(p, 1, 100, s));
	ok(drv->cuEventRecord(e, s));
	ok(drv->cuModuleLoadDataEx(&mod, cubin, 0, NULL, NULL));
	ok(drv->cuLibraryLoadData(&lib, cubin, NULL, NULL, 0, NULL, NULL, 0));
	ok(drv->cuLibraryGetModule(&mod, lib));
	h = create(BLOCK);
	ok(drv->cuMemAddressReserve(&q, BLOCK, 0, 0, 0));
	ok(drv->cuMemMap(q, BLOCK, 0, h, 0));
	ck_assert_int_eq(test_sim_live(NULL), 12);
	ok(drv->cuDevicePrimaryCtxRelease_v2(0));
	ck_assert_int_eq(test_sim_live(NULL), 4); /* memory, its mapping and place, the library */
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuEventQuery(e));
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuModuleUnload(mod));
	ok(drv->cuLibraryUnload(lib));
	free(cubin);
	free(own);
}
END_TEST

START_TEST(the_environment)
{
	static const char *const bad[][2] = {
		{ "FDRY_SIM_DEVICES", "17" },
		{ "FDRY_SIM_DEVICES", "" },
		{ "FDRY_SIM_CC", "9" },
		{ "FDRY_SIM_CC", "9.0a" },
		{ "FDRY_SIM_MEMORY", "8X" },
		{ "FDRY_SIM_MEMORY", "0" },
		{ "FDRY_SIM_MEMORY", "-1" },
		{ "FDRY_SIM_MEMORY", "99999999999999999999" },
		{ "FDRY_SIM_DRIVER_VERSION", "new" },
		{ "FDRY_SIM_FAIL", "cuMemAlloc:1" }, /* the symbol has a _v2 */
		{ "FDRY_SIM_FAIL", "cuInit:1:3" },
	};
	const struct fdry_driver *d;

	setenv(bad[_i][0], bad[_i][1], 1);
	ck_assert_int_eq(fdry_driver_open(test_built("foundry/sim/libcuda.so.1"), &d),
			 -FDRY_E_DRIVER);
}
END_TEST

START_TEST(no_device)
{
	const struct fdry_driver *d;

	setenv("FDRY_SIM_DEVICES", "0", 1);
	ck_assert_int_eq(fdry_driver_open(test_built("foundry/sim/libcuda.so.1"), &d),
			 -FDRY_E_NOGPU);
}
END_TEST

START_TEST(several_devices)
{
	CUcontext ctx;
	CUdevice dev;
	int n;

	setenv("FDRY_SIM_DEVICES", "2", 1);
	setenv("FDRY_SIM_CC", "8.6", 1);
	drv = test_sim();
	ok(drv->cuDeviceGetCount(&n));
	ck_assert_int_eq(n, 2);
	ok(drv->cuDevicePrimaryCtxRetain(&ctx, 1));
	ok(drv->cuCtxPushCurrent_v2(ctx));
	ok(drv->cuCtxGetDevice(&dev));
	ck_assert_int_eq(dev, 1);
	ok(drv->cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 1));
	ck_assert_int_eq(n, 6);
	ok(drv->cuCtxPopCurrent_v2(&ctx));
	ok(drv->cuCtxGetDevice(&dev));
	ck_assert_int_eq(dev, 0);
}
END_TEST

START_TEST(an_old_driver_hides_what_is_newer)
{
	setenv("FDRY_SIM_DRIVER_VERSION", "10010", 1);
	drv = test_sim();
	ck_assert_int_eq(drv->version, 10010);
	ck_assert_ptr_null(drv->cuMemCreate);
	ck_assert_ptr_nonnull(drv->cuMemAlloc_v2);
	ck_assert_int_eq(fdry_call(drv, cuMemRelease, 1), -FDRY_E_NOFUNC);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sim_mem");
	TCase *tc = tcase_create("memory");

	tcase_add_test(tc, device_facts);
	tcase_add_test(tc, context_stack);
	tcase_add_test(tc, allocations);
	tcase_add_test(tc, copies_and_sets);
	tcase_add_test(tc, pinned);
	tcase_add_test(tc, reserve_honours_a_free_hint);
	tcase_add_test(tc, map_then_access);
	tcase_add_test(tc, range_attributes);
	tcase_add_test(tc, memory_that_is_shared);
	tcase_add_test(tc, memory_through_multicast);
	tcase_add_test(tc, memory_is_limited);
	tcase_add_test(tc, the_nth_call_fails);
	tcase_add_test(tc, malformed_failures);
	tcase_add_loop_test(tc, the_environment, 0, 11);
	tcase_add_test(tc, everything_ends_with_its_context);
	tcase_add_test(tc, no_device);
	tcase_add_test(tc, several_devices);
	tcase_add_test(tc, an_old_driver_hides_what_is_newer);
	suite_add_tcase(s, tc);
	return test_main(s);
}
