// SPDX-License-Identifier: Apache-2.0
/*
 * pinned_probe.c - prints what the machine's driver returns for pinned and for registered host
 * memory: attributes, errors, the types of copies, what captures permit, and costs.
 *
 * The interposer allocates pinned memory by registering mappings of its own. So each difference
 * between the two must be answered by the interposer. An argument is the path of another driver.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/clock.h"
#include "tests/lib/gpu.h"
#include "tests/lib/drv.h"

#define PLACE 0x4fb000000000ull
#define SIZE 1000u
#define MIB ((size_t)1 << 20)

static CUcontext rules_ctx;
static unsigned long checks, failures;

/* Call the driver's function of this name, or return 500 if it has none. */
static CUresult missing(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

static void *symbol(const char *name)
{
	void *p = dlsym(drv->handle, name);

	return p ? p : (void *)missing;
}

#define NAME2(fn) #fn
#define NAME(fn) NAME2(fn)
#define CALL(fn, ...) (((__typeof__(&fn))symbol(NAME(fn)))(__VA_ARGS__))

#define SHOW(...) do { printf(__VA_ARGS__); printf("\n"); fflush(stdout); } while (0)

static void expect(bool good, const char *what)
{
	checks++;
	failures += !good;
	if (!good)
		SHOW("FAILED: %s", what);
}

static void *map_at(uint64_t addr, size_t size)
{
	void *p = mmap((void *)(uintptr_t)addr, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (addr ? MAP_FIXED_NOREPLACE : 0), -1, 0);

	expect(p != MAP_FAILED && !madvise(p, size, MADV_DONTFORK), "mmap at a fixed address");
	return p;
}

/* --- attributes --- */

static const struct attr { CUpointer_attribute id; const char *name; size_t size; } attrs[] = {
	{ CU_POINTER_ATTRIBUTE_CONTEXT, "CONTEXT", 8 },
	{ CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "MEMORY_TYPE", 4 },
	{ CU_POINTER_ATTRIBUTE_DEVICE_POINTER, "DEVICE_POINTER", 8 },
	{ CU_POINTER_ATTRIBUTE_HOST_POINTER, "HOST_POINTER", 8 },
	{ CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, "SYNC_MEMOPS", 4 },
	{ CU_POINTER_ATTRIBUTE_BUFFER_ID, "BUFFER_ID", 8 },
	{ CU_POINTER_ATTRIBUTE_IS_MANAGED, "IS_MANAGED", 4 },
	{ CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "DEVICE_ORDINAL", 4 },
	{ CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "LEGACY_IPC", 4 },
	{ CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "RANGE_START", 8 },
	{ CU_POINTER_ATTRIBUTE_RANGE_SIZE, "RANGE_SIZE", 8 },
	{ CU_POINTER_ATTRIBUTE_MAPPED, "MAPPED", 4 },
	{ CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, "HANDLE_TYPES", 8 },
	{ CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, "RDMA", 4 },
	{ CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, "ACCESS_FLAGS", 4 },
	{ CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, "MEMPOOL", 8 },
	{ CU_POINTER_ATTRIBUTE_MAPPING_SIZE, "MAPPING_SIZE", 8 },
	{ CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, "MAPPING_BASE", 8 },
	{ CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, "BLOCK_ID", 8 },
	{ CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, "HW_DECOMPRESS", 4 },
};
#define ATTRS (sizeof(attrs) / sizeof(attrs[0]))

static void attr_show(const struct attr *a, uint64_t at, uint64_t base)
{
	uint64_t value[4] = { 0 };
	int res = CALL(cuPointerGetAttribute, value, a->id, at);

	if (res)
		printf(" %s=error %d", a->name, res);
	else if (a->id == CU_POINTER_ATTRIBUTE_CONTEXT)
		printf(" CONTEXT=%s", !value[0] ? "null" :
				      value[0] == (uintptr_t)rules_ctx ? "current" : "other");
	else if (value[0] - base + 65536 < 131072)
		printf(" %s=p%+lld", a->name, (long long)(value[0] - base));
	else
		printf(" %s=%#llx", a->name, (unsigned long long)value[0]);
}

static void memory_show(const char *what, void *p, size_t size)
{
	uint64_t addr = (uintptr_t)p, at[] = { addr, addr + 8, addr + size, addr + 4095 };
	CUdeviceptr dev = 0, start = 0;
	unsigned int flags = 99;
	size_t len = 0, i, k;
	int res;

	printf("== %s: %#llx", what, (unsigned long long)addr);
	res = CALL(cuMemHostGetFlags, &flags, p);
	printf(", GetFlags %d: %u", res, flags);
	flags = 99;
	res = CALL(cuMemHostGetFlags, &flags, (char *)p + 8);
	printf(", of p+8 %d: %u", res, flags);
	res = CALL(cuMemHostGetDevicePointer, &dev, p, 0);
	printf(", GetDevicePointer %d: p%+lld", res, (long long)(dev - addr));
	res = CALL(cuMemHostGetDevicePointer, &dev, (char *)p + 8, 0);
	printf(", of p+8 %d: p%+lld", res, (long long)(dev - addr));
	res = CALL(cuMemGetAddressRange, &start, &len, addr + 8);
	SHOW(", GetAddressRange %d: p%+lld, %zu", res, (long long)(start - addr), len);
	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		printf("   at p+%llu:", (unsigned long long)(at[i] - addr));
		for (k = 0; k < ATTRS; k++)
			attr_show(&attrs[k], at[i], addr);
		printf("\n");
	}
	fflush(stdout);
}

