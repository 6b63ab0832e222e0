// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of reading a graph again that did not change: the driver is not asked for its nodes.
 * If something else changed, the result is the same object or error as from reading the graph.
 */
#include "graph/attr.h"
#include "tests/replace/graph_fixture.h"
#include "tests/lib/sim.h"

static CUresult (*real_attr)(CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue *);
static unsigned int attrs_read;

static CUresult counting_attr(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *v)
{
	attrs_read++;
	return real_attr(node, id, v);
}

static CUresult (*real_params)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *);
static unsigned int nodes_read;

static CUresult counting_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p)
{
	nodes_read++;
	return real_params(node, p);
}

static void begin(void)
{
	graph_fixture_open();
	nodes_read = 0;
	real_params = gf.drv.cuGraphKernelNodeGetParams_v2;
	gf.drv.cuGraphKernelNodeGetParams_v2 = counting_params;
	real_attr = gf.drv.cuGraphKernelNodeGetAttribute;
	gf.drv.cuGraphKernelNodeGetAttribute = counting_attr;
}

static struct fdry_graph_memo memo; /* of the last reader */

/* Read the graph again with a new reader, as each seal does. @count: the number of nodes that were
 * read from the driver. */
static int reread(CUgraph g, struct fdry_graph_kept *kept, unsigned int *count)
{
	struct fdry_graph_reader rd = gf.reader;
	int err;

	fdry_graph_memo_adopt(&rd, &memo);
	nodes_read = 0;
	err = fdry_graph_reread(&rd, g, kept);
	*count = nodes_read;
	fdry_graph_memo_yield(&rd, true, &memo);
	return err;
}

/* Check that the object equals that of a first reading. Returns whether the nodes were read. */
static bool read_anew(CUgraph g, struct fdry_graph_kept *kept)
{
	struct fdry_buf fresh = graph_object(g);
	unsigned int count;

	ck_assert_msg(!reread(g, kept, &count), "%s", fdry_last_error());
	ck_assert_uint_eq(kept->object.len, fresh.len);
	ck_assert(!memcmp(kept->object.data, fresh.data, fresh.len));
	fdry_buf_release(&fresh);
	return count != 0;
}

static void refused_again(CUgraph g, struct fdry_graph_kept *kept, const char *words_)
{
	unsigned int count;

	fails(REFUSED, words_, reread(g, kept, &count));
	ck_assert_uint_eq(kept->object.len, 0);
}

static void end(CUgraph g, struct fdry_graph_kept *kept)
{
	fdry_graph_kept_release(kept);
	fdry_graph_memo_release(&memo);
	ok(gf.drv.cuGraphDestroy(g));
}

static CUdeviceptr freed_address(void)
{
	CUdeviceptr p;

	ok(gf.drv.cuMemAlloc_v2(&p, 4096));
	ok(gf.drv.cuMemFree_v2(p));
	return p;
}

/* Allocate the memory at an address that freed_address() returned. */
static void allocate_again(CUdeviceptr p)
{
	CUdeviceptr again;

	ok(gf.drv.cuMemAlloc_v2(&again, 4096));
	ck_assert_uint_eq(again, p);
}

START_TEST(nothing_changed)
{
	struct fdry_graph_kept kept = { 0 };
	CUgraph g = graph_of_all();

	ck_assert(read_anew(g, &kept));
	ck_assert(!read_anew(g, &kept));
	fdry_wordset_release(&memo.words); /* as after a seal that failed */
	ck_assert(!read_anew(g, &kept));
	ck_assert_uint_gt(fdry_graph_kept_bytes(&kept), kept.object.len);
	fdry_graph_kept_release(&kept);
	ck_assert_uint_eq(fdry_graph_kept_bytes(&kept), 0);
	ck_assert(read_anew(g, &kept));
	end(g, &kept);
}
END_TEST

