// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of images whose graphs have nodes of all kinds: a process seals a graph, this one
 * loads and launches it.
 */
#include "image/image.h"
#include "tests/lib/image.h"

#define GRAPH 1u

struct nodes {
	struct work w;
	CUfunction step;
	struct fdry_tensor x; /* 64 numbers of 8 bytes */
};

static void nodes_begin(struct nodes *n)
{
	work_make(&n->w);
	n->x = (struct fdry_tensor){ .name = "x", .dtype = FDRY_U64, .use = FDRY_USE_STATE };
	cuda_ok(cuMemAlloc_v2, &n->x.addr, 512);
	cuda_ok(cuMemsetD8_v2, n->x.addr, 0, 512);
	cuda_ok(cuModuleGetFunction, &n->step, n->w.module, "step");
	n->x.rank = 1;
	n->x.shape[0] = 64;
	n->x.stride[0] = 1;
	ok(fdry_capture_tensor(n->w.cap, &n->x));
}

/* Seal the graph, twice: the second seal uses what the first one kept. */
static void nodes_seal(struct nodes *n, CUgraph g)
{
	ok(fdry_capture_graph(n->w.cap, GRAPH, NULL, g));
	ok(fdry_capture_graph_fixed(n->w.cap, GRAPH, true));
	ok(work_seal(&n->w, "img"));
	ok(work_seal(&n->w, "again"));
	work_end(&n->w);
}

static CUgraph graph_new(void)
{
	CUgraph g;

	cuda_ok(cuGraphCreate, &g, 0);
	return g;
}

/* x[i] = x[i] * 6364136223846793005 + salt */
static CUgraphNode step_add(struct nodes *n, CUgraph g, const CUgraphNode *after, unsigned int i,
			    uint64_t salt)
{
	CUdeviceptr at = n->x.addr + 8 * i;
	uint32_t spins = 0;
	void *args[] = { &at, &salt, &spins };
	CUDA_KERNEL_NODE_PARAMS p = { .func = n->step, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
				      .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
				      .kernelParams = args };
	CUgraphNode ret;

	cuda_ok(cuGraphAddKernelNode_v2, &ret, g, after, after != NULL, &p);
	return ret;
}

static uint64_t stepped(uint64_t x, uint64_t salt)
{
	return x * 6364136223846793005u + salt;
}

static const char *const refs[] = { "img", "again" };

/* Load, launch @times, and read the numbers. */
static void launched(const char *ref, unsigned int times, uint64_t x[64])
{
	struct fdry_image *img = load_image(ref, NULL);

	while (times--)
		ok(fdry_image_launch(img, GRAPH, NULL));
	ok(fdry_image_read(img, "x", x, 512, NULL));
	fdry_image_unload(img);
}

/* --- child graphs --- */

/* Two children, of which one holds another; equal children twice. */
static void seal_children(void *arg)
{
	CUgraph g, outer, inner;
	struct nodes n;
	CUgraphNode a, b;

	(void)arg;
	nodes_begin(&n);
	g = graph_new();
	outer = graph_new();
	inner = graph_new();
	a = step_add(&n, inner, NULL, 0, 2);
	step_add(&n, inner, &a, 0, 3);
	a = step_add(&n, outer, NULL, 0, 1);
	cuda_ok(cuGraphAddChildGraphNode, &a, outer, &a, 1, inner);
	cuda_ok(cuGraphAddChildGraphNode, &b, g, NULL, 0, outer);
	cuda_ok(cuGraphAddChildGraphNode, &b, g, &b, 1, inner);
	step_add(&n, g, &b, 0, 4);
	cuda_ok(cuGraphDestroy, outer);
	cuda_ok(cuGraphDestroy, inner);
	nodes_seal(&n, g);
}

START_TEST(children)
{
	static const uint64_t salts[] = { 1, 2, 3, 2, 3, 4 };
	uint64_t x[64], want = 0;
	unsigned int i;

	test_child(seal_children, NULL);
	launched(refs[_i], 2, x);
	for (i = 0; i < 12; i++)
		want = stepped(want, salts[i % 6]);
	ck_assert_uint_eq(x[0], want);
}
END_TEST