static const struct { const char *name; unsigned int flags; } allocs[] = {
	{ "cuMemHostAlloc 0", 0 },
	{ "cuMemHostAlloc PORTABLE", CU_MEMHOSTALLOC_PORTABLE },
	{ "cuMemHostAlloc DEVICEMAP", CU_MEMHOSTALLOC_DEVICEMAP },
	{ "cuMemHostAlloc WRITECOMBINED", CU_MEMHOSTALLOC_WRITECOMBINED },
	{ "cuMemHostAlloc all", 7 },
}, registers[] = {
	{ "cuMemHostRegister 0", 0 },
	{ "cuMemHostRegister PORTABLE", CU_MEMHOSTREGISTER_PORTABLE },
	{ "cuMemHostRegister PORTABLE|DEVICEMAP", 3 },
	{ "cuMemHostRegister READ_ONLY", CU_MEMHOSTREGISTER_READ_ONLY },
};

static void attributes(void)
{
	char *own, *plain = malloc(3 * 4096);
	void *p;
	size_t i;

	if (!CALL(cuMemAllocHost, &p, SIZE)) {
		memory_show("cuMemAllocHost", p, SIZE);
		CALL(cuMemFreeHost, p);
	}
	for (i = 0; i < sizeof(allocs) / sizeof(allocs[0]); i++) {
		if (CALL(cuMemHostAlloc, &p, SIZE, allocs[i].flags))
			continue;
		memory_show(allocs[i].name, p, SIZE);
		CALL(cuMemFreeHost, p);
	}
	for (i = 0; i < sizeof(registers) / sizeof(registers[0]); i++) {
		int res;

		own = map_at(PLACE, 8192);
		res = CALL(cuMemHostRegister, own, SIZE, registers[i].flags);
		SHOW("register at %#llx: %d", PLACE, res);
		if (!res)
			memory_show(registers[i].name, own, SIZE);
		SHOW("unregister: %d", CALL(cuMemHostUnregister, own));
		munmap(own, 8192);
	}
	if (!CALL(cuMemHostRegister, plain + 16, 4096, 0)) {
		memory_show("cuMemHostRegister 0 of malloc, odd", plain + 16, 4096);
		CALL(cuMemHostUnregister, plain + 16);
	}
	own = malloc(64);
	memory_show("pageable", own, 64);
	free(own);
	free(plain);
}

