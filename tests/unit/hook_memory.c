// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of memory that does not come from cuMemAlloc, under the interposer: in the order of a
 * stream, from pools, by pitch, mapped by the program; and queries about it.
 */
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define SIZE (512 * MIB)

static void begin(void)
{
	test_hook();
	hook_region_begin(SIZE);
}

static CUstream stream_new(void)
{
	CUstream s;

	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	return s;
}

static CUdeviceptr async(size_t size, CUstream s)
{
	CUdeviceptr p = 0;

	ck_assert_msg(!cuda(cuMemAllocAsync, &p, size, s), "%s", hook->last_error());
	return p;
}

static CUdeviceptr alloc(size_t size)
{
	CUdeviceptr p = 0;

	ck_assert_msg(!cuda(cuMemAlloc_v2, &p, size), "%s", hook->last_error());
	return p;
}

static uint32_t word_at(CUdeviceptr p)
{
	uint32_t word;

	cuda_ok(cuMemcpyDtoH_v2, &word, p, sizeof(word));
	return word;
}

static size_t ledger(struct fdry_alloc **ret)
{
	CUdeviceptr base;
	uint64_t size;
	size_t n;

	ck_assert_int_eq(hook->region_ledger(&base, &size, ret, &n), 0);
	return n;
}

/* --- in the order of a stream --- */

