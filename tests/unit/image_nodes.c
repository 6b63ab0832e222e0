// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of images whose graphs have nodes of all kinds: a process seals a graph, this one
 * loads and launches it.
 */
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

static struct fdry_image *load(const char *ref)
{
	struct fdry_image *img = NULL;

	ok(fdry_image_load(load_store(), ref, NULL, &img));
	return img;
}

static const char *const refs[] = { "img", "again" };

/* Load, launch @times, and read the numbers. */
static void launched(const char *ref, unsigned int times, uint64_t x[64])
{
	struct fdry_image *img = load(ref);

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
	char *text = NULL;

	test_child(seal_children, NULL);
	ok(fdry_image_describe(load_store(), "img", &text));
	ck_assert_ptr_nonnull(strstr(text, "graph 1 holds 6 kernel, 3 child, 5 edges"));
	free(text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_nodes");
	TCase *tc = tcase_create("nodes");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_loop_test(tc, children, 0, 2);
	tcase_add_test(tc, children_are_counted);
	suite_add_tcase(s, tc);
	return test_main(s);
}
