// SPDX-License-Identifier: Apache-2.0
/* memory_rules.c - see memory_rules.h. */
#include "tests/lib/memory_rules.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "mm/maps.h"

CUcontext rules_ctx;

void *rules_symbol(const char *name)
{
	void *p = dlsym(drv->handle, name);

	ck_assert_msg(p != NULL, "no %s", name);
	return p;
}

static CUmemGenericAllocationHandle rules_create(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemGenericAllocationHandle h = 0;

	works(cuMemCreate, &h, PIECE, &prop, 0);
	return h;
}

static CUresult rules_access(CUdeviceptr addr, size_t size)
{
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	return CALL(cuMemSetAccess, addr, size, &access, 1);
}

START_TEST(reserving)
{
	CUdeviceptr p = 0;

	gives(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve, &p, 3 * RULES_MIB, 0, 0, 0);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve, &p, 4096, 0, 0, 0);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve, &p, 64 * RULES_MIB, 3 * RULES_MIB, 0,
	      0);
	works(cuMemAddressReserve, &p, 64 * RULES_MIB, 4096, 0, 0);
	ck_assert_uint_eq(p % (2 * RULES_MIB), 0);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree, p + 2 * RULES_MIB, 62 * RULES_MIB);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree, p, 32 * RULES_MIB);
	works(cuMemAddressFree, p, 64 * RULES_MIB);
	works(cuMemAddressReserve, &p, 64 * RULES_MIB, 1ull << 30, 0, 0);
	ck_assert_uint_eq(p % (1ull << 30), 0);
	works(cuMemAddressFree, p, 64 * RULES_MIB);
}
END_TEST

START_TEST(mapping)
{
	CUmemGenericAllocationHandle h = rules_create(), other = rules_create(), again = 0;
	CUdeviceptr p = 0;

	works(cuMemAddressReserve, &p, 16 * PIECE, 0, 0, 0);
	gives(CUDA_ERROR_NOT_SUPPORTED, cuMemMap, p, PIECE / 2, 0, h, 0);
	gives(CUDA_ERROR_NOT_SUPPORTED, cuMemMap, p, PIECE / 2, PIECE / 2, h, 0);
	works(cuMemMap, p, PIECE, 0, h, 0);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemMap, p, PIECE, 0, other, 0);
	works(cuMemMap, p + PIECE, PIECE, 0, other, 0);
	works(cuMemMap, p + 2 * PIECE, PIECE, 0, h, 0);
	ck_assert_int_eq(rules_access(p, PIECE / 2), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(rules_access(p, 4 * PIECE), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(rules_access(p, 3 * PIECE), CUDA_SUCCESS);
	works(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)(p + PIECE + 5));
	ck_assert_uint_eq(again, other);
	works(cuMemRelease, again);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemFree, p);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree, p, 16 * PIECE);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemUnmap, p, PIECE / 2);
	works(cuMemUnmap, p, 2 * PIECE);
	works(cuMemUnmap, p, 8 * PIECE);
	works(cuMemUnmap, p, 8 * PIECE);
	works(cuMemRelease, h);
	works(cuMemRelease, other);
	works(cuMemAddressFree, p, 16 * PIECE);
}
END_TEST

