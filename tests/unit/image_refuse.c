// SPDX-License-Identifier: Apache-2.0
/* Unit tests of captures that a seal refuses, of wrong declarations, and of the messages. */
#include <sys/mman.h>

#include "tests/lib/image.h"

/* --- graphs that cannot be restored exactly --- */

static void no_graph(struct work *w)
{
	(void)w;
}

static void random_graph(struct work *w)
{
	graph_add(w, 5);
	ok(fdry_capture_rng(w->cap, 5));
}

static void texture_alive(struct work *w)
{
	CUDA_RESOURCE_DESC res = { .resType = CU_RESOURCE_TYPE_LINEAR };
	CUDA_TEXTURE_DESC tex = { 0 };
	CUtexObject object;

	res.res.linear.devPtr = w->a;
	res.res.linear.format = CU_AD_FORMAT_FLOAT;
	res.res.linear.numChannels = 1;
	res.res.linear.sizeInBytes = BYTES;
	graph_add(w, 1);
	cuda_ok(cuTexObjectCreate, &object, &res, &tex, NULL);
}

static void surface_alive(struct work *w)
{
	CUDA_RESOURCE_DESC res = { .resType = CU_RESOURCE_TYPE_ARRAY };
	CUsurfObject object;

	graph_add(w, 1);
	cuda_ok(cuSurfObjectCreate, &object, &res);
}

static void capturing_now(struct work *w)
{
	graph_add(w, 1);
	capture_start(w);
}

static void memory_from_before(struct work *w)
{
	capture_start(w);
	launch_add(w, w->a, w->before, w->c);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
}

static void memory_while_paused(struct work *w)
{
	CUdeviceptr p;

	ok(fdry_capture_pause(w->cap));
	cuda_ok(cuMemAlloc_v2, &p, BYTES);
	ok(fdry_capture_resume(w->cap));
	capture_start(w);
	launch_add(w, w->a, p, w->c);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
}

static void memory_freed(struct work *w)
{
	capture_start(w);
	launch_add(w, w->a, w->b + 4, w->c);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
	cuda_ok(cuMemFree_v2, w->b);
}

/* A graph uses addresses whose memory was unmapped. */
static void memory_gone(struct work *w)
{
	CUdeviceptr p;

	cuda_ok(cuMemAlloc_v2, &p, 8u << 20);
	capture_start(w);
	launch_add(w, w->a, p, w->c);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
	cuda_ok(cuMemFree_v2, p);
}

static void memory_of_the_host(struct work *w)
{
	float *host;

	cuda_ok(cuMemAllocHost_v2, (void **)&host, BYTES);
	capture_start(w);
	launch_add(w, w->a, (CUdeviceptr)(uintptr_t)host, w->c);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
}

/* A variable of a module none of whose kernels is captured. */
static void module_variable(struct work *w)
{
	CUdeviceptr table;
	CUmodule other;
	size_t size;

	cuda_ok(cuModuleLoadData, &other, w->cubin);
	cuda_ok(cuModuleGetGlobal_v2, &table, &size, other, "table");
	capture_start(w);
	launch_add(w, w->a, table, w->c);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
}

static void copy_from_host(struct work *w)
{
	float *host;

	cuda_ok(cuMemAllocHost_v2, (void **)&host, BYTES);
	capture_start(w);
	cuda_ok(cuMemcpyHtoDAsync_v2, w->a, host, BYTES, w->stream);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
}

static void copy_to_outside(struct work *w)
{
	capture_start(w);
	cuda_ok(cuMemcpyDtoDAsync_v2, w->before, w->a, BYTES, w->stream);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
}

static void memset_outside(struct work *w)
{
	capture_start(w);
	cuda_ok(cuMemsetD32Async, w->before, 1, N, w->stream);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
}

/* --- memory that is seen from elsewhere too --- */

#define SHARED (2u << 20)

static CUmemGenericAllocationHandle physical(CUmemAllocationHandleType type)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .requestedHandleTypes = type,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemGenericAllocationHandle h;

	cuda_ok(cuMemCreate, &h, SHARED, &prop, 0);
	return h;
}

/* Map memory at an address that the interposer chooses in the region, or at a hint outside of
 * it. */