/* A caller breaks its promise in a way that is cheap to detect. */
START_TEST(nodes_or_edges_came)
{
	struct fdry_graph_kept kept = { 0 };
	CUgraph g = graph_make();
	CUgraphNode a = step_node(g, NULL, 0, 3), b = step_node(g, NULL, 1, 5);

	ck_assert(read_anew(g, &kept));
	edge_add(g, a, b, (CUgraphEdgeData){ 0 });
	ck_assert(read_anew(g, &kept));
	step_node(g, &b, 2, 7);
	ck_assert(read_anew(g, &kept));
	ck_assert(!read_anew(g, &kept));
	end(g, &kept);
}
END_TEST

START_TEST(kernel_is_another)
{
	struct fdry_graph_kept kept = { 0 };
	CUgraph g = graph_make();

	step_node(g, NULL, 0, 3);
	ck_assert(read_anew(g, &kept));
	gf.print++;
	ck_assert(read_anew(g, &kept));
	ck_assert(!read_anew(g, &kept));
	end(g, &kept);
}
END_TEST

/* The numbers of prints belong to one table: those of another say nothing. */
START_TEST(prints_of_another_table)
{
	struct fdry_graph_kept kept = { 0 };
	CUgraph g = graph_make();

	step_node(g, NULL, 0, 3);
	ck_assert(read_anew(g, &kept));
	fdry_graph_memo_release(&memo);
	gf.print++;
	ck_assert(read_anew(g, &kept));
	ck_assert(!read_anew(g, &kept));
	end(g, &kept);
}
END_TEST

/* The calls that read the attributes of a new graph with one node. */
static unsigned int attrs_of_new(uint32_t salt)
{
	struct fdry_graph_kept kept = { 0 };
	CUgraph g = graph_make();
	unsigned int count;

	step_node(g, NULL, salt, 3);
	attrs_read = 0;
	ok(reread(g, &kept, &count));
	ck_assert_uint_eq(count, 1);
	fdry_graph_kept_release(&kept);
	ok(gf.drv.cuGraphDestroy(g));
	return attrs_read;
}

/* A fresh node of a kernel is queried once, also by later readers; one with another print is
 * another kernel. */
START_TEST(fresh_nodes_are_known)
{
	unsigned int first = attrs_of_new(0), again = attrs_of_new(1);

	ck_assert_uint_gt(again, 0);
	ck_assert_uint_gt(first, 2 * again);
	gf.print++;
	ck_assert_uint_eq(attrs_of_new(2), first);
	ck_assert_uint_eq(attrs_of_new(3), again);
	fdry_graph_memo_release(&memo);
	ck_assert_uint_eq(attrs_of_new(4), first);
	fdry_graph_memo_release(&memo);
}
END_TEST

/* A number that became a pointer: to memory that an image does not hold, whatever the reader before
 * knew. */
START_TEST(number_became_a_pointer)
{
	struct fdry_graph_kept kept = { 0 };
	CUgraph g = graph_make();
	CUdeviceptr p = freed_address();

	step_node(g, NULL, 0, p);
	ck_assert(read_anew(g, &kept));
	ck_assert(!read_anew(g, &kept));
	allocate_again(p);
	if (_i)
		fdry_wordset_release(&memo.words);
	refused_again(g, &kept, "node 0: kernel: kernel step: byte 0 of its parameter 1 is");
	ok(gf.drv.cuMemFree_v2(p));
	ck_assert(read_anew(g, &kept));
	end(g, &kept);
}
END_TEST