/* Test attributes in a reservation, at addresses without a mapping or without access. */
START_TEST(attributes_of_mapped_memory)
{
	CUmemGenericAllocationHandle h = rules_create();
	CUdeviceptr p = 0, start = 0;
	CUcontext ctx = rules_ctx;
	size_t size = 0;
	uint64_t data;

	works(cuMemAddressReserve, &p, 16 * PIECE, 0, 0, 0);
	works(cuMemMap, p + PIECE, PIECE, 0, h, 0);
	gives(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute, &data,
	      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p);
	gives(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute, &data,
	      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
	gives(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute, &data,
	      CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + PIECE);
	gives(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange, &start, &size, p + PIECE);
	ck_assert_int_eq(rules_access(p + PIECE, PIECE), 0);
	works(cuPointerGetAttribute, &ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p + PIECE);
	ck_assert_ptr_null(ctx);
	works(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + PIECE + 9);
	ck_assert_uint_eq(start, p);
	works(cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + PIECE + 9);
	ck_assert_uint_eq(size, 16 * PIECE);
	works(cuMemGetAddressRange, &start, &size, p + PIECE + 9);
	ck_assert(start == p + PIECE && size == PIECE);
	works(cuMemUnmap, p + PIECE, PIECE);
	works(cuMemRelease, h);
	works(cuMemAddressFree, p, 16 * PIECE);
}
END_TEST

START_TEST(attributes_of_allocations)
{
	CUdeviceptr p = 0, q = 0, start = 0;
	uint64_t id_p = 0, id_q = 0, data;
	CUcontext ctx = NULL;
	size_t size = 0;
	CUstream s;

	works(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	works(cuMemAlloc, &p, 1000);
	works(cuMemAllocAsync, &q, 1000, s);
	works(cuPointerGetAttribute, &ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p + 4);
	ck_assert_ptr_eq(ctx, rules_ctx);
	works(cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, q + 4);
	ck_assert_uint_eq(size, 1000);
	works(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, q + 4);
	ck_assert_uint_eq(start, q);
	works(cuPointerGetAttribute, &id_p, CU_POINTER_ATTRIBUTE_BUFFER_ID, p);
	works(cuPointerGetAttribute, &id_q, CU_POINTER_ATTRIBUTE_BUFFER_ID, q);
	ck_assert_uint_ne(id_p, id_q);
	ck_assert_uint_lt(id_p, 1ull << 62);
	gives(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute, &data,
	      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 1000);
	gives(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange, &start, &size, p + 1000);
	works(cuMemFree, q);
	works(cuMemFree, p);
	works(cuStreamDestroy, s);
}
END_TEST

START_TEST(freeing)
{
	CUdeviceptr p = 0, q = 7;
	CUstream s;

	works(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	works(cuMemFree, 0);
	works(cuMemFreeAsync, 0, s);
	works(cuMemAllocAsync, &q, 0, s);
	ck_assert_uint_eq(q, 0);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemAlloc, &p, 0);
	works(cuMemAlloc, &p, 1000);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemFree, p + 16);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync, p + 16, s);
	works(cuMemFreeAsync, p, s); /* also for memory that is not from a pool */
	works(cuStreamSynchronize, s);
	works(cuStreamDestroy, s);
}
END_TEST

/* The interposer makes these calls while a stream captures: it asks which stream captures, maps,
 * and fills. */