static CUdeviceptr mapped(CUmemGenericAllocationHandle h, CUdeviceptr hint)
{
	const CUmemAccessDesc all = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				      CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr p;

	cuda_ok(cuMemAddressReserve, &p, 32u << 20, 0, hint, 0);
	ck_assert(!hint || p == hint);
	cuda_ok(cuMemMap, p, SHARED, 0, h, 0);
	cuda_ok(cuMemSetAccess, p, SHARED, &all, 1);
	return p;
}

static CUmemGenericAllocationHandle imported(CUmemGenericAllocationHandle h)
{
	CUmemGenericAllocationHandle again;
	int fd;

	cuda_ok(cuMemExportToShareableHandle, &fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	cuda_ok(cuMemImportFromShareableHandle, &again, (void *)(intptr_t)fd,
		CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	close(fd);
	return again;
}

static void graph_of(struct work *w, CUdeviceptr p)
{
	capture_start(w);
	launch_add(w, w->a, p, w->c);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
}

#define ELSEWHERE (TEST_BASE + (12ull << 32))

static void memory_managed(struct work *w)
{
	CUdeviceptr p;

	cuda_ok(cuMemAllocManaged, &p, BYTES, CU_MEM_ATTACH_GLOBAL);
	graph_of(w, p);
}

static void memory_imported(struct work *w)
{
	graph_of(w, mapped(imported(physical(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)), 0));
}

static void memory_imported_elsewhere(struct work *w)
{
	graph_of(w,
		 mapped(imported(physical(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)), ELSEWHERE));
}

static void memory_of_another_api(struct work *w)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC file = { .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						  .size = SHARED };
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC all = { .size = SHARED };
	CUexternalMemory memory;
	CUdeviceptr p;

	file.handle.fd = memfd_create("another", MFD_CLOEXEC);
	ck_assert(!ftruncate(file.handle.fd, SHARED));
	cuda_ok(cuImportExternalMemory, &memory, &file);
	cuda_ok(cuExternalMemoryGetMappedBuffer, &p, memory, &all);
	graph_of(w, p);
}

static void memory_exported(struct work *w)
{
	CUmemGenericAllocationHandle h = physical(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	(void)imported(h);
	graph_of(w, mapped(h, 0));
}

static void memory_mapped_twice(struct work *w)
{
	CUmemGenericAllocationHandle h = physical(0);
	CUdeviceptr p = mapped(h, 0);

	(void)mapped(h, 0);
	graph_of(w, p);
}

static void memory_mapped_elsewhere_too(struct work *w)
{
	CUmemGenericAllocationHandle h = physical(0);

	(void)mapped(h, 0);
	graph_of(w, mapped(h, ELSEWHERE));
}

static void memory_mapped_by_itself(struct work *w)
{
	graph_of(w, mapped(physical(0), ELSEWHERE));
}

static void memory_created_while_paused(struct work *w)
{
	CUmemGenericAllocationHandle h;

	ok(fdry_capture_pause(w->cap));
	h = physical(0);
	ok(fdry_capture_resume(w->cap));
	graph_of(w, mapped(h, 0));
}

static CUmemGenericAllocationHandle multicast(void)
{
	const CUmulticastObjectProp prop = { .numDevices = 1, .size = SHARED };
	CUmemGenericAllocationHandle mc;

	cuda_ok(cuMulticastCreate, &mc, &prop);
	cuda_ok(cuMulticastAddDevice, mc, 0);
	cuda_ok(cuMulticastBindMem, mc, 0, physical(0), 0, SHARED, 0);
	return mc;
}

static void memory_multicast(struct work *w)
{
	graph_of(w, mapped(multicast(), 0));
}

static void memory_multicast_elsewhere(struct work *w)
{
	graph_of(w, mapped(multicast(), ELSEWHERE));
}

/* Not in an argument, but in memory that the image holds. */
static void pointer_to_imported_memory(struct work *w)
{
	CUdeviceptr p = mapped(imported(physical(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)), 0);

	graph_add(w, 1);
	cuda_ok(cuMemcpyHtoD_v2, w->b + 64, &p, sizeof(p));
}

static void tensor_in_imported_memory(struct work *w)
{
	CUdeviceptr p = mapped(imported(physical(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)), 0);

	capture_start(w);
	cuda_ok(cuMemsetD32Async, p, 1, N, w->stream);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
}

static void host_node(struct work *w)
{
	CUDA_HOST_NODE_PARAMS params = { .fn = free };
	CUgraphNode node;
	CUgraph graph;

	cuda_ok(cuGraphCreate, &graph, 0);
	cuda_ok(cuGraphAddHostNode, &node, graph, NULL, 0, &params);
	ok(fdry_capture_graph(w->cap, 1, NULL, graph));
}

static void host_node_in_a_child(struct work *w)
{
	CUDA_HOST_NODE_PARAMS params = { .fn = free };
	CUgraph graph, child;
	CUgraphNode node;

	cuda_ok(cuGraphCreate, &graph, 0);
	cuda_ok(cuGraphCreate, &child, 0);
	cuda_ok(cuGraphAddHostNode, &node, child, NULL, 0, &params);
	cuda_ok(cuGraphAddChildGraphNode, &node, graph, NULL, 0, child);
	ok(fdry_capture_graph(w->cap, 1, NULL, graph));
}

static void allocation_node(struct work *w)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = { .bytesize = BYTES };
	CUgraphNode node;
	CUgraph graph;

	params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	cuda_ok(cuGraphCreate, &graph, 0);
	ok(hook->region_pause()); /* the node is the driver's */
	cuda_ok(cuGraphAddMemAllocNode, &node, graph, NULL, 0, &params);
	ok(hook->region_resume());
	ok(fdry_capture_graph(w->cap, 1, NULL, graph));
}

static void event_of_the_program(struct work *w)
{
	CUgraphNode node;
	CUgraph graph;
	CUevent event;

	cuda_ok(cuEventCreate, &event, 0);
	cuda_ok(cuGraphCreate, &graph, 0);
	cuda_ok(cuGraphAddEventWaitNode, &node, graph, NULL, 0, event);
	ok(fdry_capture_graph(w->cap, 1, NULL, graph));
}

static void code_behind_our_back(struct work *w)
{
	CUresult (*load)(CUmodule *, const void *),
		(*function)(CUfunction *, CUmodule, const char *);
	void *real = dlopen(hook->real_path(), RTLD_NOW);
	CUmodule module;

	*(void **)&load = dlsym(real, "cuModuleLoadData");
	*(void **)&function = dlsym(real, "cuModuleGetFunction");
	ck_assert_int_eq(load(&module, w->cubin), CUDA_SUCCESS);
	ck_assert_int_eq(function(&w->vecadd, module, "vecadd"), CUDA_SUCCESS);
	graph_add(w, 1);
}

static void tensor_freed(struct work *w)
{
	CUdeviceptr p;

	graph_add(w, 1);
	cuda_ok(cuMemAlloc_v2, &p, BYTES);
	tensor_add(w, "gone", p, FDRY_USE_INPUT, 0);
	cuda_ok(cuMemFree_v2, p);
}

static const struct refusal {
	const char *says;
	int code;
	void (*prepare)(struct work *w);
} refusals[] = {
	{ "there is no graph to seal", FDRY_E_STATE, no_graph },
	{ "graph 5 'add': it draws random numbers", FDRY_E_REFUSED, random_graph },
	{ "1 texture and 0 surface objects are alive", FDRY_E_REFUSED, texture_alive },
	{ "0 texture and 1 surface objects are alive", FDRY_E_REFUSED, surface_alive },
	{ "1 stream(s) are capturing", FDRY_E_STATE, capturing_now },
	{ "device memory outside the capture's region", FDRY_E_REFUSED, memory_from_before },
	{ "device memory outside the capture's region", FDRY_E_REFUSED, memory_while_paused },
	{ "memory of the region that was freed", FDRY_E_REFUSED, memory_freed },
	{ "memory of the region that was freed", FDRY_E_REFUSED, memory_gone },
	{ "host memory", FDRY_E_REFUSED, memory_of_the_host },
	{ "a module variable", FDRY_E_REFUSED, module_variable },
	{ "host memory", FDRY_E_REFUSED, copy_from_host },
	{ "outside the capture's region", FDRY_E_REFUSED, copy_to_outside },
	{ "outside the capture's region", FDRY_E_REFUSED, memset_outside },
	{ "points to managed memory", FDRY_E_REFUSED, memory_managed },
	{ "points to imported memory", FDRY_E_REFUSED, memory_imported },
	{ "points to imported memory", FDRY_E_REFUSED, memory_imported_elsewhere },
	{ "points to memory of another API (cuExternalMemoryGetMappedBuffer)", FDRY_E_REFUSED,
	  memory_of_another_api },
	{ "points to memory that was exported to other processes", FDRY_E_REFUSED,
	  memory_exported },
	{ "points to memory that the program mapped at two places", FDRY_E_REFUSED,
	  memory_mapped_twice },
	{ "points to memory that the program mapped at two places", FDRY_E_REFUSED,
	  memory_mapped_elsewhere_too },
	{ "points to memory that the program mapped outside of the capture's region",
	  FDRY_E_REFUSED, memory_mapped_by_itself },
	{ "created before fdry_capture_begin() or while the capture was paused", FDRY_E_REFUSED,
	  memory_created_while_paused },
	{ "points to multicast memory", FDRY_E_REFUSED, memory_multicast },
	{ "points to multicast memory", FDRY_E_REFUSED, memory_multicast_elsewhere },
	{ "byte 64 of the allocation", FDRY_E_REFUSED, pointer_to_imported_memory },
	{ "is imported memory", FDRY_E_REFUSED, tensor_in_imported_memory },
	{ "host", FDRY_E_REFUSED, host_node },
	{ "the graph of node 0: node 0: host: it calls the function at", FDRY_E_REFUSED,
	  host_node_in_a_child },
	{ "alloc", FDRY_E_REFUSED, allocation_node },
	{ "event", FDRY_E_REFUSED, event_of_the_program },
	{ "loaded before the interposer was in place", FDRY_E_REFUSED, code_behind_our_back },
	{ "the memory of tensor 'gone' was freed", FDRY_E_STATE, tensor_freed },
};

START_TEST(seal_refuses)
{
	const struct refusal *r = &refusals[_i];
	struct fdry_oid oid;
	static struct work w;
	int err;

	work_make(&w);
	r->prepare(&w);
	err = work_seal(&w, "ref");
	ck_assert_msg(err == -r->code, "%s: %s", fdry_error_name(err), fdry_last_error());
	ck_assert_msg(strstr(fdry_last_error(), r->says), "'%s' does not say '%s'",
		      fdry_last_error(), r->says);
	fails(NOENT, "no ref", fdry_ref_get(w.store, "ref", &oid));
}
END_TEST

/* A refusal is no end: mended, the same capture is sealed. */
START_TEST(seal_after_a_refusal)
{
	static struct work w;
	CUgraph graph;
	CUtexObject object;
	CUDA_RESOURCE_DESC res = { .resType = CU_RESOURCE_TYPE_LINEAR };
	CUDA_TEXTURE_DESC tex = { 0 };

	work_make(&w);
	res.res.linear.devPtr = w.a;
	res.res.linear.sizeInBytes = BYTES;
	capture_start(&w);
	launch_add(&w, w.a, w.b, w.c);
	graph = capture_stop(&w);
	ok(fdry_capture_graph(w.cap, 1, NULL, graph));
	cuda_ok(cuTexObjectCreate, &object, &res, &tex, NULL);
	ck_assert_int_eq(work_seal(&w, "ref"), -FDRY_E_REFUSED);
	cuda_ok(cuTexObjectDestroy, object);
	ok(work_seal(&w, "ref"));
	ok(work_seal(&w, "ref"));
	fdry_capture_end(w.cap);
}
END_TEST

/* --- wrong calls --- */

START_TEST(names_and_tensors)
{
	struct fdry_tensor t;
	static struct work w;

	work_make(&w);
	t = vector("a", w.a, FDRY_USE_INPUT, 0);
	ok(fdry_capture_tensor(w.cap, &t));
	fails(EXISTS, "'a' was declared before", fdry_capture_tensor(w.cap, &t));
	t.name = "a b";
	fails(NAME, "'a b' cannot name a tensor", fdry_capture_tensor(w.cap, &t));
	t.name = "";
	fails(NAME, "cannot name", fdry_capture_tensor(w.cap, &t));
	t = vector("n", w.before, FDRY_USE_INPUT, 0);
	fails(RANGE, "does not lie in one live allocation", fdry_capture_tensor(w.cap, &t));
	t = vector("n", w.a + 4, FDRY_USE_INPUT, 0);
	fails(RANGE, "4000 bytes", fdry_capture_tensor(w.cap, &t));
	t = vector("n", w.a, FDRY_USE_INPUT, FDRY_TENSOR_EXTERNAL);
	t.shape[0] = 10;
	t.stride[0] = 2;
	fails(INVAL, "has gaps", fdry_capture_tensor(w.cap, &t));
	t.rank = 9;
	fails(INVAL, "rank", fdry_capture_tensor(w.cap, &t));
	t = vector("n", w.a, FDRY_USE_INPUT, 0);
	t.stride[0] = -1;
	fails(INVAL, "negative", fdry_capture_tensor(w.cap, &t));
}
END_TEST

START_TEST(facts_and_keys)
{
	static struct work w;

	work_make(&w);
	ok(fdry_capture_fact(w.cap, "k", "v"));
	fails(EXISTS, "'k' was stated before", fdry_capture_fact(w.cap, "k", "w"));
	fails(NAME, "the library's own", fdry_capture_fact(w.cap, "fdry.gpu.arch", "sm_1"));
	fails(INVAL, "value of fact", fdry_capture_fact(w.cap, "n", NULL));
	graph_add(&w, 1);
	fails(INVAL, "graph 2 is NULL", fdry_capture_graph(w.cap, 2, NULL, NULL));
	fails(EXISTS, "key 1 was added before", fdry_capture_graph(w.cap, 1, NULL, (CUgraph)1));
	fails(NOKEY, "key 3", fdry_capture_rng(w.cap, 3));
	fails(NAME, "ref", work_seal(&w, "../up"));
}
END_TEST

START_TEST(one_capture_at_a_time)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts) };
	struct fdry_capture *cap;
	static struct work w;

	work_make(&w);
	ck_assert_int_eq(fdry_capture_begin(NULL, &cap), -FDRY_E_STATE);
	fdry_capture_end(w.cap);
	opts.flags = 6;
	fails(OPTS, "does not know the flags 0x6", fdry_capture_begin(&opts, &cap));
	opts.flags = 0;
	opts.device = 9;
	ck_assert_int_lt(fdry_capture_begin(&opts, &cap), 0);
	opts.sz = 4;
	fails(OPTS, "4 bytes", fdry_capture_begin(&opts, &cap));
}
END_TEST