/* --- errors --- */

static void errors(void)
{
	char *own = map_at(PLACE, 64 * 4096);
	void *p, *q = NULL;
	unsigned int f;
	CUdeviceptr d;

	CALL(cuMemHostAlloc, &p, 3 * 4096, 0);
	SHOW("register %d", CALL(cuMemHostRegister, own, 4096, 3));
	SHOW("FreeHost of registered %d", CALL(cuMemFreeHost, own));
	SHOW("Unregister of allocated %d", CALL(cuMemHostUnregister, p));
	SHOW("FreeHost of p+8 %d", CALL(cuMemFreeHost, (char *)p + 8));
	SHOW("Unregister of p+8 %d", CALL(cuMemHostUnregister, own + 8));
	SHOW("Unregister of pageable %d", CALL(cuMemHostUnregister, own + 8192));
	SHOW("FreeHost of pageable %d", CALL(cuMemFreeHost, own + 8192));
	SHOW("FreeHost NULL %d", CALL(cuMemFreeHost, NULL));
	SHOW("cuMemFree of allocated %d", CALL(cuMemFree, (CUdeviceptr)(uintptr_t)p));
	SHOW("cuMemFree of registered %d", CALL(cuMemFree, (CUdeviceptr)(uintptr_t)own));
	SHOW("Register again %d", CALL(cuMemHostRegister, own, 4096, 3));
	SHOW("Register around %d", CALL(cuMemHostRegister, own, 8192, 3));
	SHOW("Register behind %d", CALL(cuMemHostRegister, own + 4096, 100, 3));
	SHOW("Register in the same page %d", CALL(cuMemHostRegister, own + 4296, 100, 3));
	SHOW("Unregister that %d", CALL(cuMemHostUnregister, own + 4296));
	SHOW("Unregister behind %d", CALL(cuMemHostUnregister, own + 4096));
	SHOW("Register allocated %d", CALL(cuMemHostRegister, p, 4096, 0));
	SHOW("Register 0 bytes %d", CALL(cuMemHostRegister, own + 8192, 0, 0));
	SHOW("Register flags 64 %d", CALL(cuMemHostRegister, own + 8192, 64, 64));
	SHOW("Register NULL %d", CALL(cuMemHostRegister, NULL, 64, 0));
	SHOW("HostAlloc 0 bytes %d, p %p", CALL(cuMemHostAlloc, &q, 0, 0), q);
	SHOW("HostAlloc flags 8 %d", CALL(cuMemHostAlloc, &q, 64, 8));
	SHOW("HostAlloc NULL %d", CALL(cuMemHostAlloc, NULL, 64, 0));
	SHOW("AllocHost 0 bytes %d", CALL(cuMemAllocHost, &q, 0));
	SHOW("HostAlloc 2^46 %d", CALL(cuMemHostAlloc, &q, (size_t)1 << 46, 0));
	SHOW("HostAlloc 2^63 %d", CALL(cuMemHostAlloc, &q, (size_t)1 << 63, 0));
	SHOW("GetFlags NULL %d", CALL(cuMemHostGetFlags, NULL, p));
	SHOW("GetFlags pageable %d", CALL(cuMemHostGetFlags, &f, own + 8192));
	SHOW("GetDevicePointer NULL %d", CALL(cuMemHostGetDevicePointer, NULL, p, 0));
	SHOW("GetDevicePointer flags %d", CALL(cuMemHostGetDevicePointer, &d, p, 1));
	SHOW("GetDevicePointer pageable %d", CALL(cuMemHostGetDevicePointer, &d, own + 8192, 0));
	mprotect(own + 8 * 4096, 4096, PROT_NONE);
	SHOW("Register PROT_NONE %d", CALL(cuMemHostRegister, own + 8 * 4096, 4096, 0));
	mprotect(own + 9 * 4096, 4096, PROT_READ);
	SHOW("Register PROT_READ %d", CALL(cuMemHostRegister, own + 9 * 4096, 4096, 0));
	CALL(cuMemHostUnregister, own + 9 * 4096);
	SHOW("unregister %d, free %d", CALL(cuMemHostUnregister, own), CALL(cuMemFreeHost, p));
	SHOW("unregister again %d", CALL(cuMemHostUnregister, own));
	munmap(own, 64 * 4096);
}

