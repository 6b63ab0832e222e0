// SPDX-License-Identifier: Apache-2.0
/* Unit tests of CUDA arrays through the interposer: which it knows, and why it refuses others. */
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

static const CUDA_ARRAY3D_DESCRIPTOR box = { .Width = 8, .Height = 4, .Depth = 2,
					     .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2,
					     .Flags = CUDA_ARRAY3D_LAYERED };

static CUarray array_new(void)
{
	CUarray a;

	cuda_ok(cuArray3DCreate_v2, &a, &box);
	return a;
}

static void refused_in(CUgraph g, CUarray a, const char *why)
{
	struct fdry_hook_array ret;

	ck_assert_int_eq(hook->array(g, a, &ret), -FDRY_E_REFUSED);
	ck_assert_msg(strstr(hook->last_error(), why) != NULL, "%s", hook->last_error());
}

static void refused(CUarray a, const char *why)
{
	refused_in(NULL, a, why);
}

START_TEST(arrays_of_a_region)
{
	CUDA_ARRAY_DESCRIPTOR flat = { 100, 7, CU_AD_FORMAT_UNSIGNED_INT16, 4 };
	struct fdry_hook_array a, b;
	CUcontext ctx;
	CUarray x, y;

	test_hook();
	cuda_ok(cuCtxGetCurrent, &ctx);
	hook_region_begin(1 << 30);
	x = array_new();
	cuda_ok(cuArrayCreate_v2, &y, &flat);
	ck_assert_int_eq(hook->array(NULL, x, &a), 0);
	ck_assert_int_eq(hook->array(NULL, y, &b), 0);
	ck_assert_mem_eq(&a.desc, &box, sizeof(box));
	ck_assert_ptr_eq(a.ctx, ctx);
	ck_assert_uint_ne(a.serial, b.serial);
	ck_assert_uint_eq(b.desc.Width, 100);
	ck_assert_uint_eq(b.desc.Height, 7);
	ck_assert_uint_eq(b.desc.Depth, 0);
	ck_assert_uint_eq(b.desc.Flags, 0);
	ck_assert_int_eq(b.desc.Format, CU_AD_FORMAT_UNSIGNED_INT16);
	ck_assert_uint_eq(b.desc.NumChannels, 4);
	/* What the driver refuses changes nothing. */
	test_sim_fail("cuArrayDestroy:1");
	ck_assert_int_ne(cuda(cuArrayDestroy, x), CUDA_SUCCESS);
	ck_assert_int_eq(hook->array(NULL, x, &b), 0);
	ck_assert_uint_eq(b.serial, a.serial);
	test_sim_fail("cuArray3DCreate_v2:1");
	ck_assert_int_ne(cuda(cuArray3DCreate_v2, &y, &box), CUDA_SUCCESS);
	ck_assert_int_ne(cuda(cuArrayCreate_v2, &y, NULL), CUDA_SUCCESS);
	ck_assert_int_ne(cuda(cuArray3DCreate_v2, NULL, &box), CUDA_SUCCESS);
	ck_assert_int_ne(cuda(cuArrayDestroy, (CUarray)0x1230), CUDA_SUCCESS);
}
END_TEST

START_TEST(arrays_that_are_refused)
{
	CUarray before, paused, x, foreign;

	test_hook();
	before = array_new();
	hook_region_begin(1 << 30);
	refused(before, "was made before the capture began");
	ck_assert_int_eq(hook->region_pause(), 0);
	paused = array_new();
	ck_assert_int_eq(hook->region_resume(), 0);
	refused(paused, "while it was paused");
	ok(((__typeof__(&cuArray3DCreate_v2))test_sim_symbol("cuArray3DCreate_v2"))(&foreign,
										    &box));
	refused(foreign, "was not made by cuArrayCreate() or cuArray3DCreate()");
	x = array_new();
	cuda_ok(cuArrayDestroy, x);
	refused(x, "was destroyed; keep it until the seal");
	x = array_new();
	ck_assert_int_eq(hook->region_end(), 0);
	refused(x, "was made before the capture began");
}
END_TEST

/* --- arrays with the handle of an earlier one --- */

