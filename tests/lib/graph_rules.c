// SPDX-License-Identifier: Apache-2.0
/*
 * graph_rules.c - see graph_rules.h. The texts below must be equal on every driver.
 */
#include "tests/lib/graph_rules.h"

#include <dlfcn.h>

#include "tests/replace/graph_fixture.h"

/* --- reading --- */

START_TEST(no_nodes)
{
	reads_as(graph_make(), "");
}
END_TEST

START_TEST(kinds)
{
	ck_assert_uint_eq(gf.mem, gf.backend->base);
	reads_as(graph_of_all(), "node 0 kernel 0 grid 1 1 1 block 1 1 1 shared 0 args "
				 "0000500000000000 0000000000000003 00000000\n"
				 "node 1 kernel 0 grid 1 1 1 block 1 1 1 shared 0 args "
				 "0000500000000008 0000000000000005 00000000\n"
				 "node 2 kernel 0 grid 1 1 1 block 1 1 1 shared 0 attr priority -5 "
				 "args 0000500000000010 0000000000000007 00000000\n"
				 "node 3 memset dst 0x500000000200 pitch 64 value 0x1234 element 2 "
				 "width 16 height 4\n"
				 "node 4 memcpy src 0x500000000000 src_pitch 64 src_height 1 dst "
				 "0x500000000400 dst_pitch 64 dst_height 1 "
				 "width 64 height 1 depth 1\n"
				 "node 5 empty\n"
				 "node 6 record 0\n"
				 "node 7 wait 0\n"
				 "node 8 kernel 0 grid 1 1 1 block 1 1 1 shared 0 args "
				 "0000500000000000 000000000000000b 00000000\n"
				 "node 9 kernel 0 grid 1 1 1 block 1 1 1 shared 0 args "
				 "0000500000000028 000000000000000d 00000000\n"
				 "edge 0 1\nedge 0 2\nedge 1 3\nedge 2 4\nedge 3 5\nedge 4 5\nedge "
				 "5 6\nedge 6 7\nedge 7 8\n"
				 "edge 8 9 from_port 1 to_port 0 type 1\n");
}
END_TEST