START_TEST(children_are_counted)
{
	test_child(seal_children, NULL);
	described_as("graph 1 holds 6 kernel, 3 child, 5 edges");
}
END_TEST

/* --- host functions --- */

static void count_calls(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static void twice(void *arg)
{
	__atomic_add_fetch((int *)arg, 2, __ATOMIC_SEQ_CST);
}

/* A captured step, and a function; which calls to name one are refused. */
static void seal_functions(void *arg)
{
	static int count, other;
	struct fdry_host_function f = { "done", count_calls, &count };
	CUgraph g;
	struct nodes n;

	(void)arg;
	nodes_begin(&n);
	ok(fdry_capture_host_function(n.w.cap, &f));
	f.name = "again";
	fails(EXISTS, "'again' with this argument is named 'done' already",
	      fdry_capture_host_function(n.w.cap, &f));
	f = (struct fdry_host_function){ "done", count_calls, &other };
	fails(EXISTS, "'done' was named before", fdry_capture_host_function(n.w.cap, &f));
	f.name = "again";
	ok(fdry_capture_host_function(n.w.cap, &f));
	f = (struct fdry_host_function){ "no name", count_calls, NULL };
	fails(NAME, "'no name' cannot name a host function",
	      fdry_capture_host_function(n.w.cap, &f));
	f = (struct fdry_host_function){ .name = "none" };
	fails(INVAL, "host function 'none' is NULL", fdry_capture_host_function(n.w.cap, &f));
	capture_start(&n.w);
	launch_step(&n.w, n.x.addr, 3, 0);
	cuda_ok(cuLaunchHostFunc, n.w.stream, count_calls, &count);
	g = capture_stop(&n.w);
	nodes_seal(&n, g);
}

START_TEST(functions)
{
	int count = 0;
	const struct fdry_host_function f[] = { { "other", count_calls, NULL },
						{ "done", twice, &count } };
	struct fdry_load_opts o = { .sz = sizeof(o), .functions = f, .nfunctions = 2,
				    .flags = FDRY_LOAD_BUILD };
	struct fdry_image *img = NULL;
	uint64_t x[64];

	test_child(seal_functions, NULL);
	ok(fdry_image_load(load_store(), refs[_i], &o, &img));
	ok(fdry_image_launch(img, GRAPH, NULL));
	ok(fdry_image_launch(img, GRAPH, NULL));
	ok(fdry_image_read(img, "x", x, 512, NULL));
	ck_assert_uint_eq(x[0], stepped(stepped(0, 3), 3));
	ck_assert_int_eq(count, 4);
	fdry_image_unload(img);
}
END_TEST

START_TEST(functions_are_bound_at_the_load)
{
	struct fdry_host_function f = { "done", NULL, NULL };
	struct fdry_load_opts o = { .sz = sizeof(o) };
	struct fdry_image *img = NULL;

	test_child(seal_functions, NULL);
	fails(NOKEY, "graph 1: it calls host function 'done', which the load does not name",
	      fdry_image_load(load_store(), "img", &o, &img));
	o.nfunctions = 1;
	fails(OPTS, "fdry_load_opts.nfunctions is 1, but functions is NULL",
	      fdry_image_load(load_store(), "img", &o, &img));
	o.functions = &f;
	fails(INVAL, "host function 'done' is NULL",
	      fdry_image_load(load_store(), "img", &o, &img));
	ck_assert_ptr_null(img);
}
END_TEST

/* --- memory operations --- */

/* A step, then an operation that captures of streams make. */
static void seal_memops(void *arg)
{
	CUstreamBatchMemOpParams op = { .writeValue = {
		.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .value64 = 0x1122334455667788 } };
	struct nodes n;

	(void)arg;
	nodes_begin(&n);
	op.writeValue.address = n.x.addr + 8;
	capture_start(&n.w);
	launch_step(&n.w, n.x.addr, 3, 0);
	cuda_ok(cuStreamBatchMemOp_v2, n.w.stream, 1, &op, 0);
	nodes_seal(&n, capture_stop(&n.w));
}

START_TEST(memops)
{
	uint64_t x[64];

	test_child(seal_memops, NULL);
	launched(refs[_i], 1, x);
	ck_assert_uint_eq(x[0], 3);
	ck_assert_uint_eq(x[1], 0x1122334455667788);
}
END_TEST

/* --- allocation and free nodes --- */

#define READER 2u /* the key of a graph that reads the memory of another one */

static CUgraphNode alloc_node(CUgraph g, CUdeviceptr *ret)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = 512 };
	CUgraphNode n;

	cuda_ok(cuGraphAddMemAllocNode, &n, g, NULL, 0, &p);
	*ret = p.dptr;
	return n;
}

