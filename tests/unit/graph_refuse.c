// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of the graphs that reading refuses, and of the messages. If the software driver cannot
 * make such a graph, the test replaces one of its functions.
 */
#include <sys/mman.h>

#include "tests/replace/graph_fixture.h"
#include "tests/lib/sim.h"

/* A function of the driver that is not in driver.def. */
#define SIM(fn) ((__typeof__(&fn))test_sim_symbol(#fn))

/* --- attributes --- */

/* Replacements for functions of the driver that return wrong values for one node; for other nodes,
 * they return the real function's values. */
static CUresult (*real_get)(CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue *);
static CUgraphNode marked; /* the node with wrong values */
static CUkernelNodeAttrID lie_id;
static CUresult lie_result;

static CUresult lying_get(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *v)
{
	CUresult res = real_get(node, id, v);

	if (node != marked || id != lie_id)
		return res;
	if (!lie_result)
		v->deviceUpdatableKernelNode.deviceUpdatable = 1;
	return lie_result;
}

/* Make a graph of one kernel node about which the driver returns wrong values. */
static CUgraph graph_with_lie(unsigned int id, CUresult result)
{
	CUgraph g = graph_make();

	marked = kernel_add(g, NULL, NOTHING, NULL);
	lie_id = (CUkernelNodeAttrID)id;
	lie_result = result;
	real_get = gf.drv.cuGraphKernelNodeGetAttribute;
	gf.drv.cuGraphKernelNodeGetAttribute = lying_get;
	return g;
}

static const struct lie {
	unsigned int id;
	CUresult result;
	const char *says;
} lies[] = {
	{ 13, CUDA_SUCCESS,
	  "it has attribute device_updatable and kernels of the capturing process hold a handle" },
	{ 7, CUDA_SUCCESS,
	  "it has attribute programmatic_event and its event belongs to the application" },
	{ 12, CUDA_SUCCESS, "it has attribute launch_completion_event and its event belongs" },
	{ 15, CUDA_SUCCESS, "it has attribute 15, which this version does not know" },
	{ 31, CUDA_SUCCESS, "it has attribute 31, which this version does not know" },
	/* The software driver refuses these attributes for nodes. */
	{ 3, CUDA_SUCCESS,
	  "the driver does not accept its attribute synchronization_policy again" },
	{ 6, CUDA_SUCCESS,
	  "the driver does not accept its attribute programmatic_stream_serialization again" },
	/* A new node returns this attribute, and this node does not. */
	{ 9, CUDA_ERROR_INVALID_VALUE, "its attribute mem_sync_domain_map cannot be read" },
	{ 14, CUDA_ERROR_NOT_SUPPORTED,
	  "its attribute preferred_shared_memory_carveout cannot be read" },
};

START_TEST(attributes_that_cannot_be_restored)
{
	const struct lie *l = &lies[_i];

	graph_refused(graph_with_lie(l->id, l->result), l->says);
}
END_TEST

