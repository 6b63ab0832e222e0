// SPDX-License-Identifier: Apache-2.0
/*
 * Reading and building graphs on the machine's own driver: the tests of graph_rules.h, whose texts
 * are the same as on the software driver; every attribute; the attributes of a fresh node; cost.
 * Lines that begin with "note" report facts about the driver.
 */
#include "tests/lib/clock.h"
#include "tests/replace/graph_fixture.h"
#include "tests/lib/graph_rules.h"
#include "tests/lib/gpu.h"


#include "graph/attr.h"

START_TEST(fresh_attributes)
{
	CUgraph g = graph_make();
	CUgraphNode n = kernel_add(g, NULL, NOTHING, NULL);
	struct fdry_attr_values v;
	uint32_t id, i;

	ok(fdry_attrs_read(&gf.drv, n, FDRY_ATTRS_ALL, &v));
	for (id = 1; id < FDRY_ATTR_IDS; id++) {
		if (!(v.readable & 1u << id))
			continue;
		printf("note: a fresh node's attribute %u is", id);
		for (i = 0; i < 32; i++)
			printf("%s%02x", i % 4 ? "" : " ", v.value[id][i]);
		printf("\n");
	}
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

static const struct {
	CUlaunchAttributeID id;
	CUlaunchAttributeValue value;
} values[] = {
	{ 1,
	  { .accessPolicyWindow = { (void *)0x500000000000, 4096, 0.5f,
				    CU_ACCESS_PROPERTY_PERSISTING,
				    CU_ACCESS_PROPERTY_STREAMING } } },
	{ 2, { .cooperative = 1 } },
	{ 3, { .syncPolicy = CU_SYNC_POLICY_YIELD } },
	{ 4, { .clusterDim = { 1, 1, 1 } } },
	{ 5, { .clusterSchedulingPolicyPreference = CU_CLUSTER_SCHEDULING_POLICY_SPREAD } },
	{ 6, { .programmaticStreamSerializationAllowed = 1 } },
	{ 8, { .priority = -5 } },
	{ 8, { .priority = -1 } },
	{ 9, { .memSyncDomainMap = { 2, 3 } } },
	{ 10, { .memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE } },
	{ 14, { .sharedMemCarveout = 50 } },
	{ 14, { .sharedMemCarveout = 0 } },
	{ 16, { .pad = { 1 } } },
};

/* An object keeps each attribute that the driver accepts for a node. */
START_TEST(every_attribute)
{
	CUgraph g = graph_make();
	CUgraphNode n = kernel_add(g, NULL, NOTHING, NULL);
	CUresult res = gf.drv.cuGraphKernelNodeSetAttribute(n, values[_i].id, &values[_i].value);
	struct fdry_buf object, again;
	struct fdry_graph_built b;
	const char *name;

	if (res) {
		gf.drv.cuGetErrorName(res, &name);
		printf("note: attribute %d cannot be set on a node: %s\n", (int)values[_i].id,
		       name);
		ok(gf.drv.cuGraphDestroy(g));
		return;
	}
	object = graph_object(g);
	again = text_of(&object);
	printf("note: attribute %d set: %s", (int)values[_i].id,
	       strstr((char *)again.data, "node 0"));
	fdry_buf_release(&again);
	built_of(&object, &b);
	again = graph_object(b.graph);
	same_bytes(&object, &again);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	fdry_buf_release(&again);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* Print the edge data that the driver accepts, and whether one call keeps the data of each edge. */
START_TEST(edge_data)
{
	static const CUgraphEdgeData data[] = {
		{ 1, 0, 1, { 0 } }, { 2, 0, 1, { 0 } }, { 2, 0, 0, { 0 } }, { 0, 0, 1, { 0 } }
	};
	CUgraph g = graph_make();
	CUgraphNode n[5], from[4], to[4], a[4], b[4];
	CUgraphEdgeData got[4];
	size_t count = 4, i;
	CUresult res;

	for (i = 0; i < 5; i++)
		n[i] = step_node(g, NULL, (int)i, i);
	for (i = 0; i < 4; i++) {
		res = gf.drv.cuGraphAddDependencies_v2(g, &n[0], &n[i + 1], &data[i], 1);
		printf("note: an edge with from_port %u and type %u: %d\n", data[i].from_port,
		       data[i].type, (int)res);
	}
	ok(gf.drv.cuGraphDestroy(g));
	g = graph_make();
	for (i = 0; i < 5; i++)
		n[i] = step_node(g, NULL, (int)i, i);
	for (i = 0; i < 4; i++)
		from[i] = n[i], to[i] = n[i + 1];
	res = gf.drv.cuGraphAddDependencies_v2(
		g, from, to, (const CUgraphEdgeData[]){ data[0], { 0 }, data[0], { 0 } }, 4);
	ok(res);
	ok(gf.drv.cuGraphGetEdges_v2(g, a, b, got, &count));
	for (i = 0; i < count; i++)
		printf("note: edge %zu of one call with data 1 0 1 0 has type %u\n", i,
		       got[i].type);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

static const CUDA_ARRAY3D_DESCRIPTOR flat = { .Width = 64, .Height = 8,
					      .Format = CU_AD_FORMAT_UNSIGNED_INT32,
					      .NumChannels = 1 };

/* What cuda.h does not say about levels of mipmapped arrays: software-driver.rst has what was
 * seen. */
START_TEST(level_facts)
{
	CUDA_MEMCPY3D p = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = gf.mem,
			    .srcPitch = 128, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			    .WidthInBytes = 128, .Height = 4, .Depth = 1 }, got;
	CUmipmappedArray first, second;
	CUarray a, b;
	CUgraph g = graph_make();
	CUgraphNode n;

	ok(gf.drv.cuMipmappedArrayCreate(&first, &flat, 2));
	ok(gf.drv.cuMipmappedArrayGetLevel(&a, first, 1));
	p.dstArray = a;
	n = memcpy_add(g, NULL, p);
	ok(gf.drv.cuGraphMemcpyNodeGetParams(n, &got));
	printf("note: a node reports %s, and level of detail %zu\n",
	       got.dstArray == a ? "the handle of its level" : "another handle than its level's",
	       got.dstLOD);
	p.Height = 5;
	printf("note: a node that copies 5 rows to a level of 4 is result %d\n",
	       (int)gf.drv.cuGraphAddMemcpyNode(&n, g, NULL, 0, &p, gf.ctx));
	ok(gf.drv.cuGraphDestroy(g));
	ok(gf.drv.cuMipmappedArrayDestroy(first));
	ok(gf.drv.cuMipmappedArrayCreate(&second, &flat, 2));
	ok(gf.drv.cuMipmappedArrayGetLevel(&b, second, 1));
	printf("note: a new level %s the handle of the last destroyed one\n",
	       a == b ? "has" : "does not have");
	/* At last: a driver may not survive it. */
	fflush(stdout);
	printf("note: destroying a level is result %d\n", (int)gf.drv.cuArrayDestroy(b));
	fflush(stdout);
}
END_TEST

/* What cuda.h does not say about arrays: see the assumptions in software-driver.rst. */
START_TEST(array_facts)
{
	CUDA_MEMCPY3D p = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = gf.mem,
			    .srcPitch = 256, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			    .dstPitch = 7, .dstHeight = 9, .WidthInBytes = 6, .Height = 1,
			    .Depth = 1 }, got;
	CUarray first, second;
	CUgraph g = graph_make();
	CUgraphNode n;

	ok(gf.drv.cuArray3DCreate_v2(&first, &flat));
	p.dstArray = first;
	printf("note: a node that copies 6 bytes to elements of 4 is result %d\n",
	       (int)gf.drv.cuGraphAddMemcpyNode(&n, g, NULL, 0, &p, gf.ctx));
	p.WidthInBytes = 8;
	p.dstXInBytes = 2;
	printf("note: a node that copies to byte 2 of elements of 4 is result %d\n",
	       (int)gf.drv.cuGraphAddMemcpyNode(&n, g, NULL, 0, &p, gf.ctx));
	p.dstXInBytes = 0;
	n = memcpy_add(g, NULL, p);
	ok(gf.drv.cuGraphMemcpyNodeGetParams(n, &got));
	printf("note: a node reports pitch %zu and height %zu of its array, which had 7 and 9\n",
	       got.dstPitch, got.dstHeight);
	ok(gf.drv.cuGraphDestroy(g));
	ok(gf.drv.cuArrayDestroy(first));
	ok(gf.drv.cuArray3DCreate_v2(&second, &flat));
	printf("note: a new array %s the handle of the last destroyed one\n",
	       first == second ? "has" : "does not have");
	ok(gf.drv.cuArrayDestroy(second));
}
END_TEST

START_TEST(cost)
{
	enum { NODES = 1750 };
	CUgraph g = graph_make();
	CUgraphNode n = step_node(g, NULL, 0, 0);
	struct fdry_graph_view v;
	struct fdry_graph_built b;
	struct fdry_buf object;
	double t[4];
	int i;

	for (i = 1; i < NODES; i++)
		n = step_node(g, &n, i % 1000, (uint64_t)i);
	object = graph_object(g);
	fdry_buf_release(&object);
	t[0] = now_us();
	object = graph_object(g);
	t[1] = now_us();
	ok(fdry_graph_view_init(span_of(&object), &v));
	t[2] = now_us();
	ok(fdry_graph_build(&gf.builder, &v, &b));
	t[3] = now_us();
	printf("note: reading takes %.3f us a node, opening %.3f, building %.3f\n",
	       (t[1] - t[0]) / NODES, (t[2] - t[1]) / NODES, (t[3] - t[2]) / NODES);
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
}
END_TEST

/* Nothing is forked, so the lines of a run that is cut show where it was. */
static void progress_open(void)
{
	static unsigned int checks;
	static double start;

	start = start ? start : now_us();
	if (checks++ % 10 == 0)
		printf("note: check %u begins after %.1f s\n", checks, (now_us() - start) / 1e6);
	graph_fixture_open();
}

int main(void)
{
	Suite *s = suite_create("graph_driver");
	TCase *tc = tcase_create("driver");

	gf.backend = &backend_gpu;
	setvbuf(stdout, NULL, _IOLBF, 0);
	gpu_driver();
	tcase_add_checked_fixture(tc, progress_open, graph_fixture_close);
	graph_rules_add(tc);
	graph_rules_nodes_add(tc);
	graph_rules_arrays_add(tc);
	tcase_add_test(tc, fresh_attributes);
	tcase_add_loop_test(tc, every_attribute, 0, sizeof(values) / sizeof(values[0]));
	tcase_add_test(tc, edge_data);
	tcase_add_test(tc, array_facts);
	tcase_add_test(tc, level_facts);
	tcase_add_test(tc, cost);
	suite_add_tcase(s, tc);
	return test_main_nofork(s);
}