static CUgraphNode copy_node(CUgraph g, const CUgraphNode *after, CUdeviceptr to, CUdeviceptr from)
{
	CUDA_MEMCPY3D p = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to,
			    .WidthInBytes = 8, .Height = 1, .Depth = 1 };
	CUcontext ctx;
	CUgraphNode n;

	cuda_ok(cuCtxGetCurrent, &ctx);
	cuda_ok(cuGraphAddMemcpyNode, &n, g, after, after != NULL, &p, ctx);
	return n;
}

/* Copy x[0] to memory of the graph, and a step of that to x[1]. The graph frees the memory if it
 * is @freed. */
static void memory_add(struct nodes *n, CUgraph g, bool freed, CUdeviceptr *p)
{
	uint64_t salt = 3;
	uint32_t spins = 0;
	void *args[] = { p, &salt, &spins };
	CUDA_KERNEL_NODE_PARAMS k = { .func = n->step, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
				      .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
				      .kernelParams = args };
	CUgraphNode a = alloc_node(g, p), b;

	a = copy_node(g, &a, *p, n->x.addr);
	cuda_ok(cuGraphAddKernelNode_v2, &b, g, &a, 1, &k);
	a = copy_node(g, &b, n->x.addr + 8, *p);
	if (freed)
		cuda_ok(cuGraphAddMemFreeNode, &b, g, &a, 1, *p);
}

static CUgraph graph_of_memory(struct nodes *n, bool freed, CUdeviceptr *p)
{
	CUgraph g = graph_new();

	memory_add(n, g, freed, p);
	return g;
}

static void seal_memory(void *arg)
{
	struct nodes n;
	CUdeviceptr p;

	(void)arg;
	nodes_begin(&n);
	nodes_seal(&n, graph_of_memory(&n, true, &p));
}

/* The same in the body of a conditional node. */
static void seal_body_memory(void *arg)
{
	CUgraphNodeParams c = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUgraph g = NULL;
	CUgraphNode node;
	struct nodes n;
	CUdeviceptr p;

	(void)arg;
	nodes_begin(&n);
	g = graph_new();
	c.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){ .type = CU_GRAPH_COND_TYPE_IF, .size = 1 };
	cuda_ok(cuCtxGetCurrent, &c.conditional.ctx);
	cuda_ok(cuGraphConditionalHandleCreate, &c.conditional.handle, g, c.conditional.ctx, 1,
		CU_GRAPH_COND_ASSIGN_DEFAULT);
	cuda_ok(cuGraphAddNode_v2, &node, g, NULL, NULL, 0, &c);
	memory_add(&n, c.conditional.phGraph_out[0], true, &p);
	nodes_seal(&n, g);
}

START_TEST(memory)
{
	uint64_t x[64] = { 5 };
	struct fdry_image *img;
	unsigned int i;

	test_child(_i / 2 ? seal_body_memory : seal_memory, NULL);
	img = load_image(refs[_i % 2], NULL);
	for (i = 0; i < 3; i++, x[0] += 7) {
		ok(fdry_image_write(img, "x", x, sizeof(x), NULL));
		ok(fdry_image_launch(img, GRAPH, NULL));
		ok(fdry_image_read(img, "x", x, sizeof(x), NULL));
		ck_assert_uint_eq(x[1], stepped(x[0], 3));
	}
	fdry_image_unload(img);
}
END_TEST