START_TEST(attribute_failures_are_not_answers)
{
	CUgraph g = graph_with_lie(9, CUDA_ERROR_UNKNOWN);
	struct fdry_buf b = { 0 };

	fails(DRIVER, "cuGraphKernelNodeGetAttribute failed", graph_read(g, &b));
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* The driver accepts the attribute and later returns another value than the one that was set. */
static CUresult forgetful_set(CUgraphNode node, CUkernelNodeAttrID id,
			      const CUkernelNodeAttrValue *v)
{
	(void)node;
	(void)id;
	(void)v;
	return CUDA_SUCCESS;
}

START_TEST(attribute_that_does_not_stay)
{
	CUgraph g = graph_make();
	CUgraphNode n = kernel_add(g, NULL, NOTHING, NULL);
	CUlaunchAttributeValue v = { .priority = 2 };

	ok(gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	gf.drv.cuGraphKernelNodeSetAttribute = forgetful_set;
	graph_refused(g, "its attributes have other values after they were set again");
}
END_TEST

/* --- refusals: events --- */

START_TEST(event_recorded_only)
{
	CUgraph g = graph_make();
	CUgraphNode a = empty_add(g, NULL), n;

	ok(gf.drv.cuGraphAddEventRecordNode(&n, g, &a, 1, event_make()));
	graph_refused(g, "node 1: its event is recorded but not waited for within the graph, so it "
			 "belongs to the application");
}
END_TEST

START_TEST(event_awaited_only)
{
	CUgraph g = graph_make();
	CUgraphNode n;
	CUevent e = event_make();

	ok(gf.drv.cuGraphAddEventRecordNode(&n, g, NULL, 0, e));
	ok(gf.drv.cuGraphAddEventWaitNode(&n, g, &n, 1, e));
	ok(gf.drv.cuGraphAddEventWaitNode(&n, g, &n, 1, event_make()));
	graph_refused(g, "node 2: its event is waited for but not recorded within the graph");
}
END_TEST

/* --- refusals: copies --- */

static CUDA_MEMCPY3D copy_of(CUdeviceptr src, CUdeviceptr dst)
{
	return (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				.srcDevice = src,
				.srcPitch = 64,
				.dstMemoryType = CU_MEMORYTYPE_DEVICE,
				.dstDevice = dst,
				.dstPitch = 64,
				.WidthInBytes = 64,
				.Height = 1,
				.Depth = 1 };
}

START_TEST(copy_from_host)
{
	CUDA_MEMCPY3D p = copy_of(0, gf.mem);
	CUgraph g = graph_make();
	static char host[64];

	p.srcMemoryType = CU_MEMORYTYPE_HOST;
	p.srcHost = host;
	memcpy_add(g, NULL, p);
	graph_refused(g, "is pageable host memory that no single host tensor holds; keep it "
			 "allocated and declare it with fdry_capture_tensor()");
}
END_TEST

START_TEST(copy_to_host)
{
	CUDA_MEMCPY3D p = copy_of(gf.mem, 0);
	CUgraph g = graph_make();
	static char host[64];

	p.dstMemoryType = CU_MEMORYTYPE_HOST;
	p.dstHost = host;
	memcpy_add(g, NULL, p);
	graph_refused(g, "node 0: memcpy: its destination, 64 bytes at");
}
END_TEST

/* The parameters that the replaced GetParams returns for a copy. */
static CUDA_MEMCPY3D lie_copy;
static CUresult lying_copy(CUgraphNode node, CUDA_MEMCPY3D *ret)
{
	(void)node;
	*ret = lie_copy;
	return CUDA_SUCCESS;
}

static CUgraph graph_with_copy(CUDA_MEMCPY3D p)
{
	CUgraph g = graph_make();

	memcpy_add(g, NULL, copy_of(gf.mem, gf.mem + 64));
	lie_copy = p;
	gf.drv.cuGraphMemcpyNodeGetParams = lying_copy;
	return g;
}

START_TEST(copy_under_unified_addressing)
{
	CUDA_MEMCPY3D p = copy_of(gf.mem, gf.mem + 64);
	void *host;

	ok(gf.drv.cuMemAllocHost_v2(&host, 4096));
	p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	reads_as(graph_with_copy(p), "node 0 memcpy src 0x500000000000 src_pitch 64 src_height 1 "
				     "dst 0x500000000040 dst_pitch 64 dst_height 1 "
				     "width 64 height 1 depth 1\n");
	p.srcDevice = (CUdeviceptr)(uintptr_t)host;
	graph_refused(graph_with_copy(p), "memcpy: its source, 64 bytes at");
	graph_refused(graph_with_copy(p), "is pinned host memory that no single host tensor holds");
	p.srcDevice = gf.mem;
	p.dstDevice = (CUdeviceptr)(uintptr_t)host;
	graph_refused(graph_with_copy(p), "memcpy: its destination, 64 bytes at");
	ok(gf.drv.cuMemFreeHost(host));
}
END_TEST

/* An invalid address that looks like one of host memory. */
START_TEST(copy_of_an_address_beyond)
{
	CUDA_MEMCPY3D p = copy_of(fdry_host_place(0, 64), gf.mem);

	graph_refused(graph_with_copy(p),
		      "node 0: memcpy: its source lies beyond the address space");
	p = copy_of(gf.mem, FDRY_HOST_PLACE - 64);
	p.dstXInBytes = 64;
	graph_refused(graph_with_copy(p),
		      "node 0: memcpy: its destination lies beyond the address space");
}
END_TEST

START_TEST(copy_of_arrays_and_strange_memory)
{
	CUDA_MEMCPY3D p = copy_of(gf.mem, gf.mem + 64);

	p.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	graph_refused(graph_with_copy(p),
		      "its source: the CUDA arrays of the program are not known");
	p = copy_of(gf.mem, gf.mem + 64);
	p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	graph_refused(graph_with_copy(p),
		      "its destination: the CUDA arrays of the program are not known");
	p.dstMemoryType = 9;
	graph_refused(graph_with_copy(p), "its destination is memory of type 9");
	p = copy_of(gf.mem, gf.mem + 64);
	p.dstLOD = 1;
	graph_refused(graph_with_copy(p), "its destination has a level of detail");
	p = copy_of(gf.mem, gf.mem + 64);
	p.srcY = UINT64_MAX;
	graph_refused(graph_with_copy(p), "its source lies beyond the address space");
	p = copy_of(gf.mem, gf.mem + 64);
	p.Height = 0;
	graph_refused(graph_with_copy(p), "it has a size of 0");
	p = copy_of(gf.mem, gf.mem + 64);
	p.Height = 2;
	p.srcPitch = 63;
	graph_refused(graph_with_copy(p), "it has a pitch that does not fit");
}
END_TEST

/* Offsets are added to the address, and fields that a single row does not use are left out. */
START_TEST(copy_is_canonical)
{
	CUDA_MEMCPY3D p = copy_of(gf.mem, gf.mem + 4096);
	CUgraph g = graph_make(), h = graph_make();

	p.srcXInBytes = 16, p.srcY = 2, p.srcZ = 1, p.srcPitch = 128, p.srcHeight = 4;
	p.dstXInBytes = 0, p.dstY = 1, p.dstZ = 0, p.dstPitch = 256, p.dstHeight = 8;
	memcpy_add(g, NULL, p);
	memcpy_add(h, NULL, copy_of(gf.mem + 16 + 6 * 128, gf.mem + 4096 + 256));
	objects_equal(g, h);
	g = graph_make(), h = graph_make();
	p.Height = 2, p.Depth = 2;
	memcpy_add(g, NULL, p);
	p = copy_of(gf.mem + 16 + 6 * 128, gf.mem + 4096 + 256);
	p.srcPitch = 128, p.srcHeight = 4, p.dstPitch = 256, p.dstHeight = 8, p.Height = 2,
	p.Depth = 2;
	memcpy_add(h, NULL, p);
	objects_equal(g, h);
}
END_TEST

START_TEST(copy_beyond_the_allocation)
{
	CUDA_MEMCPY3D p = copy_of(gf.mem + 65536 - 63, gf.mem);
	CUgraph g = graph_make();

	memcpy_add(g, NULL, copy_of(gf.mem + 65536 - 64, gf.mem));
	memcpy_add(g, NULL, copy_of(gf.mem, gf.mem + 65536 - 64));
	objects_equal(g, ({
		CUgraph h = graph_make();

		memcpy_add(h, NULL, copy_of(gf.mem + 65536 - 64, gf.mem));
		memcpy_add(h, NULL, copy_of(gf.mem, gf.mem + 65536 - 64));
		h;
	}));
	graph_refused(graph_with_copy(p), "its source, 64 bytes at");
	p = copy_of(gf.mem, gf.mem + 1024);
	p.Height = 16;
	p.dstPitch = 4300;
	graph_refused(graph_with_copy(p), "its destination, 64564 bytes at");
}
END_TEST

/* --- refusals: memsets --- */

static CUDA_MEMSET_NODE_PARAMS lie_set;
static CUresult lying_set(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *ret)
{
	(void)node;
	*ret = lie_set;
	return CUDA_SUCCESS;
}

static CUgraph graph_with_set(CUDA_MEMSET_NODE_PARAMS p)
{
	CUgraph g = graph_make();

	memset_add(g, NULL, (CUDA_MEMSET_NODE_PARAMS){ gf.mem, 0, 0, 1, 1, 1 });
	lie_set = p;
	gf.drv.cuGraphMemsetNodeGetParams = lying_set;
	return g;
}

START_TEST(memset_is_canonical)
{
	CUgraph g = graph_make();

	memset_add(g, NULL, (CUDA_MEMSET_NODE_PARAMS){ gf.mem, 0, 0x12, 1, 16, 1 });
	objects_equal(g, ({
		CUgraph h = graph_make();

		memset_add(h, NULL, (CUDA_MEMSET_NODE_PARAMS){ gf.mem, 999, 0x12, 1, 16, 1 });
		h;
	}));
	/* A driver may show a value as it spreads it. */
	g = graph_make();
	memset_add(g, NULL, (CUDA_MEMSET_NODE_PARAMS){ gf.mem, 0, 0x12, 1, 16, 1 });
	{
		struct fdry_buf a = graph_object(g), b;
		CUgraph h = graph_with_set(
			(CUDA_MEMSET_NODE_PARAMS){ gf.mem, 0, 0x12121212, 1, 16, 1 });

		b = graph_object(h);
		ck_assert_mem_eq(a.data, b.data, a.len);
		fdry_buf_release(&a);
		fdry_buf_release(&b);
		ok(gf.drv.cuGraphDestroy(g));
		ok(gf.drv.cuGraphDestroy(h));
	}
}
END_TEST

START_TEST(memset_refused)
{
	CUdeviceptr outside;

	ok(gf.drv.cuMemAlloc_v2(&outside, 4096));
	graph_refused(graph_with_set((CUDA_MEMSET_NODE_PARAMS){ outside, 0, 0, 1, 16, 1 }),
		      "node 0: memset: what it sets, 16 bytes at");
	graph_refused(graph_with_set((CUDA_MEMSET_NODE_PARAMS){ outside, 0, 0, 1, 16, 1 }),
		      "is device memory outside of the region");
	ok(gf.drv.cuMemFree_v2(outside));
	graph_refused(graph_with_set((CUDA_MEMSET_NODE_PARAMS){ 0x1234567, 0, 0, 1, 16, 1 }),
		      "is no memory that the driver knows");
	graph_refused(
		graph_with_set((CUDA_MEMSET_NODE_PARAMS){ gf.mem + 65536 - 16, 0, 0, 1, 17, 1 }),
		"what it sets, 17 bytes");
	graph_refused(graph_with_set((CUDA_MEMSET_NODE_PARAMS){ gf.mem, 0, 0, 3, 16, 1 }),
		      "elements of neither 1, 2 nor 4 bytes");
	graph_refused(graph_with_set((CUDA_MEMSET_NODE_PARAMS){ gf.mem, 0, 0, 1, 0, 1 }),
		      "a size of 0");
	graph_refused(graph_with_set((CUDA_MEMSET_NODE_PARAMS){ gf.mem, 15, 0, 1, 16, 2 }),
		      "a size that does not fit its pitch");
}
END_TEST

/* --- refusals: kernels and arguments --- */

START_TEST(code_never_seen)
{
	CUgraph g = graph_make();

	kernel_add(g, NULL, NOTHING, NULL);
	gf.func[NOTHING] = NULL;
	graph_refused(g, "node 0: kernel: its code was never seen");
}
END_TEST

/* "odd" with @word at byte @at of its packed arguments. */
static CUgraph odd_with(uint32_t at, uint64_t word)
{
	uint8_t packed[ODD_BYTES];

	memset(packed, 0, sizeof(packed));
	memcpy(packed + at, &word, sizeof(word));
	return odd_graph(packed, true);
}

/* An old pointer in a structure is a leftover of the stack; as a parameter of its own it is
 * intended. */
START_TEST(pointer_to_what_was_freed)
{
	const struct fdry_param *p = gf.kernels[ODD].params;
	struct fdry_buf b = { 0 };
	CUgraph g;

	gf.freed = 0x7e0000001000;
	ck_assert_uint_eq(p[4].size, 16);
	g = odd_with(p[4].offset, gf.freed);
	ok(graph_read(g, &b));
	fdry_buf_release(&b);
	ok(gf.drv.cuGraphDestroy(g));
	g = odd_with(p[4].offset + 8u, gf.freed);
	ok(graph_read(g, &b));
	fdry_buf_release(&b);
	ok(gf.drv.cuGraphDestroy(g));
	graph_refused(odd_with(p[6].offset, gf.freed),
		      "byte 0 of its parameter 6 is 0x7e0000001000, which points to memory that "
		      "was freed");
	graph_refused(odd_with(p[3].offset, gf.freed), "byte 0 of its parameter 3");
}
END_TEST

START_TEST(pointer_out_of_the_region)
{
	const struct fdry_param *p = gf.kernels[ODD].params;
	CUdeviceptr outside;
	void *host;
	char words[128];

	ok(gf.drv.cuMemAlloc_v2(&outside, 4096));
	ok(gf.drv.cuMemAllocHost_v2(&host, 4096));
	snprintf(words, sizeof(words),
		 "node 0: kernel: kernel odd: byte 0 of its parameter 6 is 0x%llx, which points to "
		 "device memory",
		 outside);
	graph_refused(odd_with(p[6].offset, outside), words);
	graph_refused(odd_with(p[6].offset, (uintptr_t)host),
		      "which points to host memory; pass memory of the region instead");
	graph_refused(odd_with(p[6].offset, outside + 4095),
		      "which points to device memory outside of the region");
	graph_refused(odd_with(p[4].offset, outside), "byte 0 of its parameter 4");
	graph_refused(odd_with(p[3].offset, outside), "byte 0 of its parameter 3");
	/* A multiple of 4 that is not one of 8: as in a packed struct. */
	ck_assert_uint_eq(p[3].offset % 8, 0);
	ck_assert_uint_eq(p[4].offset, p[3].offset + 8);
	graph_refused(odd_with(p[3].offset + 4u, outside), "byte 4 of its parameter 3");
	ok(gf.drv.cuMemFreeHost(host));
	ok(gf.drv.cuMemFree_v2(outside));
}
END_TEST

START_TEST(numbers_are_no_pointers)
{
	const struct fdry_param *p = gf.kernels[ODD].params;
	static const uint64_t plain[] = {
		0,	    1,		65535,	      0x3f8000003f800000,
		UINT64_MAX, 1ull << 57, 0x123456789a, TEST_BASE + REGION_SIZE / 2
	};
	size_t i;
	CUgraph g;
	struct fdry_buf o;

	for (i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		g = odd_with(p[6].offset, plain[i]);
		o = graph_object(g);
		fdry_buf_release(&o);
		ok(gf.drv.cuGraphDestroy(g));
	}
}
END_TEST

START_TEST(each_value_is_asked_for_once)
{
	CUgraph g = graph_make();
	struct fdry_buf o;
	int i;

	for (i = 0; i < 300; i++)
		step_node(g, NULL, i % 10, 0);
	o = graph_object(g);
	ck_assert_uint_ge(gf.asked, 10);
	ck_assert_uint_le(gf.asked, 20);
	fdry_buf_release(&o);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

START_TEST(failure_of_where_is_handed_up)
{
	CUgraph g = graph_make();
	struct fdry_buf b = { 0 };

	step_node(g, NULL, 7, 0);
	gf.fail_where = gf.mem + 56;
	fails(DRIVER, "node 0: kernel: kernel step: asked for the wrong address",
	      graph_read(g, &b));
	ok(gf.drv.cuGraphDestroy(g));
	g = graph_make();
	memset_add(g, NULL, (CUDA_MEMSET_NODE_PARAMS){ gf.mem + 56, 0, 0, 1, 1, 1 });
	fails(DRIVER, "node 0: memset: asked for the wrong address", graph_read(g, &b));
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* The parameters that the replaced GetParams returns for a kernel node. */
static CUresult (*real_params)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *);
static void **lie_extra;
static CUcontext lie_ctx;

static CUresult lying_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p)
{
	CUresult res = real_params(node, p);

	if (node != marked)
		return res;
	if (lie_ctx)
		p->ctx = lie_ctx;
	if (lie_extra) {
		p->kernelParams = NULL;
		p->extra = lie_extra;
	}
	return res;
}

static CUgraph graph_with_lying_params(void)
{
	CUgraph g = graph_make();
	CUgraphNode n = step_node(g, NULL, 0, 3);

	marked = step_node(g, &n, 0, 3);
	real_params = gf.drv.cuGraphKernelNodeGetParams_v2;
	gf.drv.cuGraphKernelNodeGetParams_v2 = lying_params;
	return g;
}

START_TEST(arguments_incomplete)
{
	uint8_t buffer[64] = { 0 };
	void *none[] = { CU_LAUNCH_PARAM_END };
	void *strange[] = { (void *)77, buffer, CU_LAUNCH_PARAM_END };

	lie_extra = none;
	graph_refused(graph_with_lying_params(),
		      "node 1: kernel: kernel step: the driver reports no arguments, and it has 3 "
		      "parameters");
	gf.drv.cuGraphKernelNodeGetParams_v2 = real_params;
	lie_extra = strange;
	graph_refused(graph_with_lying_params(),
		      "its arguments come in a form that this version does not know");
}
END_TEST

/* A buffer may be shorter than the parameters: no byte after its end is read, since no memory is
 * mapped there. */
START_TEST(arguments_end_at_a_page)
{
	uint8_t *page =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t size;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, NULL, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };
	struct fdry_buf o;
	CUgraph g;

	ck_assert(page != MAP_FAILED && !mprotect(page + 4096, 4096, PROT_NONE));
	memset(page, 1, 4096);
	lie_extra = extra;
	for (size = 0; size <= 20; size++) {
		extra[1] = page + 4096 - size;
		g = graph_with_lying_params();
		o = graph_object(g);
		ck_assert_uint_eq(fdry_get32(o.data + offsetof(struct fdry_graph_header, incompat)),
				  size < 20 ? FDRY_GRAPH_INCOMPAT_SHORT : 0);
		fdry_buf_release(&o);
		ok(gf.drv.cuGraphDestroy(g));
		gf.drv.cuGraphKernelNodeGetParams_v2 = real_params;
	}
	lie_extra = NULL;
	munmap(page, 8192);
}
END_TEST

START_TEST(two_contexts)
{
	lie_extra = NULL;
	lie_ctx = (CUcontext)(uintptr_t)0x1234;
	graph_refused(graph_with_lying_params(),
		      "node 1: kernel: it runs in another context than the nodes before it");
	lie_ctx = NULL;
}
END_TEST

/* --- refusals: edges --- */

static CUresult (*real_edges)(CUgraph, CUgraphNode *, CUgraphNode *, CUgraphEdgeData *, size_t *);
static CUgraphEdgeData lie_edge;
static CUgraphNode lie_end;

static CUresult lying_edges(CUgraph g, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
			    size_t *n)
{
	CUresult res = real_edges(g, from, to, data, n);

	if (from) {
		data[0] = lie_edge;
		to[0] = lie_end ? lie_end : to[0];
	}
	return res;
}

START_TEST(edge_data_unknown)
{
	static const CUgraphEdgeData data[] = {
		{ .type = 2 }, { .from_port = 3 }, { .to_port = 1 }, { .reserved = { 0, 0, 1 } },
		{ 0 },
	};
	static const char *const says[] = {
		"it has a type that this version does not know (from_port 0, to_port 0, type 2)",
		"it has an outgoing port",
		"it has an incoming port",
		"it has reserved bytes",
		"edge 0 of the graph ends at a node that is not in it",
	};
	CUgraph g = graph_make();
	CUgraphNode n = empty_add(g, NULL);

	empty_add(g, &n);
	lie_edge = data[_i];
	lie_end = _i == 4 ? (CUgraphNode)(uintptr_t)0x1234 : NULL;
	real_edges = gf.drv.cuGraphGetEdges_v2;
	gf.drv.cuGraphGetEdges_v2 = lying_edges;
	graph_refused(g, says[_i]);
}
END_TEST

/* --- limits --- */

static size_t lie_count;
static CUresult many_nodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
	(void)g;
	(void)nodes;
	*n = lie_count;
	return CUDA_SUCCESS;
}