/* A word of two graphs belongs to each, whether one reader read both or the second adopted it. */
START_TEST(word_of_two_graphs)
{
	struct fdry_graph_kept kept[2];
	struct fdry_graph_reader rd = gf.reader;
	CUgraph g[2] = { graph_make(), graph_make() };
	CUdeviceptr p = freed_address();

	memset(kept, 0, sizeof(kept));
	step_node(g[0], NULL, 0, p);
	step_node(g[1], NULL, 1, p);
	ok(fdry_graph_reread(&rd, g[0], &kept[0]));
	if (_i) {
		fdry_graph_memo_yield(&rd, true, &memo);
		fdry_graph_memo_adopt(&rd, &memo);
		ck_assert(rd.words_again);
	}
	ok(fdry_graph_reread(&rd, g[1], &kept[1]));
	fdry_graph_memo_yield(&rd, true, &memo);
	allocate_again(p);
	refused_again(g[0], &kept[0], "which points to device memory outside of the region");
	fdry_wordset_release(&memo.words);
	refused_again(g[1], &kept[1], "which points to device memory outside of the region");
	ok(gf.drv.cuMemFree_v2(p));
	end(g[0], &kept[0]);
	end(g[1], &kept[1]);
}
END_TEST

/* A reader that finds too many words drops them. The next one has only those of new graphs, so it
 * checks the words of each kept graph. */
START_TEST(too_many_words_are_checked_by_graph)
{
	static const size_t many = (4u << 20) + 1;
	void *words;
	struct fdry_graph_kept kept[2];
	struct fdry_graph_reader rd = gf.reader;
	CUgraph g[2] = { graph_make(), graph_make() };
	CUdeviceptr p = freed_address();
	unsigned int count;
	size_t i;

	memset(kept, 0, sizeof(kept));
	step_node(g[0], NULL, 0, p);
	step_node(g[1], NULL, 1, 5);
	ok(reread(g[0], &kept[0], &count));
	ok(fdry_buf_grow(&memo.words.list, many * sizeof(uint64_t), &words));
	for (i = 0; i < many; i++)
		((uint64_t *)words)[i] = i + 1;
	fdry_graph_memo_adopt(&rd, &memo);
	ok(fdry_graph_reread(&rd, g[0], &kept[0]));
	ok(fdry_graph_reread(&rd, g[1], &kept[1]));
	fdry_graph_memo_yield(&rd, true, &memo);
	allocate_again(p);
	refused_again(g[0], &kept[0], "which points to device memory outside of the region");
	ok(gf.drv.cuMemFree_v2(p));
	end(g[0], &kept[0]);
	end(g[1], &kept[1]);
}
END_TEST

/* The same in a gap between parameters. A pointer to freed memory is a number there. */
START_TEST(pointer_in_a_gap)
{
	struct fdry_graph_kept kept = { 0 };
	CUgraph g = graph_make();
	CUdeviceptr p = freed_address(), x = gf.mem;
	uint64_t salt;
	uint32_t spins;
	void *args[] = { &x, &salt, &spins };

	salt = p << 32 | 7;
	spins = (uint32_t)(p >> 32);
	kernel_add(g, NULL, STEP, args);
	gf.freed = _i ? 0 : p;
	ck_assert(read_anew(g, &kept));
	gf.freed = p;
	ck_assert(!read_anew(g, &kept));
	ck_assert(!read_anew(g, &kept));
	gf.freed = 0;
	allocate_again(p);
	refused_again(g, &kept, "device memory outside of the region");
	ok(gf.drv.cuMemFree_v2(p));
	end(g, &kept);
}
END_TEST

static void set_add(CUgraph g, CUdeviceptr p)
{
	memset_add(g, NULL, (CUDA_MEMSET_NODE_PARAMS){ p, 64, 0x12, 1, 16, 1 });
}

static void copy_add(CUgraph g, CUdeviceptr p)
{
	memcpy_add(g, NULL,
		   (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				    .srcDevice = p,
				    .srcPitch = 64,
				    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				    .dstDevice = gf.mem,
				    .dstPitch = 64,
				    .WidthInBytes = 64,
				    .Height = 1,
				    .Depth = 1 });
}

