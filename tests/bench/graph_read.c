// SPDX-License-Identifier: Apache-2.0
/*
 * graph_read.c - the cost of reading a graph, per node, on any driver: first single calls of the
 * driver, then whole graphs, read one after the other by one reader.
 *
 * graph_read [NODES [CUBIN KERNEL]]; microseconds. The driver is the one that FOUNDRY_DRIVER
 * names, else the machine's own, else the software driver of the build folder. Without CUBIN
 * it is a golden one for sm_90, or the software driver's.
 */
#include <stdio.h>
#include <stdlib.h>

#include "graph/attr.h"
#include "graph/graph.h"
#include "tests/lib/clock.h"
#include "tests/lib/need.h"

#define MEMORY (16u << 20)
#define GRAPHS 8

static const struct fdry_driver *drv;
static CUdeviceptr memory;
static struct fdry_buf code;

/* --- set-up --- */

static void driver_open(void)
{
	char path[4096];
	const char *build = getenv("BUILD");

	if (!fdry_driver_open(NULL, &drv))
		return;
	snprintf(path, sizeof(path), "%s/foundry/sim/libcuda.so.1",
		 build && *build ? build : "build");
	must(fdry_driver_open(path, &drv));
}

static void code_read(const char *path)
{
	char block[4096];
	size_t n;
	FILE *f = fopen(path, "r");

	if (!f) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	while ((n = fread(block, 1, sizeof(block), f)) > 0)
		must(fdry_buf_put(&code, block, n));
	fclose(f);
}

static int code_find(void *arg, CUlibrary library, CUmodule module, struct fdry_code_image *ret)
{
	(void)arg;
	(void)library;
	(void)module;
	*ret = (struct fdry_code_image){ .data = code.data, .len = code.len };
	return 0;
}

static CUfunction function_load(const char *path, const char *name)
{
	char built[4096];
	const char *build = getenv("BUILD");
	CUfunction f = NULL;
	CUmodule m;

	snprintf(built, sizeof(built), "%s/sim/kernels.cubin", build && *build ? build : "build");
	code_read(path ? path : drv->software ? built : "tests/golden/cubin/plain.90.cubin");
	must(fdry_call(drv, cuModuleLoadDataEx, &m, code.data, 0, NULL, NULL));
	must(fdry_call(drv, cuModuleGetFunction, &f, m, name));
	return f;
}

/* As a seal answers it: its own memory without the driver. */
static int where(void *arg, CUdeviceptr addr, uint64_t bytes, enum fdry_where *ret,
		 const char **what)
{
	unsigned int type, *asked = arg;

	(void)bytes;
	*what = "memory";
	*ret = FDRY_WHERE_REGION;
	if (addr - memory < MEMORY)
		return 0;
	++*asked;
	*ret = fdry_call_raw(drv, cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
			     addr)
		       ? FDRY_WHERE_NOTHING
		       : FDRY_WHERE_OUTSIDE;
	return 0;
}

/* A node with pointers in its parameters of 8 bytes, and numbers in the others; a tenth of the
 * numbers look like addresses. */
static CUgraphNode node_add(CUgraph g, CUfunction f, const CUgraphNode *after, uint32_t i)
{
	static uint64_t values[64][8];
	void *args[64];
	CUDA_KERNEL_NODE_PARAMS p = { .func = f, .gridDimX = 1 + i % 100, .gridDimY = 1,
				      .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
				      .blockDimZ = 1, .kernelParams = args };
	size_t offset, size, k;
	CUgraphNode n = NULL;

	for (k = 0; k < 64 && !fdry_call_raw(drv, cuFuncGetParamInfo, f, k, &offset, &size); k++) {
		values[k][0] = size == 8 ? memory + 512 * ((i * 7 + k) % 1000)
			       : i % 10 ? i
					 : (1u << 20) + i;
		args[k] = values[k];
	}
	must(fdry_call(drv, cuGraphAddKernelNode_v2, &n, g, after, after != NULL, &p));
	return n;
}

static CUgraph graph_make(CUfunction f, uint32_t nodes, uint32_t seed)
{
	CUgraphNode n;
	CUgraph g = NULL;
	uint32_t i;

	must(fdry_call(drv, cuGraphCreate, &g, 0));
	n = node_add(g, f, NULL, seed);
	for (i = 1; i < nodes; i++)
		n = node_add(g, f, &n, seed + i);
	return g;
}

/* --- single calls --- */

struct probe {
	CUgraphNode node;
	uint32_t id; /* of an attribute */
	CUdeviceptr addr;
};

