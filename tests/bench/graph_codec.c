// SPDX-License-Identifier: Apache-2.0
/*
 * graph_codec.c - the cost of the library's own code for a graph of a decoder's size: encoding,
 * opening a view, walking it, building through a driver that does nothing, text.
 *
 * graph_codec [NODES]; medians in nanoseconds a node. A real driver takes about 1,500 to
 * build a node and 4,600 more until it is launchable.
 */
#include <stdio.h>
#include <stdlib.h>

#include "graph/graph.h"
#include "tests/lib/clock.h"
#include "tests/replace/graph_kernels.h"

#define KERNELS 46
#define ROUNDS 101

static struct fdry_param params[KERNELS][80];
static struct fdry_kernel kernels[KERNELS];

/* --- a driver that does nothing --- */

static uintptr_t handles;
static volatile uintptr_t touched;

static CUresult CUDAAPI null_create(CUgraph *ret, unsigned int flags)
{
	(void)flags;
	*ret = (CUgraph)++handles;
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI null_destroy(CUgraph g)
{
	(void)g;
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI null_kernel(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
				    const CUDA_KERNEL_NODE_PARAMS *p)
{
	(void)g;
	(void)deps;
	(void)n;
	touched = (uintptr_t)p->kernelParams[0] + p->gridDimX;
	*ret = (CUgraphNode)++handles;
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI null_memset(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps, size_t n,
				    const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	(void)g;
	(void)deps;
	(void)n;
	(void)ctx;
	touched = (uintptr_t)p->dst;
	*ret = (CUgraphNode)++handles;
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI null_attr(CUgraphNode node, CUkernelNodeAttrID id,
				  const CUkernelNodeAttrValue *v)
{
	(void)node;
	touched = (uintptr_t)id + (uintptr_t)v->priority;
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI null_edges(CUgraph g, const CUgraphNode *from, const CUgraphNode *to,
				   const CUgraphEdgeData *data, size_t n)
{
	(void)g;
	(void)data;
	touched = (uintptr_t)from[n - 1] + (uintptr_t)to[n - 1];
	return CUDA_SUCCESS;
}

static const struct fdry_driver null_driver = {
	.cuGraphCreate = null_create,
	.cuGraphDestroy = null_destroy,
	.cuGraphAddKernelNode_v2 = null_kernel,
	.cuGraphAddMemsetNode = null_memset,
	.cuGraphKernelNodeSetAttribute = null_attr,
	.cuGraphAddDependencies_v2 = null_edges,
};

/* --- a graph like a decoder's --- */

static uint32_t rng_state = 1;

static uint32_t rng(uint32_t below)
{
	rng_state = rng_state * 1664525 + 1013904223;
	return (rng_state >> 8) % below;
}

static void kernels_make(void)
{
	uint32_t i, p;

	for (i = 0; i < KERNELS; i++) {
		kernels[i].name = "kernel";
		kernels[i].nparams = 1 + rng(12) + (i % 8 ? 0 : rng(60));
		kernels[i].params = params[i];
		for (p = 0; p < kernels[i].nparams; p++)
			params[i][p] = (struct fdry_param){ (uint16_t)(8 * p), 8 };
		kernels[i].param_bytes = 8 * p;
	}
	test_kernel_table = kernels;
	test_kernel_count = KERNELS;
}

static struct fdry_node node_make(uint32_t i, uint8_t args[640], struct fdry_graph_attr *attr)
{
	struct fdry_node n;
	uint32_t k = i % 60 < KERNELS ? i % 60 : rng(KERNELS), b;

	memset(&n, 0, sizeof(n));
	n.kind = i % 875 ? FDRY_NODE_KERNEL : FDRY_NODE_MEMSET;
	if (n.kind == FDRY_NODE_MEMSET) {
		n.memset = (struct fdry_graph_memset){ 0x500000000000, 0, 4096, 1, 0, 1 };
		return n;
	}
	for (b = 0; b < kernels[k].param_bytes; b += 8)
		fdry_set64(args + b, 0x500000000000 + 512ull * rng(1 << 20));
	n.kernel.kernel = k;
	n.kernel.launch = (struct fdry_graph_launch){ { 1 + rng(400), 1, 1 }, { 128, 1, 1 }, 0 };
	n.kernel.args = (struct fdry_span){ args, kernels[k].param_bytes };
	*attr = (struct fdry_graph_attr){ .id = 8, .size = 4, .value = { 0xfb, 0xff, 0xff, 0xff } };
	if (!(i % 60))
		n.kernel.attrs = (struct fdry_span){ (const uint8_t *)attr, sizeof(*attr) };
	return n;
}

static int graph_encode(uint32_t nodes, struct fdry_buf *ret)
{
	struct fdry_edge *edges = calloc(nodes, sizeof(*edges));
	struct fdry_graph_enc enc = { 0 };
	struct fdry_graph_attr attr;
	struct fdry_node n;
	uint8_t args[640];
	uint32_t i;
	int err = edges ? 0 : fdry_nomem();

	rng_state = 7;
	for (i = 0; i < nodes && !err; i++) {
		n = node_make(i, args, &attr);
		err = fdry_graph_enc_node(&enc, &n);
	}
	for (i = 0; i + 1 < nodes && !err; i++)
		edges[i] = (struct fdry_edge){ i,
					       i + 1,
					       { .from_port = i % 62 == 5, .type = i % 62 == 5 } };
	err = err ?: fdry_graph_enc_edges(&enc, edges, nodes - 1) ?:
	      fdry_graph_enc_finish(&enc, ret);
	fdry_graph_enc_release(&enc);
	free(edges);
	return err;
}

/* --- the steps --- */

static uint32_t node_count = 1750;
static struct fdry_buf object;
static struct fdry_graph_view view;

static int do_encode(void)
{
	fdry_buf_release(&object);
	return graph_encode(node_count, &object);
}

static int do_open(void)
{
	return fdry_graph_view_init((struct fdry_span){ object.data, object.len }, &view);
}

static int do_walk(void)
{
	struct fdry_graph_cursor c;
	struct fdry_node n;
	int err = fdry_graph_cursor_init(&view, &c);

	if (err)
		return err;
	while (fdry_graph_next(&c, &n))
		touched = n.kind;
	fdry_graph_cursor_release(&c);
	return 0;
}

static int do_build(void)
{
	struct fdry_graph_builder in = { .drv = &null_driver, .kernels = kernels,
					 .nkernels = KERNELS };
	struct fdry_graph_built b;
	int err = fdry_graph_build(&in, &view, &b);

	if (!err)
		fdry_graph_built_release(&null_driver, &b);
	return err;
}

static int do_text(void)
{
	struct fdry_buf text = { 0 }, again = { 0 };
	int err =
		fdry_graph_to_text(&view, NULL, 0, &text)
			?: fdry_graph_from_text((struct fdry_span){ text.data, text.len }, &again);

	fdry_buf_release(&text);
	fdry_buf_release(&again);
	return err;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void measure(const char *name, int (*step)(void), int rounds)
{
	double t[ROUNDS], start;
	int i, err;

	for (i = 0; i < rounds; i++) {
		start = now_ns();
		err = step();
		t[i] = (now_ns() - start) / node_count;
		if (err) {
			fprintf(stderr, "%s: %s\n", name, fdry_last_error());
			exit(EXIT_FAILURE);
		}
	}
	qsort(t, (size_t)rounds, sizeof(t[0]), compare);
	printf("%-28s %9.1f  (%.1f to %.1f)\n", name, t[rounds / 2], t[rounds / 10],
	       t[rounds - 1 - rounds / 10]);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		node_count = (uint32_t)strtoul(argv[1], NULL, 10);
	if (!node_count || node_count > FDRY_GRAPH_NODES_MAX) {
		fprintf(stderr, "usage: %s [NODES]\n", argv[0]);
		return EXIT_FAILURE;
	}
	kernels_make();
	printf("graph objects, %u nodes, ns a node (median, 10 to 90 %%)\n", node_count);
	measure("encode", do_encode, ROUNDS);
	measure("open a view (all checks)", do_open, ROUNDS);
	measure("walk", do_walk, ROUNDS);
	measure("build, driver does nothing", do_build, ROUNDS);
	measure("to text and back", do_text, 11);
	printf("%zu bytes, %.1f a node, of which arguments %.1f\n", object.len,
	       (double)object.len / node_count, (double)view.header.arg_bytes / node_count);
	fdry_buf_release(&object);
	return EXIT_SUCCESS;
}