/* A launch of a graph that does not free its memory, which another graph then reads. */
static void seal_shared_memory(void *arg)
{
	CUgraph g, reader;
	uint64_t x = 5;
	struct nodes n;
	CUgraphExec e;
	CUdeviceptr p;

	(void)arg;
	nodes_begin(&n);
	cuda_ok(cuMemcpyHtoD_v2, n.x.addr, &x, 8);
	g = graph_of_memory(&n, false, &p);
	cuda_ok(cuGraphInstantiateWithFlags, &e, g, 0);
	cuda_ok(cuGraphLaunch, e, n.w.stream);
	cuda_ok(cuStreamSynchronize, n.w.stream);
	reader = graph_new();
	copy_node(reader, NULL, n.x.addr + 16, p);
	ok(fdry_capture_graph(n.w.cap, READER, NULL, reader));
	nodes_seal(&n, g);
}

START_TEST(memory_of_another_graph)
{
	uint64_t x[64] = { 0 };
	struct fdry_image *img;

	test_child(seal_shared_memory, NULL);
	img = load_image(refs[_i], NULL);
	ok(fdry_image_launch(img, READER, NULL));
	ok(fdry_image_read(img, "x", x, sizeof(x), NULL));
	ck_assert_uint_eq(x[2], stepped(5, 3));
	x[0] = 9;
	ok(fdry_image_write(img, "x", x, sizeof(x), NULL));
	ok(fdry_image_launch(img, GRAPH, NULL));
	ok(fdry_image_launch(img, READER, NULL));
	ok(fdry_image_read(img, "x", x, sizeof(x), NULL));
	ck_assert_uint_eq(x[2], stepped(9, 3));
	fdry_image_unload(img);
}
END_TEST

/* Memory of a graph that was added while the region was paused. */
static void seal_driver_memory(void *arg)
{
	struct nodes n;
	CUdeviceptr p;
	CUgraph g;

	(void)arg;
	nodes_begin(&n);
	g = graph_new();
	ok(hook->region_pause());
	alloc_node(g, &p);
	ok(hook->region_resume());
	ok(fdry_capture_graph(n.w.cap, GRAPH, NULL, g));
	fails(REFUSED,
	      "graph 1 '': node 0: its kind is memory allocation: the "
	      "driver chose its address; add it while the capture runs, for memory of the "
	      "capture's device that no other device accesses",
	      work_seal(&n.w, "img"));
	work_end(&n.w);
}

START_TEST(memory_of_the_driver_is_refused)
{
	test_child(seal_driver_memory, NULL);
}
END_TEST

/* --- attributes that the driver does not report --- */

/* A captured launch with attribute @id. */
static void captured_with(struct nodes *n, CUlaunchAttributeID id, unsigned int value)
{
	CUlaunchAttribute a = { .id = id };
	CUlaunchConfig c = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
			     .blockDimY = 1, .blockDimZ = 1, .hStream = n->w.stream,
			     .attrs = &a, .numAttrs = 1 };
	uint64_t salt = 3;
	uint32_t spins = 0;
	void *args[] = { &n->x.addr, &salt, &spins };

	memset(&a.value, 0, sizeof(a.value));
	a.value.preferredClusterDim.x = value;
	if (id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION)
		a.value.preferredClusterDim.y = a.value.preferredClusterDim.z = 1;
	cuda_ok(cuLaunchKernelEx, &c, n->step, args, NULL);
}

/* A launch with the attribute and one without, a node that gets it by a call, its copy, a node that
 * loses it, and a child graph with a copy of all of them. */