static CUresult many_edges(CUgraph g, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
			   size_t *n)
{
	(void)g;
	(void)from;
	(void)to;
	(void)data;
	*n = lie_count;
	return CUDA_SUCCESS;
}

START_TEST(too_many)
{
	CUgraph g = graph_make();
	struct fdry_buf b = { 0 };

	gf.drv.cuGraphGetEdges_v2 = many_edges;
	lie_count = FDRY_GRAPH_EDGES_MAX + 1;
	fails(LIMIT, "the graph has 16777217 edges, more than the limit of 16777216",
	      graph_read(g, &b));
	gf.drv.cuGraphGetNodes = many_nodes;
	lie_count = FDRY_GRAPH_NODES_MAX + 1;
	fails(LIMIT, "the graph has 4194305 nodes, more than the limit of 4194304",
	      graph_read(g, &b));
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_refuse");
	TCase *tc = tcase_create("refuse");

	tcase_add_checked_fixture(tc, graph_fixture_open, graph_fixture_close);
	tcase_add_loop_test(tc, attributes_that_cannot_be_restored, 0,
			    sizeof(lies) / sizeof(lies[0]));
	tcase_add_test(tc, attribute_failures_are_not_answers);
	tcase_add_test(tc, attribute_that_does_not_stay);
	tcase_add_test(tc, event_recorded_only);
	tcase_add_test(tc, event_awaited_only);
	tcase_add_test(tc, copy_from_host);
	tcase_add_test(tc, copy_to_host);
	tcase_add_test(tc, copy_under_unified_addressing);
	tcase_add_test(tc, copy_of_an_address_beyond);
	tcase_add_test(tc, copy_of_arrays_and_strange_memory);
	tcase_add_test(tc, copy_is_canonical);
	tcase_add_test(tc, copy_beyond_the_allocation);
	tcase_add_test(tc, memset_is_canonical);
	tcase_add_test(tc, memset_refused);
	tcase_add_test(tc, code_never_seen);
	tcase_add_test(tc, pointer_to_what_was_freed);
	tcase_add_test(tc, pointer_out_of_the_region);
	tcase_add_test(tc, numbers_are_no_pointers);
	tcase_add_test(tc, each_value_is_asked_for_once);
	tcase_add_test(tc, failure_of_where_is_handed_up);
	tcase_add_test(tc, arguments_incomplete);
	tcase_add_test(tc, arguments_end_at_a_page);
	tcase_add_test(tc, two_contexts);
	tcase_add_loop_test(tc, edge_data_unknown, 0, 5);
	tcase_add_test(tc, too_many);
	suite_add_tcase(s, tc);
	return test_main(s);
}