static CUgraph graph_new(void)
{
	CUgraph g;

	cuda_ok(cuGraphCreate, &g, 0);
	return g;
}

static CUgraph clone_of(CUgraph from)
{
	CUgraph g;

	cuda_ok(cuGraphClone, &g, from);
	return g;
}

static CUgraph child_graph(CUgraphNode n)
{
	CUgraph g;

	cuda_ok(cuGraphChildGraphNodeGetGraph, n, &g);
	return g;
}

/* The child graph of a new node of @g, made of @from. */
static CUgraph child_of(CUgraph g, CUgraph from)
{
	CUgraphNode n;

	cuda_ok(cuGraphAddChildGraphNode, &n, g, NULL, 0, from);
	return child_graph(n);
}

static CUgraph child_moved(CUgraph g, CUgraph from, CUgraphChildGraphNodeOwnership how)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_GRAPH,
				.graph = { .graph = from, .ownership = how } };
	CUgraphNode n;

	cuda_ok(cuGraphAddNode_v2, &n, g, NULL, NULL, 0, &p);
	return child_graph(n);
}

static CUgraph body_of(CUgraph g)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUgraphConditionalHandle h;
	CUgraphNode n;

	cuda_ok(cuCtxGetCurrent, &p.conditional.ctx);
	cuda_ok(cuGraphConditionalHandleCreate, &h, g, p.conditional.ctx, 1, 0);
	p.conditional.handle = h;
	p.conditional.type = CU_GRAPH_COND_TYPE_IF;
	p.conditional.size = 1;
	cuda_ok(cuGraphAddNode_v2, &n, g, NULL, NULL, 0, &p);
	return p.conditional.phGraph_out[0];
}

static CUarray array_again(CUarray old)
{
	CUarray a;

	cuda_ok(cuArrayDestroy, old);
	a = array_new();
	ck_assert_ptr_eq(a, old);
	return a;
}

static void known_in(CUgraph g, CUarray a)
{
	struct fdry_hook_array ret, alone;

	ck_assert_msg(!hook->array(g, a, &ret), "%s", hook->last_error());
	ck_assert_int_eq(hook->array(NULL, a, &alone), 0);
	ck_assert_uint_eq(ret.serial, alone.serial);
}

static void unproven(CUgraph g, CUarray a)
{
	refused_in(g, a, "has the handle of an array that was destroyed, and the graph may have "
			 "begun before it was made");
}