/* --- places --- */

static void places(void)
{
	void *p[6];
	size_t sizes[] = { 4, 4, 513, 5000, 3 * MIB, 64 }, i;

	for (i = 0; i < 6; i++) {
		CALL(cuMemHostAlloc, &p[i], sizes[i], 0);
		SHOW("%zu bytes at %p, first byte %u", sizes[i], p[i], *(unsigned char *)p[i]);
		memset(p[i], 0x5a, sizes[i]);
	}
	for (i = 0; i < 6; i++)
		CALL(cuMemFreeHost, p[i]);
	CALL(cuMemHostAlloc, &p[0], 3 * MIB, 0);
	SHOW("3 MiB again at %p, first byte %u", p[0], *(unsigned char *)p[0]);
	CALL(cuMemFreeHost, p[0]);
}

/* --- nodes on pinned memory, named as device memory --- */

static void node_show(const char *what, CUgraph graph)
{
	CUDA_MEMCPY3D p;
	CUgraphNode n;
	size_t one = 1;

	memset(&p, 0, sizeof(p));
	if (CALL(cuGraphGetNodes, graph, &n, &one) || one != 1)
		SHOW("%s: no node", what);
	else if (CALL(cuGraphMemcpyNodeGetParams, n, &p))
		SHOW("%s: no params", what);
	else
		SHOW("%s: types %d and %d", what, (int)p.srcMemoryType, (int)p.dstMemoryType);
}

static int launch(CUgraph graph, CUstream s)
{
	CUgraphExec exec;
	int res = CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);

	if (res)
		return res;
	res = CALL(cuGraphLaunch, exec, s);
	if (!res)
		res = CALL(cuStreamSynchronize, s);
	CALL(cuGraphExecDestroy, exec);
	return res;
}

static void nodes(CUstream s)
{
	unsigned char *own = map_at(PLACE, 2 * 4096), *p;
	CUDA_MEMCPY3D copy = { .WidthInBytes = 4096, .Height = 1, .Depth = 1,
			       .srcPitch = 4096, .dstPitch = 4096, .srcHeight = 1, .dstHeight = 1 };
	CUDA_MEMSET_NODE_PARAMS set = { .value = 7, .elementSize = 1, .width = 4096, .height = 1 };
	CUdeviceptr dev;
	CUgraphNode n;
	CUgraph graph;
	int i, res, ran;

	SHOW("register %d", CALL(cuMemHostRegister, own, 2 * 4096, 3));
	CALL(cuMemHostAlloc, (void **)&p, 4096, 0);
	CALL(cuMemAlloc, &dev, 4096);
	for (i = 0; i < 2; i++) {
		unsigned char *host = i ? p : own;
		CUdeviceptr addr = (CUdeviceptr)(uintptr_t)host;

		memset(host, 1, 4096);
		CALL(cuGraphCreate, &graph, 0);
		set.dst = addr;
		res = CALL(cuGraphAddMemsetNode, &n, graph, NULL, 0, &set, rules_ctx);
		ran = launch(graph, s);
		SHOW("memset node of %s: %d, launch %d, byte %d", i ? "allocated" : "registered",
		     res, ran, host[4095]);
		CALL(cuGraphDestroy, graph);
		CALL(cuGraphCreate, &graph, 0);
		copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
		copy.srcDevice = addr;
		copy.dstDevice = dev;
		memset(host, 9, 4096);
		res = CALL(cuGraphAddMemcpyNode, &n, graph, NULL, 0, &copy, rules_ctx);
		SHOW("copy from it as DEVICE: %d, launch %d", res, launch(graph, s));
		node_show("built", graph);
		CALL(cuGraphDestroy, graph);
		CALL(cuGraphCreate, &graph, 0);
		copy.srcDevice = dev;
		copy.dstDevice = addr;
		memset(host, 1, 4096);
		res = CALL(cuGraphAddMemcpyNode, &n, graph, NULL, 0, &copy, rules_ctx);
		ran = launch(graph, s);
		SHOW("copy to it as DEVICE: %d, launch %d, byte %d", res, ran, host[4095]);
		CALL(cuGraphDestroy, graph);
		CALL(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_RELAXED);
		res = CALL(cuMemcpyDtoDAsync, dev, addr, 4096, s);
		graph = NULL;
		CALL(cuStreamEndCapture, s, &graph);
		SHOW("cuMemcpyDtoDAsync of it captured: %d", res);
		if (graph)
			node_show("captured DtoD", graph);
		CALL(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_RELAXED);
		res = CALL(cuMemsetD8Async, addr, 5, 4096, s);
		graph = NULL;
		CALL(cuStreamEndCapture, s, &graph);
		ran = graph ? launch(graph, s) : -1;
		SHOW("cuMemsetD8Async of it captured: %d, launch %d, byte %d", res, ran, host[0]);
		CALL(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_RELAXED);
		res = CALL(cuMemcpyHtoDAsync, dev, host, 4096, s);
		graph = NULL;
		CALL(cuStreamEndCapture, s, &graph);
		SHOW("cuMemcpyHtoDAsync of it captured: %d", res);
		if (graph)
			node_show("captured HtoD", graph);
	}
	CALL(cuMemFree, dev);
	CALL(cuMemFreeHost, p);
	CALL(cuMemHostUnregister, own);
	munmap(own, 2 * 4096);
}