static void window_add(CUgraph g, CUdeviceptr p)
{
	CUlaunchAttributeValue v;

	memset(&v, 0, sizeof(v));
	v.accessPolicyWindow = (CUaccessPolicyWindow){ (void *)(uintptr_t)p, 64, 0.5f,
						       CU_ACCESS_PROPERTY_STREAMING,
						       CU_ACCESS_PROPERTY_STREAMING };
	ok(gf.drv.cuGraphKernelNodeSetAttribute(kernel_add(g, NULL, NOTHING, NULL),
						CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
}

START_TEST(memory_of_a_range_was_freed)
{
	static void (*const add[])(CUgraph, CUdeviceptr) = { set_add, copy_add, window_add };
	struct fdry_graph_kept kept = { 0 };
	CUgraph g = graph_make();
	CUdeviceptr p;

	ok(fdry_region_alloc(gf.region, 4096, 0, &p));
	add[_i](g, p);
	read_anew(g, &kept);
	ck_assert(!read_anew(g, &kept));
	ok(fdry_region_dealloc(gf.region, p, 0));
	refused_again(g, &kept, " bytes at 0x");
	end(g, &kept);
}
END_TEST

/* Host segments are numbered by the names of tensors: another tensor moves them. */
START_TEST(host_segments_are_numbered_anew)
{
	struct fdry_graph_kept kept = { 0 };
	struct fdry_host_segment first = gf.hosts[0];
	CUgraph g = graph_make();

	step_node(g, NULL, 0, 3);
	memcpy_add(g, NULL,
		   (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_HOST,
				    .srcHost = (void *)(uintptr_t)first.addr,
				    .srcPitch = 64,
				    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				    .dstDevice = gf.mem,
				    .dstPitch = 64,
				    .WidthInBytes = 64,
				    .Height = 1,
				    .Depth = 1 });
	ck_assert(read_anew(g, &kept));
	ck_assert(!read_anew(g, &kept));
	gf.hosts[0] = gf.hosts[1];
	gf.hosts[1] = first;
	ck_assert(read_anew(g, &kept));
	ck_assert(!read_anew(g, &kept));
	end(g, &kept);
}
END_TEST

/* Each call of the driver fails once. Afterwards either nothing is kept, or the object. */
START_TEST(every_call_fails)
{
	struct fdry_graph_kept kept = { 0 };
	CUgraph g = graph_make();
	unsigned int n, count;
	char spec[32];
	int err;

	step_node(g, NULL, 0, 0x1234567890);
	for (n = 1;; n++) {
		read_anew(g, &kept);
		fdry_wordset_release(&memo.words);
		snprintf(spec, sizeof(spec), "*:%u:%d", n, CUDA_ERROR_UNKNOWN);
		test_sim_fail(spec);
		err = reread(g, &kept, &count);
		if (!test_sim_failed())
			break;
		test_sim_fail(NULL);
		ck_assert_int_eq(!err, kept.object.len != 0);
		if (!err)
			ck_assert(!read_anew(g, &kept));
	}
	test_sim_fail(NULL);
	ok(err);
	ck_assert_uint_eq(count, 0);
	ck_assert_uint_gt(n, 3);
	end(g, &kept);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_reread");
	TCase *tc = tcase_create("reread");

	tcase_add_checked_fixture(tc, begin, graph_fixture_close);
	tcase_add_test(tc, nothing_changed);
	tcase_add_test(tc, nodes_or_edges_came);
	tcase_add_test(tc, kernel_is_another);
	tcase_add_test(tc, prints_of_another_table);
	tcase_add_test(tc, fresh_nodes_are_known);
	tcase_add_loop_test(tc, number_became_a_pointer, 0, 2);
	tcase_add_loop_test(tc, word_of_two_graphs, 0, 2);
	tcase_add_test(tc, too_many_words_are_checked_by_graph);
	tcase_add_loop_test(tc, pointer_in_a_gap, 0, 2);
	tcase_add_loop_test(tc, memory_of_a_range_was_freed, 0, 3);
	tcase_add_test(tc, host_segments_are_numbered_anew);
	tcase_add_test(tc, every_call_fails);
	suite_add_tcase(s, tc);
	return test_main(s);
}