START_TEST(while_a_stream_captures)
{
	CUmemGenericAllocationHandle h;
	CUstreamCaptureStatus status;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	unsigned long long id = 0;
	cuuint64_t capture = 0;
	CUdeviceptr p = 0;
	CUgraph graph;
	CUstream s, t;

	works(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	works(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING);
	works(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	works(cuThreadExchangeStreamCaptureMode, &mode);
	works(cuStreamGetId, t, &id);
	works(cuThreadExchangeStreamCaptureMode, &mode);
	works(cuStreamGetCaptureInfo, s, &status, &capture, NULL, NULL, NULL, NULL);
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	works(cuStreamGetCaptureInfo, t, &status, &capture, NULL, NULL, NULL, NULL);
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
	works(cuMemAddressReserve, &p, 16 * PIECE, 0, 0, 0);
	h = rules_create();
	works(cuMemMap, p, PIECE, 0, h, 0);
	ck_assert_int_eq(rules_access(p, PIECE), 0);
	works(cuMemUnmap, p, PIECE);
	works(cuMemRelease, h);
	works(cuMemAddressFree, p, 16 * PIECE);
	works(cuStreamEndCapture, s, &graph);
	works(cuGraphDestroy, graph);
	works(cuStreamDestroy, s);
	works(cuStreamDestroy, t);
}
END_TEST

/* Only the graph can free allocations of a capture. */
START_TEST(allocating_in_a_capture)
{
	CUdeviceptr p = 0, before = 0;
	CUgraph graph = NULL;
	CUstream s;

	works(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	works(cuMemAllocAsync, &before, 1000, s);
	works(cuStreamSynchronize, s);
	works(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	works(cuMemAllocAsync, &p, 1000, s);
	works(cuMemFreeAsync, p, s);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync, before, s);
	CALL(cuStreamEndCapture, s, &graph);
	if (graph)
		works(cuGraphDestroy, graph);
	works(cuMemFree, before);
	works(cuStreamDestroy, s);
}
END_TEST

/* The driver never reuses a stream id, also after it reuses the handle. */
START_TEST(stream_ids)
{
	unsigned long long id, last = 0, legacy = 0, mine = 0;
	CUstream s;
	int i;

	for (i = 0; i < 20; i++) {
		works(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
		works(cuStreamGetId, s, &id);
		ck_assert_uint_gt(id, last);
		last = id;
		works(cuStreamDestroy, s);
	}
	works(cuStreamGetId, NULL, &legacy);
	works(cuStreamGetId, CU_STREAM_LEGACY, &id);
	ck_assert_uint_eq(id, legacy);
	works(cuStreamGetId, CU_STREAM_PER_THREAD, &mine);
	ck_assert_uint_ne(mine, legacy);
}
END_TEST

START_TEST(pitches)
{
	static const size_t width[] = { 1, 511, 512, 513, 3000, 100000 };
	size_t i, pitch, size;
	CUdeviceptr p;

	for (i = 0; i < sizeof(width) / sizeof(width[0]); i++) {
		works(cuMemAllocPitch, &p, &pitch, width[i], 3, i % 2 ? 4 : 16);
		ck_assert_uint_eq(pitch, (width[i] + 511) / 512 * 512);
		works(cuMemGetAddressRange, NULL, &size, p);
		ck_assert_uint_eq(size, 3 * pitch);
		works(cuMemFree, p);
	}
	gives(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch, &p, &pitch, 100, 3, 5);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch, &p, &pitch, 0, 3, 4);
}
END_TEST

START_TEST(pools_of_memory)
{
	cuuint64_t value = 0, none = 0;
	CUmemoryPool pool, current;
	CUdeviceptr p = 0;
	CUstream s;

	works(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	works(cuDeviceGetDefaultMemPool, &pool, 0);
	works(cuDeviceGetMemPool, &current, 0);
	ck_assert_ptr_eq(pool, current);
	works(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
	ck_assert_uint_eq(value, 0);
	works(cuMemAllocAsync, &p, 1000, s);
	works(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
	ck_assert_uint_ge(value, 1000);
	works(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value);
	ck_assert_uint_ge(value, 1000);
	works(cuPointerGetAttribute, &current, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
	ck_assert_ptr_eq(pool, current);
	works(cuMemFreeAsync, p, s);
	works(cuStreamSynchronize, s);
	value = 5;
	gives(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH,
	      &value);
	works(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute, pool,
	      CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &none);
	works(cuMemPoolTrimTo, pool, 0);
	works(cuStreamDestroy, s);
}
END_TEST

static void mapped(const char *what, CUdeviceptr addr, uint64_t bytes)
{
	struct fdry_maps_range *maps;
	size_t i, n;

	ck_assert_int_eq(fdry_maps_list(&maps, &n), 0);
	for (i = 0; i < n && maps[i].end <= addr; i++)
		;
	ck_assert_msg(i < n && maps[i].start <= addr && addr + bytes <= maps[i].end,
		      "the process has no mapping for all of the %s at 0x%llx", what, addr);
	free(maps);
}

/* So a seal asks the driver only about words that point into a mapping. */
START_TEST(known_memory_is_mapped)
{
	CUmemGenericAllocationHandle h = rules_create();
	CUdeviceptr small = 0, large = 0, async = 0, managed = 0, own = 0;
	void *pinned = NULL;
	CUstream s;

	works(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	works(cuMemAlloc, &small, 1000);
	works(cuMemAlloc, &large, 16 * PIECE);
	works(cuMemAllocAsync, &async, 1000, s);
	works(cuMemAllocManaged, &managed, PIECE, CU_MEM_ATTACH_GLOBAL);
	works(cuMemAllocHost, &pinned, PIECE);
	works(cuMemAddressReserve, &own, PIECE, 0, 0, 0);
	works(cuMemMap, own, PIECE, 0, h, 0);
	mapped("small allocation", small, 1000);
	mapped("large allocation", large, 16 * PIECE);
	mapped("allocation of a pool", async, 1000);
	mapped("managed memory", managed, PIECE);
	mapped("pinned memory", (uintptr_t)pinned, PIECE);
	mapped("memory that the program mapped", own, PIECE);
	works(cuMemUnmap, own, PIECE);
	works(cuMemAddressFree, own, PIECE);
	works(cuMemRelease, h);
	works(cuMemFreeHost, pinned);
	works(cuMemFree, managed);
	works(cuMemFree, async);
	works(cuMemFree, large);
	works(cuMemFree, small);
	works(cuStreamDestroy, s);
}
END_TEST

void memory_rules_add(TCase *tc)
{
	tcase_add_test(tc, reserving);
	tcase_add_test(tc, mapping);
	tcase_add_test(tc, attributes_of_mapped_memory);
	tcase_add_test(tc, attributes_of_allocations);
	tcase_add_test(tc, freeing);
	tcase_add_test(tc, while_a_stream_captures);
	tcase_add_test(tc, allocating_in_a_capture);
	tcase_add_test(tc, stream_ids);
	tcase_add_test(tc, pitches);
	tcase_add_test(tc, pools_of_memory);
	tcase_add_test(tc, known_memory_is_mapped);
}
