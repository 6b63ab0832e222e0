// SPDX-License-Identifier: Apache-2.0
/* Unit tests of reading driver graphs on the software driver: attributes, failing calls;
 * graph_rules.h has the rest. */
#include "graph/attr.h"
#include "tests/replace/graph_fixture.h"
#include "tests/lib/sim.h"

/* A kernel of a library, which has no function until a context needs it, with an attribute. */
START_TEST(kernel_of_a_library)
{
	CUdeviceptr x = gf.mem;
	uint64_t salt = 3;
	uint32_t spins = 0;
	void *args[] = { &x, &salt, &spins }, *code = gf.backend->code();
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(STEP, args), got;
	CUlaunchAttributeValue v = { .priority = -1 };
	CUgraph g = graph_make(), h = graph_make();
	CUgraphNode n;
	CUlibrary library;

	ok(gf.drv.cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
	free(code);
	ok(gf.drv.cuLibraryGetKernel(&gf.kern, library, "step"));
	p.func = NULL;
	p.kern = gf.kern;
	p.ctx = gf.ctx;
	ok(gf.drv.cuGraphAddKernelNode_v2(&n, g, NULL, 0, &p));
	ok(gf.drv.cuGraphKernelNodeGetParams_v2(n, &got));
	ck_assert_ptr_null(got.func);
	ok(gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	n = step_node(h, NULL, 0, 3);
	ok(gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	objects_equal(g, h);
	ok(gf.drv.cuLibraryUnload(library));
}
END_TEST

/* --- attributes --- */

START_TEST(attributes_differ_from_a_fresh_node)
{
	static const CUlaunchAttributeValue none;
	CUlaunchAttributeValue v = none;
	CUgraph g = graph_make();
	CUgraphNode n = kernel_add(g, NULL, NOTHING, NULL);

	v.cooperative = 1;
	ok(gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	v = none;
	v.clusterDim.x = 2, v.clusterDim.y = 1, v.clusterDim.z = 1;
	ok(gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v));
	v = none;
	v.memSyncDomainMap.default_ = 2, v.memSyncDomainMap.remote = 1;
	ok(gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &v));
	v = none;
	v.sharedMemCarveout = 50;
	ok(gf.drv.cuGraphKernelNodeSetAttribute(
		n, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &v));
	v.sharedMemCarveout = 100;
	n = kernel_add(g, &n, NOTHING, NULL);
	ok(gf.drv.cuGraphKernelNodeSetAttribute(
		n, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &v));
	kernel_add(g, &n, NOTHING, NULL);
	reads_as(g, "node 0 kernel 2 grid 1 1 1 block 1 1 1 shared 0 attr cooperative 1 attr "
		    "cluster_dimension 2 1 1 "
		    "attr mem_sync_domain_map 2 1 attr preferred_shared_memory_carveout 50 args\n"
		    "node 1 kernel 2 grid 1 1 1 block 1 1 1 shared 0 attr "
		    "preferred_shared_memory_carveout 100 args\n"
		    "node 2 kernel 2 grid 1 1 1 block 1 1 1 shared 0 args\nedge 0 1\nedge 1 2\n");
}
END_TEST

static void window_set(CUgraphNode n, CUdeviceptr base, size_t bytes)
{
	CUlaunchAttributeValue v;

	memset(&v, 0, sizeof(v));
	v.accessPolicyWindow = (CUaccessPolicyWindow){ (void *)(uintptr_t)base, bytes, 0.5f,
						       CU_ACCESS_PROPERTY_STREAMING,
						       CU_ACCESS_PROPERTY_STREAMING };
	ok(gf.drv.cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
}

START_TEST(access_policy_windows)
{
	CUgraph g = graph_make();
	CUgraphNode n = kernel_add(g, NULL, NOTHING, NULL);
	CUdeviceptr outside;

	window_set(n, gf.mem, 65536);
	n = kernel_add(g, NULL, NOTHING, NULL);
	window_set(n, gf.mem, 0); /* removes it */
	objects_equal(g, ({
		CUgraph h = graph_make();

		window_set(kernel_add(h, NULL, NOTHING, NULL), gf.mem, 65536);
		kernel_add(h, NULL, NOTHING, NULL);
		h;
	}));
	g = graph_make();
	window_set(kernel_add(g, NULL, NOTHING, NULL), gf.mem, 65537);
	graph_refused(g,
		      "node 0: kernel: kernel nothing: its access policy window, 65537 bytes at");
	ok(gf.drv.cuMemAlloc_v2(&outside, 4096));
	g = graph_make();
	window_set(kernel_add(g, NULL, NOTHING, NULL), outside, 16);
	graph_refused(g, "is device memory outside of the region");
	ok(gf.drv.cuMemFree_v2(outside));
}
END_TEST

/* --- calls that read attributes, counted --- */

static CUresult (*real_get)(CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue *);
static unsigned int gets, refused_gets;
static CUgraphNode liar; /* a node that reports attribute 20 */

static CUresult counting_get(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *v)
{
	CUresult res = real_get(node, id, v);

	gets++;
	refused_gets += res != CUDA_SUCCESS;
	if (node != liar || id != 20)
		return res;
	memset(v, 1, 1);
	return CUDA_SUCCESS;
}

static void counting_begin(void)
{
	real_get = gf.drv.cuGraphKernelNodeGetAttribute;
	gf.drv.cuGraphKernelNodeGetAttribute = counting_get;
	liar = NULL;
}

static void read_with(struct fdry_graph_reader *rd, CUgraph g, int err)
{
	struct fdry_buf b = { 0 };

	gets = refused_gets = 0;
	ck_assert_int_eq(fdry_graph_read(rd, g, &b), err);
	fdry_buf_release(&b);
}

/* One node of a kernel is read with all attributes, the others with those that exist. */
START_TEST(attributes_asked_for)
{
	struct fdry_graph_reader rd = gf.reader;
	unsigned int all = FDRY_ATTR_IDS - 1, known;
	CUgraph one = graph_make(), many = graph_make();
	int i;

	counting_begin();
	step_node(one, NULL, 0, 1);
	for (i = 0; i < 50; i++)
		step_node(many, NULL, i, 1);
	read_with(&rd, one, 0);
	known = all - refused_gets / 2;
	ck_assert_uint_eq(gets,
			  2 * all + known); /* a fresh node, the first node; then as every node */
	ck_assert_uint_gt(refused_gets, 10);
	read_with(&rd, many, 0);
	ck_assert_uint_eq(gets, 50 * known);
	ck_assert_uint_eq(refused_gets, 0);
	fdry_graph_memo_release(&rd.memo);
	ok(gf.drv.cuGraphDestroy(one));
	ok(gf.drv.cuGraphDestroy(many));
}
END_TEST

/* An attribute that no cuda.h has yet, shown only by the first node of a kernel, or only by a node
 * with attributes of its own. */
START_TEST(attributes_of_a_newer_driver)
{
	CUlaunchAttributeValue v = { .priority = -1 };
	struct fdry_graph_reader rd = gf.reader;
	CUgraph g = graph_make(), h = graph_make();

	counting_begin();
	liar = step_node(g, NULL, 0, 1);
	read_with(&rd, g, -FDRY_E_REFUSED);
	ck_assert_ptr_nonnull(
		strstr(fdry_last_error(), "attribute 20, which this version does not know"));
	fdry_graph_memo_release(&rd.memo);
	step_node(h, NULL, 0, 1);
	liar = step_node(h, NULL, 1, 1);
	ok(gf.drv.cuGraphKernelNodeSetAttribute(liar, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	read_with(&rd, h, -FDRY_E_REFUSED);
	ck_assert_ptr_nonnull(
		strstr(fdry_last_error(), "node 1: kernel: kernel step: its attributes have other "
					  "values after they were set again"));
	fdry_graph_memo_release(&rd.memo);
	ok(gf.drv.cuGraphDestroy(g));
	ok(gf.drv.cuGraphDestroy(h));
}
END_TEST

/* Also across graphs; a reader that failed is as good as before. */
START_TEST(words_asked_for)
{
	struct fdry_graph_reader rd = gf.reader;
	CUgraph g = graph_make(), h = graph_make();
	unsigned int asked;

	step_node(g, NULL, 0, 0x1234567890);
	step_node(h, NULL, 0, 0x1234567890);
	gf.fail_where = 0x1234567890;
	read_with(&rd, g, -FDRY_E_DRIVER);
	gf.fail_where = 0;
	gf.asked = 0;
	read_with(&rd, g, 0);
	ck_assert_uint_gt(gf.asked, 0);
	asked = gf.asked;
	read_with(&rd, h, 0);
	ck_assert_uint_eq(gf.asked, asked);
	fdry_graph_memo_release(&rd.memo);
	ok(gf.drv.cuGraphDestroy(g));
	ok(gf.drv.cuGraphDestroy(h));
}
END_TEST

/* --- every call fails in turn --- */

/* If this call fails, only the test can repeat it. */
static CUresult (*real_destroy)(CUgraph);
static CUresult stubborn_destroy(CUgraph g)
{
	return real_destroy(g) ? real_destroy(g) : CUDA_SUCCESS;
}

START_TEST(every_call_fails)
{
	CUgraph g = graph_of_all();
	struct fdry_buf b = { 0 };
	unsigned int n;
	char spec[32];
	int err;

	real_destroy = gf.drv.cuGraphDestroy;
	gf.drv.cuGraphDestroy = stubborn_destroy;
	for (n = 1;; n++) {
		snprintf(spec, sizeof(spec), "*:%u:%d", n,
			 _i ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
		test_sim_fail(spec);
		err = graph_read(g, &b);
		if (!test_sim_failed())
			break;
		test_sim_fail(NULL);
		if (!err) {
			/* Destroying the rehearsal failed, or asking about a number that is no
			 * pointer. */
			ck_assert_int_eq(test_sim_live("graph"), 1);
			fdry_buf_release(&b);
			continue;
		}
		ck_assert_msg(err == -(_i ? FDRY_E_NODEVMEM : FDRY_E_DRIVER), "call %u: %s: %s", n,
			      fdry_error_name(err), fdry_last_error());
		ck_assert_ptr_null(b.data);
		ck_assert_msg(test_sim_live("graph") == 1, "call %u leaves a graph behind", n);
	}
	test_sim_fail(NULL);
	ck_assert_uint_gt(n, 100);
	ok(err);
	fdry_buf_release(&b);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

START_TEST(functions_that_are_missing)
{
	CUgraph g = graph_of_all();
	struct fdry_buf b = { 0 };

	gf.drv.cuGraphGetEdges_v2 = NULL;
	fails(NOFUNC, "lacks cuGraphGetEdges, which CUDA 12.3 introduced",
	      graph_read(g, &b));
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_read");
	TCase *tc = tcase_create("read");

	tcase_add_checked_fixture(tc, graph_fixture_open, graph_fixture_close);
	tcase_add_test(tc, kernel_of_a_library);
	tcase_add_test(tc, attributes_differ_from_a_fresh_node);
	tcase_add_test(tc, access_policy_windows);
	tcase_add_test(tc, attributes_asked_for);
	tcase_add_test(tc, attributes_of_a_newer_driver);
	tcase_add_test(tc, words_asked_for);
	tcase_add_loop_test(tc, every_call_fails, 0, 2);
	tcase_add_test(tc, functions_that_are_missing);
	suite_add_tcase(s, tc);
	return test_main(s);
}
