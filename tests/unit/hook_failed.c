// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the interposer after a call that failed, such as one without host memory. */
#include "tests/lib/hook.h"
#include "tests/lib/nomem.h"
#include "tests/lib/test.h"

#define MIB (1ull << 20)
#define SIZE (256 * MIB)
#define WORD 0x12345678u

static int kind_at(CUdeviceptr p)
{
	struct fdry_alloc *list;
	CUdeviceptr base;
	uint64_t size;
	size_t n, i;
	int kind = -1;

	ck_assert_int_eq(hook->region_ledger(&base, &size, &list, &n), 0);
	for (i = 0; i < n; i++)
		if (list[i].addr == p)
			kind = (int)list[i].kind;
	free(list);
	return kind;
}

/* Memory that is mapped twice is shared, and keeps its bytes. */
START_TEST(mappings_without_a_note)
{
	static const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
						  .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	static const CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
						.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	__typeof__(&cuMemMap) map;
	CUmemGenericAllocationHandle h;
	unsigned long n, made;
	unsigned int word;
	CUdeviceptr a, b;
	CUresult res;

	test_hook();
	map = (__typeof__(map))test_hook_symbol("cuMemMap");
	hook_region_begin(SIZE);
	for (n = 1;; n++) {
		cuda_ok(cuMemCreate, &h, 2 * MIB, &prop, 0);
		cuda_ok(cuMemAddressReserve, &a, 2 * MIB, 0, 0, 0);
		cuda_ok(cuMemAddressReserve, &b, 2 * MIB, 0, 0, 0);
		test_nomem(n);
		res = map(a, 2 * MIB, 0, h, 0);
		made = test_nomem(0);
		if (res)
			cuda_ok(cuMemMap, a, 2 * MIB, 0, h, 0);
		cuda_ok(cuMemSetAccess, a, 2 * MIB, &access, 1);
		word = WORD;
		cuda_ok(cuMemcpyHtoD_v2, a, &word, sizeof(word));
		cuda_ok(cuMemMap, b, 2 * MIB, 0, h, 0);
		cuda_ok(cuMemSetAccess, b, 2 * MIB, &access, 1);
		cuda_ok(cuMemcpyDtoH_v2, &word, b, sizeof(word));
		ck_assert_msg(word == WORD, "allocation %lu: %#x", n, word);
		ck_assert_msg(kind_at(a) == FDRY_KIND_SHARED, "allocation %lu: %d", n, kind_at(a));
		cuda_ok(cuMemUnmap, a, 2 * MIB);
		cuda_ok(cuMemUnmap, b, 2 * MIB);
		cuda_ok(cuMemRelease, h);
		cuda_ok(cuMemAddressFree, a, 2 * MIB);
		cuda_ok(cuMemAddressFree, b, 2 * MIB);
		if (made < n)
			break;
	}
}
END_TEST

/* A default pool that could not be noted is noted by the next allocation. */
START_TEST(pools_without_a_note)
{
	__typeof__(&cuMemAllocAsync) alloc;
	CUdeviceptr p = 0, q = 0;

	test_hook();
	alloc = (__typeof__(alloc))test_hook_symbol("cuMemAllocAsync");
	hook_region_begin(SIZE);
	test_nomem((unsigned long)_i);
	(void)alloc(&p, 1000, NULL);
	(void)test_nomem(0);
	cuda_ok(cuMemAllocAsync, &q, 1000, NULL);
	ck_assert_msg(hook_region_has(q), "allocation %d", _i);
}
END_TEST

/* If neither the new region nor the old one can be made, none is left. */
START_TEST(a_move_that_fails_twice)
{
	static const char *const calls[] = { "cuMemAddressReserve:1+:2",
					     "cuMemGetAllocationGranularity:1+:2" };

	test_hook();
	hook_region_begin(SIZE);
	test_sim_fail(calls[_i]);
	ck_assert_int_ne(hook->region_move(TEST_BASE, 2 * SIZE), 0);
	test_sim_fail(NULL);
	ck_assert_int_eq(test_sim_live("reservation"), 0);
	hook_region_begin(SIZE);
}
END_TEST

/* --- attributes of nodes that the driver does not report --- */

static const CUlaunchAttributeValue nvlink = { .nvlinkUtilCentricScheduling = 1 };

static bool is_noted(CUgraphNode node)
{
	struct fdry_unreported_attrs a;

	hook->attributes(node, &a);
	return a.set[1] && a.value[1].nvlinkUtilCentricScheduling == 1;
}

