// SPDX-License-Identifier: Apache-2.0
/* Graphs of the software driver: nodes that allocate, user objects, graphs as text. */
#include "tests/lib/sim_cu.h"

static const CUgraphEdgeData programmatic = { .from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
					      .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC };

static CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(void)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = fx.dev } },
		.bytesize = 4096,
	};
}

START_TEST(memory_nodes)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, fx.dev },
				   CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUDA_MEM_ALLOC_NODE_PARAMS p = alloc_params(), got;
	CUDA_MEMSET_NODE_PARAMS set = { .value = 7, .elementSize = 1, .width = 8, .height = 1 };
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = at(0),
			       .WidthInBytes = 8, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .Height = 1, .Depth = 1 };
	CUgraph g = graph_new(), clone;
	size_t before, after, total;
	CUgraphNode a, b, c, d;
	CUdeviceptr freed;
	CUgraphExec x, y;

	ok(CU(cuMemGetInfo)(&before, &total));
	p.accessDescs = &access;
	p.accessDescCount = 1;
	ok(CU(cuGraphAddMemAllocNode)(&a, g, NULL, 0, &p));
	set.dst = copy.srcDevice = p.dptr;
	ok(CU(cuGraphAddMemsetNode)(&b, g, &a, 1, &set, fx.ctx));
	ok(CU(cuGraphAddMemcpyNode)(&c, g, &b, 1, &copy, fx.ctx));
	ok(CU(cuGraphAddMemFreeNode)(&d, g, &c, 1, p.dptr));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddMemFreeNode)(&d, g, &c, 1, p.dptr));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddMemFreeNode)(&d, g, &c, 1, at(0)));
	ok(CU(cuGraphMemAllocNodeGetParams)(a, &got));
	ck_assert_uint_eq(got.dptr, p.dptr);
	ck_assert_uint_eq(got.bytesize, 4096);
	ck_assert_ptr_ne(got.accessDescs, &access);
	ck_assert_int_eq(got.accessDescs[0].flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(CU(cuGraphMemFreeNodeGetParams)(d, &freed));
	ck_assert_uint_eq(freed, p.dptr);
	is(CUDA_ERROR_NOT_SUPPORTED, CU(cuGraphClone)(&clone, g));
	is(CUDA_ERROR_NOT_SUPPORTED, CU(cuGraphDestroyNode)(b));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphRemoveDependencies)(g, &a, &b, NULL, 1));
	x = exec_new(g);
	is(CUDA_ERROR_NOT_SUPPORTED, CU(cuGraphInstantiate)(&y, g, 0));
	ck_assert_uint_eq(exec_value(x, 0), 0x0707070707070707u);
	number_set(0, 1);
	ck_assert_uint_eq(exec_value(x, 0), 0x0707070707070707u);
	ok(CU(cuGraphExecDestroy)(x));
	x = exec_new(g);
	ok(CU(cuGraphDestroy)(g));
	ck_assert_uint_eq(exec_value(x, 0),
			  0x0707070707070707u); /* the memory stays with the executable graph */
	ok(CU(cuMemGetInfo)(&after, &total));
	ck_assert_uint_lt(after, before);
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuMemGetInfo)(&after, &total));
	ck_assert_uint_eq(after, before);
}
END_TEST

START_TEST(memory_left_over)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = alloc_params();
	CUgraph g = graph_new();
	CUgraphNode a;
	CUgraphExec x;

	p.bytesize = 0;
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddMemAllocNode)(&a, g, NULL, 0, &p));
	p.bytesize = (size_t)1 << 50;
	is(CUDA_ERROR_OUT_OF_MEMORY, CU(cuGraphAddMemAllocNode)(&a, g, NULL, 0, &p));
	p.bytesize = 64;
	ok(CU(cuGraphAddMemAllocNode)(&a, g, NULL, 0, &p));
	x = exec_new(g);
	is(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree)(p.dptr)); /* nothing has allocated it yet */
	ok(CU(cuGraphLaunch)(x, fx.stream));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphLaunch)(x, fx.stream));
	ok(CU(cuMemFree)(p.dptr));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree)(p.dptr));
	ok(CU(cuGraphLaunch)(x, fx.stream));
	ok(CU(cuMemFreeAsync)(p.dptr, fx.stream));
	ok(CU(cuGraphLaunch)(x, fx.stream));
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphInstantiate)(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	ok(CU(cuGraphLaunch)(x, fx.stream));
	ok(CU(cuGraphLaunch)(x, fx.stream));
	ok(CU(cuStreamSynchronize)(fx.stream));
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

START_TEST(written_as_dot)
{
	CUgraph g = graph_new();
	CUgraphNode a = step_add(g, NULL, 0, 0, 1), b = step_add(g, NULL, 0, 0, 2);
	char path[] = "/tmp/sim_graph.XXXXXX", text[4096];
	int fd = mkstemp(path);
	size_t n;
	FILE *f;

	ck_assert_int_ge(fd, 0);
	ok(CU(cuGraphAddDependencies)(g, &a, &b, &programmatic, 1));
	ok(CU(cuGraphDebugDotPrint)(g, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
	f = fdopen(fd, "r");
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	fclose(f);
	remove(path);
	ck_assert_ptr_nonnull(strstr(text, "digraph"));
	ck_assert_ptr_nonnull(strstr(text, "KERNEL\\nstep"));
	ck_assert_ptr_nonnull(strstr(text, "-> "));
	ck_assert_ptr_nonnull(strstr(text, "type 1 port 1"));
	is(CUDA_ERROR_OPERATING_SYSTEM, CU(cuGraphDebugDotPrint)(g, "/nonexistent/x", 0));
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDebugDotPrint)(g, NULL, 0));
	ok(CU(cuGraphDestroy)(g));
}
END_TEST

static void user_count(void *data)
{
	++*(int *)data;
}

START_TEST(user_objects)
{
	CUgraph g = graph_new(), clone;
	CUuserObject u;
	int gone = 0;

	is(CUDA_ERROR_INVALID_VALUE, CU(cuUserObjectCreate)(&u, &gone, user_count, 1, 0));
	ok(CU(cuUserObjectCreate)(&u, &gone, user_count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	ok(CU(cuGraphRetainUserObject)(g, u, 1, CU_GRAPH_USER_OBJECT_MOVE));
	ok(CU(cuGraphClone)(&clone, g));
	ok(CU(cuGraphDestroy)(g));
	ck_assert_int_eq(gone, 0);
	is(CUDA_ERROR_INVALID_VALUE, CU(cuGraphReleaseUserObject)(clone, u, 2));
	ok(CU(cuGraphReleaseUserObject)(clone, u, 1));
	ck_assert_int_eq(gone, 1);
	is(CUDA_ERROR_INVALID_VALUE, CU(cuUserObjectRelease)(u, 1));
	ok(CU(cuGraphDestroy)(clone));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		memory_nodes, memory_left_over, written_as_dot, user_objects,
	};

	return cu_main("sim_graph_memory", tests, sizeof(tests) / sizeof(*tests));
}
