// SPDX-License-Identifier: Apache-2.0
/* Unit tests of building driver graphs on the software driver: failing calls; graph_rules.h has the
 * rest. */
#include "tests/replace/graph_fixture.h"
#include "tests/lib/sim.h"

START_TEST(attributes_are_set)
{
	static const CUlaunchAttributeValue none;
	CUlaunchAttributeValue v = none, got;
	CUgraph g = graph_make();
	CUgraphNode n = kernel_add(g, NULL, NOTHING, NULL), m;
	struct fdry_buf object;
	struct fdry_graph_built b;
	size_t one = 1;

	v.priority = -5;
	ok(gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	v = none;
	v.clusterDim.x = 1, v.clusterDim.y = 1, v.clusterDim.z = 1;
	ok(gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v));
	v = none;
	v.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
	ok(gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &v));
	v = none;
	v.accessPolicyWindow = (CUaccessPolicyWindow){ (void *)(uintptr_t)gf.mem, 4096, 0.25f,
						       CU_ACCESS_PROPERTY_PERSISTING,
						       CU_ACCESS_PROPERTY_STREAMING };
	ok(gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	object = graph_object(g);
	built_of(&object, &b);
	ok(gf.drv.cuGraphGetNodes(b.graph, &m, &one));
	ok(gf.drv.cuGraphKernelNodeGetAttribute(m, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
	ck_assert_int_eq(got.priority, -5);
	ok(gf.drv.cuGraphKernelNodeGetAttribute(m, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &got));
	ck_assert_int_eq(got.memSyncDomain, CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
	ok(gf.drv.cuGraphKernelNodeGetAttribute(m, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got));
	ck_assert_uint_eq((uintptr_t)got.accessPolicyWindow.base_ptr, gf.mem);
	ck_assert_uint_eq(got.accessPolicyWindow.num_bytes, 4096);
	ck_assert(got.accessPolicyWindow.hitRatio == 0.25f);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	round_trip(g);
}
END_TEST

START_TEST(calls_to_the_driver)
{
	CUgraph g = graph_of_all();
	struct fdry_buf object = graph_object(g);
	struct fdry_graph_view v;
	struct fdry_graph_built b;

	ok(fdry_graph_view_init(span_of(&object), &v));
	test_sim_fail(NULL);
	ok(fdry_graph_build(&gf.builder, &v, &b));
	ck_assert_uint_eq(test_sim_calls("cuGraphAddKernelNode_v2"), 5);
	ck_assert_uint_eq(test_sim_calls("cuGraphKernelNodeSetAttribute"), 1);
	ck_assert_uint_eq(test_sim_calls("cuGraphAddDependencies_v2"), 2);
	/* Beside ten nodes and those: one graph, one event. */
	ck_assert_uint_eq(test_sim_calls(NULL), 10 + 1 + 2 + 2);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

START_TEST(no_call_without_edges)
{
	CUgraph g = graph_make();
	struct fdry_graph_built b;
	struct fdry_buf object;

	empty_add(g, NULL);
	object = graph_object(g);
	test_sim_fail(NULL);
	built_of(&object, &b);
	ck_assert_uint_eq(test_sim_calls("cuGraphAddDependencies_v2"), 0);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

START_TEST(wrong_kernel_table)
{
	CUgraph g = graph_of_all();
	struct fdry_buf object = graph_object(g);
	struct fdry_graph_view v;
	struct fdry_graph_built b, untouched;

	memset(&b, 0x5a, sizeof(b));
	untouched = b;
	ok(fdry_graph_view_init(span_of(&object), &v));
	gf.kernels[STEP].param_bytes = 16;
	test_sim_fail(NULL);
	fails(BADIMAGE, "kernel 0 (step) takes 16 bytes of arguments, and the graph has 20",
	      fdry_graph_build(&gf.builder, &v, &b));
	gf.builder.nkernels = 0;
	fails(BADIMAGE, "the graph uses kernel 0, and the image has 0",
	      fdry_graph_build(&gf.builder, &v, &b));
	ck_assert_uint_eq(test_sim_calls(NULL), 0);
	ck_assert_mem_eq(&b, &untouched, sizeof(b));
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

START_TEST(every_call_fails)
{
	CUgraph g = graph_of_all();
	struct fdry_buf object = graph_object(g);
	struct fdry_graph_view v;
	struct fdry_graph_built b, untouched;
	unsigned int n;
	char spec[32];
	int err;

	memset(&b, 0x5a, sizeof(b));
	untouched = b;
	ok(fdry_graph_view_init(span_of(&object), &v));
	for (n = 1;; n++) {
		snprintf(spec, sizeof(spec), "*:%u:%d", n,
			 _i ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
		test_sim_fail(spec);
		err = fdry_graph_build(&gf.builder, &v, &b);
		if (!test_sim_failed())
			break;
		ck_assert_msg(err == -(_i ? FDRY_E_NODEVMEM : FDRY_E_DRIVER), "call %u: %s", n,
			      fdry_error_name(err));
		ck_assert_ptr_nonnull(strstr(fdry_last_error(), _i ? "CUDA_ERROR_OUT_OF_MEMORY"
								   : "CUDA_ERROR_UNKNOWN"));
		ck_assert_mem_eq(&b, &untouched, sizeof(b));
		ck_assert_int_eq(test_sim_live("graph"), 1);
		ck_assert_int_eq(test_sim_live("event"), 1);
	}
	test_sim_fail(NULL);
	ck_assert_uint_eq(n, 16);
	ok(err);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

START_TEST(failure_names_the_node)
{
	CUgraph g = graph_of_all();
	struct fdry_buf object = graph_object(g);
	struct fdry_graph_view v;
	struct fdry_graph_built b;

	ok(fdry_graph_view_init(span_of(&object), &v));
	test_sim_fail("cuGraphAddKernelNode_v2:2");
	fails(DRIVER, "node 1: kernel step: cuGraphAddKernelNode_v2 failed",
	      fdry_graph_build(&gf.builder, &v, &b));
	test_sim_fail("cuGraphAddMemsetNode:1");
	fails(DRIVER, "node 3: cuGraphAddMemsetNode failed",
	      fdry_graph_build(&gf.builder, &v, &b));
	test_sim_fail("cuGraphKernelNodeSetAttribute:1:1");
	fails(REFUSED,
	      "node 2: kernel step: the driver does not accept its attribute priority again",
	      fdry_graph_build(&gf.builder, &v, &b));
	test_sim_fail(NULL);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* --- comparing with the driver's graph --- */

static CUresult (*real_add)(CUgraph, const CUgraphNode *, const CUgraphNode *,
			    const CUgraphEdgeData *, size_t);
static enum { LOSE_ONE, LOSE_DATA, TURN_ONE } quirk;

static CUresult quirky_add(CUgraph g, const CUgraphNode *from, const CUgraphNode *to,
			   const CUgraphEdgeData *data, size_t n)
{
	CUgraphNode other[2] = { from[0], to[1 % n] };

	if (quirk == LOSE_ONE)
		return real_add(g, from, to, data, n - (n > 1));
	if (quirk == LOSE_DATA)
		return real_add(g, from, to, NULL, n);
	if (n == 1)
		return real_add(g, from, to, data, n);
	real_add(g, &other[0], &other[1], data, 1);
	return real_add(g, from + 1, to + 1, data, n - 1);
}

START_TEST(check_finds_what_differs)
{
	static const char *const says[] = {
		"the driver has 4 edges, but 5 were added",
		"the driver changed the data of the edge from node 0 to node 1",
		"the driver has an edge from node 1 to node 3 in place of one from 1 to 2",
	};
	CUgraph g = graph_make();
	struct fdry_graph_view v;
	struct fdry_graph_built b;
	struct fdry_buf object;
	CUgraphNode n[6];
	int i;

	for (i = 0; i < 6; i++)
		n[i] = step_node(g, NULL, 0, (uint64_t)i);
	edge_add(g, n[0], n[1], (CUgraphEdgeData){ .from_port = 1, .type = 1 });
	for (i = 1; i < 5; i++)
		edge_add(g, n[i], n[i + 1], (CUgraphEdgeData){ 0 });
	object = graph_object(g);
	ok(fdry_graph_view_init(span_of(&object), &v));
	real_add = gf.drv.cuGraphAddDependencies_v2;
	gf.drv.cuGraphAddDependencies_v2 = quirky_add;
	quirk = _i;
	ok(fdry_graph_build(&gf.builder, &v, &b));
	fails(DRIVER, says[_i], graph_built_check(&gf.drv, &v, &b, gf.reader.conditional));
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

START_TEST(check_hands_up_failures)
{
	static const char *const specs[] = { "cuGraphGetNodes:1", "cuGraphGetNodes:2",
					     "cuGraphGetEdges_v2:1", "cuGraphGetEdges_v2:2" };
	CUgraph g = graph_of_all();
	struct fdry_buf object = graph_object(g);
	struct fdry_graph_view v;
	struct fdry_graph_built b;

	ok(fdry_graph_view_init(span_of(&object), &v));
	ok(fdry_graph_build(&gf.builder, &v, &b));
	test_sim_fail(specs[_i]);
	fails(DRIVER, "CUDA_ERROR_UNKNOWN",
	      graph_built_check(&gf.drv, &v, &b, gf.reader.conditional));
	test_sim_fail(NULL);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* Check that the graph's @n nodes are a chain: one edge into each but one, none with data. */
static void chain_check(CUgraph g, size_t n)
{
	CUgraphNode from[64], to[64];
	CUgraphEdgeData data[64];
	size_t i, k, edges = 64;

	ok(gf.drv.cuGraphGetEdges_v2(g, from, to, data, &edges));
	ck_assert_uint_eq(edges, n - 1);
	for (i = 0; i < edges; i++) {
		ck_assert_uint_eq(data[i].from_port | data[i].to_port | data[i].type, 0);
		for (k = i + 1; k < edges; k++)
			ck_assert(from[i] != from[k] && to[i] != to[k]);
	}
}

/* Marks make a chain of any graph, and are recorded in its order. */
START_TEST(marks_are_in_between)
{
	CUgraph g = graph_make(), child = graph_make(), inner;
	struct fdry_graph_builder builder = gf.builder;
	struct fdry_graph_view v;
	struct fdry_graph_built b;
	struct fdry_buf object;
	CUevent marks[16];
	CUgraphNode n[16];
	CUgraphExec exec;
	size_t i, count = 16;
	float ms = 0;

	for (i = 0; i < 4; i++)
		n[i] = step_node(g, NULL, 0, i);
	edge_add(g, n[0], n[3], (CUgraphEdgeData){ .from_port = 1, .type = 1 });
	step_node(child, NULL, 0, 5);
	step_node(child, NULL, 0, 6);
	ok(gf.drv.cuGraphAddChildGraphNode(&n[4], g, NULL, 0, child));
	object = graph_object(g);
	ok(fdry_graph_view_init(span_of(&object), &v));
	ck_assert_uint_eq(fdry_graph_marks(&v), 5 + 2 + 1 + 2);
	ck_assert_uint_eq(fdry_graph_mark(1, 6) + 1, fdry_graph_marks(&v) - 1);
	for (i = 0; i < fdry_graph_marks(&v); i++)
		ok(gf.drv.cuEventCreate(&marks[i], CU_EVENT_DEFAULT));
	builder.marks = marks;
	ok(fdry_graph_build(&builder, &v, &b));
	ok(gf.drv.cuGraphGetNodes(b.graph, n, &count));
	ck_assert_uint_eq(count, 5 + 7);
	chain_check(b.graph, count);
	for (i = 0; i < 5; i++)
		if (!gf.drv.cuGraphChildGraphNodeGetGraph(n[i], &inner))
			chain_check(inner, 2 + 3);
	ok(gf.drv.cuGraphInstantiateWithFlags(&exec, b.graph, 0));
	ok(gf.drv.cuGraphLaunch(exec, NULL));
	ok(gf.drv.cuStreamSynchronize(NULL));
	for (i = 0; i < 6; i++) {
		ok(gf.drv.cuEventElapsedTime(&ms, marks[i], marks[i + 1]));
		ck_assert(ms > 0);
	}
	ok(gf.drv.cuEventElapsedTime(&ms, marks[7], marks[9]));
	ck_assert(ms > 0);
	ok(gf.drv.cuGraphExecDestroy(exec));
	fdry_graph_built_release(&gf.drv, &b);
	for (i = 0; i < fdry_graph_marks(&v); i++)
		ok(gf.drv.cuEventDestroy_v2(marks[i]));
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
	ok(gf.drv.cuGraphDestroy(child));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_build");
	TCase *tc = tcase_create("build");

	tcase_add_checked_fixture(tc, graph_fixture_open, graph_fixture_close);
	tcase_add_test(tc, attributes_are_set);
	tcase_add_test(tc, calls_to_the_driver);
	tcase_add_test(tc, no_call_without_edges);
	tcase_add_test(tc, wrong_kernel_table);
	tcase_add_loop_test(tc, every_call_fails, 0, 2);
	tcase_add_test(tc, failure_names_the_node);
	tcase_add_test(tc, marks_are_in_between);
	tcase_add_loop_test(tc, check_finds_what_differs, 0, 3);
	tcase_add_loop_test(tc, check_hands_up_failures, 0, 4);
	suite_add_tcase(s, tc);
	return test_main(s);
}
