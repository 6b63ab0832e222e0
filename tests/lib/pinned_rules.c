// SPDX-License-Identifier: Apache-2.0
/* pinned_rules.c - see pinned_rules.h. */
#include "tests/lib/pinned_rules.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/clock.h"
#include "tests/lib/memory_rules.h"

#define PLACE ((uintptr_t)0x4fb000000000)
#define PAGES 4096u
#define BOTH (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)

/* Map memory at a fixed place. */
static unsigned char *place(size_t size)
{
	void *p = mmap((void *)PLACE, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	ck_assert_ptr_eq(p, (void *)PLACE);
	return p;
}

static CUdeviceptr addr_of(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

static uint64_t attr(CUpointer_attribute what, CUdeviceptr addr)
{
	uint64_t value = 0;

	works(cuPointerGetAttribute, &value, what, addr);
	return value;
}

/* Check the rules that both kinds of host memory follow, for the @size bytes at @p. */
static void is_host_memory(void *p, size_t size)
{
	CUdeviceptr at = addr_of(p), start = 0;
	size_t len = 0;

	works(cuMemHostGetDevicePointer, &start, (char *)p + 8, 0);
	ck_assert_uint_eq(start, at + 8);
	ck_assert_uint_eq(attr(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 8), CU_MEMORYTYPE_HOST);
	ck_assert_uint_eq(attr(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 8), at + 8);
	ck_assert_uint_eq(attr(CU_POINTER_ATTRIBUTE_HOST_POINTER, at + 8), at + 8);
	ck_assert_uint_eq(attr(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + 8), at);
	ck_assert_uint_eq(attr(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at + 8), size);
	ck_assert_uint_eq(attr(CU_POINTER_ATTRIBUTE_CONTEXT, at), (uintptr_t)rules_ctx);
	ck_assert_uint_eq(attr(CU_POINTER_ATTRIBUTE_IS_MANAGED, at), 0);
	ck_assert_uint_ne(attr(CU_POINTER_ATTRIBUTE_BUFFER_ID, at), 0);
	works(cuMemGetAddressRange, &start, &len, at + 8);
	ck_assert(start == at && len == size);
	gives(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute, &len,
	      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + size);
}

static unsigned int flags_of(void *p)
{
	unsigned int flags = 99;

	works(cuMemHostGetFlags, &flags, p);
	return flags;
}

START_TEST(attributes_of_host_memory)
{
	unsigned char *own = place(2 * PAGES);
	void *p = NULL;
	unsigned int flags;
	int same = 0;

	works(cuDeviceGetAttribute, &same,
	      CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0);
	ck_assert_int_eq(same, 1);
	for (flags = 0; flags < 8; flags++) {
		works(cuMemHostAlloc, &p, 1000, flags);
		is_host_memory(p, 1000);
		ck_assert_uint_eq(flags_of(p), flags | CU_MEMHOSTALLOC_DEVICEMAP);
		ck_assert_uint_eq(flags_of((char *)p + 8), flags | CU_MEMHOSTALLOC_DEVICEMAP);
		works(cuMemFreeHost, p);
	}
	works(cuMemAllocHost, &p, 1000);
	is_host_memory(p, 1000);
	ck_assert_uint_eq(flags_of(p), CU_MEMHOSTALLOC_DEVICEMAP);
	works(cuMemFreeHost, p);
	for (flags = 0; flags < 4; flags++) {
		works(cuMemHostRegister, own, 1000, flags);
		is_host_memory(own, 1000);
		ck_assert_uint_eq(flags_of(own), flags | CU_MEMHOSTREGISTER_DEVICEMAP);
		works(cuMemHostUnregister, own);
	}
	works(cuMemHostRegister, own + 24, PAGES, 0);
	is_host_memory(own + 24, PAGES);
	works(cuMemHostUnregister, own + 24);
	munmap(own, 2 * PAGES);
}
END_TEST

START_TEST(errors_of_host_memory)
{
	unsigned char *own = place(4 * PAGES);
	CUdeviceptr at;
	void *p = NULL, *q = own;
	unsigned int flags;

	works(cuMemHostAlloc, &p, 3 * PAGES, 0);
	works(cuMemHostRegister, own, PAGES, BOTH);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost, own);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister, p);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost, (char *)p + 8);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister, own + 8);
	gives(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, own + 2 * PAGES);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost, own + 2 * PAGES);
	works(cuMemFreeHost, NULL);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemFree, addr_of(p));
	gives(CUDA_ERROR_INVALID_VALUE, cuMemFree, addr_of(own));
	gives(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister, own, PAGES, BOTH);
	gives(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister, own, 2 * PAGES, BOTH);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister, p, PAGES, 0);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister, own + 2 * PAGES, 0, 0);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister, NULL, 64, 0);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc, &q, 64, 8);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc, NULL, 64, 0);
	gives(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc, &q, (size_t)1 << 63, 0);
	works(cuMemHostAlloc, &q, 0, 0);
	ck_assert_ptr_null(q);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags, NULL, p);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags, &flags, own + 2 * PAGES);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer, &at, p, 1);
	gives(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer, &at, own + 2 * PAGES, 0);
	works(cuMemHostUnregister, own);
	gives(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, own);
	works(cuMemFreeHost, p);
	munmap(own, 4 * PAGES);
}
END_TEST

