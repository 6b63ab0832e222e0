// SPDX-License-Identifier: Apache-2.0
/*
 * The interposer in front of the machine's own driver: it finds the driver, cuGetProcAddress
 * returns every hooked function, and memory, captures and code pass through the interposer.
 */
#include "tests/lib/clock.h"
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define BASE 0x520000000000ull
#define SIZE (1024 * MIB)

#define ANY CU_GET_PROC_ADDRESS_DEFAULT
#define LEGACY CU_GET_PROC_ADDRESS_LEGACY_STREAM
#define PER_THREAD CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

static const struct {
	const char *symbol, *name;
	int since, stream;
} hooks[] = {
#define HOOK(symbol, name, since, stream, params) { #symbol, #name, since, stream },
#include "hook/hooks.def"
#undef HOOK
};

#define HOOKS (sizeof(hooks) / sizeof(hooks[0]))

static const char ptx[] =
	".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n";

static void *ask(const char *name, int version, unsigned long long flags)
{
	CUdriverProcAddressQueryResult status;
	void *p = NULL;

	return cuda(cuGetProcAddress_v2, name, &p, version, flags, &status) ? NULL : p;
}

/* Every hooked function under its own version, and under the newest this driver has, with all
 * flags. */
START_TEST(every_hook_is_answered)
{
	static const int streams[] = { ANY, LEGACY, PER_THREAD };
	struct fdry_hook_live live;
	void *real = dlopen(hook->real_path(), RTLD_NOW | RTLD_NOLOAD), *p;
	int version = 0;
	size_t i, k, same = 0, n = 0;

	ck_assert_ptr_nonnull(real);
	cuda_ok(cuDriverGetVersion, &version);
	for (i = 0; i < HOOKS; i++) {
		if (hooks[i].since > version)
			continue;
		ck_assert_msg(dlsym(real, hooks[i].symbol) != NULL, "the driver does not export %s",
			      hooks[i].symbol);
		for (k = 0; k < 3; k++) {
			if (hooks[i].stream && hooks[i].stream != streams[k])
				continue;
			p = ask(hooks[i].name, hooks[i].since, (unsigned long long)streams[k]);
			if (!p && hooks[i].since < 3000)
				continue; /* a driver may lack such an old version */
			n++;
			same += p == test_hook_symbol(hooks[i].symbol);
			if (p != test_hook_symbol(hooks[i].symbol))
				printf("%s, version %d, flags %d: another function\n",
				       hooks[i].name, hooks[i].since, streams[k]);
			ask(hooks[i].name, version, (unsigned long long)streams[k]);
		}
	}
	printf("%zu of %zu answers are the hook of that version\n", same, n);
	hook->live(&live);
	ck_assert_msg(live.unwrapped == 0, "%llu answers went out unwrapped",
		      (unsigned long long)live.unwrapped);
}
END_TEST

START_TEST(region_addresses)
{
	CUdeviceptr a, b, base;
	uint32_t word = 0;
	size_t size;

	ck_assert_msg(!hook->region_begin(BASE, SIZE), "%s", hook->last_error());
	cuda_ok(cuMemAlloc_v2, &a, 1000);
	cuda_ok(cuMemAlloc_v2, &b, 300 * MIB);
	ck_assert_uint_eq(a, BASE);
	ck_assert(b > a && b + 300 * MIB <= BASE + SIZE);
	cuda_ok(cuMemsetD32_v2, b, 0x1234567, 300 * MIB / 4);
	cuda_ok(cuMemcpyDtoH_v2, &word, b + 300 * MIB - 4, 4);
	ck_assert_uint_eq(word, 0x1234567);
	cuda_ok(cuMemGetAddressRange_v2, &base, &size, b + 7);
	ck_assert_uint_eq(base, b);
	ck_assert_uint_eq(size, 300 * MIB);
	cuda_ok(cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a);
	ck_assert_uint_eq(size, 1000);
	ck_assert_int_eq(cuda(cuMemAlloc_v2, &base, SIZE), CUDA_ERROR_OUT_OF_MEMORY);
	cuda_ok(cuMemFree_v2, b);
	cuda_ok(cuMemFree_v2, a);
	ck_assert_int_eq(hook->region_end(), 0);
	cuda_ok(cuMemAlloc_v2, &a, 1000);
	ck_assert(a < BASE || a >= BASE + SIZE);
	cuda_ok(cuMemFree_v2, a);
}
END_TEST