START_TEST(launch_configuration)
{
	CUdeviceptr src = gf.mem, dst = gf.mem + 64;
	int n = 4;
	void *args[] = { &src, &dst, &n };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(REVERSE, args);
	CUgraph g = graph_make();
	struct fdry_buf o;
	struct fdry_graph_view v;
	struct fdry_graph_cursor c;
	struct fdry_node node;
	CUgraphNode h;

	p.gridDimX = 7, p.gridDimY = 6, p.gridDimZ = 5;
	p.blockDimX = 32, p.blockDimY = 3, p.blockDimZ = 2;
	p.sharedMemBytes = 4096;
	ok(gf.drv.cuGraphAddKernelNode_v2(&h, g, NULL, 0, &p));
	o = graph_object(g);
	ok(fdry_graph_view_init(span_of(&o), &v));
	ok(fdry_graph_cursor_init(&v, &c));
	ck_assert(fdry_graph_next(&c, &node));
	ck_assert_mem_eq(&node.kernel.launch,
			 (&(struct fdry_graph_launch){ { 7, 6, 5 }, { 32, 3, 2 }, 4096 }),
			 sizeof(node.kernel.launch));
	fdry_graph_cursor_release(&c);
	fdry_buf_release(&o);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* The driver compares the limit of shared memory when it adds a node, not afterwards: cuDNN lowers
 * the limit between two launches of a kernel. Such a graph can be read, and needs the higher limit
 * to be built. */
START_TEST(shared_memory_above_the_limit)
{
	enum { SHARED = 80000 };
	const CUfunction_attribute limit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
	CUdeviceptr src = gf.mem, dst = gf.mem + 64;
	int n = 4, before;
	void *args[] = { &src, &dst, &n };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(REVERSE, args);
	CUgraph g = graph_make();
	struct fdry_graph_built b;
	struct fdry_buf o, again;
	CUgraphNode h;

	p.sharedMemBytes = SHARED;
	ok(gf.drv.cuFuncGetAttribute(&before, limit, p.func));
	ok(gf.drv.cuFuncSetAttribute(p.func, limit, SHARED));
	ok(gf.drv.cuGraphAddKernelNode_v2(&h, g, NULL, 0, &p));
	ok(gf.drv.cuFuncSetAttribute(p.func, limit, before));
	ck_assert_int_eq(gf.drv.cuGraphAddKernelNode_v2(&h, g, NULL, 0, &p),
			 CUDA_ERROR_INVALID_VALUE);
	o = graph_object(g);
	ok(gf.drv.cuFuncSetAttribute(p.func, limit, SHARED));
	built_of(&o, &b);
	ok(gf.drv.cuFuncSetAttribute(p.func, limit, before));
	again = graph_object(b.graph);
	same_bytes(&o, &again);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&o);
	fdry_buf_release(&again);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* The driver records how clusters are scheduled for a captured launch, and not for a node that was
 * added. */
static CUgraphNode as_captured(CUgraphNode n)
{
	CUlaunchAttributeValue v = { .clusterSchedulingPolicyPreference =
					     CU_CLUSTER_SCHEDULING_POLICY_SPREAD };

	ok(gf.drv.cuGraphKernelNodeSetAttribute(
		n, CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, &v));
	return n;
}

/* A captured graph and the same graph made node by node are equal. */
START_TEST(captured)
{
	CUdeviceptr x = gf.mem;
	uint64_t salt = 3;
	uint32_t spins = 0;
	void *args[] = { &x, &salt, &spins };
	CUgraph g = graph_make(), c;
	CUgraphNode n;

	ok(gf.drv.cuStreamBeginCapture_v2(gf.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(gf.drv.cuLaunchKernel(gf.func[STEP], 1, 1, 1, 1, 1, 1, 0, gf.stream, args, NULL));
	ok(gf.drv.cuMemsetD8Async(gf.mem + 512, 0xab, 100, gf.stream));
	ok(gf.drv.cuMemcpyDtoDAsync_v2(gf.mem + 1024, gf.mem, 256, gf.stream));
	ok(gf.drv.cuLaunchKernel(gf.func[STEP], 1, 1, 1, 1, 1, 1, 0, gf.stream, args, NULL));
	ok(gf.drv.cuStreamEndCapture(gf.stream, &c));
	n = as_captured(step_node(g, NULL, 0, 3));
	n = memset_add(g, &n, (CUDA_MEMSET_NODE_PARAMS){ gf.mem + 512, 0, 0xab, 1, 100, 1 });
	n = memcpy_add(g, &n,
		       (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
					.srcDevice = gf.mem,
					.dstMemoryType = CU_MEMORYTYPE_DEVICE,
					.dstDevice = gf.mem + 1024,
					.srcPitch = 256,
					.dstPitch = 256,
					.WidthInBytes = 256,
					.Height = 1,
					.Depth = 1 });
	as_captured(step_node(g, &n, 0, 3));
	objects_equal(g, c);
}
END_TEST

START_TEST(packed_or_not_is_the_same)
{
	uint8_t clean[ODD_BYTES], junk[ODD_BYTES];

	odd_pack(clean, 0);
	odd_pack(junk, 0xee);
	ck_assert_mem_ne(clean, junk, gf.kernels[ODD].param_bytes);
	objects_equal(odd_graph(clean, false), odd_graph(junk, true));
	objects_equal(odd_graph(junk, false), odd_graph(clean, true));
}
END_TEST

START_TEST(kernel_without_parameters)
{
	CUgraph g = graph_make();

	kernel_add(g, NULL, NOTHING, NULL);
	reads_as(g, "node 0 kernel 2 grid 1 1 1 block 1 1 1 shared 0 args\n");
}
END_TEST

START_TEST(order_is_canonical)
{
	CUgraph g = graph_make(), h = graph_make();
	CUgraphNode a, b, c;

	/* Created 5, 3, 7 and linked 3 -> 5 -> 7. */
	b = step_node(g, NULL, 0, 5);
	a = step_node(g, NULL, 0, 3);
	c = step_node(g, NULL, 0, 7);
	edge_add(g, b, c, (CUgraphEdgeData){ 0 });
	edge_add(g, a, b, (CUgraphEdgeData){ 0 });
	a = step_node(h, NULL, 0, 3);
	b = step_node(h, &a, 0, 5);
	step_node(h, &b, 0, 7);
	objects_equal(g, h);
}
END_TEST

START_TEST(reading_changes_nothing)
{
	CUgraph g = graph_of_all();
	struct fdry_buf first = graph_object(g), second = graph_object(g);

	ck_assert_mem_eq(first.data, second.data, first.len);
		fdry_buf_release(&first);
	fdry_buf_release(&second);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* --- building --- */

START_TEST(empty)
{
	round_trip(graph_make());
}
END_TEST

START_TEST(every_kind)
{
	CUgraph g = graph_of_all();
	static uint8_t mem[65536];

	/* The graph's result depends on the order of its nodes. */
	run_on_seed(g, mem);
	ck_assert_uint_eq(fdry_get16(mem + 512), 0x1234);
	ck_assert_mem_eq(mem + 1024 + 16, mem + 16, 8);
	round_trip(g);
}
END_TEST

/* A diamond of chains; the values depend on each edge. */
START_TEST(fork_and_join)
{
	CUgraph g = graph_make();
	CUgraphNode a = step_node(g, NULL, 0, 1), b, c, d;
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = gf.mem,
			       .srcPitch = 8,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = gf.mem + 8,
			       .dstPitch = 8,
			       .WidthInBytes = 8,
			       .Height = 1,
			       .Depth = 1 };

	b = memcpy_add(g, &a, copy);
	copy.dstDevice = gf.mem + 16;
	c = memcpy_add(g, &a, copy);
	b = step_node(g, &b, 1, 2);
	c = step_node(g, &c, 2, 3);
	copy.srcDevice = gf.mem + 8, copy.dstDevice = gf.mem + 24;
	d = memcpy_add(g, &b, copy);
	edge_add(g, c, d, (CUgraphEdgeData){ 0 });
	step_node(g, &d, 3, 4);
	round_trip(g);
}
END_TEST

START_TEST(edges_with_data)
{
	CUgraph g = graph_make();
	CUgraphNode n[6];
	int i;

	/* Each node has a number of its own, because kernels may overlap along such edges. */
	for (i = 0; i < 6; i++)
		n[i] = step_node(g, NULL, i, (uint64_t)i);
	edge_add(g, n[0], n[1], (CUgraphEdgeData){ .from_port = 1, .type = 1 });
	edge_add(g, n[1], n[2], (CUgraphEdgeData){ .from_port = 2, .type = 1 });
	edge_add(g, n[2], n[3], (CUgraphEdgeData){ 0 });
	edge_add(g, n[3], n[4], (CUgraphEdgeData){ .from_port = 2, .type = 1 });
	edge_add(g, n[4], n[5], (CUgraphEdgeData){ .from_port = 1, .type = 1 });
	edge_add(g, n[0], n[2], (CUgraphEdgeData){ 0 });
	round_trip(g);
}
END_TEST

START_TEST(pitched_copies_and_sets)
{
	CUgraph g = graph_make();
	CUgraphNode n;
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = gf.mem,
			       .srcPitch = 100,
			       .srcHeight = 7,
			       .srcXInBytes = 3,
			       .srcY = 2,
			       .srcZ = 1,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = gf.mem + 20000,
			       .dstPitch = 64,
			       .dstHeight = 5,
			       .dstXInBytes = 1,
			       .dstY = 1,
			       .dstZ = 2,
			       .WidthInBytes = 50,
			       .Height = 3,
			       .Depth = 4 };

	n = memcpy_add(g, NULL, copy);
	n = memset_add(g, &n, (CUDA_MEMSET_NODE_PARAMS){ gf.mem + 40000, 100, 0xbeef, 2, 33, 5 });
	n = memset_add(g, &n, (CUDA_MEMSET_NODE_PARAMS){ gf.mem + 50000, 0, 0xdeadbeef, 4, 33, 1 });
	memset_add(g, &n, (CUDA_MEMSET_NODE_PARAMS){ gf.mem + 60000, 7, 0xfe, 1, 7, 3 });
	round_trip(g);
}
END_TEST

/* --- host memory in copies --- */

static CUDA_MEMCPY3D copy_row(CUdeviceptr src, CUdeviceptr dst, size_t bytes)
{
	return (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				.srcDevice = src,
				.srcPitch = bytes,
				.dstMemoryType = CU_MEMORYTYPE_DEVICE,
				.dstDevice = dst,
				.dstPitch = bytes,
				.WidthInBytes = bytes,
				.Height = 1,
				.Depth = 1 };
}

static uint8_t *host_at(const struct fdry_host_segment *s, uint64_t offset)
{
	return (uint8_t *)(uintptr_t)(s->addr + offset);
}

static CUresult code_memcpy_async(CUdeviceptr dst, CUdeviceptr src, size_t len,
					 CUstream stream)
{
	CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t, CUstream);

	*(void **)&copy = dlsym(gf.drv.handle, "cuMemcpyAsync");
	ck_assert_ptr_nonnull(*(void **)&copy);
	return copy(dst, src, len, stream);
}

/* Capture a copy of 16 bytes in, a step, and a copy of 8 bytes out, by every kind of call. */
static CUgraph graph_with_host(int way)
{
	CUdeviceptr in = (uintptr_t)host_at(&gf.hosts[0], 64),
		    out = (uintptr_t)host_at(&gf.hosts[1], 92), x = gf.mem;
	uint64_t salt = 3;
	uint32_t spins = 0;
	void *args[] = { &x, &salt, &spins };
	CUgraph g;

	ok(gf.drv.cuStreamBeginCapture_v2(gf.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	if (way)
		ok(code_memcpy_async(gf.mem, in, 16, gf.stream));
	else
		ok(gf.drv.cuMemcpyHtoDAsync_v2(gf.mem, (void *)(uintptr_t)in, 16, gf.stream));
	ok(gf.drv.cuLaunchKernel(gf.func[STEP], 1, 1, 1, 1, 1, 1, 0, gf.stream, args, NULL));
	if (way)
		ok(code_memcpy_async(out, gf.mem, 8, gf.stream));
	else
		ok(gf.drv.cuMemcpyDtoHAsync_v2((void *)(uintptr_t)out, gf.mem, 8, gf.stream));
	ok(gf.drv.cuStreamEndCapture(gf.stream, &g));
	return g;
}

START_TEST(host_memory_by_place)
{
	struct fdry_buf o, text;
	CUgraph g = graph_with_host(_i);

	o = graph_object(g);
	text = text_of(&o);
	ck_assert_ptr_nonnull(strstr((char *)text.data,
				     " memcpy src host 0 0x40 src_pitch 16 src_height 1 dst 0x"));
	ck_assert_ptr_nonnull(
		strstr((char *)text.data,
		       " dst host 1 0x5c dst_pitch 8 dst_height 1 width 8 height 1 depth 1\n"));
	fdry_buf_release(&text);
	fdry_buf_release(&o);
	objects_equal(g, graph_with_host(!_i));
}
END_TEST

static uint64_t host_step(uint64_t x)
{
	return x * 6364136223846793005u + 3;
}

/* The driver records the memory of captured copies as in the call, with pitches of 0. */
START_TEST(host_memory_as_captured)
{
	static const CUmemorytype host[] = { CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED };
	static const CUmemorytype device[] = { CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED };
	uintptr_t in = (uintptr_t)host_at(&gf.hosts[0], 64);
	CUgraph g = graph_with_host(_i);
	CUgraphNode n[3];
	size_t count = 3;
	CUDA_MEMCPY3D p;

	ok(gf.drv.cuGraphGetNodes(g, n, &count));
	ck_assert_uint_eq(count, 3);
	ok(gf.drv.cuGraphMemcpyNodeGetParams(n[0], &p));
	ck_assert_int_eq(p.srcMemoryType, host[_i]);
	ck_assert_int_eq(p.dstMemoryType, device[_i]);
	ck_assert_uint_eq(_i ? (uintptr_t)p.srcDevice : (uintptr_t)p.srcHost, in);
	ck_assert_uint_eq(_i ? (uintptr_t)p.srcHost : (uintptr_t)p.srcDevice, 0);
	ck_assert_uint_eq(p.srcPitch + p.srcHeight + p.dstPitch + p.dstHeight, 0);
	ok(gf.drv.cuGraphMemcpyNodeGetParams(n[2], &p));
	ck_assert_int_eq(p.srcMemoryType, device[_i]);
	ck_assert_int_eq(p.dstMemoryType, host[_i]);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

static unsigned long long buffer_id(void *p)
{
	unsigned long long id = 0;

	ok(gf.drv.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (uintptr_t)p));
	return id;
}

/* An allocation has a number that no later one gets, and a range of the requested length.
 */
START_TEST(pinned_memory_has_a_number)
{
	unsigned long long id;
	size_t size = 0;
	void *p, *q;

	ok(gf.drv.cuMemAllocHost_v2(&p, 5000));
	ok(gf.drv.cuMemAllocHost_v2(&q, 5000));
	id = buffer_id(p);
	ck_assert_uint_ne(id, 0);
	ck_assert_uint_ne(id, buffer_id(q));
	ck_assert_uint_eq(id, buffer_id((char *)p + 4999));
	ok(gf.drv.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
					(uintptr_t)p + 100));
	ck_assert_uint_eq(size, 5000);
	ok(gf.drv.cuMemFreeHost(p));
	ck_assert_int_eq(
		gf.drv.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, (uintptr_t)p),
		CUDA_ERROR_INVALID_VALUE);
	ok(gf.drv.cuMemAllocHost_v2(&p, 5000));
	ck_assert_uint_ne(id, buffer_id(p));
	ok(gf.drv.cuMemFreeHost(p));
	ok(gf.drv.cuMemFreeHost(q));
}
END_TEST

/* The built graph uses host memory at other addresses, and reads it at each launch. */
START_TEST(host_memory_elsewhere)
{
	CUgraph g = graph_with_host(_i);
	struct fdry_buf object = graph_object(g), again;
	struct fdry_graph_built b;
	uint64_t x, got, untouched = 0;
	int i;

	built_of(&object, &b);
	again = graph_object(b.graph);
	same_bytes(&object, &again);
	for (i = 0; i < 3; i++) {
		x = 1000u + (unsigned int)i;
		memcpy(host_at(&gf.moved[0], 64), &x, 8);
		graph_run(b.graph);
		memcpy(&got, host_at(&gf.moved[1], 92), 8);
		ck_assert_uint_eq(got, host_step(x));
	}
	ck_assert_mem_eq(host_at(&gf.hosts[1], 92), &untouched, 8);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	fdry_buf_release(&again);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* A load with less host memory than the graph needs is refused. */
START_TEST(host_memory_that_is_not_there)
{
	CUgraph g = graph_with_host(0);
	struct fdry_buf object = graph_object(g);
	struct fdry_graph_built b = { 0 };
	struct fdry_graph_view v;

	ok(fdry_graph_view_init(span_of(&object), &v));
	gf.builder.nhosts = 1;
	fails(BADIMAGE, "memcpy node 1 copies beyond the image's 1 host segments",
	      fdry_graph_build(&gf.builder, &v, &b));
	ck_assert_ptr_null(b.graph);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* Rows and slices, offsets, and from host memory to host memory. */
START_TEST(host_memory_pitched)
{
	CUDA_MEMCPY3D in = copy_row(0, gf.mem, 10), out = copy_row(gf.mem, 0, 10);
	struct fdry_graph_built b;
	struct fdry_buf object;
	CUgraph g = graph_make();
	CUgraphNode n;
	int i;

	in.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_HOST;
	in.srcHost = host_at(&gf.hosts[0], 0);
	in.srcPitch = 100, in.srcHeight = 4, in.srcXInBytes = 3, in.srcY = 1, in.srcZ = 1;
	in.dstPitch = 16, in.dstHeight = 2, in.Height = 2, in.Depth = 3;
	n = memcpy_add(g, NULL, in);
	out.dstHost = host_at(&gf.hosts[1], 0);
	out.srcPitch = 16, out.dstPitch = 20, out.Height = 5, out.dstXInBytes = 1;
	n = memcpy_add(g, &n, out);
	out.srcMemoryType = CU_MEMORYTYPE_HOST, out.srcDevice = 0;
	out.srcHost = host_at(&gf.hosts[1], 1), out.dstHost = host_at(&gf.hosts[0], 3000);
	out.Height = 1, out.dstXInBytes = 0;
	memcpy_add(g, &n, out);
	object = graph_object(g);
	built_of(&object, &b);
	for (i = 0; i < 2000; i++)
		*host_at(&gf.moved[0], (uint64_t)i) = (uint8_t)(i * 7);
	graph_run(b.graph);
	for (i = 0; i < 10; i++) {
		ck_assert_uint_eq(*host_at(&gf.moved[1], (uint64_t)(1 + i)),
				  (uint8_t)((100 * 5 + 3 + i) * 7));
		ck_assert_uint_eq(*host_at(&gf.moved[1], (uint64_t)(81 + i)),
				  (uint8_t)((100 * 13 + 3 + i) * 7));
		ck_assert_uint_eq(*host_at(&gf.moved[0], (uint64_t)(3000 + i)),
				  (uint8_t)((100 * 5 + 3 + i) * 7));
	}
	ck_assert_uint_eq(*host_at(&gf.moved[1], 11), 0);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* All sizes and alignments of parameters, given as a packed buffer. */
START_TEST(packed_arguments)
{
	const struct fdry_kernel *k = &gf.kernels[ODD];
	uint8_t packed[128];
	size_t size = k->param_bytes;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &size, CU_LAUNCH_PARAM_END };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(ODD, NULL);
	CUgraph g = graph_make();
	CUgraphNode n;
	uint32_t i;

	memset(packed, 0xee, sizeof(packed));
	for (i = 0; i < k->nparams; i++)
		memset(packed + k->params[i].offset, (int)i + 1, k->params[i].size);
	memcpy(packed + k->params[6].offset, &gf.mem, 8);
	p.extra = extra;
	ok(gf.drv.cuGraphAddKernelNode_v2(&n, g, NULL, 0, &p));
	round_trip(g);
}
END_TEST

/* A packed buffer that is shorter than the parameters, like NCCL's, is passed with the same
 * length. */
START_TEST(short_arguments)
{
	static const size_t words[] = { 0, 1, 46, 510 };
	struct words_args *args = words_args(words[_i]);

	round_trip(words_graph(args, 16 + 8 * words[_i]));
}
END_TEST

/* The end of the buffer lies inside a parameter, and inside a word of it. */
START_TEST(short_arguments_read)
{
	CUgraph g = words_graph(words_args(4), 16 + 13);

	reads_as(g, "node 0 kernel 4 grid 1 1 1 block 1 1 1 shared 0 short args "
		    "0000500000000000 0000000000000004 0101010101010101 0202020202\n");
	reads_as(words_graph(words_args(1), 8),
		 "node 0 kernel 4 grid 1 1 1 block 1 1 1 shared 0 short args 0000500000000000\n");
}
END_TEST

START_TEST(short_arguments_captured)
{
	struct words_args *args = words_args(46);
	size_t bytes = 16 + 46 * 8;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, args, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	CUgraph c, g = words_graph(args, bytes);
	CUgraphNode n;
	size_t one = 1;

	ok(gf.drv.cuGraphGetNodes(g, &n, &one));
	as_captured(n);
	ok(gf.drv.cuStreamBeginCapture_v2(gf.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(gf.drv.cuLaunchKernel(gf.func[WORDS], 1, 1, 1, 1, 1, 1, 0, gf.stream, NULL, extra));
	ok(gf.drv.cuStreamEndCapture(gf.stream, &c));
	objects_equal(g, c);
}
END_TEST

/* A driver refuses a packed buffer that is empty, or longer than the parameters. */
START_TEST(buffers_of_a_wrong_size)
{
	static const size_t sizes[] = { 0, sizeof(struct words_args) + 8 };
	static uint64_t args[sizeof(struct words_args) / 8 + 1];
	size_t size = sizes[_i];
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, args, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(WORDS, NULL);
	CUgraph g = graph_make();
	CUgraphNode n;

	p.extra = extra;
	ck_assert_int_eq(gf.drv.cuGraphAddKernelNode_v2(&n, g, NULL, 0, &p),
			 CUDA_ERROR_INVALID_VALUE);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* A kernel in a graph reads zeros for parameters that were not passed. */
START_TEST(short_arguments_end_in_zeros)
{
	struct words_args *args = words_args(100);
	CUgraph g = words_graph(args, 16 + 40 * 8);
	uint64_t got[100], zero[60] = { 0 };

	graph_run(g);
	ok(gf.drv.cuMemcpyDtoH_v2(got, gf.mem, sizeof(got)));
	ck_assert_mem_eq(got, args->w, 40 * 8);
	ck_assert_mem_eq(got + 40, zero, sizeof(zero));
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* Parameters beyond 4,096 bytes, given either way. */
START_TEST(large_arguments)
{
	struct words_args *args = words_args(4093);
	void *params[] = { &args->dst, &args->n, args->w };
	CUgraph g = graph_make();

	ck_assert_uint_eq(gf.kernels[WORDS].param_bytes, sizeof(*args));
	kernel_add(g, NULL, WORDS, params);
	objects_equal(g, words_graph(args, sizeof(*args)));
	round_trip(words_graph(args, sizeof(*args)));
	round_trip(words_graph(args, sizeof(*args) - 8));
}
END_TEST

START_TEST(events_are_private)
{
	CUgraph g = graph_make();
	CUevent mine[2] = { event_make(), event_make() };
	CUgraphNode n;
	struct fdry_buf object;
	struct fdry_graph_built a, b;

	ok(gf.drv.cuGraphAddEventRecordNode(&n, g, NULL, 0, mine[0]));
	ok(gf.drv.cuGraphAddEventRecordNode(&n, g, &n, 1, mine[1]));
	ok(gf.drv.cuGraphAddEventWaitNode(&n, g, &n, 1, mine[0]));
	ok(gf.drv.cuGraphAddEventWaitNode(&n, g, &n, 1, mine[1]));
	object = graph_object(g);
	built_of(&object, &a);
	built_of(&object, &b);
	ck_assert_uint_eq(a.nevents, 2);
	ck_assert_ptr_ne(a.events[0], a.events[1]);
	ck_assert_ptr_ne(a.events[0], b.events[0]);
	ck_assert_ptr_ne(a.events[0], mine[0]);
	graph_run(a.graph);
	fdry_graph_built_release(&gf.drv, &a);
	graph_run(b.graph);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	round_trip(g);
}
END_TEST

/* Wait for the event, @spins steps, record the event: as NCCL's graphs. */
static CUgraph waiting_graph(CUevent event, uint64_t salt, uint32_t spins)
{
	CUdeviceptr x = gf.mem;
	void *args[] = { &x, &salt, &spins };
	CUgraph g = graph_make();
	CUgraphNode n;

	ok(gf.drv.cuGraphAddEventWaitNode(&n, g, NULL, 0, event));
	n = kernel_add(g, &n, STEP, args);
	ok(gf.drv.cuGraphAddEventRecordNode(&n, g, &n, 1, event));
	return g;
}

/* Graphs that are built with one event run one after the other, on any streams. */
START_TEST(events_are_shared)
{
	CUevent event = event_make();
	const CUevent shared[] = { event };
	struct fdry_graph_built b[2];
	struct fdry_graph_view v;
	struct fdry_buf object;
	CUgraphExec x[2];
	CUstream stream;
	CUgraph g;
	uint64_t got, want = 7;
	uint32_t i;

	ok(gf.drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(gf.drv.cuMemcpyHtoD_v2(gf.mem, &want, sizeof(want)));
	ok(gf.drv.cuCtxSynchronize());
	gf.builder.events = shared;
	for (i = 0; i < 2; i++) {
		g = waiting_graph(event, 3 + i, i ? 0 : gf.backend->spins);
		object = graph_object(g);
		ok(fdry_graph_view_init(span_of(&object), &v));
		ok(fdry_graph_build(&gf.builder, &v, &b[i]));
		ck_assert_ptr_eq(b[i].events[0], event);
		ok(gf.drv.cuGraphInstantiateWithFlags(&x[i], b[i].graph, 0));
		fdry_buf_release(&object);
		ok(gf.drv.cuGraphDestroy(g));
	}
	for (i = 0; i < 2; i++) {
		ok(gf.drv.cuGraphUpload(x[i], gf.stream));
		ok(gf.drv.cuStreamSynchronize(gf.stream));
	}
	ok(gf.drv.cuGraphLaunch(x[0], gf.stream));
	ok(gf.drv.cuGraphLaunch(x[1], stream));
	ok(gf.drv.cuStreamSynchronize(stream));
	ok(gf.drv.cuMemcpyDtoH_v2(&got, gf.mem, sizeof(got)));
	for (i = 0; i <= gf.backend->spins; i++)
		want = want * 6364136223846793005u + 3;
	ck_assert_uint_eq(got, want * 6364136223846793005u + 4);
	for (i = 0; i < 2; i++) {
		ok(gf.drv.cuGraphExecDestroy(x[i]));
		fdry_graph_built_release(&gf.drv, &b[i]);
	}
	ok(gf.drv.cuStreamDestroy_v2(stream));
}
END_TEST

START_TEST(thousands_of_nodes)
{
	CUgraph g = graph_make();
	CUgraphNode n = step_node(g, NULL, 0, 1);
	int i;

	for (i = 0; i < 1750; i++)
		n = i % 50 ? step_node(g, &n, i % 1000, (uint64_t)i)
			   : memset_add(g, &n,
					(CUDA_MEMSET_NODE_PARAMS){ gf.mem + 8u * (unsigned int)i, 0,
								   7, 4, 2, 1 });
	round_trip(g);
}
END_TEST

void graph_rules_add(TCase *tc)
{
	tcase_add_test(tc, no_nodes);
	tcase_add_test(tc, kinds);
	tcase_add_test(tc, launch_configuration);
	tcase_add_test(tc, shared_memory_above_the_limit);
	tcase_add_test(tc, captured);
	tcase_add_test(tc, packed_or_not_is_the_same);
	tcase_add_test(tc, kernel_without_parameters);
	tcase_add_test(tc, order_is_canonical);
	tcase_add_test(tc, reading_changes_nothing);
	tcase_add_test(tc, empty);
	tcase_add_test(tc, every_kind);
	tcase_add_test(tc, fork_and_join);
	tcase_add_test(tc, edges_with_data);
	tcase_add_test(tc, pitched_copies_and_sets);
	tcase_add_loop_test(tc, host_memory_as_captured, 0, 2);
	tcase_add_test(tc, pinned_memory_has_a_number);
	tcase_add_loop_test(tc, host_memory_by_place, 0, 2);
	tcase_add_loop_test(tc, host_memory_elsewhere, 0, 2);
	tcase_add_test(tc, host_memory_that_is_not_there);
	tcase_add_test(tc, host_memory_pitched);
	tcase_add_test(tc, packed_arguments);
	tcase_add_loop_test(tc, short_arguments, 0, 4);
	tcase_add_test(tc, short_arguments_read);
	tcase_add_test(tc, short_arguments_captured);
	tcase_add_test(tc, large_arguments);
	tcase_add_loop_test(tc, buffers_of_a_wrong_size, 0, 2);
	tcase_add_test(tc, short_arguments_end_in_zeros);
	tcase_add_test(tc, events_are_private);
	tcase_add_test(tc, events_are_shared);
	tcase_add_test(tc, thousands_of_nodes);
}