/* --- captures --- */

static void captures(CUstream s)
{
	static const CUstreamCaptureMode modes[] = { CU_STREAM_CAPTURE_MODE_GLOBAL,
						     CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						     CU_STREAM_CAPTURE_MODE_RELAXED };
	char *own = map_at(PLACE, 4 * 4096);
	CUdeviceptr dev;
	size_t i;

	CALL(cuMemAlloc, &dev, 4096);
	for (i = 0; i < 6; i++) {
		CUstreamCaptureStatus status = 9;
		CUstreamCaptureMode swap = CU_STREAM_CAPTURE_MODE_RELAXED;
		int a, b, c, d, e, f, end;
		unsigned int flags;
		CUdeviceptr at;
		CUgraph graph = NULL;
		void *p = NULL;

		CALL(cuStreamBeginCapture, s, modes[i % 3]);
		CALL(cuMemsetD8Async, dev, 1, 4096, s);
		if (i >= 3)
			CALL(cuThreadExchangeStreamCaptureMode, &swap);
		a = CALL(cuMemHostAlloc, &p, 4096, 0);
		b = CALL(cuMemHostRegister, own, 4096, 3);
		c = CALL(cuMemHostGetDevicePointer, &at, own, 0);
		d = CALL(cuMemHostGetFlags, &flags, own);
		e = CALL(cuMemHostUnregister, own);
		f = p ? (int)CALL(cuMemFreeHost, p) : -1;
		if (i >= 3)
			CALL(cuThreadExchangeStreamCaptureMode, &swap);
		CALL(cuStreamIsCapturing, s, &status);
		end = CALL(cuStreamEndCapture, s, &graph);
		SHOW("capture mode %d%s: alloc %d register %d pointer %d flags %d unregister %d "
		     "free %d; status %d, end %d",
		     (int)modes[i % 3], i >= 3 ? " with the thread relaxed" : "", a, b, c, d, e, f,
		     (int)status, end);
		if (graph)
			CALL(cuGraphDestroy, graph);
		if (b == 0 && e)
			CALL(cuMemHostUnregister, own);
	}
	CALL(cuMemFree, dev);
	munmap(own, 4 * 4096);
}

/* --- waiting --- */