/* Registered ranges may share a page. */
START_TEST(registering_parts_of_a_page)
{
	unsigned char *own = place(2 * PAGES);

	works(cuMemHostRegister, own, PAGES, BOTH);
	works(cuMemHostRegister, own + PAGES, 100, BOTH);
	works(cuMemHostRegister, own + PAGES + 200, 100, BOTH);
	is_host_memory(own + PAGES + 200, 100);
	works(cuMemHostUnregister, own + PAGES);
	is_host_memory(own + PAGES + 200, 100);
	works(cuMemHostUnregister, own + PAGES + 200);
	works(cuMemHostUnregister, own);
	munmap(own, 2 * PAGES);
}
END_TEST

/* --- nodes --- */

static void launch(CUgraph graph, CUstream s)
{
	CUgraphExec exec;

	works(cuGraphInstantiateWithFlags, &exec, graph, 0);
	works(cuGraphLaunch, exec, s);
	works(cuStreamSynchronize, s);
	works(cuGraphExecDestroy, exec);
	works(cuGraphDestroy, graph);
}

/* A copy of one page between pinned memory and the device, named as device memory on both sides. */
static void copy_as_device(CUdeviceptr from, CUdeviceptr to, CUstream s)
{
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to,
			       .WidthInBytes = PAGES, .Height = 1, .Depth = 1, .srcPitch = PAGES,
			       .dstPitch = PAGES, .srcHeight = 1, .dstHeight = 1 };
	CUgraphNode node;
	CUgraph graph;

	works(cuGraphCreate, &graph, 0);
	works(cuGraphAddMemcpyNode, &node, graph, NULL, 0, &copy, rules_ctx);
	launch(graph, s);
}

static void nodes_of(unsigned char *host, CUdeviceptr dev, CUstream s)
{
	CUDA_MEMSET_NODE_PARAMS set = { .dst = addr_of(host), .value = 7, .elementSize = 1,
					.width = PAGES, .height = 1 };
	CUgraphNode node;
	CUgraph graph;

	memset(host, 1, PAGES);
	works(cuGraphCreate, &graph, 0);
	works(cuGraphAddMemsetNode, &node, graph, NULL, 0, &set, rules_ctx);
	launch(graph, s);
	ck_assert_uint_eq(host[0], 7);
	ck_assert_uint_eq(host[PAGES - 1], 7);
	copy_as_device(addr_of(host), dev, s);
	memset(host, 9, PAGES);
	copy_as_device(dev, addr_of(host), s);
	ck_assert_uint_eq(host[PAGES - 1], 7);
}

START_TEST(nodes_with_host_memory)
{
	unsigned char *own = place(PAGES);
	CUdeviceptr dev = 0;
	void *p = NULL;
	CUstream s;

	works(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	works(cuMemAlloc, &dev, PAGES);
	works(cuMemHostAlloc, &p, PAGES, 0);
	works(cuMemHostRegister, own, PAGES, BOTH);
	nodes_of(p, dev, s);
	nodes_of(own, dev, s);
	works(cuMemHostUnregister, own);
	works(cuMemFreeHost, p);
	works(cuMemFree, dev);
	works(cuStreamDestroy, s);
	munmap(own, PAGES);
}
END_TEST

/* --- captures, and waiting --- */

START_TEST(host_memory_while_a_stream_captures)
{
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	unsigned char *own = place(PAGES);
	CUgraph graph = NULL;
	CUdeviceptr dev = 0;
	void *p = NULL;
	CUstream s;

	works(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	works(cuMemAlloc, &dev, PAGES);
	works(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	works(cuMemsetD8Async, dev, 1, PAGES, s);
	works(cuThreadExchangeStreamCaptureMode, &relaxed);
	works(cuMemHostAlloc, &p, PAGES, 0);
	works(cuMemHostRegister, own, PAGES, BOTH);
	works(cuMemHostUnregister, own);
	works(cuMemFreeHost, p);
	works(cuThreadExchangeStreamCaptureMode, &relaxed);
	works(cuStreamIsCapturing, s, &status);
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	works(cuStreamEndCapture, s, &graph);
	works(cuGraphDestroy, graph);
	works(cuMemFree, dev);
	works(cuStreamDestroy, s);
	munmap(own, PAGES);
}
END_TEST

static void doze(void *arg)
{
	(void)arg;
	usleep(100000);
}

/* Freeing waits for the work in flight, and so does unregistering. */
START_TEST(freeing_host_memory_waits)
{
	unsigned char *own = place(PAGES);
	double start;
	void *p = NULL;
	CUstream s;

	works(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	works(cuMemHostAlloc, &p, PAGES, 0);
	works(cuMemHostRegister, own, PAGES, BOTH);
	start = now_us();
	works(cuLaunchHostFunc, s, doze, NULL);
	works(cuMemHostUnregister, own);
	ck_assert_double_ge(now_us() - start, 90000);
	works(cuStreamSynchronize, s);
	start = now_us();
	works(cuLaunchHostFunc, s, doze, NULL);
	works(cuMemFreeHost, p);
	ck_assert_double_ge(now_us() - start, 90000);
	works(cuStreamSynchronize, s);
	works(cuStreamDestroy, s);
	munmap(own, PAGES);
}
END_TEST

void pinned_rules_add(TCase *tc)
{
	tcase_add_test(tc, attributes_of_host_memory);
	tcase_add_test(tc, errors_of_host_memory);
	tcase_add_test(tc, registering_parts_of_a_page);
	tcase_add_test(tc, nodes_with_host_memory);
	tcase_add_test(tc, host_memory_while_a_stream_captures);
	tcase_add_test(tc, freeing_host_memory_waits);
}