static __typeof__(&cuLaunchKernelEx) launch_ex;

static CUfunction step_load(void)
{
	CUfunction ret;
	CUmodule m;
	size_t len;
	void *cubin = test_sim_cubin("kernels", &len);

	launch_ex = (__typeof__(launch_ex))test_hook_symbol("cuLaunchKernelEx");
	cuda_ok(cuModuleLoadData, &m, cubin);
	cuda_ok(cuModuleGetFunction, &ret, m, "step");
	free(cubin);
	return ret;
}

static CUresult launch(CUstream s, CUfunction f, bool with)
{
	CUlaunchAttribute a = { .id = CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
				.value = nvlink };
	CUlaunchConfig c = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
			     .blockDimY = 1, .blockDimZ = 1, .hStream = s, .attrs = &a,
			     .numAttrs = with };
	uint64_t x = 0, salt = 3;
	uint32_t spins = 0;
	void *args[] = { &x, &salt, &spins };

	return launch_ex(&c, f, args, NULL);
}

/* The last node of the stream's capture, or NULL. */
static CUgraphNode last_node(CUstream s)
{
	CUstreamCaptureStatus status;
	const CUgraphEdgeData *data;
	const CUgraphNode *nodes;
	size_t n = 0;

	cuda_ok(cuStreamGetCaptureInfo_v3, s, &status, NULL, NULL, &nodes, &data, &n);
	return status == CU_STREAM_CAPTURE_STATUS_ACTIVE && n ? nodes[0] : NULL;
}

/* A capture that began is noted, and so are the attributes of its nodes. */
START_TEST(captures_without_a_note)
{
	__typeof__(&cuStreamBeginCapture_v2) start;
	CUstreamCaptureStatus status;
	unsigned long n, made;
	CUgraph graph;
	CUfunction f;
	CUresult res;
	CUstream s;

	test_hook();
	start = (__typeof__(start))test_hook_symbol("cuStreamBeginCapture_v2");
	f = step_load();
	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	for (n = 1, made = n; made >= n - 1; n++) {
		test_nomem(n);
		res = start(s, CU_STREAM_CAPTURE_MODE_RELAXED);
		made = test_nomem(0);
		cuda_ok(cuStreamIsCapturing, s, &status);
		ck_assert_msg(!res == (status == CU_STREAM_CAPTURE_STATUS_ACTIVE),
			      "allocation %lu: %d", n, res);
		if (res)
			continue;
		ck_assert_int_eq(launch(s, f, true), CUDA_SUCCESS);
		ck_assert_msg(is_noted(last_node(s)), "allocation %lu", n);
		cuda_ok(cuStreamEndCapture, s, &graph);
		cuda_ok(cuGraphDestroy, graph);
	}
}
END_TEST

/* A launch, a call and a copy give a node the attribute, or fail. */
START_TEST(attributes_without_a_note)
{
	__typeof__(&cuGraphKernelNodeSetAttribute) set;
	__typeof__(&cuGraphKernelNodeCopyAttributes) copy;
	unsigned long n, made;
	CUgraphNode node, other;
	CUgraph graph;
	CUfunction f;
	CUresult res;
	CUstream s;

	test_hook();
	set = (__typeof__(set))test_hook_symbol("cuGraphKernelNodeSetAttribute");
	copy = (__typeof__(copy))test_hook_symbol("cuGraphKernelNodeCopyAttributes");
	f = step_load();
	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	for (n = 1, made = n; made >= n - 1; n++) {
		cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
		test_nomem(_i ? 0 : n);
		res = launch(s, f, true);
		made = test_nomem(0);
		node = last_node(s);
		ck_assert_msg(res || is_noted(node), "allocation %lu: %d", n, res);
		if (node && _i) {
			ck_assert_int_eq(launch(s, f, false), CUDA_SUCCESS);
			other = last_node(s);
			test_nomem(n);
			res = _i == 1 ? set(other,
					    CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
					    &nvlink)
				      : copy(other, node);
			made = test_nomem(0);
			ck_assert_msg(!res == is_noted(other), "allocation %lu: %d", n, res);
		}
		cuda_ok(cuStreamEndCapture, s, &graph);
		cuda_ok(cuGraphDestroy, graph);
	}
}
END_TEST

/* The first node of a graph. */
static CUgraphNode first_node(CUgraph graph)
{
	CUgraphNode node;
	size_t n = 1;

	cuda_ok(cuGraphGetNodes, graph, &node, &n);
	ck_assert_uint_eq(n, 1);
	return node;
}