/* The first word at @p. */
static uint32_t word_at(CUdeviceptr p)
{
	uint32_t word = 0;

	cuda_ok(cuMemcpyDtoH_v2, &word, p, 4);
	return word;
}

static bool inside(CUdeviceptr p)
{
	return p >= BASE && p < BASE + SIZE;
}

START_TEST(memory_in_the_order_of_streams)
{
	cuuint64_t before = 0, used = 0;
	CUmemoryPool pool, from = NULL;
	CUdeviceptr a, b, c, out;
	size_t nodes = 0;
	CUgraphExec exec;
	CUgraph graph;
	CUstream s, t;

	ck_assert_msg(!hook->region_begin(BASE, SIZE), "%s", hook->last_error());
	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuDeviceGetDefaultMemPool, &pool, 0);
	cuda_ok(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &before);
	cuda_ok(cuMemAllocAsync, &a, 5 * MIB, s);
	ck_assert(inside(a) && !word_at(a) && !word_at(a + 5 * MIB - 4));
	cuda_ok(cuPointerGetAttribute, &from, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a);
	ck_assert_ptr_eq(from, pool);
	cuda_ok(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
	ck_assert_uint_eq(used, before + 5 * MIB);
	cuda_ok(cuMemFreeAsync, a, s);
	cuda_ok(cuMemAllocAsync, &b, 5 * MIB, t);
	cuda_ok(cuMemAllocAsync, &c, 5 * MIB, s);
	ck_assert(b != a && c == a);

	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	cuda_ok(cuMemAllocAsync, &a, 4096, s);
	cuda_ok(cuMemsetD32Async, a, 5, 1024, s);
	cuda_ok(cuMemAllocAsync, &out, 4096, s);
	cuda_ok(cuMemcpyDtoDAsync_v2, out, a, 4096, s);
	cuda_ok(cuMemFreeAsync, a, s);
	ck_assert_int_eq(cuda(cuMemFreeAsync, c, s), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuStreamEndCapture, s, &graph);
	cuda_ok(cuGraphGetNodes, graph, NULL, &nodes);
	ck_assert_uint_eq(nodes, 2);
	ck_assert_uint_eq(word_at(out), FDRY_STAMP);
	cuda_ok(cuGraphInstantiateWithFlags, &exec, graph, 0);
	cuda_ok(cuGraphLaunch, exec, s);
	cuda_ok(cuStreamSynchronize, s);
	ck_assert_uint_eq(word_at(out + 4092), 5);
	cuda_ok(cuGraphExecDestroy, exec);
	cuda_ok(cuGraphDestroy, graph);
	cuda_ok(cuMemFreeAsync, out, s);
	cuda_ok(cuMemFreeAsync, b, t);
	cuda_ok(cuMemFree_v2, c);
	cuda_ok(cuMemPoolTrimTo, pool, 0);
	cuda_ok(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
	ck_assert_uint_eq(used, before);
	cuda_ok(cuStreamDestroy_v2, s);
	cuda_ok(cuStreamDestroy_v2, t);
	ck_assert_int_eq(hook->region_end(), 0); /* its addresses stay: a graph had memory there */
}
END_TEST

/* The addresses of an ended region stay in use while its graphs may be launched. */
#define BASE2 (BASE + (1ull << 40))

START_TEST(memory_that_the_program_maps)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h[2];
	CUdeviceptr p, far, start = 0;
	struct fdry_alloc *all;
	CUdeviceptr base;
	uint64_t size;
	size_t n, range = 0;
	int i;

	ck_assert_msg(!hook->region_begin(BASE2, SIZE), "%s", hook->last_error());
	cuda_ok(cuMemAddressReserve, &p, 64 * MIB, 0, 0, 0);
	ck_assert_uint_eq(p, BASE2);
	cuda_ok(cuMemAddressReserve, &far, 150ull << 30, 0, 0, 0); /* more than the region has */
	ck_assert_uint_ge(far, BASE2 + SIZE);
	for (i = 0; i < 2; i++) {
		cuda_ok(cuMemCreate, &h[i], 20 * MIB, &prop, 0);
		cuda_ok(cuMemMap, i ? far : p, 20 * MIB, 0, h[i], 0);
		cuda_ok(cuMemSetAccess, i ? far : p, 20 * MIB, &access, 1);
		ck_assert_uint_eq(word_at((i ? far : p) + 20 * MIB - 4), 0);
	}
	cuda_ok(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		far + 5 * MIB);
	cuda_ok(cuPointerGetAttribute, &range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, far + 5 * MIB);
	ck_assert(start == far && range == 150ull << 30);
	ck_assert_int_eq(hook->region_ledger(&base, &size, &all, &n), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert(all[1].addr == far && all[1].kind == FDRY_KIND_MAP);
	free(all);
	for (i = 0; i < 2; i++) {
		cuda_ok(cuMemUnmap, i ? far : p, 20 * MIB);
		cuda_ok(cuMemRelease, h[i]);
	}
	cuda_ok(cuMemAddressFree, p, 64 * MIB);
	cuda_ok(cuMemAddressFree, far, 150ull << 30);
	ck_assert_int_eq(hook->region_end(), 0);
}
END_TEST

START_TEST(legacy_handles_for_other_processes)
{
	CUipcMemHandle h;
	CUdeviceptr p;

	ck_assert_msg(!hook->region_begin(BASE2, SIZE), "%s", hook->last_error());
	cuda_ok(cuMemAlloc_v2, &p, 1000);
	ck_assert_int_eq(cuda(cuIpcGetMemHandle, &h, p), CUDA_ERROR_NOT_SUPPORTED);
	cuda_ok(cuMemFree_v2, p);
	ck_assert_int_eq(hook->region_end(), 0);
	cuda_ok(cuMemAlloc_v2, &p, 1000);
	cuda_ok(cuIpcGetMemHandle, &h, p);
	cuda_ok(cuMemFree_v2, p);
}
END_TEST

static int export_to; /* set in "hook export N": the descriptor to which this process writes its
			 memory's handle; it exits when its input ends */

START_TEST(exporting)
{
	CUipcMemHandle h;
	CUdeviceptr p;
	char c;

	cuda_ok(cuMemAlloc_v2, &p, 3 * MIB);
	cuda_ok(cuMemsetD32_v2, p, 0x1234567, 3 * MIB / 4);
	cuda_ok(cuCtxSynchronize); /* the other process orders nothing after this memset */
	cuda_ok(cuIpcGetMemHandle, &h, p);
	ck_assert_int_eq(write(export_to, &h, sizeof(h)), sizeof(h));
	close(export_to);
	(void)!read(STDIN_FILENO, &c, 1);
}
END_TEST

/* Another process, without a capture, and its handle; closing *@in ends it. */
static pid_t export_start(CUipcMemHandle *ret, int *in)
{
	int to[2], from[2];
	char fd[16];
	pid_t pid;

	ck_assert(!pipe(to) && !pipe(from));
	snprintf(fd, sizeof(fd), "%d", from[1]);
	pid = fork();
	if (!pid) {
		close(to[1]);
		close(from[0]);
		dup2(to[0], STDIN_FILENO);
		execl("/proc/self/exe", "hook", "export", fd, NULL);
		_exit(1);
	}
	close(from[1]);
	close(to[0]);
	ck_assert_int_eq(read(from[0], ret, sizeof(*ret)), sizeof(*ret));
	close(from[0]);
	*in = to[1];
	return pid;
}

START_TEST(memory_of_another_process)
{
	CUipcMemHandle h;
	CUdeviceptr p;
	int in, status;
	pid_t pid = export_start(&h, &in);

	ck_assert_msg(!hook->region_begin(BASE2, SIZE), "%s", hook->last_error());
	cuda_ok(cuIpcOpenMemHandle_v2, &p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	ck_assert_uint_eq(word_at(p + 3 * MIB - 4), 0x1234567);
	ck_assert_ptr_nonnull(hook->origin_at(p + 3 * MIB - 4));
	cuda_ok(cuIpcCloseMemHandle, p);
	ck_assert_ptr_null(hook->origin_at(p));
	ck_assert_int_eq(hook->region_end(), 0);
	close(in);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* Return the microseconds of an allocation and its free, the median of 5 runs of @n. */
static double cost(size_t size, CUstream s, int n)
{
	double best[5], start, swap;
	CUdeviceptr p;
	int i, k;

	for (k = 0; k < 5; k++) {
		start = now_us();
		for (i = 0; i < n; i++) {
			if (s) {
				cuda_ok(cuMemAllocAsync, &p, size, s);
				cuda_ok(cuMemFreeAsync, p, s);
			} else {
				cuda_ok(cuMemAlloc_v2, &p, size);
				cuda_ok(cuMemFree_v2, p);
			}
		}
		best[k] = (now_us() - start) / n;
		for (i = k; i && best[i] < best[i - 1]; i--) {
			swap = best[i];
			best[i] = best[i - 1];
			best[i - 1] = swap;
		}
	}
	return best[2];
}

START_TEST(costs)
{
	static const size_t sizes[] = { 4096, 1 * MIB, 20 * MIB, 256 * MIB };
	double native[8];
	CUdeviceptr p;
	CUstream s;
	size_t i;

	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuMemAllocAsync, &p, 4096, s); /* so that the pool keeps something */
	for (i = 0; i < 8; i++)
		native[i] = cost(sizes[i / 2], i % 2 ? s : NULL, 200);
	ck_assert_msg(!hook->region_begin(BASE2, SIZE), "%s", hook->last_error());
	for (i = 0; i < 8; i++)
		printf("note: %7zu KiB, %s: %8.3f us from the region, %8.3f natively\n",
		       sizes[i / 2] >> 10,
		       i % 2 ? "in the order of a stream" : "cuMemAlloc and cuMemFree",
		       cost(sizes[i / 2], i % 2 ? s : NULL, 200), native[i]);
	ck_assert_int_eq(hook->region_end(), 0);
	cuda_ok(cuMemFreeAsync, p, s);
	cuda_ok(cuStreamDestroy_v2, s);
}
END_TEST

static void capture(CUstreamCaptureMode mode)
{
	struct fdry_hook_live live;
	uint32_t word = 0;
	CUdeviceptr old, p;
	CUgraphExec exec;
	CUgraph graph;
	CUstream s;

	ck_assert_msg(!hook->region_begin(BASE, SIZE), "%s", hook->last_error());
	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuMemAlloc_v2, &old, 64 * MIB);
	cuda_ok(cuStreamBeginCapture_v2, s, mode);
	ck_assert_msg(!cuda(cuMemAlloc_v2, &p, 64 * MIB), "mode %d: %s", (int)mode,
		      hook->last_error());
	cuda_ok(cuMemFree_v2, old);
	cuda_ok(cuMemsetD32Async, p, 7, 4, s);
	hook->live(&live);
	ck_assert_uint_eq(live.captures, 1);
	cuda_ok(cuStreamEndCapture, s, &graph);
	hook->live(&live);
	ck_assert_uint_eq(live.captures, 0);
	cuda_ok(cuMemcpyDtoH_v2, &word, p, 4);
	ck_assert_uint_eq(word, FDRY_STAMP);
	cuda_ok(cuGraphInstantiateWithFlags, &exec, graph, 0);
	cuda_ok(cuGraphLaunch, exec, s);
	cuda_ok(cuStreamSynchronize, s);
	cuda_ok(cuMemcpyDtoH_v2, &word, p + 12, 4);
	ck_assert_uint_eq(word, 7);
	cuda_ok(cuGraphExecDestroy, exec);
	cuda_ok(cuGraphDestroy, graph);
	cuda_ok(cuStreamDestroy_v2, s);
	cuda_ok(cuMemFree_v2, p);
	ck_assert_int_eq(hook->region_end(), 0);
}

START_TEST(allocations_while_capturing)
{
	capture(CU_STREAM_CAPTURE_MODE_RELAXED);
	capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
}
END_TEST

/* A capture that fails to end is over, for the driver and for the interposer. */
START_TEST(a_fork_that_never_joins)
{
	CUstreamCaptureStatus status;
	struct fdry_hook_live live;
	CUgraph graph = NULL;
	CUstream s, t;
	CUdeviceptr p;
	CUevent e;
	CUresult res;

	cuda_ok(cuMemAlloc_v2, &p, 64);
	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	cuda_ok(cuEventRecord, e, s);
	cuda_ok(cuStreamWaitEvent, t, e, 0);
	cuda_ok(cuMemsetD32Async, p, 7, 1, t);
	res = cuda(cuStreamEndCapture, s, &graph);
	ck_assert_int_ne(res, CUDA_SUCCESS);
	hook->live(&live);
	cuda_ok(cuStreamIsCapturing, s, &status);
	printf("an unjoined capture ends with %d; the stream's state is %d afterwards\n", (int)res,
	       (int)status);
	ck_assert_int_eq(live.captures != 0, status != CU_STREAM_CAPTURE_STATUS_NONE);
	cuda_ok(cuStreamDestroy_v2, s);
	cuda_ok(cuStreamDestroy_v2, t);
	hook->live(&live);
	ck_assert_uint_eq(live.captures, 0);
	cuda_ok(cuMemFree_v2, p);
}
END_TEST

static void found_as(CUmodule m, enum fdry_code_kind kind, size_t len)
{
	struct fdry_code c;

	ck_assert_int_eq(hook->code_find(NULL, m, &c), 0);
	ck_assert_int_eq(c.kind, kind);
	ck_assert_uint_eq(c.len, len);
}

START_TEST(code_is_found)
{
	char *text = strdup(ptx);
	CUlinkState link;
	CUmodule m, n;
	CUlibrary l;
	struct fdry_code c;
	void *cubin;
	size_t len;

	cuda_ok(cuModuleLoadData, &m, text);
	cuda_ok(cuLinkCreate_v2, 0, NULL, NULL, &link);
	cuda_ok(cuLinkAddData_v2, link, CU_JIT_INPUT_PTX, text, sizeof(ptx), "x", 0, NULL, NULL);
	cuda_ok(cuLinkComplete, link, &cubin, &len);
	cuda_ok(cuModuleLoadData, &n, cubin);
	cuda_ok(cuLibraryLoadData, &l, cubin, NULL, NULL, 0, NULL, NULL, 0);
	cuda_ok(cuLinkDestroy, link);
	memset(text, 'x', strlen(text));
	free(text);
	found_as(m, FDRY_CODE_PTX, sizeof(ptx));
	ck_assert_int_eq(hook->code_find(NULL, n, &c), 0);
	printf("the linker gives %zu bytes, of which the ELF file is %zu\n", len, c.len);
	ck_assert_int_eq(c.kind, FDRY_CODE_ELF);
	ck_assert_uint_le(c.len, len);
	ck_assert_int_eq(hook->code_find(l, NULL, &c), 0);
	cuda_ok(cuModuleUnload, m);
	cuda_ok(cuModuleUnload, n);
	/* the kept code is complete: it can be loaded again */
	cuda_ok(cuModuleLoadData, &n, c.data);
	cuda_ok(cuModuleGetFunction, &(CUfunction){ NULL }, n, "nothing");
	cuda_ok(cuModuleUnload, n);
	cuda_ok(cuLibraryGetModule, &m, l);
	ck_assert_int_eq(hook->code_find(NULL, m, &c), 0);
	cuda_ok(cuLibraryUnload, l);
}
END_TEST

static void start(void)
{
	CUcontext ctx;
	CUresult res;

	test_hook_open();
	res = cuda(cuInit, 0);
	if (res == CUDA_ERROR_NO_DEVICE) {
		printf("SKIP: no GPU: %s\n",
		       hook->real_path() ? "cuInit finds none" : hook->last_error());
		exit(77);
	}
	ck_assert_int_eq(res, CUDA_SUCCESS);
	cuda_ok(cuDevicePrimaryCtxRetain, &ctx, 0);
	cuda_ok(cuCtxSetCurrent, ctx);
	printf("in front of %s\n", hook->real_path());
}

int main(int argc, char **argv)
{
	Suite *s = suite_create("hook");
	TCase *tc = tcase_create("hook");

	tcase_add_unchecked_fixture(tc, start, NULL);
	if (argc > 2) {
		export_to = atoi(argv[2]);
		tcase_add_test(tc, exporting);
		suite_add_tcase(s, tc);
		return test_main_nofork(s);
	}
	tcase_add_test(tc, every_hook_is_answered);
	tcase_add_test(tc, region_addresses);
	tcase_add_test(tc, allocations_while_capturing);
	tcase_add_test(tc, a_fork_that_never_joins);
	tcase_add_test(tc, memory_that_the_program_maps);
	tcase_add_test(tc, legacy_handles_for_other_processes);
	tcase_add_test(tc, memory_of_another_process);
	tcase_add_test(tc, costs);
	tcase_add_test(tc, memory_in_the_order_of_streams); /* last: its region stays */
	tcase_add_test(tc, code_is_found);
	suite_add_tcase(s, tc);
	return test_main_nofork(s);
}