static void seal_attributes(void *arg)
{
	const CUlaunchAttributeID nvlink = CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;
	CUlaunchAttributeValue v = { .nvlinkUtilCentricScheduling = 1 };
	CUgraphNode a, b, child;
	struct nodes n;
	CUgraph g, up, gone;

	(void)arg;
	nodes_begin(&n);
	gone = graph_new();
	a = step_add(&n, gone, NULL, 0, 3);
	cuda_ok(cuGraphKernelNodeSetAttribute, a, nvlink, &v);
	cuda_ok(cuGraphDestroy, gone);
	capture_start(&n.w);
	captured_with(&n, nvlink, 1);
	captured_with(&n, nvlink, 0);
	g = capture_stop(&n.w);
	a = step_add(&n, g, NULL, 0, 4);
	cuda_ok(cuGraphKernelNodeSetAttribute, a, nvlink, &v);
	b = step_add(&n, g, &a, 0, 5);
	cuda_ok(cuGraphKernelNodeCopyAttributes, b, a);
	b = step_add(&n, g, &b, 0, 6);
	cuda_ok(cuGraphKernelNodeCopyAttributes, b, a);
	v.nvlinkUtilCentricScheduling = 0;
	cuda_ok(cuGraphKernelNodeSetAttribute, b, nvlink, &v);
	up = graph_new();
	cuda_ok(cuGraphAddChildGraphNode, &child, up, NULL, 0, g);
	cuda_ok(cuGraphDestroy, g);
	nodes_seal(&n, up);
}

START_TEST(attributes)
{
	static const char want[] = "attr nvlink_util_centric_scheduling 1";
	struct fdry_image *img;
	struct fdry_buf text = { 0 };
	const char *at;
	unsigned int i;

	test_child(seal_attributes, NULL);
	img = load_image(refs[_i], NULL);
	ok(fdry_image_launch(img, GRAPH, NULL));
	ok(fdry_graph_to_text(&img->execs[0].view, NULL, 0, &text));
	at = (const char *)text.data;
	for (i = 0; (at = strstr(at, want)); i++)
		at++;
	ck_assert_uint_eq(i, 3);
	fdry_buf_release(&text);
	fdry_image_unload(img);
}
END_TEST

static void seal_preferred(void *arg)
{
	struct nodes n;

	(void)arg;
	nodes_begin(&n);
	capture_start(&n.w);
	captured_with(&n, CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, 2);
	ok(fdry_capture_graph(n.w.cap, GRAPH, NULL, capture_stop(&n.w)));
	fails(REFUSED,
	      "graph 1 '': node 0: kernel: kernel step: the driver does not accept its attribute "
	      "preferred_cluster_dimension again; capture without it",
	      work_seal(&n.w, "img"));
	work_end(&n.w);
}

START_TEST(preferred_clusters_are_refused)
{
	test_child(seal_preferred, NULL);
}
END_TEST

/* --- conditional nodes --- */

/* The condition of @h becomes the number @word, less @down, in a stream that captures. */
static void condition_launch(struct nodes *n, CUstream s, CUgraphConditionalHandle h,
			     unsigned int word, uint32_t down)
{
	CUdeviceptr at = n->x.addr + 8 * word;
	void *args[] = { &h, &at, &down };
	CUfunction f;

	cuda_ok(cuModuleGetFunction, &f, n->w.module, "condition");
	cuda_ok(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL);
}

static void step_launch(struct nodes *n, CUstream s, unsigned int i)
{
	CUdeviceptr at = n->x.addr + 8 * i;
	uint64_t salt = 3;
	uint32_t spins = 0;
	void *args[] = { &at, &salt, &spins };

	cuda_ok(cuLaunchKernel, n->step, 1, 1, 1, 1, 1, 1, 0, s, args, NULL);
}

/* Add a conditional node after the newest node of a stream that captures, as frameworks do, and
 * capture its body on another stream. */
static CUstream body_begin(struct nodes *n, CUgraphConditionalNodeType type,
			   CUgraphConditionalHandle h)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUstreamCaptureStatus status;
	const CUgraphEdgeData *data;
	const CUgraphNode *deps;
	CUgraphNode node;
	cuuint64_t id;
	CUstream s;
	size_t count;
	CUgraph g;

	cuda_ok(cuStreamGetCaptureInfo_v3, n->w.stream, &status, &id, &g, &deps, &data, &count);
	p.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){ .handle = h, .type = type, .size = 1 };
	cuda_ok(cuCtxGetCurrent, &p.conditional.ctx);
	cuda_ok(cuGraphAddNode_v2, &node, g, deps, data, count, &p);
	cuda_ok(cuStreamUpdateCaptureDependencies_v2, n->w.stream, &node, NULL, 1,
		CU_STREAM_SET_CAPTURE_DEPENDENCIES);
	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuStreamBeginCaptureToGraph, s, p.conditional.phGraph_out[0], NULL, NULL, 0,
		CU_STREAM_CAPTURE_MODE_RELAXED);
	return s;
}