static void doze(void *arg)
{
	usleep(200000);
	(void)arg;
}

static void waits(CUstream s)
{
	char *own = map_at(PLACE, 4 * 4096);
	double start;
	void *p, *q;

	CALL(cuMemHostAlloc, &p, 4096, 0);
	CALL(cuMemHostRegister, own, 4096, 3);
	CALL(cuLaunchHostFunc, s, doze, NULL);
	start = now_us();
	CALL(cuMemHostAlloc, &q, 4096, 0);
	SHOW("HostAlloc while a stream is busy: %.0f us", now_us() - start);
	start = now_us();
	CALL(cuMemHostRegister, own + 4096, 4096, 3);
	SHOW("HostRegister: %.0f us", now_us() - start);
	start = now_us();
	CALL(cuMemHostUnregister, own);
	SHOW("HostUnregister: %.0f us", now_us() - start);
	CALL(cuStreamSynchronize, s);
	CALL(cuLaunchHostFunc, s, doze, NULL);
	start = now_us();
	CALL(cuMemFreeHost, p);
	SHOW("FreeHost while a stream is busy: %.0f us", now_us() - start);
	CALL(cuStreamSynchronize, s);
	CALL(cuMemFreeHost, q);
	CALL(cuMemHostUnregister, own + 4096);
	munmap(own, 4 * 4096);
}

/* --- costs --- */

static void cost(size_t size)
{
	double start = now_us(), took[5] = { 0 };
	void *p;
	char *own;

	CALL(cuMemHostAlloc, &p, size, 0);
	took[0] = now_us() - start;
	start = now_us();
	CALL(cuMemFreeHost, p);
	took[1] = now_us() - start;
	start = now_us();
	own = map_at(PLACE, size);
	CALL(cuMemHostRegister, own, size, 3);
	took[2] = now_us() - start;
	start = now_us();
	CALL(cuMemHostUnregister, own);
	munmap(own, size);
	took[3] = now_us() - start;
	start = now_us();
	own = map_at(PLACE, size);
	madvise(own, size, MADV_HUGEPAGE);
	madvise(own, size, 23 /* MADV_POPULATE_WRITE */);
	CALL(cuMemHostRegister, own, size, 3);
	took[4] = now_us() - start;
	CALL(cuMemHostUnregister, own);
	munmap(own, size);
	SHOW("%zu KiB: HostAlloc %.0f us, FreeHost %.0f us; map and register %.0f us, undo "
	     "%.0f us; with huge pages %.0f us",
	     size >> 10, took[0], took[1], took[2], took[3], took[4]);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; CUdevice_attribute attr; } facts[] = {
		{ "CAN_MAP_HOST_MEMORY", CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY },
		{ "UNIFIED_ADDRESSING", CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING },
		{ "HOST_REGISTER_SUPPORTED", CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED },
		{ "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM",
		  CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM },
		{ "READ_ONLY_HOST_REGISTER_SUPPORTED",
		  CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED },
		{ "PAGEABLE_MEMORY_ACCESS", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS },
	};
	CUstream s;
	size_t i;

	setbuf(stdout, NULL);
	if (argc < 2)
		drv = gpu_driver();
	else if (fdry_driver_open(argv[1], &drv))
		return EXIT_FAILURE;
	if (drv->cuInit(0) || drv->cuDevicePrimaryCtxRetain(&rules_ctx, 0) ||
	    drv->cuCtxSetCurrent(rules_ctx))
		return EXIT_FAILURE;
	for (i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		int value = -1, res = CALL(cuDeviceGetAttribute, &value, facts[i].attr, 0);

		SHOW("%s: %d, %d", facts[i].name, res, value);
	}
	CALL(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	attributes();
	errors();
	places();
	nodes(s);
	captures(s);
	waits(s);
	for (i = 0; i < 2; i++) {
		cost(4096);
		cost(MIB);
		cost(64 * MIB);
	}
	cost(512 * MIB);
	return gpu_end(checks, failures);
}