static CUstream stream_new(void)
{
	CUstream s;

	cuda_ok(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	return s;
}

static void capture_begin(CUstream s)
{
	cuda_ok(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUgraph capture_end(CUstream s)
{
	CUgraph g;

	cuda_ok(cuStreamEndCapture, s, &g);
	return g;
}

/* A graph that began after an array was made means that array, whichever way it began. */
START_TEST(graphs_that_mean_an_array)
{
	CUgraph old, g, again;
	CUstream s, t;
	CUarray a, b;

	test_hook();
	hook_region_begin(1 << 30);
	s = stream_new();
	t = stream_new();
	b = array_new();
	old = graph_new();
	capture_begin(t);
	a = array_again(array_new());
	g = graph_new();
	known_in(g, a);
	unproven(old, a);
	known_in(old, b); /* its handle is its own */
	unproven(capture_end(t), a);
	known_in(NULL, a);
	capture_begin(s);
	known_in(capture_end(s), a);
	ok(cuda_ptsz(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cuda_ptsz(cuStreamEndCapture, s, &again));
	known_in(again, a);
	/* A capture to a graph began with the graph. */
	cuda_ok(cuStreamBeginCaptureToGraph, s, old, NULL, NULL, 0,
		CU_STREAM_CAPTURE_MODE_RELAXED);
	unproven(capture_end(s), a);
	unproven(old, a);
	cuda_ok(cuStreamBeginCaptureToGraph, s, g, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
	known_in(capture_end(s), a);
	known_in(body_of(graph_new()), a);
	known_in(body_of(old), a); /* the body is new */
	/* The next array with the handle. */
	a = array_again(a);
	unproven(g, a);
	unproven(again, a);
	known_in(graph_new(), a);
	cuda_ok(cuArrayDestroy, a);
	refused_in(graph_new(), a, "was destroyed; keep it until the seal");
}
END_TEST

/* The nodes of a clone are as old as those of its original. */
START_TEST(clones_mean_what_their_originals_mean)
{
	CUgraph old, older, g, c;
	CUarray a;

	test_hook();
	hook_region_begin(1 << 30);
	old = graph_new();
	older = graph_new();
	child_of(older, old);
	a = array_again(array_new());
	g = graph_new();
	unproven(clone_of(old), a);
	known_in(clone_of(g), a);
	unproven(child_of(g, old), a);
	known_in(child_of(g, graph_new()), a);
	unproven(child_moved(g, old, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE), a);
	c = graph_new();
	known_in(child_moved(g, c, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE), a);
	c = child_moved(g, c, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
	known_in(c, a);
	c = child_moved(g, clone_of(old), CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
	unproven(c, a);
	known_in(g, a); /* its own nodes */
	unproven(child_of(c, g), array_again(a));
}
END_TEST

/* Graphs may get the handles of destroyed ones: a clone's child is no younger for that. */
START_TEST(handles_of_graphs_come_back)
{
	CUgraphNode n;
	CUgraph old, in, g, c;
	CUarray a;
	size_t one = 1;

	test_hook();
	hook_region_begin(1 << 30);
	old = graph_new();
	in = child_of(old, graph_new());
	a = array_again(array_new());
	unproven(in, a);
	g = graph_new();
	known_in(g, a);
	cuda_ok(cuGraphDestroy, g);
	c = clone_of(old);
	cuda_ok(cuGraphGetNodes, c, &n, &one);
	ck_assert_msg(c == g || child_graph(n) == g, "the handle did not come back");
	unproven(c, a);
	unproven(child_graph(n), a);
	/* A new graph is as young with an old handle. */
	cuda_ok(cuGraphDestroy, old);
	g = graph_new();
	known_in(g, a);
}
END_TEST

/* A launch in a capture adds a copy of an executable graph, whose nodes may be of any age. */
START_TEST(launches_in_captures_leave_no_proof)
{
	CUgraphExec x;
	CUstream s;
	CUgraph g;
	CUarray a;

	test_hook();
	hook_region_begin(1 << 30);
	s = stream_new();
	a = array_again(array_new());
	g = graph_new();
	cuda_ok(cuGraphInstantiateWithFlags, &x, g, 0);
	capture_begin(s);
	cuda_ok(cuGraphLaunch, x, NULL);
	known_in(g, a);
	cuda(cuGraphLaunch, x, s); /* the software driver refuses it */
	unproven(g, a);
	known_in(graph_new(), a);
}
END_TEST

/* --- levels of mipmapped arrays --- */

static CUmipmappedArray mipmap_new(void)
{
	CUmipmappedArray m;

	cuda_ok(cuMipmappedArrayCreate, &m, &box, 3);
	return m;
}

static CUarray level_of(CUmipmappedArray m, unsigned int level)
{
	CUarray a;

	cuda_ok(cuMipmappedArrayGetLevel, &a, m, level);
	return a;
}

START_TEST(levels_of_mipmaps)
{
	struct fdry_hook_array a, b, c;
	CUmipmappedArray m, n;
	CUcontext ctx;
	CUarray x, y;

	test_hook();
	cuda_ok(cuCtxGetCurrent, &ctx);
	hook_region_begin(1 << 30);
	m = mipmap_new();
	n = mipmap_new();
	x = level_of(m, 2);
	y = level_of(m, 0);
	ck_assert_int_eq(hook->array(NULL, x, &a), 0);
	ck_assert_mem_eq(&a.desc, &box, sizeof(box));
	ck_assert_ptr_eq(a.ctx, ctx);
	ck_assert_uint_eq(a.level, 2);
	ck_assert_uint_eq(a.levels, 3);
	ck_assert_uint_ne(a.mipmap, 0);
	ck_assert_int_eq(hook->array(NULL, y, &b), 0);
	ck_assert_uint_eq(b.level, 0);
	ck_assert_uint_eq(b.mipmap, a.mipmap);
	ck_assert_uint_ne(b.serial, a.serial);
	ck_assert_int_eq(hook->array(NULL, level_of(n, 0), &c), 0);
	ck_assert_uint_ne(c.mipmap, a.mipmap);
	/* A second question changes nothing, nor does a call that fails. */
	ck_assert_ptr_eq(level_of(m, 2), x);
	ck_assert_int_eq(hook->array(NULL, x, &b), 0);
	ck_assert_uint_eq(b.serial, a.serial);
	ck_assert_int_ne(cuda(cuMipmappedArrayGetLevel, &y, m, 7), CUDA_SUCCESS);
	ck_assert_int_ne(cuda(cuMipmappedArrayCreate, &n, NULL, 1), CUDA_SUCCESS);
	ck_assert_int_ne(cuda(cuArrayDestroy, x), CUDA_SUCCESS);
	test_sim_fail("cuMipmappedArrayDestroy:1");
	ck_assert_int_ne(cuda(cuMipmappedArrayDestroy, m), CUDA_SUCCESS);
	ck_assert_int_eq(hook->array(NULL, x, &b), 0);
	ck_assert_uint_eq(b.serial, a.serial);
	cuda_ok(cuMipmappedArrayDestroy, m);
	refused(x, "was destroyed; keep it until the seal");
	ck_assert_int_eq(hook->array(NULL, level_of(n, 0), &b), 0);
	cuda_ok(cuMipmappedArrayCreate, &m, &box, 0);
	ck_assert_int_eq(hook->array(NULL, level_of(m, 0), &b), 0);
	ck_assert_uint_eq(b.levels, 1);
}
END_TEST

START_TEST(levels_that_are_refused)
{
	CUmipmappedArray before, foreign, m;
	CUgraph old;
	CUarray x;

	test_hook();
	before = mipmap_new();
	hook_region_begin(1 << 30);
	refused(level_of(before, 0), "was made before the capture began");
	ok(((__typeof__(&cuMipmappedArrayCreate))test_sim_symbol("cuMipmappedArrayCreate"))(
		&foreign, &box, 1));
	refused(level_of(foreign, 0), "is a level of a mipmapped array that was not made by");
	/* The handle of a level comes back, as that of an array or of a level. */
	cuda_ok(cuMipmappedArrayCreate, &m, &box, 1);
	x = level_of(m, 0);
	old = graph_new();
	cuda_ok(cuMipmappedArrayDestroy, m);
	ck_assert_ptr_eq(array_new(), x);
	unproven(old, x);
	known_in(graph_new(), x);
	old = graph_new();
	cuda_ok(cuArrayDestroy, x);
	cuda_ok(cuMipmappedArrayCreate, &m, &box, 1);
	ck_assert_ptr_eq(level_of(m, 0), x);
	unproven(old, x);
	known_in(graph_new(), x);
}
END_TEST

/* Notes are found among many. */
START_TEST(many)
{
	struct fdry_hook_array a;
	CUarray x[300];
	uint64_t last = 0;
	int i;

	test_hook();
	hook_region_begin(1 << 30);
	for (i = 0; i < 300; i++)
		x[i] = array_new();
	for (i = 0; i < 300; i++) {
		ck_assert_int_eq(hook->array(NULL, x[i], &a), 0);
		ck_assert_uint_gt(a.serial, last);
		last = a.serial;
	}
	for (i = 0; i < 300; i += 3)
		cuda_ok(cuArrayDestroy, x[i]);
	for (i = 0; i < 300; i++)
		ck_assert_int_eq(hook->array(NULL, x[i], &a), i % 3 ? 0 : -FDRY_E_REFUSED);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hook_array");
	TCase *tc = tcase_create("arrays");

	tcase_add_test(tc, arrays_of_a_region);
	tcase_add_test(tc, arrays_that_are_refused);
	tcase_add_test(tc, graphs_that_mean_an_array);
	tcase_add_test(tc, clones_mean_what_their_originals_mean);
	tcase_add_test(tc, handles_of_graphs_come_back);
	tcase_add_test(tc, launches_in_captures_leave_no_proof);
	tcase_add_test(tc, levels_of_mipmaps);
	tcase_add_test(tc, levels_that_are_refused);
	tcase_add_test(tc, many);
	suite_add_tcase(s, tc);
	return test_main(s);
}