static CUgraphConditionalHandle handle_new(CUstream s)
{
	CUstreamCaptureStatus status;
	CUgraphConditionalHandle h;
	CUcontext ctx;
	cuuint64_t id;
	CUgraph g;

	cuda_ok(cuStreamGetCaptureInfo_v3, s, &status, &id, &g, NULL, NULL, NULL);
	cuda_ok(cuCtxGetCurrent, &ctx);
	cuda_ok(cuGraphConditionalHandleCreate, &h, g, ctx, 0, 0);
	return h;
}

static void body_end(CUstream s)
{
	CUgraph g;

	cuda_ok(cuStreamEndCapture, s, &g);
	cuda_ok(cuStreamDestroy_v2, s);
}

/* x[1] says whether x[0] steps; x[2] counts the steps of x[3]. */
static void seal_conditions(void *arg)
{
	CUgraphConditionalHandle h, loop;
	struct nodes n;
	CUstream s;
	CUgraph g;

	(void)arg;
	nodes_begin(&n);
	capture_start(&n.w);
	h = handle_new(n.w.stream);
	condition_launch(&n, n.w.stream, h, 1, 0);
	s = body_begin(&n, CU_GRAPH_COND_TYPE_IF, h);
	step_launch(&n, s, 0);
	body_end(s);
	loop = handle_new(n.w.stream);
	condition_launch(&n, n.w.stream, loop, 2, 0);
	s = body_begin(&n, CU_GRAPH_COND_TYPE_WHILE, loop);
	step_launch(&n, s, 3);
	condition_launch(&n, s, loop, 2, 1);
	body_end(s);
	g = capture_stop(&n.w);
	nodes_seal(&n, g);
}

START_TEST(conditions)
{
	struct fdry_image *img;
	uint64_t x[64], want[64] = { 0 };
	unsigned int i, k;

	test_child(seal_conditions, NULL);
	img = load_image(refs[_i], NULL);
	for (i = 0; i < 4; i++) {
		want[1] = i % 2;
		want[2] = i;
		ok(fdry_image_write(img, "x", want, sizeof(want), NULL));
		ok(fdry_image_launch(img, GRAPH, NULL));
		ok(fdry_image_read(img, "x", x, 512, NULL));
		want[0] = i % 2 ? stepped(want[0], 3) : want[0];
		for (k = 0; k < i; k++)
			want[3] = stepped(want[3], 3);
		want[2] = 0;
		ck_assert_mem_eq(x, want, sizeof(want));
	}
	fdry_image_unload(img);
}
END_TEST

START_TEST(conditions_are_described)
{
	test_child(seal_conditions, NULL);
	described_as("graph 1 holds 5 kernel, 2 conditional, 4 edges");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_nodes");
	TCase *tc = tcase_create("nodes");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_loop_test(tc, children, 0, 2);
	tcase_add_test(tc, children_are_counted);
	tcase_add_loop_test(tc, functions, 0, 2);
	tcase_add_loop_test(tc, memops, 0, 2);
	tcase_add_loop_test(tc, memory, 0, 4);
	tcase_add_loop_test(tc, memory_of_another_graph, 0, 2);
	tcase_add_test(tc, memory_of_the_driver_is_refused);
	tcase_add_loop_test(tc, attributes, 0, 2);
	tcase_add_test(tc, preferred_clusters_are_refused);
	tcase_add_loop_test(tc, conditions, 0, 2);
	tcase_add_test(tc, conditions_are_described);
	tcase_add_test(tc, functions_are_bound_at_the_load);
	suite_add_tcase(s, tc);
	return test_main(s);
}