START_TEST(without_the_stand_in)
{
	struct fdry_capture *cap;

	fails(NOHOOK, "fdry_hook_install", fdry_capture_begin(NULL, &cap));
	fails(NOHOOK, "cannot be loaded", fdry_hook_install("/nowhere/libcuda.so.1"));
}
END_TEST

START_TEST(the_driver_came_first)
{
	struct fdry_capture *cap;

	ck_assert_ptr_nonnull(
		dlopen(test_built("foundry/sim/libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL));
	fails(LATE, "before", fdry_hook_install(test_built("foundry/hook/libcuda.so.1")));
	fails(LATE, "before", fdry_capture_begin(NULL, &cap));
}
END_TEST

START_TEST(base_in_use)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts), .base = TEST_BASE,
					  .size = 1ull << 30 };
	struct fdry_capture *cap;
	static struct work w;

	work_make(&w);
	fdry_capture_end(w.cap);
	ck_assert_ptr_eq(mmap((void *)TEST_BASE, 4096, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
			 (void *)TEST_BASE);
	fails(TAKEN, "taken by", fdry_capture_begin(&opts, &cap));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_refuse");
	TCase *tc = tcase_create("refuse");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, seal_refuses, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_test(tc, seal_after_a_refusal);
	tcase_add_test(tc, names_and_tensors);
	tcase_add_test(tc, facts_and_keys);
	tcase_add_test(tc, one_capture_at_a_time);
	tcase_add_test(tc, without_the_stand_in);
	tcase_add_test(tc, the_driver_came_first);
	tcase_add_test(tc, base_in_use);
	suite_add_tcase(s, tc);
	return test_main(s);
}