static CUresult clone(CUgraph *ret, CUgraph graph)
{
	static __typeof__(&cuGraphClone) call;

	if (ret)
		return call(ret, graph);
	call = (__typeof__(call))test_hook_symbol("cuGraphClone");
	return CUDA_SUCCESS;
}

/* In a graph of its own, in one of two ways. */
static CUresult child_add(CUgraphNode *ret, CUgraph into, CUgraph graph, bool any)
{
	static __typeof__(&cuGraphAddChildGraphNode) call;
	static __typeof__(&cuGraphAddNode_v2) call_any;
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_GRAPH, .graph.graph = graph };

	if (ret)
		return any ? call_any(ret, into, NULL, NULL, 0, &p)
			   : call(ret, into, NULL, 0, graph);
	call = (__typeof__(call))test_hook_symbol("cuGraphAddChildGraphNode");
	call_any = (__typeof__(call_any))test_hook_symbol("cuGraphAddNode_v2");
	return CUDA_SUCCESS;
}

static size_t nodes_in(CUgraph graph)
{
	size_t n = 0;

	cuda_ok(cuGraphGetNodes, graph, NULL, &n);
	return n;
}

/* Clones have the attributes of their nodes, or are not made. */
START_TEST(clones_without_a_note)
{
	CUgraph graph, copy, into;
	unsigned long n, made;
	CUgraphNode child;
	CUfunction f;
	CUresult res;
	CUstream s;

	test_hook();
	(void)clone(NULL, NULL);
	(void)child_add(NULL, NULL, NULL, false);
	f = step_load();
	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	ck_assert_int_eq(launch(s, f, true), CUDA_SUCCESS);
	cuda_ok(cuStreamEndCapture, s, &graph);
	for (n = 1, made = n; made >= n - 1; n++) {
		cuda_ok(cuGraphCreate, &into, 0);
		test_nomem(n);
		res = _i ? child_add(&child, into, graph, _i == 2) : clone(&copy, graph);
		made = test_nomem(0);
		ck_assert_uint_eq(nodes_in(into), _i && !res);
		if (!res && _i)
			cuda_ok(cuGraphChildGraphNodeGetGraph, child, &copy);
		ck_assert_msg(res || is_noted(first_node(copy)), "allocation %lu", n);
		if (!res && !_i)
			cuda_ok(cuGraphDestroy, copy);
		cuda_ok(cuGraphDestroy, into);
	}
	ck_assert_int_eq(res, CUDA_SUCCESS);
	ck_assert(is_noted(first_node(graph)));
}
END_TEST

/* No note of a node outlives it: a later node may have its address. */
START_TEST(ends_without_memory)
{
	__typeof__(&cuGraphDestroy) destroy;
	__typeof__(&cuGraphDestroyNode) destroy_node;
	CUgraph graph = NULL, into, copy;
	CUgraphNode child, node;
	unsigned long n, made;
	CUresult res;
	CUfunction f;
	CUstream s;

	test_hook();
	destroy = (__typeof__(destroy))test_hook_symbol("cuGraphDestroy");
	destroy_node = (__typeof__(destroy_node))test_hook_symbol("cuGraphDestroyNode");
	f = step_load();
	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
	ck_assert_int_eq(launch(s, f, true), CUDA_SUCCESS);
	cuda_ok(cuStreamEndCapture, s, &graph);
	for (n = 1, made = n; made >= n - 1; n++) {
		cuda_ok(cuGraphCreate, &into, 0);
		cuda_ok(cuGraphAddChildGraphNode, &child, into, NULL, 0, graph);
		cuda_ok(cuGraphChildGraphNodeGetGraph, child, &copy);
		node = first_node(copy);
		ck_assert(is_noted(node));
		test_nomem(n);
		res = _i ? destroy_node(child) : destroy(into);
		made = test_nomem(0);
		ck_assert_msg(is_noted(node) == !!res, "allocation %lu: %d", n, res);
		if (res || _i)
			cuda_ok(cuGraphDestroy, into);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hook_failed");
	TCase *tc = tcase_create("failed");

	tcase_add_test(tc, mappings_without_a_note);
	tcase_add_loop_test(tc, pools_without_a_note, 1, 6);
	tcase_add_loop_test(tc, a_move_that_fails_twice, 0, 2);
	tcase_add_test(tc, captures_without_a_note);
	tcase_add_loop_test(tc, attributes_without_a_note, 0, 3);
	tcase_add_loop_test(tc, clones_without_a_note, 0, 3);
	tcase_add_loop_test(tc, ends_without_memory, 0, 2);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