static CUresult type_get(const struct probe *p)
{
	CUgraphNodeType type;

	return fdry_call_raw(drv, cuGraphNodeGetType, p->node, &type);
}

static CUresult params_get(const struct probe *p)
{
	CUDA_KERNEL_NODE_PARAMS params;

	return fdry_call_raw(drv, cuGraphKernelNodeGetParams_v2, p->node, &params);
}

static CUresult attr_get(const struct probe *p)
{
	CUlaunchAttributeValue v;

	return fdry_call_raw(drv, cuGraphKernelNodeGetAttribute, p->node,
			     (CUlaunchAttributeID)p->id, &v);
}

static CUresult pointer_get(const struct probe *p)
{
	unsigned int type;

	return fdry_call_raw(drv, cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
			     p->addr);
}

static void call_measure(const char *name, CUresult (*call)(const struct probe *),
			 const struct probe *p)
{
	enum { ROUNDS = 2000 };
	double start = now_us();
	CUresult res = CUDA_SUCCESS;
	int i;

	for (i = 0; i < ROUNDS; i++)
		res = call(p);
	printf("%-34s %8.3f  (answers %d)\n", name, (now_us() - start) / ROUNDS, (int)res);
}

static void calls_measure(CUgraphNode node)
{
	struct fdry_attr_values v;
	uint32_t id;

	must(fdry_attrs_read(drv, node, FDRY_ATTRS_ALL, &v));
	call_measure("type of a node", type_get, &(struct probe){ .node = node });
	call_measure("parameters of a kernel node", params_get, &(struct probe){ .node = node });
	for (id = 1; id < FDRY_ATTR_IDS; id++) {
		char name[64];

		snprintf(name, sizeof(name), "attribute %u, %s", id,
			 v.readable & 1u << id ? "known" : "not known");
		if (v.readable & 1u << id || id == 3 || id == 31)
			call_measure(name, attr_get, &(struct probe){ .node = node, .id = id });
	}
	call_measure("pointer to device memory", pointer_get, &(struct probe){ .addr = memory });
	call_measure("pointer to nothing", pointer_get, &(struct probe){ .addr = 0x123456789a });
}

/* --- whole graphs --- */

static void graphs_measure(CUgraph *graphs, uint32_t nodes, struct fdry_kernel_set *set)
{
	unsigned int asked = 0, before = 0;
	struct fdry_graph_reader rd = {
		.drv = drv, .kernels = set, .where = where, .where_arg = &asked
	};
	int i;

	for (i = 0; i < GRAPHS; i++) {
		struct fdry_buf object = { 0 };
		double start = now_us();

		must(fdry_graph_read(&rd, graphs[i], &object));
		printf("graph %d, each node                 %8.3f  (%u words looked up, %.1f bytes "
		       "a node)\n",
		       i, (now_us() - start) / nodes, asked - before, (double)object.len / nodes);
		before = asked;
		fdry_buf_release(&object);
	}
	fdry_graph_memo_release(&rd.memo);
}

int main(int argc, char **argv)
{
	uint32_t nodes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1750, i;
	struct fdry_kernel_set *set;
	CUgraph graphs[GRAPHS];
	CUgraphNode node = NULL;
	CUfunction f;
	CUcontext ctx;
	CUdevice dev = 0;
	size_t one = 1;

	if (argc == 3 || !nodes || nodes > FDRY_GRAPH_NODES_MAX) {
		fprintf(stderr, "usage: %s [NODES [CUBIN KERNEL]]\n", argv[0]);
		return EXIT_FAILURE;
	}
	driver_open();
	must(fdry_call(drv, cuDeviceGet, &dev, 0));
	must(fdry_call(drv, cuDevicePrimaryCtxRetain, &ctx, dev));
	must(fdry_call(drv, cuCtxSetCurrent, ctx));
	must(fdry_call(drv, cuMemAlloc_v2, &memory, MEMORY));
	f = function_load(argc > 3 ? argv[2] : NULL, argc > 3 ? argv[3] : "scale");
	must(fdry_kernel_set_new(drv, dev, code_find, NULL, &set));
	for (i = 0; i < GRAPHS; i++)
		graphs[i] = graph_make(f, nodes, i * nodes / 4);
	printf("reading graphs of %u nodes, %s, microseconds\n", nodes, drv->path);
	must(fdry_call(drv, cuGraphGetNodes, graphs[0], &node, &one));
	calls_measure(node);
	graphs_measure(graphs, nodes, set);
	fdry_kernel_set_free(set);
	for (i = 0; i < GRAPHS; i++)
		must(fdry_call(drv, cuGraphDestroy, graphs[i]));
	fdry_buf_release(&code);
	return EXIT_SUCCESS;
}
