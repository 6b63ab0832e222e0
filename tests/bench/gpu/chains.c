// SPDX-License-Identifier: Apache-2.0
/* chains.c - graphs of small kernels in a context of their own; see chains.h. */
#include "tests/bench/gpu/chains.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/clock.h"

/* PTX for a GPU of the kernels that tests/sim has for the software driver, and a kernel with local
 * memory. */
static const char ptx[] =
	".version 7.0\n.target sm_52\n.address_size 64\n"
	".visible .entry vecadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n"
	"{\n.reg .b32 %r<5>;\n.reg .b64 %d<8>;\n"
	"mov.u32 %r1, %tid.x;\nmul.wide.u32 %d1, %r1, 4;\n"
	"ld.param.u64 %d2, [a];\nld.param.u64 %d3, [b];\nld.param.u64 %d4, [c];\n"
	"add.s64 %d5, %d2, %d1;\nadd.s64 %d6, %d3, %d1;\nadd.s64 %d7, %d4, %d1;\n"
	"ld.global.u32 %r2, [%d5];\nld.global.u32 %r3, [%d6];\nadd.u32 %r4, %r2, %r3;\n"
	"st.global.u32 [%d7], %r4;\nret;\n}\n"
	".visible .entry deep(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n"
	"{\n.local .align 8 .b8 room[8192];\n.reg .b32 %r<4>;\n.reg .b64 %d<5>;\n"
	"mov.u32 %r1, %tid.x;\nmul.wide.u32 %d1, %r1, 8;\n"
	"mov.u64 %d2, room;\nadd.s64 %d2, %d2, %d1;\nst.local.u32 [%d2], %r1;\n"
	"ld.local.u32 %r2, [%d2];\nld.param.u64 %d3, [a];\nst.global.u32 [%d3], %r2;\n"
	"ret;\n}\n";

static void *file_read(const char *path)
{
	FILE *f = fopen(path, "rb");
	char *bytes = calloc(1, 1 << 20);

	if (!f || !bytes || !fread(bytes, 1, 1 << 20, f))
		exit(2);
	fclose(f);
	return bytes;
}

CUgraph chain_new(const struct bench *b, int nodes, int width)
{
	CUdeviceptr at = b->memory;
	int n = 32;
	void *params[] = { &at, &at, &at, &n };
	CUDA_KERNEL_NODE_PARAMS k = { .func = b->add, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
				      .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1,
				      .kernelParams = params };
	CUgraphNode *node = calloc((size_t)nodes, sizeof(*node));
	CUgraph graph;
	int i;

	if (!node)
		abort();
	cu(b, cuGraphCreate, &graph, 0);
	for (i = 0; i < nodes; i++)
		cu(b, cuGraphAddKernelNode_v2, &node[i], graph, i < width ? NULL : &node[i - width],
		   i < width ? 0 : 1, &k);
	free(node);
	return graph;
}

CUgraphExec exec_new(const struct bench *b, int nodes, int width)
{
	CUgraph graph = chain_new(b, nodes, width);
	CUgraphExec exec = NULL;

	cu(b, cuGraphInstantiateWithFlags, &exec, graph, b->flags);
	cu(b, cuGraphDestroy, graph);
	return exec;
}

void exec_upload(const struct bench *b, CUgraphExec exec)
{
	cu(b, cuGraphUpload, exec, b->uploads);
	cu(b, cuStreamSynchronize, b->uploads);
}

CUgraphExec exec_uploaded(const struct bench *b, int nodes, int width)
{
	CUgraphExec exec = exec_new(b, nodes, width);

	exec_upload(b, exec);
	return exec;
}

double replay_ms(const struct bench *b, CUgraphExec exec, int n)
{
	double start = 0;
	int i;

	for (i = -4; i < n; i++) {
		if (!i) {
			cu(b, cuStreamSynchronize, b->launches);
			start = fdry_now_ms();
		}
		cu(b, cuGraphLaunch, exec, b->launches);
	}
	cu(b, cuStreamSynchronize, b->launches);
	return (fdry_now_ms() - start) / n;
}

void kernel_launch(const struct bench *b, CUfunction f, CUstream stream)
{
	CUdeviceptr at = b->memory;
	int n = 32;
	void *params[] = { &at, &at, &at, &n };

	cu(b, cuLaunchKernel, f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

void bench_begin(struct bench *b, const char *code_file)
{
	CUmodule module;

	must(fdry_driver_open(NULL, &b->drv));
	if (b->drv->software && !code_file)
		exit(77);
	b->code = code_file ? file_read(code_file) : ptx;
	cu(b, cuDeviceGet, &b->device, 0);
	cu(b, cuDevicePrimaryCtxRetain, &b->ctx, b->device);
	cu(b, cuCtxSetCurrent, b->ctx);
	cu(b, cuModuleLoadDataEx, &module, b->code, 0, NULL, NULL);
	cu(b, cuModuleGetFunction, &b->add, module, "vecadd");
	cu(b, cuModuleGetFunction, &b->deep, module, b->drv->software ? "vecadd" : "deep");
	cu(b, cuMemAlloc_v2, &b->memory, 4096);
	cu(b, cuStreamCreate, &b->launches, CU_STREAM_NON_BLOCKING);
	cu(b, cuStreamCreate, &b->uploads, CU_STREAM_NON_BLOCKING);
}