START_TEST(streams_keep_their_order)
{
	CUstream s, t;
	CUdeviceptr a, b;

	begin();
	s = stream_new();
	t = stream_new();
	a = async(5000, s);
	ck_assert(hook_region_has(a));
	ck_assert_uint_eq(word_at(a + 4), 0);
	cuda_ok(cuMemFreeAsync, a, s);
	b = async(5000, t);
	ck_assert_msg(b != a, "another stream gets memory that may be in use");
	ck_assert_uint_eq(async(5000, s), a);
	cuda_ok(cuMemFreeAsync, b, t);
	cuda_ok(cuMemFreeAsync, a, s);
	cuda_ok(cuMemFree_v2, alloc(100)); /* waits */
	ck_assert_uint_eq(async(5000, t), a);
	ck_assert_int_eq(cuda(cuMemFreeAsync, a + 512, t), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuMemFreeAsync, 0, t);
	cuda_ok(cuMemFree_v2, a);
	ck_assert_int_eq(cuda(cuMemFree_v2, a), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
}
END_TEST

/* Tests the NULL stream, each thread's default stream, and a stream whose handle belonged to
 * another one before. */
START_TEST(special_streams)
{
	CUdeviceptr a, b, c, p = 1;
	CUstream s;

	begin();
	a = async(512, NULL);
	cuda_ok(cuMemFreeAsync, a, CU_STREAM_LEGACY);
	b = async(512, CU_STREAM_PER_THREAD);
	ck_assert_uint_ne(a, b);
	ck_assert_int_eq(((CUresult(*)(CUdeviceptr, CUstream))test_hook_symbol(
				 "cuMemFreeAsync_ptsz"))(b, NULL),
			 0);
	ck_assert_uint_eq(async(512, CU_STREAM_PER_THREAD), b);
	ck_assert_uint_eq(async(512, NULL), a);
	s = stream_new();
	c = async(512, s);
	cuda_ok(cuMemFreeAsync, c, s);
	cuda_ok(cuStreamDestroy_v2, s);
	ck_assert_ptr_eq(stream_new(), s);
	ck_assert_uint_ne(async(512, s), c);
	cuda_ok(cuStreamDestroy_v2, s);
	ck_assert_int_eq(cuda(cuMemAllocAsync, &p, 512, s), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_uint_eq(p, 1);
	cuda_ok(cuMemAllocAsync, &p, 0, NULL);
	ck_assert_uint_eq(p, 0);
	ck_assert_int_eq(cuda(cuMemAllocAsync, NULL, 8, NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(freed_by_the_other_call)
{
	struct fdry_alloc *all;
	CUdeviceptr a, native;
	CUstream s;

	test_hook();
	s = stream_new();
	native = async(100, s);
	ck_assert(!hook_region_has(native));
	hook_region_begin(SIZE);
	a = alloc(4 * MIB);
	cuda_ok(cuMemFreeAsync, a, s); /* memory of cuMemAlloc, which the driver also accepts
					  here */
	ck_assert_uint_eq(ledger(&all), 0);
	free(all);
	ck_assert_uint_ne(alloc(4 * MIB), a); /* the stream may still use it */
	cuda_ok(cuMemFreeAsync, native, s);
	cuda_ok(cuStreamSynchronize, s);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
}
END_TEST

/* Allocations that would be nodes of the graph become memory of the region, with a stamp, and keep
 * their addresses. */
START_TEST(in_a_capture)
{
	CUdeviceptr before, a, b, out;
	struct fdry_alloc *all;
	CUgraph graph;
	CUgraphExec exec;
	CUstream s;
	size_t nodes = 0, n;

	begin();
	s = stream_new();
	before = async(512, s);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	a = async(4096, s);
	cuda_ok(cuMemsetD32Async, a, 5, 1024, s);
	cuda_ok(cuMemFreeAsync, a, s);
	b = async(4096, s);
	ck_assert_uint_eq(a, b);
	cuda_ok(cuMemsetD32Async, b, 6, 512, s);
	out = async(4096, s);
	cuda_ok(cuMemcpyDtoDAsync_v2, out, b, 4096, s);
	cuda_ok(cuMemFreeAsync, b, s);
	ck_assert_int_eq(cuda(cuMemFreeAsync, before, s), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuStreamEndCapture, s, &graph);
	cuda_ok(cuGraphGetNodes, graph, NULL, &nodes);
	ck_assert_uint_eq(nodes, 3);
	ck_assert_uint_eq(word_at(out), FDRY_STAMP);
	n = ledger(&all);
	ck_assert_uint_eq(n, 2);
	ck_assert(!all[0].capturing && all[0].addr == before);
	ck_assert(all[1].capturing && all[1].kind == FDRY_KIND_GRAPH && all[1].addr == a);
	free(all);
	ck_assert_uint_ne(async(4096, s), a); /* a replay writes there */
	cuda_ok(cuGraphInstantiateWithFlags, &exec, graph, 0);
	cuda_ok(cuGraphLaunch, exec, s);
	cuda_ok(cuStreamSynchronize, s);
	ck_assert_uint_eq(word_at(out), 6);
	ck_assert_uint_eq(word_at(out + 2048), 5);
	cuda_ok(cuMemFreeAsync, out, s); /* freed for the program; the graph still uses it */
	cuda_ok(cuGraphLaunch, exec, s);
	cuda_ok(cuStreamSynchronize, s);
	ck_assert_uint_eq(word_at(out), 6);
}
END_TEST

/* After a stream's dependencies were replaced, its nodes need not follow the users of memory that
 * it freed. */
START_TEST(dependencies_set_anew)
{
	CUdeviceptr a, b;
	CUgraph graph;
	CUstream s;

	begin();
	s = stream_new();
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	a = async(512, s);
	cuda_ok(cuMemsetD32Async, a, 1, 128, s);
	cuda_ok(cuMemFreeAsync, a, s);
	ck_assert_uint_eq(async(512, s), a);
	cuda_ok(cuMemFreeAsync, a, s);
	ck_assert_int_eq(((CUresult(*)(CUstream, CUgraphNode *, const CUgraphEdgeData *, size_t,
				       unsigned int))
				  test_hook_symbol("cuStreamUpdateCaptureDependencies_v2"))(
				 s, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
			 0);
	b = async(512, s);
	ck_assert_uint_ne(b, a);
	cuda_ok(cuStreamEndCapture, s, &graph);
}
END_TEST

/* A stream that does not capture while another does gets memory of the ordinary kind. */
START_TEST(beside_a_capture)
{
	CUdeviceptr a, b;
	CUgraph graph;
	CUstream s, t;

	begin();
	s = stream_new();
	t = stream_new();
	a = async(512, t);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	cuda_ok(cuMemFreeAsync, a, t);
	ck_assert_uint_eq(async(512, t), a);
	b = async(512, s);
	cuda_ok(cuStreamEndCapture, s, &graph);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	ck_assert_uint_ne(async(512, s), b);
	cuda_ok(cuMemFreeAsync, b, s); /* the other capture's */
	ck_assert_int_eq(cuda(cuMemFreeAsync, b, s), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuStreamEndCapture, s, &graph);
}
END_TEST

/* --- pools --- */

static uint64_t figure(CUmemoryPool pool, CUmemPool_attribute attr)
{
	cuuint64_t value = 0;

	cuda_ok(cuMemPoolGetAttribute, pool, attr, &value);
	return value;
}

START_TEST(pools)
{
	CUmemPoolProps plain = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } }, shared = plain;
	CUmemoryPool standard, mine, theirs;
	CUdeviceptr a, b, c;
	cuuint64_t zero = 0;
	CUstream s;

	begin();
	s = stream_new();
	cuda_ok(cuDeviceGetDefaultMemPool, &standard, 0);
	shared.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	cuda_ok(cuMemPoolCreate, &mine, &plain);
	cuda_ok(cuMemPoolCreate, &theirs, &shared);
	cuda_ok(cuMemAllocFromPoolAsync, &a, 3 * MIB, mine, s);
	ck_assert(hook_region_has(a));
	cuda_ok(cuMemAllocFromPoolAsync, &b, MIB, theirs, s);
	/* it can be exported to other processes, so the driver allocates it */
	ck_assert(!hook_region_has(b));
	c = async(MIB, s);
	ck_assert_uint_eq(figure(mine, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 * MIB);
	ck_assert_uint_eq(figure(theirs, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MIB);
	ck_assert_uint_eq(figure(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MIB);
	ck_assert_uint_ge(figure(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), MIB);
	cuda_ok(cuMemFreeAsync, a, s);
	cuda_ok(cuMemFree_v2, c);
	ck_assert_uint_eq(figure(mine, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	ck_assert_uint_eq(figure(mine, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 3 * MIB);
	ck_assert_uint_eq(figure(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	cuda_ok(cuMemPoolSetAttribute, mine, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero);
	ck_assert_uint_eq(figure(mine, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
	ck_assert_int_gt(test_sim_live("memory"), 0);
	cuda_ok(cuMemPoolTrimTo, standard, 0);
	ck_assert_int_eq(test_sim_live("memory"), 0);

	cuda_ok(cuDeviceSetMemPool, 0, theirs);
	ck_assert(!hook_region_has(async(100, s)));
	cuda_ok(cuDeviceSetMemPool, 0, mine);
	ck_assert(hook_region_has(async(100, s)));
	ck_assert_uint_eq(figure(mine, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 100);
	cuda_ok(cuMemPoolDestroy, mine);
	ck_assert_int_eq(cuda(cuMemAllocFromPoolAsync, &a, 3, mine, s), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(pitch)
{
	CUdeviceptr p, q;
	size_t row = 0, size = 0, native = 0;

	test_hook();
	cuda_ok(cuMemAllocPitch_v2, &p, &native, 700, 10, 4);
	hook_region_begin(SIZE);
	cuda_ok(cuMemAllocPitch_v2, &q, &row, 700, 10, 4);
	ck_assert(hook_region_has(q));
	ck_assert_uint_eq(row, native);
	cuda_ok(cuMemGetAddressRange_v2, NULL, &size, q);
	ck_assert_uint_eq(size, 10 * row);
	ck_assert_int_eq(cuda(cuMemAllocPitch_v2, &q, &row, 700, 10, 5), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemAllocPitch_v2, &q, &row, 0, 10, 4), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemAllocPitch_v2, &q, NULL, 7, 10, 4), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemAllocPitch_v2, &q, &row, 1, (1ull << 55) + 1, 4),
			 CUDA_ERROR_INVALID_VALUE); /* 2^64 + 512 bytes */
	cuda_ok(cuMemFree_v2, q);
	cuda_ok(cuMemFree_v2, p);
}
END_TEST

/* --- queries about memory --- */

START_TEST(attributes)
{
	CUdeviceptr a, b, c, start = 0;
	CUcontext ctx, of = NULL;
	uint64_t id_a = 0, id_b = 0, again = 0;
	CUmemoryPool pool, from = NULL;
	CUstream s;

	begin();
	s = stream_new();
	a = alloc(1000);
	b = alloc(1000);
	c = async(1000, s);
	cuda_ok(cuCtxGetCurrent, &ctx);
	cuda_ok(cuPointerGetAttribute, &of, CU_POINTER_ATTRIBUTE_CONTEXT, a + 4);
	ck_assert_ptr_eq(of, ctx);
	cuda_ok(cuPointerGetAttribute, &of, CU_POINTER_ATTRIBUTE_CONTEXT, c);
	ck_assert_ptr_null(of); /* as the driver reports for memory from pools */
	cuda_ok(cuPointerGetAttribute, &id_a, CU_POINTER_ATTRIBUTE_BUFFER_ID, a + 999);
	cuda_ok(cuPointerGetAttribute, &id_b, CU_POINTER_ATTRIBUTE_BUFFER_ID, b);
	ck_assert_uint_ne(id_a, id_b);
	cuda_ok(cuMemFree_v2, a);
	ck_assert_uint_eq(alloc(1000), a);
	cuda_ok(cuPointerGetAttribute, &again, CU_POINTER_ATTRIBUTE_BUFFER_ID, a);
	ck_assert_uint_ne(again, id_a); /* another buffer at the same address */
	cuda_ok(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, c + 999);
	ck_assert_uint_eq(start, c);
	cuda_ok(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, c + 9);
	ck_assert_uint_eq(start, c + 9);
	cuda_ok(cuDeviceGetDefaultMemPool, &pool, 0);
	cuda_ok(cuPointerGetAttribute, &from, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, c);
	ck_assert_ptr_eq(from, pool);
	cuda_ok(cuPointerGetAttribute, &from, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a);
	ck_assert_ptr_null(from);
	cuda_ok(cuMemFreeAsync, c, s);
	ck_assert_int_eq(
		cuda(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, c),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemGetAddressRange_v2, &start, NULL, c), CUDA_ERROR_NOT_FOUND);
}
END_TEST

START_TEST(nothing_is_there)
{
	CUpointer_attribute attrs[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					CU_POINTER_ATTRIBUTE_CONTEXT };
	unsigned int type = 7;
	int ordinal = 7;
	CUcontext ctx = (CUcontext)&ordinal;
	void *data[] = { &type, &ordinal, &ctx };
	CUdeviceptr a;

	begin();
	a = alloc(1000);
	cuda_ok(cuPointerGetAttributes, 3, attrs, data, a + 1000);
	ck_assert_uint_eq(type, 0);
	ck_assert_int_eq(ordinal, CU_DEVICE_INVALID);
	ck_assert_ptr_null(ctx);
	cuda_ok(cuPointerGetAttributes, 3, attrs, data, a + 999);
	ck_assert_uint_eq(type, CU_MEMORYTYPE_DEVICE);
	ck_assert_int_eq(ordinal, 0);
}
END_TEST

START_TEST(ipc_is_refused)
{
	CUipcMemHandle h;

	begin();
	ck_assert_int_eq(cuda(cuIpcGetMemHandle, &h, alloc(100)), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_msg(strstr(hook->last_error(), "another process"), "%s", hook->last_error());
}
END_TEST

/* --- memory that the program maps --- */

static CUmemGenericAllocationHandle create(size_t size, int types)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes = types,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemGenericAllocationHandle h;

	cuda_ok(cuMemCreate, &h, size, &prop, 0);
	return h;
}

static void grant(CUdeviceptr addr, size_t size)
{
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	cuda_ok(cuMemSetAccess, addr, size, &access, 1);
}

static CUdeviceptr reserve(size_t size)
{
	CUdeviceptr p = 0;

	ck_assert_msg(!cuda(cuMemAddressReserve, &p, size, 0, 0, 0), "%s", hook->last_error());
	return p;
}

/* The calls of PyTorch's expandable segments. */
START_TEST(a_segment_that_grows)
{
	CUmemGenericAllocationHandle h[3];
	struct fdry_alloc *all;
	CUdeviceptr p, range = 0;
	size_t size = 0;
	CUgraph graph;
	CUstream s;
	int i;

	begin();
	s = stream_new();
	p = reserve(64 * MIB);
	ck_assert(hook_region_has(p));
	for (i = 0; i < 2; i++) {
		h[i] = create(20 * MIB, 0);
		cuda_ok(cuMemMap, p + (size_t)i * 20 * MIB, 20 * MIB, 0, h[i], 0);
	}
	ck_assert_uint_eq(ledger(&all), 0); /* no access is set yet */
	free(all);
	grant(p, 40 * MIB);
	ck_assert_uint_eq(word_at(p), 0);
	ck_assert_uint_eq(word_at(p + 40 * MIB - 4), 0);
	cuda_ok(cuMemsetD32_v2, p, 9, 40 * MIB / 4);
	grant(p, 40 * MIB); /* again: nothing is filled twice */
	ck_assert_uint_eq(word_at(p + 20 * MIB), 9);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	h[2] = create(20 * MIB, 0);
	cuda_ok(cuMemMap, p + 40 * MIB, 20 * MIB, 0, h[2], 0);
	grant(p + 40 * MIB, 20 * MIB);
	cuda_ok(cuStreamEndCapture, s, &graph);
	ck_assert_uint_eq(word_at(p + 60 * MIB - 4), FDRY_STAMP);
	ck_assert_uint_eq(ledger(&all), 3);
	ck_assert(!all[1].capturing && all[2].capturing && all[2].addr == p + 40 * MIB &&
		  all[2].kind == FDRY_KIND_MAP);
	free(all);
	cuda_ok(cuPointerGetAttribute, &range, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 30 * MIB);
	ck_assert_uint_eq(range, p);
	cuda_ok(cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 30 * MIB);
	ck_assert_uint_eq(size, 64 * MIB);
	cuda_ok(cuMemGetAddressRange_v2, &range, &size, p + 30 * MIB);
	ck_assert(range == p + 20 * MIB && size == 20 * MIB);
	cuda_ok(cuMemUnmap, p + 20 * MIB, 20 * MIB);
	cuda_ok(cuMemRelease, h[1]);
	ck_assert_uint_eq(ledger(&all), 2);
	free(all);
	ck_assert_int_eq(cuda(cuMemAddressFree, p, 64 * MIB), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuMemUnmap, p, 60 * MIB);
	cuda_ok(cuMemRelease, h[0]);
	cuda_ok(cuMemRelease, h[2]);
	cuda_ok(cuMemAddressFree, p, 64 * MIB);
	ck_assert_int_eq(test_sim_live("memory"), 0);
	ck_assert_uint_eq(reserve(64 * MIB), p);
}
END_TEST

START_TEST(memory_that_no_image_can_hold)
{
	CUmemGenericAllocationHandle twice, early, out, known;
	CUdeviceptr p, native = 0;
	struct fdry_alloc *all;
	size_t i;
	int fd = -1;

	test_hook();
	early = create(2 * MIB, 0);
	hook_region_begin(SIZE);
	p = reserve(32 * MIB);
	twice = create(2 * MIB, 0);
	known = create(2 * MIB, 0);
	out = create(2 * MIB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	cuda_ok(cuMemMap, p, 2 * MIB, 0, twice, 0);
	cuda_ok(cuMemMap, p + 2 * MIB, 2 * MIB, 0, known, 0);
	cuda_ok(cuMemMap, p + 4 * MIB, 2 * MIB, 0, early, 0);
	cuda_ok(cuMemMap, p + 6 * MIB, 2 * MIB, 0, out, 0);
	grant(p, 8 * MIB);
	cuda_ok(cuMemsetD32_v2, p, 77, 1);
	cuda_ok(cuMemAddressReserve, &native, 32 * MIB, 0, TEST_BASE + (1ull << 40),
		0); /* a hint: as natively */
	ck_assert_uint_eq(native, TEST_BASE + (1ull << 40));
	cuda_ok(cuMemMap, native, 2 * MIB, 0, twice, 0);
	grant(native, 2 * MIB);
	ck_assert_uint_eq(word_at(native), 77);
	cuda_ok(cuMemExportToShareableHandle, &fd, out, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		0);
	close(fd);
	ck_assert_uint_eq(ledger(&all), 4);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(all[i].kind, i == 1 ? FDRY_KIND_MAP : FDRY_KIND_SHARED);
	free(all);
	/* after a move, the bytes are at the new address, and are content */
	cuda_ok(cuMemsetD32_v2, p + 2 * MIB, 78, 1);
	cuda_ok(cuMemUnmap, p + 2 * MIB, 2 * MIB);
	cuda_ok(cuMemMap, p + 8 * MIB, 2 * MIB, 0, known, 0);
	grant(p + 8 * MIB, 2 * MIB);
	ck_assert_uint_eq(word_at(p + 8 * MIB), 78);
}
END_TEST

START_TEST(addresses_that_are_not_the_programs)
{
	CUmemGenericAllocationHandle h, again = 0;
	CUdeviceptr p;

	begin();
	p = reserve(8 * MIB);
	h = create(2 * MIB, 0);
	ck_assert_int_eq(cuda(cuMemMap, p + 8 * MIB, 2 * MIB, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemMap, p, 1 * MIB, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemMap, p, 4 * MIB, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemAddressFree, p + 2 * MIB, 6 * MIB), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda(cuMemAddressReserve, &p, 3 * MIB, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuMemMap, p, 2 * MIB, 0, h, 0);
	cuda_ok(cuMemRelease, h);
	cuda_ok(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)p);
	ck_assert_uint_eq(again, h);
	cuda_ok(cuMemUnmap, p, 2 * MIB);
	cuda_ok(cuMemMap, p + 2 * MIB, 2 * MIB, 0, h, 0);
	cuda_ok(cuMemUnmap, p + 2 * MIB, 2 * MIB);
	cuda_ok(cuMemRelease, h);
	cuda_ok(cuMemAddressFree, p, 8 * MIB);
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
}
END_TEST

START_TEST(an_ended_region_waits_for_all)
{
	CUdeviceptr p, a;
	CUstream s;

	begin();
	s = stream_new();
	p = reserve(8 * MIB);
	a = async(100, s);
	ck_assert_int_eq(hook->region_end(), 0);
	ck_assert(!hook_region_has(async(100, s)));
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	cuda_ok(cuMemAddressFree, p, 8 * MIB);
	ck_assert_int_eq(test_sim_live("reservation"), 1);
	cuda_ok(cuMemFreeAsync, a, s);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
}
END_TEST

/* --- memory of others --- */

/* Another process allocates, writes its IPC handle to @out, and exits when this process closes its
 * end of @in. */
static void exporter(int out, int in)
{
	const struct fdry_driver *drv = test_sim();
	CUipcMemHandle h;
	CUdeviceptr p;
	char c;

	ck_assert_int_eq(drv->cuMemAlloc_v2(&p, 3 * MIB), 0);
	ck_assert_int_eq(drv->cuMemsetD32Async(p, 0x1234, 4, NULL), 0);
	ck_assert_int_eq(drv->cuCtxSynchronize(), 0);
	ck_assert_int_eq(((CUresult(*)(CUipcMemHandle *, CUdeviceptr))test_sim_symbol(
				 "cuIpcGetMemHandle"))(&h, p),
			 0);
	ck_assert_int_eq(write(out, &h, sizeof(h)), sizeof(h));
	(void)!read(in, &c, 1);
	_exit(0);
}

START_TEST(memory_of_another_process)
{
	int there[2], back[2];
	CUipcMemHandle h;
	CUdeviceptr p, q;

	ck_assert(!pipe(there) && !pipe(back));
	if (!fork())
		exporter(there[1], back[0]);
	ck_assert_int_eq(read(there[0], &h, sizeof(h)), sizeof(h));
	begin();
	cuda_ok(cuIpcOpenMemHandle_v2, &p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	ck_assert(!hook_region_has(p));
	ck_assert_uint_eq(word_at(p + 12), 0x1234);
	ck_assert_ptr_nonnull(hook->origin_at(p));
	ck_assert(strstr(hook->origin_at(p + 3 * MIB - 1),
			 "another process (cuIpcOpenMemHandle)") != NULL);
	ck_assert_ptr_null(hook->origin_at(p + 3 * MIB));
	ck_assert_ptr_null(hook->origin_at(p - 1));
	ck_assert_int_eq(cuda(cuMemFree_v2, p), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuIpcCloseMemHandle, p);
	ck_assert_ptr_null(hook->origin_at(p));
	ck_assert_int_eq(cuda(cuIpcOpenMemHandle_v2, &q, h, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
	close(back[1]);
}
END_TEST

START_TEST(memory_of_another_api)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC file = { .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						  .size = MIB };
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = { .offset = 4096, .size = 8192 };
	CUexternalMemory all;
	CUdeviceptr p;

	begin();
	file.handle.fd = memfd_create("another", MFD_CLOEXEC);
	ck_assert(!ftruncate(file.handle.fd, MIB));
	cuda_ok(cuImportExternalMemory, &all, &file);
	cuda_ok(cuExternalMemoryGetMappedBuffer, &p, all, &part);
	ck_assert(strstr(hook->origin_at(p + 8191), "another API") != NULL);
	ck_assert_ptr_null(hook->origin_at(p + 8192));
	cuda_ok(cuMemFree_v2, p);
	ck_assert_ptr_null(hook->origin_at(p));
	cuda_ok(cuExternalMemoryGetMappedBuffer, &p, all, &part);
	cuda_ok(cuMemFreeAsync, p, NULL);
	ck_assert_ptr_null(hook->origin_at(p));
	part.size = 2 * MIB;
	ck_assert_int_eq(cuda(cuExternalMemoryGetMappedBuffer, &p, all, &part),
			 CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuDestroyExternalMemory, all);
	cuda_ok(cuStreamSynchronize, NULL);
	ck_assert_int_eq(test_sim_live(NULL) > 0 && test_sim_live("external") == 0, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hook_memory");
	TCase *tc = tcase_create("memory");

	tcase_add_test(tc, streams_keep_their_order);
	tcase_add_test(tc, special_streams);
	tcase_add_test(tc, freed_by_the_other_call);
	tcase_add_test(tc, in_a_capture);
	tcase_add_test(tc, dependencies_set_anew);
	tcase_add_test(tc, beside_a_capture);
	tcase_add_test(tc, pools);
	tcase_add_test(tc, pitch);
	tcase_add_test(tc, attributes);
	tcase_add_test(tc, nothing_is_there);
	tcase_add_test(tc, ipc_is_refused);
	tcase_add_test(tc, memory_of_another_process);
	tcase_add_test(tc, memory_of_another_api);
	tcase_add_test(tc, a_segment_that_grows);
	tcase_add_test(tc, memory_that_no_image_can_hold);
	tcase_add_test(tc, addresses_that_are_not_the_programs);
	tcase_add_test(tc, an_ended_region_waits_for_all);
	suite_add_tcase(s, tc);
	return test_main(s);
}
